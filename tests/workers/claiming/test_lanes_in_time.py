"""A parked job begins at its moment: one idle worker looks for all, and another one while that is busy."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from running import wait_until, worker_of, working

from limpyd_jobs import STATUSES, Job, Limit, Queue
from limpyd_jobs.records import records
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.workers.claiming import claimer


class Paced(Job):
    """Each one ends once three run."""

    namespace = "in-time"
    queue_name = "q"
    limits = [Limit(rate="10/s")]
    all_run = threading.Barrier(3, timeout=8)  # long before a worker looks by chance

    def run(self, queue: Any) -> None:
        self.all_run.wait()


def test_a_worker_that_took_a_job_lets_another_one_look(
    redis_client: redis.Redis, jobs_database: JobsDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs_database.connect(**jobs_database.connection_settings, socket_timeout=120)
    monkeypatch.setattr(claimer, "MAX_WAIT", 60.0)  # so that nobody looks by chance
    options: Any = {"callback": None, "timeout": 0, "max_duration": 60, "fetch_delayed_delay": 1000}
    Queue.get_queue("q")
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(working(worker_of("q", **options)))
        wait_until(lambda: redis_client.info("clients")["blocked_clients"] >= 3, "idle workers")
        jobs = Paced.add_jobs(range(3))
    assert [job.status.hget() for job in jobs] == ["s"] * 3


class Other(Job):
    namespace = "in-time"
    queue_name = "other"

    def run(self, queue: Any) -> None:
        pass


class Adding(Job):
    """Each one adds a job that nobody else waits for."""

    namespace = "in-time"
    queue_name = "q"
    limits = [Limit(rate="1/s")]

    def run(self, queue: Any) -> None:
        Other.add_job()


def test_a_worker_that_looks_on_hears_of_jobs_that_were_added_while_it_ran_one(
    redis_client: redis.Redis, jobs_database: JobsDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs_database.connect(**jobs_database.connection_settings, socket_timeout=120)
    monkeypatch.setattr(claimer, "MAX_WAIT", 60.0)
    monkeypatch.setattr(claimer, "LOOKS_ON_FOR", 60.0)  # so that it looks into no list without a reason
    looks: list[Any] = []
    look = claimer.transitions.claim
    monkeypatch.setattr(claimer.transitions, "claim", lambda *given: looks.append(given) or look(*given))
    Queue.get_queue("q")
    Queue.get_queue("other")
    jobs = Adding.add_jobs(range(4))
    worker_of("q,other", callback=None, timeout=0, max_loops=8, fetch_delayed_delay=1000).run()
    assert len(looks) < 8  # one for each job, and one before, if it did not wait on
    others = [*Other.collection(queued="0"), *Other.collection(status="s")]
    assert [job.status.hget() for job in jobs] == ["s"] * 4
    assert len(others) == 4
    starts = [str(job.start.hget()) for job in jobs]
    added = sorted(str(Other(pk).start.hget()) for pk in others)
    assert all(sooner < other < later for sooner, other, later in zip(starts, added, starts[1:], strict=False))


class Met(Job):
    """Each one ends once two run."""

    namespace = "in-time"
    queue_name = "met"
    limits = [Limit(rate="5/s")]
    both_run = threading.Barrier(2, timeout=8)

    def run(self, queue: Any) -> None:
        self.both_run.wait()


def test_a_worker_lets_another_one_look_also_if_there_were_no_lanes_when_it_began_to_wait(
    redis_client: redis.Redis, jobs_database: JobsDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 2 adds the jobs, without a signal; an application claims the first one, and the others are parked."""
    jobs_database.connect(**jobs_database.connection_settings, socket_timeout=120)
    monkeypatch.setattr(claimer, "MAX_WAIT", 60.0)
    options: Any = {"callback": None, "timeout": 0, "max_loops": 1, "max_duration": 60, "fetch_delayed_delay": 1000}
    queue = Queue.get_queue("met")
    first, *others = Met.add_jobs([Met.prepare(identifier=f"{number}") for number in range(3)], delayed_for=1000)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(working(worker_of("met", **options)))
        wait_until(lambda: redis_client.info("clients")["blocked_clients"] >= 2, "idle workers")
        for job in (first, *others):
            job.status.hset(STATUSES.WAITING)
            redis_client.zrem(queue.delayed.key, job.ident)
            redis_client.rpush(queue.waiting.key, job.ident)
        by_hand = claimer.Claimer(Queue, 60)
        found = by_hand.next([queue.waiting.key])
        assert found is not None
        assert by_hand.next([queue.waiting.key]) is None
        wait_until(lambda: redis_client.zcount(f"{queue._name}:{queue.pk.get()}:_later", 0, "+inf") == 1, "a lane")
        threading.Event().wait(0.25)
        records.notify_next(redis_client, records.signal_key(Queue, "met"))
    assert [job.status.hget() for job in others] == [STATUSES.SUCCESS] * 2
