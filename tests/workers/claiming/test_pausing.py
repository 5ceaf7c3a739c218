"""A paused queue keeps its jobs, and workers leave them alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import redis
from invariants import violations
from running import Collector, delayed_and_due, waiting_idly, work, worker_of, working
from servers import wait_until

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.records import audit
from limpyd_jobs.workers.claiming.claimer import Claimer


class Parcel(Job):
    namespace = "pausing"
    queue_name = "queue"


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Any:
    yield
    assert violations(redis_client, Parcel, Queue, Error) == []


class TestNames:
    def test_names_are_paused_and_resumed(self) -> None:
        assert (Queue.pause("a"), Queue.pause("b"), Queue.pause("a")) == (True, True, False)
        assert Queue.get_paused_names() == {"a", "b"}
        assert (Queue.resume("a"), Queue.resume("a")) == (True, False)
        assert Queue.get_paused_names() == {"b"}

    @pytest.mark.parametrize("name", ["", "a,b", "\ud800"])
    def test_what_is_no_name_is_refused(self, name: str) -> None:
        for change in (Queue.pause, Queue.resume):
            with pytest.raises(ValueError, match="name"):
                change(name)

    def test_nothing_remains_of_a_pause_but_who_did_it(self, redis_client: redis.Redis) -> None:
        Queue.pause("a")
        Queue.resume("a")
        assert redis_client.keys() == [audit.KEY]
        assert [entry["verb"] for entry in audit.last_entries(redis_client, 9)] == ["resume", "pause"]

    def test_other_queue_models_are_not_paused(self, collector: Collector) -> None:
        class Belt(Queue):
            namespace = "pausing"

        Queue.pause("queue")
        Parcel.add_job("a", queue_model=Belt)
        work(queue_model=Belt, callback=collector)
        assert collector.identifiers == ["a"]


class TestWhatWaits:
    def test_no_job_is_run_whatever_its_priority(self, collector: Collector) -> None:
        Parcel.add_job("a")
        Queue.pause("queue")
        Parcel.add_job("b", priority=5)
        Parcel.add_job("c", queue_name="other")
        work("queue,other", callback=collector)
        assert collector.identifiers == ["c"]
        assert Queue.count_waiting_jobs("queue") == 2

    def test_the_end_of_a_job_does_not_claim_one(self, collector: Collector) -> None:
        Parcel.add_jobs([*"abc"])

        def pause(job: Job, queue: Queue) -> None:
            collector(job, queue)
            Queue.pause("queue")

        work(callback=pause, max_loops=3, burst=True)
        assert collector.identifiers == ["a"]
        assert [job.status.hget() for job in map(Parcel.get, "123")] == [STATUSES.SUCCESS, *STATUSES.WAITING * 2]

    def test_delayed_jobs_come_to_wait(self, collector: Collector) -> None:
        job = delayed_and_due(Parcel, "a")
        Queue.pause("queue")
        work(callback=collector, burst=True)
        assert collector.identifiers == []
        assert job.status.hget() == STATUSES.WAITING

    def test_their_order_is_kept_when_a_worker_got_one(self, collector: Collector) -> None:
        Parcel.add_jobs([*"abc"])
        worker = worker_of(callback=collector, max_loops=3)
        worker.update_keys()
        Queue.pause("queue")
        # as a worker does that began to wait before
        assert Claimer(Queue, 60).wait(worker.keys, 1) is None
        Queue.resume("queue")
        worker.run()
        assert collector.identifiers == ["a", "b", "c"]


def asked(sent: Any) -> list[str]:
    """The commands that ask for a job: at a worker's start, it looks for lost ones of all classes there are."""
    return [name for name in sent.names if name in ("EVALSHA", "BLPOP")]


class TestWaiting:
    def test_a_worker_that_waits_does_not_run_what_comes_once_it_is_paused(
        self, collector: Collector, redis_client: redis.Redis
    ) -> None:
        Queue.get_queue("queue")
        Queue.get_queue("other")
        worker = worker_of("queue,other", callback=collector, max_loops=2, timeout=0, max_duration=60)
        with waiting_idly(worker, redis_client):
            Queue.pause("queue")
            Parcel.add_job("a")
            Parcel.add_job("b", queue_name="other")
            wait_until(lambda: "b" in collector.identifiers)
            assert Queue.get_queue("queue").waiting.llen() == 1
            Queue.resume("queue")
        assert collector.identifiers == ["b", "a"]

    def test_it_is_resumed_although_nothing_is_added(self, collector: Collector) -> None:
        Parcel.add_job("a")
        Queue.pause("queue")
        began = threading.Event()

        class Slow(Worker):
            fetch_priorities_delay = fetch_delayed_delay = 1000

            def wait_for_job(self) -> Any:
                began.set()
                return super().wait_for_job()

        with working(worker_of(worker_class=Slow, callback=collector, timeout=0, max_duration=None)):
            began.wait()
            Queue.resume("queue")
        assert collector.identifiers == ["a"]

    def test_it_rests(self, commands: Callable[[], AbstractContextManager[Any]]) -> None:
        Parcel.add_job("a")
        Queue.pause("queue")
        with commands() as sent:
            work(max_duration=1, timeout=0)
        assert len(asked(sent)) < 30

    def test_one_that_fetches_by_itself_rests_too(self, commands: Callable[[], AbstractContextManager[Any]]) -> None:
        class Popping(Worker):
            def wait_for_job(self) -> Any:
                key, ident = self.connection.blpop(self.keys)
                return self.get_queue(key), self.get_job(ident)

        Parcel.add_job("a")
        Queue.pause("queue")
        with commands() as sent:
            work(worker_class=Popping, max_duration=1, max_loops=1000)
        assert len(asked(sent)) < 60
        assert Queue.get_queue("queue").waiting.llen() == 1


def test_what_runs_goes_on(collector: Collector) -> None:
    Parcel.add_job("a")

    def pause(job: Job, queue: Queue) -> None:
        Queue.pause("queue")
        collector(job, queue)

    work(callback=pause)
    assert Parcel.get(1).status.hget() == STATUSES.SUCCESS


def test_a_job_that_lost_its_worker_waits(collector: Collector) -> None:
    job = Parcel.add_job("a")
    dead = worker_of()
    dead.update_keys()
    assert dead.wait_for_job()
    Queue.get_queue("queue").running.zadd({job.ident: 1})
    Queue.pause("queue")
    work(callback=collector, burst=True)
    assert collector.identifiers == []
    assert job.status.hget() == STATUSES.WAITING


def test_a_pause_of_a_wrong_type_is_none(collector: Collector, redis_client: redis.Redis) -> None:
    redis_client.set("jobs:queue:paused", "of a wrong type")
    Parcel.add_job("a")
    work(callback=collector)
    assert collector.identifiers == ["a"]
