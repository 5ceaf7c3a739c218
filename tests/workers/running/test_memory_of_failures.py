"""What a job that failed had in its variables is freed at once, not when Python happens to look for garbage."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from running import worker_of, working
from servers import wait_until

from limpyd_jobs import STATUSES, Job, Queue

pytestmark = pytest.mark.usefixtures("jobs_database")


class Large:
    """Something that one would not like to keep."""


class Base(Job):
    namespace = "failures"
    queue_name = "queue"
    kept: list[weakref.ref[Large]] = []
    abstract = True

    def fail(self) -> None:
        large = Large()
        self.kept.append(weakref.ref(large))
        raise ValueError("it failed")


class Plain(Base):
    def run(self, queue: Queue) -> None:
        self.fail()


class Coroutine(Base):
    async def run(self, queue: Queue) -> None:
        await asyncio.sleep(0)
        self.fail()


class Canceled(Base):
    default_job_timeout = 0.05

    async def run(self, queue: Queue) -> None:
        large = Large()
        self.kept.append(weakref.ref(large))
        await asyncio.sleep(60)


class InThread(Base):
    async def run(self, queue: Queue) -> None:
        await asyncio.to_thread(self.fail)


class FailingMethod(Base):
    async def run(self, queue: Queue) -> None: ...

    async def on_success(self, queue: Queue, result: Any) -> None:
        self.fail()


@pytest.fixture(autouse=True)
def _without_the_garbage_collector() -> Iterator[None]:
    Base.kept.clear()
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.matrix(3)
@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("job_class", [Plain, Coroutine, Canceled, InThread, FailingMethod])
def test_it_is_gone_while_the_worker_goes_on(job_class: type[Job], concurrency: int) -> None:
    before, job = job_class.add_jobs(["before", "a"])
    worker = worker_of(callback=None, concurrency=concurrency, max_loops=3)
    with working(worker):
        try:
            wait_until(lambda: {each.status.hget() for each in (before, job)} <= {STATUSES.ERROR, STATUSES.SUCCESS})
            wait_until(lambda: len(Base.kept) == 2 and Base.kept[1]() is None, "what the job had is freed")
        finally:
            worker.end_forced = True
