"""Autoscalers are told what has to be run, and how many workers that needs, also when there is none."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import preloaded
import pytest
import redis
from running import delayed_and_due, work
from servers import RedisServer, wait_until

from limpyd_jobs import Job, Queue, Schedule
from limpyd_jobs.dates import datetime_to_score, utcnow
from limpyd_jobs.query import backlog
from limpyd_jobs.records import metrics, records
from limpyd_jobs.records.metrics import Metrics

pytestmark = pytest.mark.usefixtures("redis_client")

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))


class Task(Job):
    namespace = "backlog"
    queue_name = "mails"


def let_jobs_have_run(client: redis.Redis, number: int, seconds: float, queue: str = "mails") -> None:
    """Let the metrics say so."""
    observed = Metrics()
    for _ in range(number):
        observed.observe_end(seconds, True)
    metrics.write(client, {(queue, Task.get_model_repr()): observed}, {})


class TestWantedWorkers:
    def test_are_none_for_empty_queues(self) -> None:
        Queue.get_queue("mails")
        assert backlog(["mails", "no such queue"]).wanted_workers == backlog().wanted_workers == 0
        assert backlog("no such queue").queues["no such queue"].waiting == 0

    def test_are_one_as_long_as_it_is_not_known_how_long_a_job_takes(self) -> None:
        Task.add_jobs(map(str, range(100)))
        found = backlog()
        assert (found.wanted_workers, found.queues["mails"].run_seconds) == (1, None)

    def test_are_as_many_as_begin_all_in_time(self, redis_client: redis.Redis) -> None:
        let_jobs_have_run(redis_client, 3, seconds=10)
        Task.add_jobs(map(str, range(30)))
        assert 5 <= backlog().queues["mails"].to_run * 10 / 60 <= backlog().wanted_workers <= 6
        assert 10 <= backlog(within=timedelta(seconds=30)).wanted_workers <= 11
        assert backlog("others").wanted_workers == 0

    def test_are_no_more_than_there_are_jobs(self, redis_client: redis.Redis) -> None:
        let_jobs_have_run(redis_client, 1, seconds=36_000)
        Task.add_jobs(["a", "b", "c"])
        assert backlog().wanted_workers == 3

    def test_are_no_fewer_than_jobs_run(self) -> None:
        Task.add_jobs(["a", "b", "c"])
        seen: list[int] = []
        Task.get(identifier="b").claim(owner="me")
        work("mails", callback=lambda *_: seen.append(backlog().wanted_workers))
        assert seen == [3]  # two run, and one more is to begin the third job

    def test_are_as_many_as_were_busy(self, redis_client: redis.Redis) -> None:
        let_jobs_have_run(redis_client, 10_000, seconds=0.3)
        Task.add_job("a")
        assert backlog().wanted_workers >= 10

    def test_are_none_for_paused_queues(self) -> None:
        Task.add_job("a")
        Queue.pause("mails")
        found = backlog()
        assert (found.wanted_workers, found.queues["mails"].waiting, found.as_dict()["waiting"]) == (0, 1, 0)

    def test_are_there_for_what_only_a_worker_can_put_in_a_queue(self) -> None:
        delayed_and_due(Task, "due")
        Task.add_job("later", delayed_for=60)
        mails = backlog().queues["mails"]
        assert (mails.waiting, mails.due, mails.delayed) == (0, 1, 1)
        assert backlog().wanted_workers == 1

    def test_so_they_are_for_schedules(self) -> None:
        schedule = Schedule.add("nightly", Task, interval=3600, queue_name="reports")
        assert backlog().wanted_workers == 0
        due = utcnow() - timedelta(seconds=5)
        records.set_schedule(Schedule, schedule.pk.get(), datetime_to_score(due), {"next_run": str(due)})
        assert backlog("reports").wanted_workers == 1
        assert backlog("mails").wanted_workers == 0


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_time_that_is_none_is_refused(seconds: int) -> None:
    with pytest.raises(ValueError, match="within must be more than 0"):
        backlog(within=timedelta(seconds=seconds))


def run(server: RedisServer, *arguments: str) -> tuple[int, str, str]:
    done = preloaded.run([COMMAND, "backlog", *arguments], env={**os.environ, "LIMPYD_JOBS_DATABASE": server.url})
    return done.returncode, done.stdout, done.stderr


def test_the_command_tells_it(redis_server: RedisServer) -> None:
    Task.add_job("a")
    status, out, _ = run(redis_server, "--queues=mails,news", "--json")
    told = json.loads(out)
    assert (status, told["wanted_workers"], told["waiting"]) == (0, 1, 1)
    assert told["queues"]["news"]["latency"] == 0
    assert told["queues"]["mails"]["latency"] > 0
    lines = run(redis_server)[1].splitlines()
    assert lines[1].split()[:2] == ["mails", "1"]
    assert lines[-1] == "workers that this needs, to begin all within 60 s: about 1"


@contextmanager
def serving(server: RedisServer, path: Path, *words: str) -> Iterator[HTTPConnection]:
    """Let the command answer over HTTP, then end it as Kubernetes does."""
    with open(path, "wb") as file:
        command = [COMMAND, *words, "backlog", "--port=0", "--queues=mails"]
        process = preloaded.Process(
            command, output=file.fileno(), env={**os.environ, "LIMPYD_JOBS_DATABASE": server.url}
        )
    wait_until(lambda: path.read_text().endswith("\n"))
    try:
        yield HTTPConnection(urlsplit(path.read_text()).netloc, timeout=60)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.proof
def test_autoscalers_are_told_nothing_while_a_shard_is_down(
    redis_server: RedisServer, redis_binary: str, tmp_path: Path
) -> None:
    """Else they would end the workers of its jobs."""

    def status() -> int:
        connection.request("GET", "/backlog")
        response = connection.getresponse()
        response.read()
        return response.status

    with RedisServer(redis_binary) as other:
        shards = f"--shards={redis_server.url} {other.url}"
        with serving(redis_server, tmp_path / "output", "shards", shards) as connection:
            assert status() == 200
            other.kill()
            wait_until(lambda: status() == 503)
            other.start()
            wait_until(lambda: status() == 200)


def test_it_is_told_over_http(redis_server: RedisServer, tmp_path: Path) -> None:
    def ask(path: str) -> tuple[int, str]:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()

    Task.add_job("a")
    with serving(redis_server, tmp_path / "output") as connection:
        status, text = ask("/backlog")
        assert (status, json.loads(text)["wanted_workers"], [*json.loads(text)["queues"]]) == (200, 1, ["mails"])
        assert [*json.loads(ask("/backlog?queues=news,photos&within=30s")[1])["queues"]] == ["news", "photos"]
        assert ask("/backlog?within=soon") == (400, "'soon' is not a time span: write it as 90, 90s, 30m, 1h or 2d\n")
        assert ask("/health") == (200, "ok\n")
        assert ask("/metrics")[0] == 404
