"""Workers that fetch jobs in their own way."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest
import redis
from hooking import (
    Special,
    SpecialQueue,
    Task,
    set_status,
    state,
)
from invariants import violations
from running import Collector, fail, messages, succeed, work

from limpyd_jobs import STATUSES, Job, Queue, Worker

pytestmark = pytest.mark.usefixtures("redis_client")


class TestALoopOfTheApplication:
    """A worker that does not run, whose `wait_for_job` is called by other code."""

    def test_gets_the_jobs_at_once(self) -> None:
        jobs = [Task.add_job("a"), Task.add_job("b")]
        worker = Worker("queue", timeout=30, terminate_gracefuly=False)
        assert [worker.wait_for_job()[1].pk.get() for _ in jobs] == [job.pk.get() for job in jobs]  # type: ignore[index]

    def test_gets_a_job_of_a_queue_that_is_made_while_it_waits(self) -> None:
        class Late(Worker):
            def update_keys(self) -> None:
                super().update_keys()
                jobs.append(Task.add_job("a"))

        jobs: list[Task] = []
        found = Late("queue", timeout=30, terminate_gracefuly=False).wait_for_job()
        assert found
        assert found[1].pk.get() == jobs[0].pk.get()

    def test_gets_none_no_sooner_than_after_the_timeout(self) -> None:
        worker, began = Worker("queue", timeout=0.5, terminate_gracefuly=False), monotonic()
        assert worker.wait_for_job() is None
        assert monotonic() - began >= 0.5


class TestFetching:
    def test_wait_for_job_may_fetch_by_itself(self, collector: Collector, consistent: None) -> None:
        class Own(Worker):
            def wait_for_job(self) -> Any:
                popped = self.connection.blpop(self.keys, timeout=1)
                if popped is None:
                    self.end_forced = True
                    return None
                key, ident = popped
                return self.get_queue(key), self.get_job(ident)

        jobs = [Task.add_job(name, priority=priority) for name, priority in (("a", 1), ("b", 3), ("c", 1))]
        jobs[2].status.hset(STATUSES.CANCELED)
        worker = work(worker_class=Own, callback=collector, max_loops=4)
        assert collector.identifiers == ["b", "a"]
        assert worker.num_loops == 3
        assert [job.hmget("status", "tries") for job in jobs] == [["s", "1"], ["s", "1"], ["c", None]]

    def test_wait_for_job_may_make_the_objects_by_itself(self, log: pytest.LogCaptureFixture, consistent: None) -> None:
        class Own(Worker):
            def wait_for_job(self) -> Any:
                queue = Queue.get_queue("queue", 2)
                return queue, Job.get_from_ident(queue.waiting.lpop())

            def job_started(self, job: Any, queue: Any) -> None:
                seen.append((job._cached_identifier, job._cached_status, queue._cached_name))
                super().job_started(job, queue)

        seen: list[Any] = []
        job = Task.add_job("a", priority=2)
        work(worker_class=Own, callback=fail, requeue_times=1)
        assert seen == [("a", "w", "queue")]
        assert job.hmget("status", "priority", "tries") == ["d", "1", "1"]
        assert "[queue|1|a] error: ValueError: it failed [requeued]" in messages(log)

    def test_wait_for_job_may_work_around_super(self, collector: Collector, consistent: None) -> None:
        class Around(Worker):
            def wait_for_job(self) -> Any:
                found = super().wait_for_job()
                if found:
                    found[1].decorated = True
                return found

        def callback(job: Any, queue: Queue) -> None:
            assert job.decorated
            collector(job, queue)

        for name in "abc":
            Task.add_job(name)
        work(worker_class=Around, callback=callback, max_loops=3)
        assert collector.identifiers == ["a", "b", "c"]

    def test_wait_for_job_may_refuse_a_job_it_got(self, redis_client: redis.Redis, collector: Collector) -> None:
        class Picky(Worker):
            def wait_for_job(self) -> Any:
                found = super().wait_for_job()
                if found and found[1].identifier.hget() == "a":
                    return None
                return found

        job = Task.add_job("a")
        Task.add_job("b")
        work(worker_class=Picky, callback=collector)
        assert collector.identifiers == ["b"]
        assert violations(redis_client, Task, Queue) == []
        assert job.queued.hget() == "1"

    def test_wait_for_job_may_return_a_job_that_is_in_no_list(self, collector: Collector, consistent: None) -> None:
        class FromElsewhere(Worker):
            def wait_for_job(self) -> Any:
                job = Task(identifier="a", status=STATUSES.WAITING, queued="1")
                return Queue.get_queue("queue", 4), job

        Queue.get_queue("queue")
        work(worker_class=FromElsewhere, callback=collector)
        assert collector.identifiers == ["a"]
        assert Task.get(1).hmget("status", "tries") == ["s", "1"]
        assert Queue.get_queue("queue", 4).success.lmembers() == ["hooking.Task:1"]

    def test_get_job_may_decorate_the_job(self, consistent: None) -> None:
        class Decorating(Worker):
            def get_job(self, job_ident: str) -> Any:
                job: Any = super().get_job(job_ident)
                job.decorated_with = job_ident
                return job

        def callback(job: Any, queue: Queue) -> None:
            seen.append(job.decorated_with)

        seen: list[str] = []
        jobs = [Task.add_job(name) for name in "ab"]
        work(worker_class=Decorating, callback=callback, max_loops=2)
        assert seen == [job.ident for job in jobs]

    def test_get_job_may_be_replaced(self, consistent: None) -> None:
        class Own(Worker):
            def get_job(self, job_ident: str) -> Any:
                return Task(job_ident.split(":")[1])

        job = Task.add_job("a")
        work(worker_class=Own)
        assert state(job) == ("s", None)

    def test_get_job_may_return_another_job(
        self, redis_client: redis.Redis, collector: Collector, consistent: None
    ) -> None:
        class Another(Worker):
            def get_job(self, job_ident: str) -> Any:
                return other

        other, job = Task.add_job("other", "elsewhere"), Task.add_job("a")
        work(worker_class=Another, callback=collector)
        assert collector.identifiers == ["other"]
        assert other.hmget("status", "tries") == ["s", "1"]
        assert job.queued.hget() == "1"
        assert redis_client.keys("jobs:queue:*:_running") == []
        Queue.get_queue("elsewhere").waiting.delete()

    def test_get_job_may_return_a_job_of_another_class(self, redis_client: redis.Redis, collector: Collector) -> None:
        class Another(Worker):
            def get_job(self, job_ident: str) -> Any:
                return Special(identifier="special", status=STATUSES.WAITING, queued="1", note="mine")

        Task.add_job("a")
        work(worker_class=Another, callback=collector)
        assert collector.identifiers == ["special"]
        assert Special.get(1).hmget("status", "tries", "note") == ["s", "1", "mine"]
        assert violations(redis_client, Special, Queue) == []

    def test_get_queue_may_return_a_queue_with_attributes(self, consistent: None) -> None:
        class Decorating(Worker):
            def get_queue(self, queue_redis_key: str) -> Any:
                queue: Any = super().get_queue(queue_redis_key)
                queue.key_it_came_from = queue_redis_key
                return queue

        seen: list[str] = []
        Task.add_job("a", priority=3)
        work(worker_class=Decorating, callback=lambda job, queue: seen.append(queue.key_it_came_from))
        assert seen == [Queue.get_queue("queue", 3).waiting.key]

    def test_get_queue_may_be_replaced(self, consistent: None) -> None:
        class Own(Worker):
            def get_queue(self, queue_redis_key: str) -> Any:
                return Queue(queue_redis_key.split(":")[2])

        job = Task.add_job("a", priority=3)
        work(worker_class=Own, callback=fail, requeue_times=1)
        assert job.hmget("status", "priority") == ["d", "2"]

    @pytest.mark.parametrize("ending", ["succeeds", "fails", "is requeued", "is canceled", "is delayed"])
    @pytest.mark.parametrize("prefetch", [1, 10, "auto"])
    def test_get_queue_may_return_a_queue_of_another_model(
        self, redis_client: redis.Redis, ending: str, prefetch: int | str
    ) -> None:
        class Own(Worker):
            def get_queue(self, queue_redis_key: str) -> Any:
                queue = super().get_queue(queue_redis_key)
                return SpecialQueue.get_queue(*queue.hmget("name", "priority"))

        callbacks = {
            "succeeds": succeed,
            "is canceled": set_status(STATUSES.CANCELED),
            "is delayed": set_status(STATUSES.DELAYED),
        }
        job = Task.add_job("a", priority=3)
        requeue_times = int(ending == "is requeued")
        work(worker_class=Own, callback=callbacks.get(ending, fail), requeue_times=requeue_times, prefetch=prefetch)
        queue = SpecialQueue.get_queue("queue", 3)
        assert queue.success.llen() + queue.errors.llen() + queue.delayed.zcard() + (ending == "is canceled") >= 1
        assert job.claim_token.hget() is None
        assert redis_client.keys("*:_running") == []

    def test_a_queue_model_of_ones_own_is_used_throughout(self, redis_client: redis.Redis) -> None:
        seen: list[Any] = []
        Task.add_job("a", queue_model=SpecialQueue, priority=3)
        worker = work(queue_model=SpecialQueue, callback=lambda job, queue: seen.append(queue))
        assert seen == [SpecialQueue.get_queue("queue", 3)]
        assert worker.keys == SpecialQueue.get_waiting_keys("queue")
        assert violations(redis_client, Task, SpecialQueue) == []
        assert redis_client.keys("jobs:queue:*") == []
