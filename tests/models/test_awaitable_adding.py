"""Adding jobs under asyncio: the same jobs, refusals and ways of an application as without."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from invariants import violations
from limpyd import fields
from limpyd.contrib.indexes import TextRangeIndex
from limpyd.exceptions import UniquenessError

from limpyd_jobs import STATUSES, Job, LimpydJobsException, Queue, Worker
from limpyd_jobs.events import subscribe, unsubscribe
from limpyd_jobs.observing.instruments import Adding, Instrument
from limpyd_jobs.testing import jobs_at_once

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "awaitable"
    queue_name = "letters"
    to = fields.InstanceHashField()
    code = fields.InstanceHashField(unique=True)
    city = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex])
    lines = fields.ListField()


class Parcel(Job):
    namespace = "awaitable"
    queue_name = "parcels"
    max_job_bytes = 100
    to = fields.InstanceHashField()


class Translated(Job):
    namespace = "awaitable"
    queue_name = "translated"
    threads: list[threading.Thread] = []

    @classmethod
    def add_job(cls, number: int, colour: str = "red") -> Any:
        cls.threads.append(threading.current_thread())
        return super().add_job(f"{colour}:{number}")


class TranslatedTwice(Translated):
    @classmethod
    async def aadd_job(cls, number: int) -> Any:
        return await super().aadd_job(f"own:{number}")


class Placed(Job):
    namespace = "awaitable"
    queue_name = "placed"

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        if self.identifier.hget() == "refused":
            raise LookupError("no place for it")
        super().enqueue_or_delay(*args, **kwargs)


class Shelf(Queue):
    """With a field that only limpyd can write, so that a queue is made before its first job."""

    namespace = "awaitable"
    label = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex], default="none")


class Shelved(Job):
    namespace = "awaitable"
    queue_name = "shelved"
    queue_model = Shelf


Add = Callable[..., Any]


def by_asyncio(method: Callable[..., Coroutine[Any, Any, Any]]) -> Add:
    return lambda *args, **kwargs: asyncio.run(method(*args, **kwargs))


@pytest.mark.parametrize("name", ["add_job", "aadd_job"])
def test_it_takes_the_same_arguments(name: str) -> None:
    method = getattr(Letter, name)
    add = by_asyncio(method) if name == "aadd_job" else method
    first = add("1", "urgent", 5, to="ann", code="x", city="Paris", lines=["a", "b"])
    assert (first.to.hget(), first.lines.lmembers(), first.priority.hget()) == ("ann", ["a", "b"], "5")
    assert Letter.get(city__gte="Par") == first
    assert add("1", "urgent", prepend=True) == first
    assert Queue.get_queue("urgent", 0).waiting.lmembers() == [first.ident]
    later = add("2", delayed_for=timedelta(hours=1))
    assert later.status.hget() == STATUSES.DELAYED
    assert add("3", delayed_until=datetime(2020, 1, 1)).status.hget() == STATUSES.WAITING
    with pytest.raises(UniquenessError):
        add("4", code="x", lines=["c"])
    with pytest.raises(AttributeError):
        add("5", of="nobody")
    with pytest.raises(ValueError, match="exclusive"):
        add("6", delayed_for=1, delayed_until=datetime(2030, 1, 1))
    assert len(Letter.collection()) == 3
    assert violations(Letter.get_connection()) == []


def test_of_tasks_that_add_the_same_identifier_all_get_the_same_job() -> None:
    async def main() -> set[Any]:
        return {job.pk.get() for job in await asyncio.gather(*(Parcel.aadd_job("same") for _ in range(50)))}

    assert len(asyncio.run(main())) == 1
    assert len(Parcel.collection()) == 1


def test_a_job_that_is_too_large_or_has_no_queue_is_refused() -> None:
    with pytest.raises(ValueError, match="max_job_bytes"):
        asyncio.run(Parcel.aadd_job("1", to="x" * 200))
    with pytest.raises(LimpydJobsException, match="Queue's name not defined"):
        asyncio.run(Job.aadd_job("1"))


def test_many_are_added_in_their_order_and_progress_is_told() -> None:
    told: list[int] = []
    names = [f"{i}" for i in range(600)]

    async def main() -> list[Parcel]:
        return await Parcel.aadd_jobs([*names, {"identifier": "b", "priority": 3}], progress=told.append, to="ann")

    jobs = asyncio.run(main())
    assert told == [250, 500, 600, 601]
    assert (jobs[300].identifier.hget(), jobs[600].priority.hget()) == ("300", "3")
    assert Queue.get_queue("parcels").waiting.lmembers() == [job.ident for job in jobs[:600]]


def test_many_with_unique_fields_are_added_one_by_one() -> None:
    jobs = asyncio.run(Letter.aadd_jobs([{"identifier": f"{i}", "code": f"{i}"} for i in range(3)]))
    assert [job.code.hget() for job in jobs] == ["0", "1", "2"]


def test_what_overrides_add_job_is_called_in_a_thread() -> None:
    Translated.threads.clear()
    job = asyncio.run(Translated.aadd_job(3, colour="blue"))  # type: ignore[arg-type]
    assert job.identifier.hget() == "blue:3"
    assert threading.main_thread() not in Translated.threads


def test_what_overrides_both_is_not_passed_through_the_other() -> None:
    assert asyncio.run(TranslatedTwice.aadd_job(3)).identifier.hget() == "own:3"


def test_an_own_way_to_put_a_job_in_a_queue_is_called() -> None:
    job = asyncio.run(Placed.aadd_job("1", priority=2))
    assert Queue.get_queue("placed", 2).waiting.lmembers() == [job.ident]
    with pytest.raises(LookupError):
        asyncio.run(Placed.aadd_job("refused"))
    assert Placed.get(identifier="refused").queued.hget() is None


def test_a_queue_that_only_limpyd_can_make_is_made_before() -> None:
    job = asyncio.run(Shelved.aadd_job("1"))
    assert Shelf.get_queue("shelved").waiting.lmembers() == [job.ident]
    assert Shelf.get(label__gte="non").name.hget() == "shelved"


def test_a_script_that_redis_forgot_is_sent_again(redis_client: redis.Redis) -> None:
    async def main() -> list[Any]:
        await Parcel.aadd_job("1")
        redis_client.script_flush()
        return await asyncio.gather(*(Parcel.aadd_job(f"{i}") for i in range(2, 12)))

    assert len(asyncio.run(main())) == 10


def test_instruments_stand_around_each_task() -> None:
    class Traced(Instrument):
        def __init__(self) -> None:
            self.seen: list[Adding] = []

        def adding(self, adding: Adding) -> Any:
            self.seen.append(adding)
            return super().adding(adding)

    traced = Traced()
    subscribe(traced)
    try:

        async def main() -> list[str]:
            jobs = await asyncio.gather(*(Parcel.aadd_job(f"{i}") for i in range(3)), Parcel.aadd_jobs(["x"]))
            return [each.ident for each in (*jobs[:3], *jobs[3])]

        idents = asyncio.run(main())
    finally:
        unsubscribe(traced)
    assert [ident for adding in traced.seen for ident in adding.idents] == idents


def test_a_canceled_task_adds_its_job_or_does_not() -> None:
    async def main() -> int:
        tasks = [asyncio.create_task(Letter.aadd_job(f"{i}", code=f"{i}", lines=["a"])) for i in range(60)]
        await Parcel.aadd_job("first")
        for number, task in enumerate(tasks):
            await asyncio.sleep(0)
            if number % 3:
                task.cancel()
        replies = await asyncio.gather(*tasks, return_exceptions=True)
        return sum(isinstance(reply, Letter) for reply in replies)

    done = asyncio.run(main())
    assert 20 <= done <= len(Letter.collection()) <= 60
    assert violations(Letter.get_connection()) == []


def test_in_a_block_that_runs_jobs_at_once_they_are_run() -> None:
    class_of_jobs = type("Errand", (Job,), {"namespace": "awaitable", "queue_name": "errands", "run": _run})
    with jobs_at_once():
        job = asyncio.run(class_of_jobs.aadd_job("1"))
        jobs = asyncio.run(class_of_jobs.aadd_jobs(["2", "3"]))
    assert {each.status.hget() for each in (job, *jobs)} == {STATUSES.SUCCESS}


def _run(self: Any, queue: Queue) -> None:
    """Do nothing."""


def test_a_worker_runs_what_was_added() -> None:
    jobs = asyncio.run(Parcel.aadd_jobs(["1", "2"]))
    Worker("parcels", callback=lambda job, queue: None, max_loops=2).run()
    assert {job.status.hget() for job in jobs} == {STATUSES.SUCCESS}
