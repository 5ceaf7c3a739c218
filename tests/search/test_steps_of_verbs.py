"""Verbs on all that a filter finds send nothing by themselves: what drives them may be asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from limpyd_jobs import Error, Job, NotAudited, Worker
from limpyd_jobs.query import ErrorFilter, JobFilter
from limpyd_jobs.records.audit import last_entries
from limpyd_jobs.redis.calls import Steps, finish
from limpyd_jobs.search import filter as filters

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

    monkeypatch.setattr(filters, "finish", lambda steps: asyncio.run(drive(steps)))


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
