"""The process title: its text, and how seldom Redis is asked for it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta

import pytest
import redis

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.dates import utcnow
from limpyd_jobs.records import records
from limpyd_jobs.workers.maintenance.tasks import StatusRefresh
from limpyd_jobs.workers.process import system as module
from limpyd_jobs.workers.process.system import WorkerTitle

PROGRAM = "limpyd-jobs-worker"


@pytest.fixture
def worker(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setattr(module, "LASTS", 60.0)
    worker = Worker("foo", max_loops=10)
    worker.status = "waiting"
    return worker


def test_a_worker_that_does_not_run_yet_shows_its_id_and_queues(redis_client: redis.Redis):
    worker = Worker("foo,bar")
    assert str(WorkerTitle(PROGRAM, worker)) == f"limpyd-jobs-worker#{worker.id} [init] queues=foo,bar"


@pytest.mark.parametrize(
    ("status", "loops", "waiting", "elapsed", "expected"),
    [
        ("starting", 0, 2, None, "[starting] queues=foo,bar loop=0/1000 waiting=2 delayed=0"),
        (
            "running",
            1,
            1,
            timedelta(seconds=15, microseconds=999_999),
            "[running] queues=foo,bar loop=1/1000 waiting=1 delayed=0 duration=0:00:15",
        ),
        (
            "terminated",
            10,
            0,
            timedelta(minutes=12, seconds=27),
            "[terminated] queues=foo,bar loop=10/1000 waiting=0 delayed=0 duration=0:12:27",
        ),
    ],
)
def test_a_worker_that_runs_shows_what_the_documents_show(redis_client, status, loops, waiting, elapsed, expected):
    worker = Worker("foo,bar")
    worker.status, worker.num_loops = status, loops
    if elapsed:
        worker.end_date = utcnow()
        worker.start_date = worker.end_date - elapsed
    for _ in range(waiting):
        Queue.get_queue("foo").waiting.rpush("x")
    assert str(WorkerTitle(PROGRAM, worker)) == f"limpyd-jobs-worker#{worker.id} {expected}"


@pytest.mark.parametrize(("is_ending", "word"), [(False, "quiet"), (True, "ending")])
def test_what_a_worker_was_asked_for_is_shown_beside_the_status(worker: Worker, is_ending: bool, word: str):
    worker._run_state.is_quiet, worker.end_forced = True, is_ending
    assert str(WorkerTitle(PROGRAM, worker)).startswith(f"{PROGRAM}#{worker.id} [waiting - {word}]")


def test_a_maximum_duration_is_shown_beside_the_duration(redis_client: redis.Redis):
    worker = Worker("foo", max_duration=3600)
    worker.status, worker.end_date = "terminated", utcnow()
    worker.start_date = worker.end_date - timedelta(seconds=1)
    assert str(WorkerTitle(PROGRAM, worker)).endswith(" duration=0:00:01/1:00:00")


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


def test_a_busy_worker_that_runs_several_jobs_at_once_shows_how_far_it_is(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(StatusRefresh, "interval", 0.0)
    shown, is_far = [], threading.Event()

    class Counting(Worker):
        def set_status(self, status: str) -> None:
            super().set_status(status)
            shown.append((status, self.num_loops))
            if status == "running" and self.num_loops > 5:
                is_far.set()

    def run(job: Job, queue: Queue) -> None:
        if job.identifier.hget() == "first":  # so that the worker is busy without a pause
            assert is_far.wait(20)

    for name in ("first", *map(str, range(8))):
        Job.add_job(name, "foo")
    Counting("foo", callback=run, concurrency=2, max_loops=9, terminate_gracefuly=False, logger_level=60).run()
    assert is_far.is_set()
    assert len(Job.collection(status="s")) == 9
