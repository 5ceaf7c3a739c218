"""``limpyd-jobs integrations``, and ``limpyd-jobs check`` where integrations have records, as a user runs them."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from servers import RedisServer, wait_until

pytest.importorskip("apscheduler")

from limpyd_jobs import Queue
from limpyd_jobs.contrib.apscheduler import ScheduledJob
from limpyd_jobs.query import explain_job, pause_queue, paused_queues

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

pytestmark = pytest.mark.usefixtures("redis_client")


def run(server: RedisServer, *arguments: str) -> tuple[int, str]:
    done = preloaded.run([COMMAND, *arguments], env={**os.environ, "LIMPYD_JOBS_DATABASE": server.url})
    return done.returncode, done.stdout + done.stderr


def add(job_id: str, model: Any = ScheduledJob, **fields: Any) -> None:
    model.make(job_id, {"name": job_id, "func": "shop:tell", "executor": "default", **fields})


def test_jobs_of_apscheduler_are_listed(redis_server: RedisServer) -> None:
    add("a", next_run_time=f"{datetime(2030, 1, 2, tzinfo=timezone.utc).timestamp():.6f}", leased_by="ann")
    add("b")
    add("c", parked="1", parked_run_time="12.5", reason="gone\nfor good")
    status, told = run(redis_server, "integrations", "apscheduler")
    assert status == 0
    assert [line.split() for line in told.splitlines()[1:]] == [
        ["b", "apscheduler", "paused", "shop:tell", "default"],
        ["1970-01-01", "00:00:12.500000", "c", "apscheduler", "parked", "shop:tell", "default", "gone\\nfor", "good"],
        ["2030-01-02", "00:00:00", "a", "apscheduler", "active", "shop:tell", "default", "ann"],
    ]
    assert json.loads(run(redis_server, "integrations", "apscheduler", "--json")[1])[-1] == {
        "next_run": "2030-01-02 00:00:00",
        "id": "a",
        "namespace": "apscheduler",
        "state": "active",
        "function": "shop:tell",
        "executor": "default",
        "leased_by": "ann",
        "reason": "",
    }
    add("x", ScheduledJob.bound_to(ScheduledJob.database, "shop"))
    assert "x" in run(redis_server, "integrations", "apscheduler", "--namespace=shop")[1]


def test_jobs_of_those_who_came_from_redis_job_store_are_listed(redis_server: RedisServer) -> None:
    add("here")
    add("there", ScheduledJob.bound_to(ScheduledJob.database, "apscheduler.jobs"))
    told = run(redis_server, "integrations", "apscheduler")[1]
    assert [line.split()[:2] for line in told.splitlines()[1:]] == [
        ["here", "apscheduler"],
        ["there", "apscheduler.jobs"],
    ]


def test_a_namespace_without_jobs_is_told(redis_server: RedisServer) -> None:
    add("a")
    for command in (("integrations", "apscheduler"), ("check", "--pause=0")):
        status, told = run(redis_server, *command, "--namespace=shop")
        assert (status, "there is no job of APScheduler in the namespace shop\n" in told) == (0, True)
    assert json.loads(run(redis_server, "integrations", "apscheduler", "--json")[1])[0]["id"] == "a"


@pytest.mark.parametrize("words", [("integrations", "apscheduler"), ("integrations", "taskflow"), ("check",)])
def test_a_namespace_must_not_be_empty(redis_server: RedisServer, words: tuple[str, ...]) -> None:
    status, told = run(redis_server, *words, "--namespace=")
    assert (status, "option --namespace: a namespace must not be empty" in told) == (2, True)


def test_boards_are_not_found_by_a_namespace(redis_server: RedisServer) -> None:
    status, told = run(redis_server, "integrations", "taskflow", "--namespace=flows")
    assert (status, "--namespace is for apscheduler only" in told) == (2, True)


def test_job_stores_of_other_namespaces_are_checked_if_they_are_named(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    for name in ("shop", "bank"):
        add("a", ScheduledJob.bound_to(ScheduledJob.database, name), next_run_time="12.5")
        redis_client.zrem(f"{name}:scheduledjob:next_run_time:number-range", "a")
    assert run(redis_server, "check", "--pause=0")[0] == 0
    assert "1 found" in run(redis_server, "check", "--pause=0", "--namespace=shop")[1]
    both = ("--namespace=shop", "--namespace=bank")
    report = json.loads(run(redis_server, "check", "--pause=0", *both, "--json")[1])
    assert report["records"]["limpyd_jobs.contrib.apscheduler.records.ScheduledJob"] == 2
    status, told = run(redis_server, "check", "--pause=0", *both, "--repair")
    assert (status, "2 found, 2 repaired" in told) == (0, True)
    assert redis_client.zcard("shop:scheduledjob:next_run_time:number-range") == 1


@pytest.mark.proof
def test_postings_of_taskflow_are_listed(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    pytest.importorskip("taskflow")
    from taskflow.types.entity import Entity

    from limpyd_jobs.contrib.taskflow import LimpydJobBoard

    board = LimpydJobBoard("flows", {"unix_socket_path": redis_server.socket})
    board.connect()
    job = board.post("resize", priority="high")
    board.post("crop")
    board.claim(job, "ann")
    board.register_entity(Entity("conductor", "ann", {}))
    status, told = run(redis_server, "integrations", "taskflow")
    assert status == 0
    assert f"{job.uuid}  resize  running  1         ann" in told
    assert "crop    waiting  0" in told
    rows = [json.loads(line) for line in run(redis_server, "integrations", "taskflow", "--jsonl")[1].splitlines()]
    assert [(row["board"], row["name"], row["status"], row["claimed_by"]) for row in rows] == [
        ("flows", "resize", "running", "ann"),
        ("flows", "crop", "waiting", ""),
    ]
    assert run(redis_server, "check", "--pause=0")[0] == 0

    def is_silent() -> bool:  # unless it gave a sign of life meanwhile
        redis_client.zadd("taskflow:presence:leases", {"1": redis_client.time()[0] + 5})  # type: ignore[index, operator]
        row = json.loads(run(redis_server, "integrations", "taskflow", "--json")[1])[0]
        return re.match("ann, silent for 2.*; its claim ends in ", row["claimed_by"]) is not None

    wait_until(is_silent)
    board.close()


def test_a_posting_whose_claim_lapsed_is_claimed_by_no_process(redis_server: RedisServer) -> None:
    pytest.importorskip("taskflow")
    from limpyd_jobs.contrib.taskflow import LimpydJobBoard

    board = LimpydJobBoard("flows", {"unix_socket_path": redis_server.socket})
    board.connect()
    job = board.post("resize")
    board.claim(job, "ann", expiry=0.01)
    wait_until(lambda: job.state == "UNCLAIMED")
    (row,) = json.loads(run(redis_server, "integrations", "taskflow", "--json")[1])
    assert (row["status"], row["claimed_by"]) == ("lapsed", "")
    told = [each.text for each in explain_job(job.posting.ident).reasons]
    assert len(told) == 2
    assert "Any conductor of the board flows can claim it." in told[1]
    board.close()


def test_a_board_is_not_paused_and_no_worker_is_asked_for_to_serve_it(redis_server: RedisServer) -> None:
    pytest.importorskip("taskflow")
    from limpyd_jobs.contrib.taskflow import LimpydJobBoard

    Queue.get_queue("flows")
    board = LimpydJobBoard("flows", {"unix_socket_path": redis_server.socket})
    board.connect()
    job = board.post("resize")
    status, told = run(redis_server, "queues", "pause", "flows")
    assert (status, "flows (taskflow:board): not paused: it is a board of" in told) == (1, True)
    assert "flows (jobs:queue): paused" in told
    assert paused_queues() == {("jobs:queue", "flows")}
    for pause in (partial(pause_queue, "taskflow:board"), board.model.queue_model.pause):
        with pytest.raises(ValueError, match="conductors take no notice"):
            pause("flows")
    assert [each.text for each in explain_job(job.posting.ident).reasons] == ["It is the next one of the queue flows."]
    job.posting.status.hset("d")
    (reason,) = explain_job(job.posting.ident).reasons
    assert reason.text == "It is delayed, but stands in no queue. At once: limpyd-jobs check --repair"
    board.close()


def test_postings_that_are_broken_or_gone_are_told_apart(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    pytest.importorskip("taskflow")
    from limpyd_jobs.contrib.taskflow import LimpydJobBoard

    board = LimpydJobBoard("flows", {"unix_socket_path": redis_server.socket})
    board.connect()
    jobs = {name: board.post(name) for name in ("trashed", "broken", "gone")}
    board.claim(jobs["trashed"], "ann")
    board.trash(jobs["trashed"], "ann")
    redis_client.hset(f"taskflow:posting:{jobs['broken'].posting.pk.get()}:hash", "details", "{")
    redis_client.delete(f"taskflow:posting:{jobs['gone'].posting.pk.get()}:hash")
    assert list(board.iterjobs()) == []
    rows = [json.loads(line) for line in run(redis_server, "integrations", "taskflow", "--jsonl")[1].splitlines()]
    assert [(row["board"], row["name"], row["status"]) for row in rows] == [
        ("flows", "trashed", "error"),
        ("flows", "broken", "quarantined"),
    ]
    board.close()


def test_a_broken_posting_stays_in_quarantine_whatever_is_repaired(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    pytest.importorskip("taskflow")
    from limpyd_jobs.contrib.taskflow import LimpydJobBoard

    board = LimpydJobBoard("flows", {"unix_socket_path": redis_server.socket})
    board.connect()
    posting = board.post("broken").posting
    redis_client.hset(f"taskflow:posting:{posting.pk.get()}:hash", "details", "{")
    for _ in range(2):
        assert list(board.iterjobs()) == []
        status, told = run(redis_server, "check", "--repair", "--pause=0")
        assert (status, "Nothing is wrong" in told) == (0, True)
    (queue,) = board.model.queue_model.get_all("flows")
    assert (queue.quarantine.lmembers(), queue.waiting.llen()) == ([posting.ident], 0)
    board.close()


def test_what_is_wrong_with_them_is_found_by_the_check(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    add("a", next_run_time="12.5")
    assert run(redis_server, "check", "--pause=0")[0] == 0
    add("b", ScheduledJob.bound_to(ScheduledJob.database, "apscheduler.jobs"), next_run_time="12.5")
    redis_client.zrem("apscheduler.jobs:scheduledjob:next_run_time:number-range", "b")
    assert "1 found" in run(redis_server, "check", "--pause=0")[1]
    redis_client.zrem("apscheduler:scheduledjob:next_run_time:number-range", "a")
    status, told = run(redis_server, "check", "--pause=0")
    assert status == 1
    assert "is not in the index of its next_run_time" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name one of the integrations"),
        (("celery",), "name one of the integrations"),
        (("apscheduler", "taskflow"), "one integration at a time"),
    ],
)
def test_other_words_are_refused(redis_server: RedisServer, words: tuple[str, ...], said: str) -> None:
    status, told = run(redis_server, "integrations", *words)
    assert status == 2
    assert f"{said}: apscheduler or taskflow" in told
