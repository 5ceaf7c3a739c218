"""The process title: its text, and how seldom Redis is asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
import redis

from limpyd_jobs import Queue, Worker
from limpyd_jobs.store import records
from limpyd_jobs.utils import utcnow
from limpyd_jobs.workers import title as module
from limpyd_jobs.workers.title import WorkerTitle, make_title

PROGRAM = "limpyd-jobs-worker"


def test_before_there_is_a_worker_only_the_program_and_init_are_shown():
    assert make_title(PROGRAM) == "limpyd-jobs-worker [init]"


def test_a_worker_that_does_not_run_yet_shows_its_id_and_queues():
    title = make_title(PROGRAM, "1566090", queues=["foo", "bar"], loops=(0, 1000))
    assert title == "limpyd-jobs-worker#1566090 [init] queues=foo,bar"


@pytest.mark.parametrize(
    ("status", "loops", "counts", "elapsed", "expected"),
    [
        ("starting", 0, (10, 0), None, "[starting] queues=foo,bar loop=0/1000 waiting=10 delayed=0"),
        (
            "running",
            1,
            (9, 2),
            timedelta(seconds=15, microseconds=999_999),
            "[running] queues=foo,bar loop=1/1000 waiting=9 delayed=2 duration=0:00:15",
        ),
        (
            "terminated",
            10,
            (0, 0),
            timedelta(minutes=12, seconds=27),
            "[terminated] queues=foo,bar loop=10/1000 waiting=0 delayed=0 duration=0:12:27",
        ),
    ],
)
def test_a_worker_that_runs_shows_what_the_documents_show(status, loops, counts, elapsed, expected):
    title = make_title(
        PROGRAM,
        "1566090",
        status,
        queues=["foo", "bar"],
        loops=(loops, 1000),
        counts=counts,
        elapsed=elapsed,
    )
    assert title == f"limpyd-jobs-worker#1566090 {expected}"


@pytest.mark.parametrize(("asked", "word"), [({"quiet": True}, "quiet"), ({"quiet": True, "ending": True}, "ending")])
def test_what_a_worker_was_asked_for_is_shown(asked, word):
    assert make_title(PROGRAM, "1566090", "running", **asked).startswith(f"{PROGRAM}#1566090 [running - {word}]")


def test_an_end_that_was_asked_for_is_shown_beside_the_status():
    assert "[running - ending] " in make_title(PROGRAM, "038480", "running", ending=True, queues=["a"])


def test_a_maximum_duration_is_shown_beside_the_duration():
    title = make_title(PROGRAM, "1", "waiting", elapsed=timedelta(seconds=1), max_duration=timedelta(hours=1))
    assert title.endswith(" duration=0:00:01/1:00:00")


def test_no_maximum_of_loops_shows_only_the_loops():
    assert " loop=7 " in make_title(PROGRAM, "1", "waiting", loops=(7, None))


@pytest.fixture
def worker(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setattr(module, "LASTS", 60.0)
    worker = Worker("foo", max_loops=10)
    worker.status = "waiting"
    return worker


def test_status_and_loops_are_those_of_the_moment_and_the_rest_as_it_was_lately(worker: Worker):
    title = WorkerTitle(PROGRAM, worker)
    rest = "waiting=0 delayed=0"
    assert str(title) == f"{PROGRAM}#{worker.id} [waiting] queues=foo loop=0/10 {rest}"
    Queue.get_queue("foo").waiting.rpush("x")
    worker.status, worker.num_loops = "running", 1
    assert str(title) == f"{PROGRAM}#{worker.id} [running] queues=foo loop=1/10 {rest}"


def test_the_rest_is_found_out_again_after_a_second(worker: Worker, monkeypatch: pytest.MonkeyPatch):
    title = WorkerTitle(PROGRAM, worker)
    str(title)
    Queue.get_queue("foo").waiting.rpush("x")
    worker.start_date = utcnow() - timedelta(seconds=15.5)
    monkeypatch.setattr(module, "LASTS", 0.0)
    assert str(title).endswith(" waiting=1 delayed=0 duration=0:00:15")


def test_a_status_that_does_not_pass_is_shown_with_all_as_it_is(worker: Worker):
    title = WorkerTitle(PROGRAM, worker)
    str(title)
    Queue.get_queue("foo").waiting.rpush("x")
    worker.status = "terminated"
    assert str(title) == f"{PROGRAM}#{worker.id} [terminated] queues=foo loop=0/10 waiting=1 delayed=0"


def test_counts_that_redis_does_not_give_leave_the_last_ones(worker: Worker, monkeypatch: pytest.MonkeyPatch):
    asked = []

    def count_jobs(queue_model: type[Queue], queues: Sequence[str]) -> tuple[int, int]:
        asked.append(queues)
        raise redis.ConnectionError("gone")

    Queue.get_queue("foo").waiting.rpush("x")
    title = WorkerTitle(PROGRAM, worker)
    before = str(title)
    monkeypatch.setattr(records, "count_jobs", count_jobs)
    monkeypatch.setattr(module, "LASTS", 0.0)
    assert str(title) == before
    monkeypatch.setattr(module, "LASTS", 60.0)
    assert str(title) == before
    assert len(asked) == 1  # a server that is down is not asked more often
