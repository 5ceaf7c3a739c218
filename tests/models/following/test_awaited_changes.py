"""Tasks of a loop wait for changes, ends and results of jobs: over one connection for each class."""

from __future__ import annotations

import asyncio
import gc
from threading import Thread
from typing import Any

import pytest
import redis
from limpyd import fields
from running import work
from servers import RedisServer, free_port

from limpyd_jobs import (
    Job,
    JobCanceled,
    JobFailed,
    JobGone,
    LimpydJobsException,
    NoResult,
    Queue,
    ResultTimeout,
)
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models.following.changes import JobChange
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.redis.lines import line_to

pytestmark = pytest.mark.usefixtures("redis_client")


class Sum(Job):
    namespace = "awaited"
    queue_name = "sums"
    keep_result = True

    def run(self, queue: Any) -> Any:
        return int(self.identifier.hget())


class Silent(Job):
    namespace = "awaited"
    queue_name = "silent"


class Waited(Job):
    """With a way of its own to wait."""

    namespace = "awaited"
    queue_name = "sums"
    keep_result = True

    def wait(self, timeout: float | None = None) -> bool:
        return not super().wait(0)


class Ward(Job):
    """Written for version 2, with a field of that name."""

    namespace = "awaited"
    queue_name = "wards"
    notify_changes = True
    wait = fields.InstanceHashField()  # type: ignore[assignment]


def in_thread(loops: int) -> Thread:
    thread = Thread(
        target=work, args=("sums",), kwargs={"callback": None, "max_loops": loops, "terminate_gracefuly": False}
    )
    thread.start()
    return thread


def blocked(client: redis.Redis) -> int:
    return int(client.info("clients")["blocked_clients"])


def test_many_tasks_wait_over_one_connection(redis_client: redis.Redis, commands: Any) -> None:
    async def main() -> list[Any]:
        jobs = await Sum.aadd_jobs(map(str, range(40)))
        tasks = [asyncio.create_task(job.aresult(60)) for job in jobs]
        while not blocked(redis_client):
            await asyncio.sleep(0.001)
        assert blocked(redis_client) == 1
        worker = in_thread(40)
        results = await asyncio.gather(*tasks)
        await asyncio.to_thread(worker.join)
        while blocked(redis_client):
            await asyncio.sleep(0.001)
        return results

    assert asyncio.run(main()) == list(range(40))


def test_the_end_of_a_job_is_awaited() -> None:
    job = Sum.add_job("7")

    async def main() -> None:
        assert not await job.await_end(0)
        assert not await job.await_end(0.01)
        waits = [asyncio.create_task(job.await_end()) for _ in range(3)]
        await asyncio.sleep(0)
        waits[0].cancel()
        worker = in_thread(1)
        assert await asyncio.gather(*waits[1:]) == [True, True]
        assert await job.await_end(0)
        assert await job.await_end(60)
        await asyncio.to_thread(worker.join)

    asyncio.run(main())


def test_each_way_to_end_is_told() -> None:
    async def main() -> None:
        names = ("failed", "canceled", "gone", "expired", "waits")
        failed, canceled, gone, expired, waits = await Sum.aadd_jobs(names)
        await canceled.acancel()
        await gone.acancel()
        await Sum.lazy_connect(gone.pk.get()).adelete()
        await expired.acancel()
        await expired.aset("status", "s")
        for job, error in ((canceled, JobCanceled), (gone, JobGone), (expired, NoResult)):
            for timeout in (0, 60):
                with pytest.raises(error):
                    await job.aresult(timeout)
        for timeout in (0, 0.01):
            with pytest.raises(ResultTimeout, match="has not ended"):
                await waits.aresult(timeout)
        worker = in_thread(1)
        with pytest.raises(JobFailed, match="invalid literal"):
            await failed.aresult(60)
        await asyncio.to_thread(worker.join)

    asyncio.run(main())


def test_classes_that_keep_or_notify_nothing_are_refused(redis_client: redis.Redis) -> None:
    job = Silent.add_job("1")
    with pytest.raises(ConfigurationException, match="keep_result = True"):
        asyncio.run(job.aresult())
    with pytest.raises(ConfigurationException, match="notify_changes = True"):
        asyncio.run(job.await_end())
    with pytest.raises(ConfigurationException, match="notify_changes = True"):
        Silent.achanges()
    other = Sum.add_job("1")
    redis_client.delete("awaited:sum:changes")
    redis_client.set("awaited:sum:changes", "of another program")
    with pytest.raises(LimpydJobsException, match="is not a stream"):
        asyncio.run(other.await_end(60))


def test_an_own_way_to_wait_is_called_and_a_field_of_that_name_is_not() -> None:
    assert asyncio.run(Waited.add_job("1").await_end()) is True
    assert asyncio.run(Ward.add_job("1", wait="long").await_end(0)) is False


def test_it_waits_on_while_redis_is_away(redis_binary: str) -> None:
    with RedisServer(redis_binary, "--appendonly", "yes", port=free_port()) as server:
        there = Sum.bound_to(JobsDatabase(host="127.0.0.1", port=server.port))

        async def main() -> None:
            job = await there.aadd_job("7")
            waits = asyncio.create_task(job.await_end(60))
            with server.client() as client:
                while not blocked(client):
                    await asyncio.sleep(0.001)
            server.stop()
            told = ""
            while "Redis did not answer" not in told:  # at first the listener may not know yet
                with pytest.raises(ResultTimeout) as caught:
                    await job.aresult(0.05)
                told = str(caught.value)
            await asyncio.to_thread(server.start)
            while True:
                try:
                    await job.acancel()
                    break
                except redis.ConnectionError:
                    await asyncio.sleep(0.01)
            assert await waits

        asyncio.run(main())


def test_changes_come_in_their_order() -> None:
    async def main() -> list[JobChange]:
        async with Sum.achanges(timeout=60) as changes:
            jobs = await Sum.aadd_jobs(["1", "2"])
            await jobs[0].acancel()
            return [await anext(changes) for _ in range(3)]

    found = asyncio.run(main())
    assert [(change.pk, change.what, change.status) for change in found] == [
        *(("1", "made", "w"), ("2", "made", "w"), ("1", "changed", "c"))
    ]


def test_who_gives_up_a_change_gets_it_the_next_time() -> None:
    async def main() -> list[str]:
        seen = []
        async with Sum.achanges() as changes:
            for number in range(20):
                with pytest.raises((TimeoutError, asyncio.TimeoutError)):
                    await asyncio.wait_for(changes.__anext__(), 0.001)
                await Sum.aadd_job(f"{number}")
                seen.append((await changes.__anext__()).pk)
        assert [change async for change in changes] == []
        return seen

    assert asyncio.run(main()) == [f"{number}" for number in range(1, 21)]


def test_changes_that_are_kept_are_read_and_the_iteration_ends() -> None:
    Sum.add_jobs(map(str, range(700)))

    async def main() -> int:
        return len([change async for change in Sum.achanges(timeout=0.01, since="0")])

    assert asyncio.run(main()) == 700
    with pytest.raises(ValueError, match="since"):
        Sum.achanges(since="yesterday")


def test_changes_of_queues_are_those_of_their_names() -> None:
    async def main() -> set[str]:
        async with Queue.achanges("sums", timeout=0.05) as changes:
            await Sum.aadd_job("1")
            await Sum.aadd_job("2", "others")
            return {change.pk async for change in changes if change.model is Sum}

    assert asyncio.run(main()) == {"1"}


def test_changes_without_a_reference_close_their_connection(redis_client: redis.Redis) -> None:
    async def main() -> None:
        async for _ in Sum.achanges(since="0"):
            break
        gc.collect()
        before = blocked(redis_client)
        number = len(redis_client.client_list())
        while len(redis_client.client_list()) >= number and before:
            await asyncio.sleep(0.001)
        await line_to(Sum.get_connection()).execute(("PING",))

    Sum.add_job("1")
    asyncio.run(main())
