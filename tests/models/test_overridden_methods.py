"""Subclasses of the models that override their methods."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
import redis
from invariants import violations
from running import Collector, fail, work

from limpyd_jobs import Error, Job, Queue

pytestmark = [
    pytest.mark.usefixtures("redis_client"),
    pytest.mark.filterwarnings("ignore:.*hmset:DeprecationWarning"),  # limpyd calls it for a HashField
]


CALLS: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


class OwnWaysQueue(Queue):
    namespace = "overridden_methods"

    @classmethod
    def get_queue(cls, name: str, priority: Any = 0, **fields_if_new: Any) -> Any:
        CALLS.append("get_queue")
        return super().get_queue(f"{name}-own", priority, **fields_if_new)

    def enqueue_job(self, job: Job, prepend: bool = False) -> None:
        CALLS.append(("enqueue_job", prepend))
        super().enqueue_job(job, prepend)

    def delay_job(self, job: Job, delayed_until: datetime) -> None:
        CALLS.append(("delay_job", delayed_until))
        super().delay_job(job, delayed_until)


class SortedQueue(Queue):
    namespace = "overridden_methods"

    @classmethod
    def get_all_by_priority(cls, names: Any) -> Any:
        return sorted(cls.get_all(names), key=lambda queue: (queue.name.hget(), -int(queue.priority.hget())))


class FilteredQueue(Queue):
    namespace = "overridden_methods"

    @classmethod
    def get_all(cls, names: Any) -> Any:
        return [queue for queue in super().get_all(names) if int(queue.priority.hget()) < 5]

    def requeue_delayed_jobs(self) -> Any:
        CALLS.append(f"requeue_delayed_jobs of {self.priority.hget()}")
        return super().requeue_delayed_jobs()


class OwnWaysJob(Job):
    namespace = "overridden_methods"
    queue_name = "queue"

    def requeue(self, *args: Any, **kwargs: Any) -> None:
        CALLS.append("requeue")
        super().requeue(*args, **{**kwargs, "priority": 9})

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        CALLS.append(("enqueue_or_delay", args[0], bool(args[2])))
        super().enqueue_or_delay(*args, **kwargs)


class RefusingJob(Job):
    namespace = "overridden_methods"
    queue_name = "queue"

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError("not in any queue")


class OwnWaysError(Error):
    namespace = "overridden_methods"

    @classmethod
    def add_error(cls, *args: Any, **kwargs: Any) -> Any:
        CALLS.append("add_error")
        error = super().add_error(*args, **kwargs)
        error.message.hset(f"{error.message.hget()}!")
        return error

    @classmethod
    def collection_for_job(cls, job: Job) -> Any:
        return super().collection_for_job(job).filter(job_pk=job.pk.get())


class TestOverriddenMethods:
    def test_a_queue_may_find_and_fill_itself_in_its_own_way(self, redis_client: redis.Redis) -> None:
        job = Job.add_job("a", "queue", queue_model=OwnWaysQueue, priority=2)
        Job.add_job("b", "queue", queue_model=OwnWaysQueue, delayed_until=datetime(2099, 1, 2))
        Job.add_job("a", "queue", queue_model=OwnWaysQueue, priority=3, prepend=True)
        assert [call for call in CALLS if call != "get_queue"] == [
            ("enqueue_job", False),
            ("delay_job", datetime(2099, 1, 2)),
            ("enqueue_job", True),
        ]
        assert {queue.name.hget() for queue in OwnWaysQueue.collection().instances()} == {"queue-own"}
        (pk,) = OwnWaysQueue.collection(priority=3)
        assert OwnWaysQueue.get(pk).waiting.lmembers() == [job.ident]
        assert job.hmget("status", "queued", "priority") == ["w", "1", "3"]

    def test_a_queue_may_order_the_keys_of_workers(self, collector: Collector) -> None:
        for name, priority in (("y", 9), ("x", 1), ("x", 2)):
            Job.add_job(f"{name}{priority}", name, priority=priority, queue_model=SortedQueue)
        worker = work("y,x", queue_model=SortedQueue, callback=collector, max_loops=3)
        assert collector.identifiers == ["x2", "x1", "y9"]
        assert worker.keys == SortedQueue.get_waiting_keys(["x", "y"])

    def test_a_queue_may_hide_some_queues_and_wake_in_its_own_way(self, collector: Collector) -> None:
        Job.add_job("hidden", "queue", priority=7, queue_model=FilteredQueue)
        Job.add_job("seen", "queue", priority=1, queue_model=FilteredQueue)
        work(queue_model=FilteredQueue, callback=collector)
        assert collector.identifiers == ["seen"]
        assert CALLS == ["requeue_delayed_jobs of 1"]

    def test_a_job_may_be_put_in_queues_in_its_own_way(self, redis_client: redis.Redis) -> None:
        job = OwnWaysJob.add_job("a", priority=1)
        OwnWaysJob.add_job("a", priority=2)
        OwnWaysJob.add_job("a")
        work(callback=fail, requeue_times=1)
        assert CALLS == [
            ("enqueue_or_delay", "queue", False),
            ("enqueue_or_delay", "queue", False),
            "requeue",
            ("enqueue_or_delay", "queue", True),
        ]
        assert job.hmget("status", "queued", "priority", "tries") == ["d", "1", "9", "1"]
        assert violations(redis_client, OwnWaysJob, Queue) == []

    def test_a_job_that_is_put_in_no_queue_does_not_block_its_identifier(self) -> None:
        with pytest.raises(ValueError, match="not in any queue"):
            RefusingJob.add_job("a")
        assert list(RefusingJob.collection(queued="1")) == []

    def test_an_error_may_be_added_and_found_in_its_own_way(self) -> None:
        first, second = Job.add_job("a", "queue"), None
        work(error_model=OwnWaysError, callback=fail)
        second = Job.add_job("a", "queue")
        work(error_model=OwnWaysError, callback=fail)
        assert CALLS == ["add_error", "add_error"]
        for job in (first, second):
            (error,) = OwnWaysError.collection_for_job(job).instances()
            assert error.message.hget() == "it failed!"
        assert Error.collection().instances() == []
