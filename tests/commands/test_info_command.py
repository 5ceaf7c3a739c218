"""``limpyd-jobs info`` and ``limpyd-jobs top``, as a user runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import preloaded
import pytest
from servers import RedisServer

from limpyd_jobs import Job, Queue, Worker, WorkerPresence
from limpyd_jobs.query import overview
from limpyd_jobs.records import presences

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

pytestmark = pytest.mark.usefixtures("redis_client")


class Ticket(Job):
    namespace = "info"
    queue_name = "tickets"

    def run(self, queue: Any) -> None:
        if self.identifier.hget() == "wrong":
            raise ValueError("on purpose")


@pytest.fixture(autouse=True)
def _jobs() -> None:
    for name in ("right", "wrong", "next", "last"):
        Ticket.add_job(name)
    Worker("tickets", max_loops=2, logger_level=60).run()


def environment(server: RedisServer) -> dict[str, str]:
    return {**os.environ, "LIMPYD_JOBS_DATABASE": server.url, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}


def run(server: RedisServer, *arguments: str) -> tuple[int, str, str]:
    done = preloaded.run([COMMAND, *arguments], env=environment(server))
    return done.returncode, done.stdout, done.stderr


def test_a_database_is_shown_at_a_glance(redis_server: RedisServer) -> None:
    status, out, err = run(redis_server, "info")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].endswith(" MB")
    assert lines[1].split() == ["jobs", "waiting", "delayed", "running", "success", "error", "canceled", "latency"]
    assert lines[2].split()[:7] == ["4", "2", "0", "0", "1", "1", "0"]
    assert lines[5].split()[:3] == ["tickets", "0", "2"]


def test_a_full_redis_and_a_class_that_is_not_known_are_told(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.rpush("jobs:queue:1:errors", "gone.Away:7")
        client.config_set("maxmemory", 1_000_000_000)
        assert re.search(r", \d+\.\d of 1,000 MB$", run(redis_server, "info")[1].splitlines()[0])
        client.config_set("maxmemory", 500_000)
        try:
            status, out, err = run(redis_server, "info")
        finally:
            client.config_set("maxmemory", 0)
    assert (status, err) == (0, "")
    assert re.search(r", \d+\.\d of 0\.5 MB: FULL$", out.splitlines()[0])
    assert out.count("gone.Away") == 1
    assert "In tickets are jobs of gone.Away, a class that is not known here" in " ".join(out.split())


def test_a_number_has_one_name_and_lists_are_called_lists(redis_server: RedisServer) -> None:
    """A job that failed and was requeued is not in error any more, but still in the list of its queue."""
    [job] = Ticket.collection(status="e").instances()
    job.requeue()
    out = run(redis_server, "info")[1]
    numbers = dict(zip(*(re.split("  +", line) for line in out.splitlines()[1:3]), strict=False))
    queue = dict(zip(*(re.split("  +", line) for line in out.splitlines()[4:6]), strict=False))
    assert (numbers["error"], queue["errors list"], queue.keys() & {"success", "error", "errors"}) == ("0", "1", set())


def test_what_is_kept_for_ever_is_told_until_a_worker_that_is_there_limits_it(redis_server: RedisServer) -> None:
    told = "Finished jobs are kept for ever in tickets, 1 in success, 1 in errors so far"
    assert told in run(redis_server, "info")[1]
    details = {"queues": ["tickets"], "queue_model": Queue._name, "options": {"keep_success": 9, "keep_errors": 9}}
    fields = {"kind": "worker", "name": "a:1:b", "host": "a", "pid": "1", "details": json.dumps(details)}
    presences.keep(WorkerPresence, "b", fields, 600)
    assert "are kept for ever" not in run(redis_server, "info")[1]


def test_programs_get_json(redis_server: RedisServer) -> None:
    status, out, err = run(redis_server, "info", "--json")
    assert (status, err) == (0, "")
    shown = json.loads(out)
    assert shown.keys() >= {"queues", "workers", "totals"}
    assert (shown["totals"]["jobs"], shown["totals"]["waiting"], shown["totals"]["error"]) == (4, 2, 1)
    assert [(queue["name"], queue["waiting"]) for queue in shown["queues"]] == [("tickets", 2)]


def test_workers_that_are_there_are_shown(redis_server: RedisServer, busy: Callable[[], str]) -> None:
    name = busy()
    (told,) = json.loads(run(redis_server, "info", "--json")[1])["workers"]
    assert (told["queues"], told["status"], told["pid"]) == (["tickets"], "busy", os.getpid())
    assert [job["identifier"] for job in told["running"]] == ["next"]
    assert name == told["name"]
    assert name in run(redis_server, "info")[1]


def test_one_look_is_json_again_and_again_is_not(redis_server: RedisServer) -> None:
    status, out, err = run(redis_server, "info", "--watch", "--json")
    assert (status, out) == (2, "")
    assert "--watch does not go with --json" in err


def test_an_empty_database_has_only_headings(redis_server: RedisServer, redis_client: Any) -> None:
    redis_client.flushdb()
    status, out, err = run(redis_server, "info")
    assert (status, err) == (0, "")
    assert out.splitlines()[2].split() == ["0"] * 7


@pytest.mark.proof
def test_it_is_shown_again_and_again(redis_server: RedisServer) -> None:
    command = [COMMAND, "info", "--watch", "--every=0.05"]
    with subprocess.Popen(command, env=environment(redis_server), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        headings = 0
        for line in process.stdout:
            headings += line.startswith("jobs ")
            if headings == 3:
                break
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(20) == 0


@pytest.mark.proof
def test_watching_goes_on_while_redis_is_away(redis_server: RedisServer) -> None:
    environ = {**environment(redis_server), "LIMPYD_JOBS_DATABASE": "redis://127.0.0.1:1/0"}
    command = [COMMAND, "info", "--watch", "--every=0.05"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [line for line, _ in zip(process.stdout, range(4), strict=False)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(20) == 0
    assert sum("127.0.0.1:1" in line for line in told) == 2


def test_what_runs_is_told_in_python() -> None:
    seen = overview(most_running=5)
    assert (seen.totals.jobs, seen.totals.success, list(seen.running)) == (4, 1, [])
    assert seen.totals.latency is not None
    assert seen.totals.latency == pytest.approx(seen.queues[0].latency)
