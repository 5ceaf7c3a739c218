"""Code that a call alone does not run, as coroutines and generators: it never ends as a success."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis
from running import messages, work, worker_of

from limpyd_jobs import STATUSES, ConfigurationException, Error, Job, Queue, Worker
from limpyd_jobs.transitions import add

pytestmark = pytest.mark.usefixtures("redis_client")


class OrdinaryJob(Job):
    namespace = "not-run"
    queue_name = "queue"


class AsyncJob(OrdinaryJob):
    async def run(self, queue: Queue) -> str:
        return "awaited"


class GeneratorJob(OrdinaryJob):
    def run(self, queue: Queue) -> Iterator[str]:
        yield "looped over"


class AsyncGeneratorJob(OrdinaryJob):
    async def run(self, queue: Queue) -> AsyncIterator[str]:
        yield "looped over"


class DelegatingJob(OrdinaryJob):
    """What it returns is not run, which its definition does not say."""

    def run(self, queue: Queue) -> Any:
        return self.work()

    async def work(self) -> None:
        pass


class LoopingJob(OrdinaryJob):
    def run(self, queue: Queue) -> Any:
        return (number for number in range(3))


class SpawningJob(OrdinaryJob):
    """Made of what can be awaited, though it is no coroutine."""

    def run(self, queue: Queue) -> Any:
        class Awaitable:
            def __await__(self) -> Any:
                yield

        return Awaitable()


REFUSED = {
    GeneratorJob: "a generator function",
    AsyncGeneratorJob: "an async generator function",
}


def added(job_class: type[Job]) -> Job:
    """Add a job as version 2 would, which refuses none."""
    OrdinaryJob.add_job("1")
    _, pk = add(OrdinaryJob, "1", Queue, "queue", "0")
    client: redis.Redis = Job.get_connection()
    waiting = Queue.get_queue("queue").waiting
    waiting.lset(0, f"{__name__}.{job_class.__name__}:{pk}")
    for key in client.keys("not-run:ordinaryjob:*"):
        client.rename(key, key.replace("ordinaryjob", job_class.__name__.lower()))
    return job_class.get(pk)


class TestAJobClass:
    @pytest.mark.parametrize(("job_class", "kind"), REFUSED.items())
    @pytest.mark.parametrize(("add", "given"), [("add_job", "1"), ("add_jobs", ["1"])])
    def test_is_refused_when_a_job_is_added(
        self, job_class: type[Job], kind: str, add: str, given: Any, redis_client: redis.Redis
    ) -> None:
        for _ in range(2):
            with pytest.raises(ConfigurationException, match=rf"{job_class.__name__}\.run is {kind}.*ordinary"):
                getattr(job_class, add)(given)
        assert redis_client.dbsize() == 0

    @pytest.mark.matrix(6)
    @pytest.mark.parametrize("job_class", [*REFUSED, DelegatingJob, LoopingJob, SpawningJob])
    @pytest.mark.parametrize(
        "options", [{}, {"prefetch": 10}, {"prefetch": "auto"}, {"requeue_times": 5}, {"retry_policy": "times=3"}]
    )
    def test_makes_its_jobs_errors_that_are_not_tried_again(
        self, job_class: type[Job], options: dict[str, Any], log: pytest.LogCaptureFixture
    ) -> None:
        job = added(job_class)
        work(callback=None, **options)
        assert job.status.hget() == STATUSES.ERROR
        (error,) = Error.collection_for_job(job).instances()
        assert error.type.hget() == "CodeNotRun"
        assert f"{job_class.__name__}.run " in error.message.hget()
        assert "Make it an " in error.message.hget()
        assert sum("NOT requeued" in message for message in messages(log)) == 1

    def test_is_run_by_a_worker_that_awaits_it_by_itself(self) -> None:
        class AwaitingWorker(Worker):
            def execute(self, job: Job, queue: Queue) -> Any:
                return asyncio.run(super().execute(job, queue))

        job = AsyncJob.add_job("1")
        work(worker_class=AwaitingWorker, callback=None)
        assert job.status.hget() == STATUSES.SUCCESS

    def test_may_return_a_generator_that_hooks_of_its_worker_run(self) -> None:
        class LoopingWorker(Worker):
            def execute(self, job: Job, queue: Queue) -> Any:
                return super().execute(job, queue)

            def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
                self.results = list(job_result)
                super().job_success(job, queue, job_result)

        job = LoopingJob.add_job("1")
        worker = work(worker_class=LoopingWorker, callback=None)
        assert worker.results == [0, 1, 2]  # type: ignore[attr-defined]
        assert job.status.hget() == STATUSES.SUCCESS


async def asynchronous(job: Job, queue: Queue) -> None:
    pass


def generator(job: Job, queue: Queue) -> Iterator[None]:
    yield


class TestACallback:
    @pytest.mark.parametrize("callback", [generator, partial(generator)])
    def test_is_refused_if_a_call_would_run_nothing(self, callback: Callable[..., Any]) -> None:
        with pytest.raises(ConfigurationException, match=r"The callback is .* function: a worker would run nothing"):
            worker_of(callback=callback)

    def test_of_a_class_is_refused_too(self) -> None:
        class LoopingWorker(Worker):
            callback = staticmethod(generator)

        with pytest.raises(ConfigurationException, match="The callback is a generator function"):
            LoopingWorker("queue")

    def test_that_returns_a_coroutine_makes_its_jobs_errors(self) -> None:
        job = OrdinaryJob.add_job("1")
        work(callback=lambda job, queue: asynchronous(job, queue))
        assert job.status.hget() == STATUSES.ERROR
        (error,) = Error.collection_for_job(job).instances()
        assert "returned a coroutine, which is not run" in error.message.hget()
