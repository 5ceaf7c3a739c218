"""Verbs on all that a filter finds send nothing by themselves: what drives them may be asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from limpyd_jobs import Error, Job, NotAudited, Worker
from limpyd_jobs.classes import awaitable
from limpyd_jobs.query import ErrorFilter, JobFilter
from limpyd_jobs.records.audit import last_entries
from limpyd_jobs.redis.calls import Steps, finish

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "steps"
    queue_name = "letters"


class Registered(Letter):
    """With a way of its own to be put in a queue."""

    def enqueue_or_delay(self, *arguments: Any, **options: Any) -> None:
        super().enqueue_or_delay(*arguments, **options)


@pytest.fixture
def _driven_by_asyncio(monkeypatch: pytest.MonkeyPatch, commands: Any) -> None:
    """Let asyncio drive the steps, which may send nothing but by their requests."""

    async def drive(steps: Steps[Any]) -> Any:
        answer: Callable[[], Any] = lambda: next(steps)  # noqa: E731
        while True:
            try:
                with commands() as sent:
                    request = answer()
                assert [*sent] == []
            except StopIteration as end:
                return end.value
            try:
                reply = await asyncio.to_thread(finish, _only(request))
            except Exception as error:
                answer = lambda error=error: steps.throw(error)  # noqa: E731
            else:
                answer = lambda reply=reply: steps.send(reply)  # noqa: E731

    monkeypatch.setattr(awaitable, "finish", lambda steps: asyncio.run(drive(steps)))


def _only(request: Any) -> Steps[Any]:
    return (yield request)


@pytest.mark.usefixtures("_driven_by_asyncio")
def test_another_driver_gets_the_same_results() -> None:
    jobs = [job_class.add_job(name) for job_class in (Letter, Registered) for name in "ab"]
    Worker("letters", callback=lambda job, queue: 1 / 0, max_loops=4, logger_level=60).run()
    failed = JobFilter("status=error", "error=ZeroDivisionError")
    assert failed.requeue_all(dry_run=True) == failed.requeue_all(rate=100) == (4, 0, 0, {})
    assert {job.status.hget() for job in jobs} <= {"w", "d"}
    assert JobFilter("class=Letter").delete_all() == (2, 0, 0, {})
    assert ErrorFilter("type=ZeroDivisionError").delete_all() == (4, 0, 0, {})
    assert (len(Error.collection()), len(Letter.collection())) == (0, 0)
    entries = last_entries(Letter.get_connection(), 5)
    assert [(entry["verb"], entry["outcome"]) for entry in entries] == [
        (verb, "complete") for verb in ("delete errors", "delete", "requeue")
    ]


@pytest.mark.usefixtures("_driven_by_asyncio")
def test_it_gets_the_same_exceptions() -> None:
    Letter.add_job("a")
    Letter.get_connection().set("limpyd-jobs:audit", "of another program")
    with pytest.raises(NotAudited):
        JobFilter(Letter).cancel_all()
    assert JobFilter(Letter).cancel_all(unaudited=True).done == 1


@pytest.mark.usefixtures("redis_client")
class TestAwaited:
    """The same by the driver for asyncio that applications use."""

    def test_verbs_on_all_that_matches(self) -> None:
        for job_class in (Letter, Registered):
            job_class.add_jobs(["a", "b"])
        Worker("letters", callback=lambda job, queue: 1 / 0, max_loops=4, logger_level=60).run()

        async def main() -> list[Any]:
            failed = JobFilter("status=error", "error=ZeroDivisionError")
            tallies = [
                await failed.arequeue_all(dry_run=True, spread=10),
                await failed.arequeue_all(spread=10),
                await JobFilter("class=Letter").amove_all("others", 3),
                await JobFilter("class=Letter").adelay_all(60),
                await JobFilter("class=Letter").apromote_all(),
                await JobFilter("class=Registered").acancel_all(),
                await JobFilter("class=Letter").adelete_all(),
                await ErrorFilter("type=ZeroDivisionError").adelete_all(),
            ]
            return [tally.done for tally in tallies]

        assert asyncio.run(main()) == [4, 4, 2, 2, 2, 2, 2, 4]
        assert {entry["outcome"] for entry in last_entries(Letter.get_connection(), 9)} == {"complete"}

    def test_what_is_found(self) -> None:
        Letter.add_jobs(map(str, range(700)))

        async def main() -> None:
            some = JobFilter(Letter, status="waiting")
            assert (await some.acount()).number == some.count().number == 700
            page = await some.apage(30)
            assert page == some.page(30)
            assert await some.apage(30, page.following) == some.page(30, page.following)
            assert [job async for job in some] == list(some)
            for field in ("class", "queue", "status"):
                assert await some.afacets(field) == some.facets(field)
            awaited, found = await some.afacets("identifier"), some.facets("identifier")
            assert (awaited.others, len(awaited.counts)) == (found.others, len(found.counts))  # any of as frequent ones
            with pytest.raises(ValueError, match="1 record or more"):
                await some.apage(0)

        asyncio.run(main())

    def test_causes_of_errors(self) -> None:
        Letter.add_jobs(["a", "b"])
        Worker("letters", callback=lambda job, queue: 1 / 0, max_loops=2, logger_level=60).run()
        groups = asyncio.run(ErrorFilter().agroups())
        assert groups == ErrorFilter().groups()
        assert [(group.type, group.number) for group in groups.groups] == [("ZeroDivisionError", 2)]

    def test_a_canceled_task_says_so_in_the_audit(self) -> None:
        Letter.add_jobs(map(str, range(400)))

        async def main() -> None:
            at_work = asyncio.Event()
            doing = asyncio.create_task(JobFilter(Letter).acancel_all(progress=lambda *_: at_work.set()))
            await at_work.wait()
            doing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await doing

        asyncio.run(main())
        (entry,) = last_entries(Letter.get_connection(), 9)
        assert entry["outcome"].startswith("interrupted by")
        assert 100 <= int(entry["done"]) < 400
