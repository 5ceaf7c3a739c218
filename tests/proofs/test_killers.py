"""Jobs that kill their process, among others that it has claimed: they end in error, and no other job does."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from invariants import violations
from running import worker_of
from servers import wait_until

from limpyd_jobs import Error, Job, Queue

pytestmark = pytest.mark.usefixtures("jobs_database")


class Crowd(Job):
    namespace = "crowd"
    queue_name = "queue"

    async def run(self, queue: Queue) -> None:
        await asyncio.sleep(0.02)
        if (await self.aget("identifier")).startswith("killer"):
            os._exit(1)


class PlainCrowd(Job):
    namespace = "crowd"
    queue_name = "queue"

    def run(self, queue: Queue) -> None:
        time.sleep(0.002)
        if self.identifier.hget().startswith("killer"):
            os._exit(1)


class LongCrowd(Job):
    namespace = "crowd"
    queue_name = "queue"

    async def run(self, queue: Queue) -> None:
        client = self.get_connection()
        while not await asyncio.to_thread(client.exists, "over"):
            await asyncio.sleep(0.02)


class LoopCrowd(Crowd):
    """The killers close the file by which the event loop waits, so that its thread dies."""

    async def run(self, queue: Queue) -> None:
        await asyncio.sleep(0.02)
        if (await self.aget("identifier")).startswith("killer"):
            loop: Any = asyncio.get_running_loop()
            os.close(loop._selector.fileno())
            await asyncio.sleep(60)


class FileCrowd(Crowd):
    """The killers close all files of their process."""

    async def run(self, queue: Queue) -> None:
        await asyncio.sleep(0.02)
        if (await self.aget("identifier")).startswith("killer"):
            os.closerange(3, 1000)
            await asyncio.sleep(60)


class PlainFileCrowd(PlainCrowd):
    def run(self, queue: Queue) -> None:
        time.sleep(0.002)
        if self._cached_identifier.startswith("killer"):  # the code of the others needs no file
            os.closerange(3, 1000)
            time.sleep(60)


def begin_to_work(**options: Any) -> int:
    """Run a worker in a process that may die; return its pid."""
    pid = os.fork()
    if not pid:
        try:
            worker_of(**{"callback": None, "max_loops": 1000, "lease": 0.4, "max_duration": 20, **options}).run()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def work(**options: Any) -> bool:
    """Run a worker in a process; return whether it ended in order."""
    return os.waitpid(begin_to_work(burst=True, **options), 0)[1] == 0


def add(job_class: type[Job], killers: set[int]) -> Callable[[], list[str]]:
    """Add a hundred jobs, some of which kill their process; return what tells those that did not end as they should."""
    jobs = job_class.add_jobs(f"killer {number}" if number in killers else str(number) for number in range(100))
    expected = ["e" if number in killers else "s" for number in range(100)]

    def wrong() -> list[str]:
        found = [job.status.hget() for job in jobs]
        return [
            f"{i}: {status}" for i, (status, wanted) in enumerate(zip(found, expected, strict=True)) if status != wanted
        ]

    return wrong


@pytest.mark.parametrize(
    ("job_class", "killers", "options"),
    [
        (Crowd, {7}, {"concurrency": 10, "max_rescues": 0}),
        (Crowd, {7, 60}, {"concurrency": 10}),
        (Crowd, {7}, {"concurrency": 100, "max_rescues": 0}),
        (PlainCrowd, {7}, {"concurrency": 100, "max_rescues": 0}),
        (PlainCrowd, {7}, {"prefetch": 100, "max_rescues": 0}),
        (LoopCrowd, {7}, {"concurrency": 10, "max_rescues": 0}),
        (LoopCrowd, {7}, {"max_rescues": 0}),
        (FileCrowd, {7}, {"concurrency": 10, "max_rescues": 0}),
        (FileCrowd, {7}, {"max_rescues": 0}),
        (PlainFileCrowd, {7}, {"concurrency": 10, "max_rescues": 0}),
    ],
    ids=[
        "10 coroutines",
        "two of them",
        "100 coroutines",
        "100 threads",
        "prefetch",
        "the loop of 10 coroutines",
        "the loop of one coroutine",
        "the files of 10 coroutines",
        "the files of one coroutine",
        "the files of 10 threads",
    ],
)
def test_ruin_no_neighbour(
    job_class: type[Job], killers: set[int], options: dict[str, int], redis_client: redis.Redis
) -> None:
    wrong = add(job_class, killers)

    def all_ended() -> bool:
        work(**options)
        return not wrong()

    wait_until(all_ended)
    assert sorted(error.type.hget() for error in Error.collection().instances()) == ["WorkerLost"] * len(killers)
    assert violations(redis_client, job_class, Queue, Error) == []


@pytest.mark.parametrize(
    ("job_class", "options"),
    [(Crowd, {}), (Crowd, {"max_loops": 100}), (PlainFileCrowd, {})],
    ids=["at any time", "once its worker begins no other job", "though it breaks its worker only"],
)
def test_is_found_among_many_in_few_rounds(
    redis_client: redis.Redis, job_class: type[Job], options: dict[str, Any]
) -> None:
    wrong, ends = add(job_class, {7}), []

    def all_ended() -> bool:
        ends.append(work(concurrency=100, max_rescues=0, **options))
        return not wrong()

    wait_until(all_ended)
    # twice with all, then with 50, 25, 12, 6, 3 and 1 of them; it need not be claimed each time
    assert ends.count(False) <= 12


def test_no_job_is_suspected_if_its_worker_was_asked_to_end_and_then_killed(redis_client: redis.Redis) -> None:
    jobs = LongCrowd.add_jobs(map(str, range(50)))
    for number in range(3):
        pid = begin_to_work(concurrency=50, terminate_gracefuly=True)
        wait_until(lambda pid=pid: all(f":{pid}:" in (job.claim_owner() or "") for job in jobs))
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda number=number: len(redis_client.keys("*:_stopping:*")) > number)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    redis_client.set("over", 1)
    wait_until(lambda: work(concurrency=50) and not LongCrowd.collection(queued="1"), "all ended")
    assert [job.hmget("status", "tries") for job in jobs] == [["s", "1"]] * 50
    redis_client.delete("over")
    assert violations(redis_client, LongCrowd, Queue, Error) == []
