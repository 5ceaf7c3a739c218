"""Models with their own ways to find a queue, or to put a job in one: what these are given, as with version 2."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest
import redis
from invariants import violations
from running import delayed_and_due, fail, work

from limpyd_jobs import STATUSES, Job, Queue, Worker
from limpyd_jobs.transitions.recovering import PLACE_LIMIT

pytestmark = pytest.mark.usefixtures("redis_client")

FAR = datetime(2099, 1, 2)
calls: list[tuple[Any, ...]] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


class TellingQueue(Queue):
    namespace = "ways"

    @classmethod
    def get_queue(cls, *args: Any, **kwargs: Any) -> Any:
        calls.append(("get_queue", *args, kwargs))
        return super().get_queue(*args, **kwargs)

    def enqueue_job(self, *args: Any, **kwargs: Any) -> None:
        calls.append(("enqueue_job", args[0].identifier.hget(), *args[1:], kwargs))
        super().enqueue_job(*args, **kwargs)

    def delay_job(self, *args: Any, **kwargs: Any) -> None:
        calls.append(("delay_job", args[0].identifier.hget(), *args[1:], kwargs))
        super().delay_job(*args, **kwargs)


class TellingJob(Job):
    namespace = "ways"
    queue_model = TellingQueue
    queue_name = "queue"

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        calls.append(("enqueue_or_delay", *args, kwargs))
        super().enqueue_or_delay(*args, **kwargs)


class RefusingQueue(Queue):
    """Fails when a job that was delayed is due."""

    namespace = "ways"

    def enqueue_job(self, job: Job, prepend: bool = False) -> None:
        raise ValueError("no room")


class TestAddingAJob:
    @pytest.mark.parametrize("priority", [0, 3, "3"])
    def test_gives_the_arguments_by_position_and_as_they_were_given(self, priority: int | str) -> None:
        TellingJob.add_job("a", priority=priority)
        assert calls == [
            ("enqueue_or_delay", "queue", priority, None, False, None, {}),
            ("get_queue", "queue", priority, {}),
            ("enqueue_job", "a", False, {}),
        ]

    def test_gives_the_model_of_the_queue_that_was_given(self) -> None:
        TellingJob.add_job("a", "other", 4, TellingQueue, True, delayed_until=FAR)
        assert calls == [
            ("enqueue_or_delay", "other", 4, FAR, True, TellingQueue, {}),
            ("get_queue", "other", 4, {}),
            ("delay_job", "a", FAR, {}),
        ]

    def test_gives_the_model_of_the_queue_when_a_job_moves_up(self) -> None:
        TellingJob.add_job("a")
        calls.clear()
        TellingJob.add_job("a", priority=5)
        assert calls == [
            ("enqueue_or_delay", "queue", 5, None, False, TellingQueue, {}),
            ("get_queue", "queue", 5, {}),
            ("enqueue_job", "a", False, {}),
        ]


class TestRequeuingAJob:
    @pytest.mark.parametrize(("given", "told"), [(None, "2"), (7, 7)])
    def test_gives_its_own_priority_if_there_is_no_other(self, given: int | None, told: int | str) -> None:
        job = TellingJob.add_job("a", priority=2)
        work(queue_model=TellingQueue, callback=fail)
        calls.clear()
        job.requeue(priority=given)
        assert calls == [
            ("enqueue_or_delay", "queue", told, None, {"queue_model": None}),
            ("get_queue", "queue", told, {}),
            ("enqueue_job", "a", False, {}),
        ]

    def test_by_a_worker_gives_the_model_of_its_queue(self) -> None:
        TellingJob.add_job("a", priority=2)
        calls.clear()
        work(queue_model=TellingQueue, callback=fail, requeue_times=1, requeue_delay_delta=None)
        assert calls == [
            ("enqueue_or_delay", "queue", 1, None, {"queue_model": TellingQueue}),
            ("get_queue", "queue", 1, {}),
            ("enqueue_job", "a", False, {}),
        ]


class TestADelayedJobThatIsDue:
    def test_is_put_in_the_waiting_list_by_its_queue(self, redis_client: redis.Redis) -> None:
        job = delayed_and_due(TellingJob, "a")
        calls.clear()
        assert TellingQueue.get_all("queue")[0].requeue_delayed_jobs() == []
        assert calls == [("enqueue_job", "a", {})]
        assert job.hmget("status", "queued") == [STATUSES.WAITING, "1"]
        assert violations(redis_client, TellingJob, TellingQueue) == []

    def test_so_a_worker_does(self, redis_client: redis.Redis) -> None:
        job = delayed_and_due(TellingJob, "a")
        work(queue_model=TellingQueue)
        assert ("enqueue_job", "a", {}) in calls
        assert job.hmget("status", "tries") == [STATUSES.SUCCESS, "1"]
        assert violations(redis_client, TellingJob, TellingQueue) == []

    def test_waits_all_the_same_if_that_fails(self, redis_client: redis.Redis) -> None:
        job = Job.add_job("a", "queue", delayed_until=FAR, queue_model=RefusingQueue)
        queue = RefusingQueue.get_queue("queue")
        queue.delayed.zadd({job.ident: 1})
        assert queue.requeue_delayed_jobs() == [(job.ident, "no room")]
        assert queue.waiting.lmembers() == [job.ident]
        work(queue_model=RefusingQueue)
        assert job.status.hget() == STATUSES.SUCCESS
        assert violations(redis_client, Job, RefusingQueue) == []

    def test_is_to_be_found_in_no_list_if_the_process_dies_then_and_few_others_are(
        self, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = delayed_and_due(TellingJob, "a")
        (queue,) = TellingQueue.get_all("queue")
        for number in range(20):
            later = TellingJob.add_job(f"later {number}", delayed_until=FAR)
            queue.delayed.zadd({later.ident: time.time() - 0.001})
        monkeypatch.setattr(TellingQueue, "enqueue_job", _die)
        redis_client.set(f"{TellingQueue._name}:reconcile_lock", 1, ex=300)
        with pytest.raises(KeyboardInterrupt):
            queue.requeue_delayed_jobs()
        assert queue.delayed.zcard() == 21 - PLACE_LIMIT
        assert not redis_client.exists(f"{TellingQueue._name}:reconcile_lock")  # so the next rescue looks for them
        assert job.status.hget() == STATUSES.WAITING
        assert job.queue_key.hget() == queue.waiting.key.removesuffix(":waiting")


def _die(*args: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("requeue_times", "told"), [(0, 0), (None, None), (1, True)])
def test_whether_a_job_is_put_back_is_told_as_by_version_2(requeue_times: int | None, told: Any) -> None:
    given: list[Any] = []

    class Taking(Worker):
        def job_error_message(self, job: Job, queue: Queue, to_be_requeued: Any, *args: Any) -> str:
            given.append(to_be_requeued)
            return super().job_error_message(job, queue, to_be_requeued, *args)

    Job.add_job("a", "queue")
    work(worker_class=Taking, callback=fail, requeue_times=requeue_times)
    assert given == [told]
    assert type(given[0]) is type(told)
