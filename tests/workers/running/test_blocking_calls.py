"""Coroutines that would hold the event loop of their worker: by a wait for Redis, or by anything else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from limpyd import fields
from running import messages, work
from servers import wait_until

from limpyd_jobs import STATUSES, Argument, Error, Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.redis.blocking import guarded
from limpyd_jobs.workers.running import watchdog

pytestmark = pytest.mark.usefixtures("jobs_database")

seen: list[Any] = []
both = pytest.mark.parametrize("concurrency", [1, 2])


class Base(Job):
    namespace = "blocking"
    queue_name = "queue"
    abstract = True
    note = fields.InstanceHashField(indexable=True)
    lines = fields.ListField()


def tried(call: Callable[[], Any]) -> str:
    try:
        return f"got {call()!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


CALLS: dict[str, Callable[[Any, Queue], Any]] = {
    "await job.aget('note')": lambda job, queue: job.note.hget(),
    "await job.aset('note', …)": lambda job, queue: job.note.hset("theirs"),
    "await job.aset('lines', …)": lambda job, queue: job.lines.rpush("a"),
    "await job.aget('tries')": lambda job, queue: job.tries.hget(),
    "await asyncio.to_thread(name.hget)": lambda job, queue: queue.name.hget(),
    "await Trying.aadd_job(…)": lambda job, queue: Trying.add_job("b"),
    "await job.acancel(…)": lambda job, queue: job.cancel(),
    "await job.alog(…)": lambda job, queue: job.log("a line"),
    "await asyncio.to_thread(job.is_cancelled, …)": lambda job, queue: job.is_cancelled(),
    "await asyncio.to_thread(Trying.get, …)": lambda job, queue: Trying.get(1),
    "await asyncio.to_thread(…), with a function that does so": lambda job, queue: list(Trying.collection()),
    "async with": lambda job, queue: job.step("a").__exit__(None, None, None),
}


class Trying(Base):
    async def run(self, queue: Queue) -> None:
        BaseJobsModel.database.connection.connection_pool.disconnect()
        for advice, call in CALLS.items():
            seen.append((advice, tried(lambda call=call: call(self, queue))))
        with BaseJobsModel.database.pipeline() as pipeline:
            self.note.hset("theirs")
            seen.append(("", tried(pipeline.execute)))


class Careless(Base):
    async def run(self, queue: Queue) -> None:
        self.note.hget()


class Awaiting(Base):
    async def run(self, queue: Queue) -> None:
        await asyncio.to_thread(self.note.hset, "x")
        with_thread = await asyncio.to_thread(self.note.hget)
        seen.extend([with_thread, await self.aget("note")])


class InAnotherLoop(Base):
    """Runs a loop of its own, in a thread."""

    async def run(self, queue: Queue) -> None:
        async def other() -> str | None:
            assert asyncio.get_running_loop() not in guarded
            return str(self.identifier.hget())

        seen.append(await asyncio.to_thread(asyncio.run, other()))


class Reading(Base):
    size, text = Argument(int, default=3), Argument(str, default="")

    async def run(self, queue: Queue) -> None:
        seen.append((self.arguments.size, len(self.arguments.text)))


class Holding(Base):
    async def run(self, queue: Queue) -> None:
        await asyncio.gather(holding())


async def holding() -> None:
    wait_until(lambda: any("holds the event loop" in text for text in seen))
    time.sleep(3 * watchdog.LIMIT)  # the line above is not logged again
    seen.append("done")


class HoldingAtTheEnd(Base):
    async def run(self, queue: Queue) -> None: ...

    async def on_success(self, queue: Queue, result: Any) -> None:
        await holding()


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@both
class TestACallThatWaitsForRedis:
    def test_is_refused_before_anything_is_sent_and_named_with_its_awaitable_form(self, concurrency: int) -> None:
        job, before = Trying.add_job("a", note="ours"), {*guarded}
        work(callback=None, concurrency=concurrency)
        for advice, text in seen:
            assert text.startswith("BlockingCall: "), text
            assert text.endswith(f"until Redis answers: write {advice}") or not advice
        assert len(seen) == len(CALLS) + 1
        assert (job.status.hget(), job.note.hget(), job.lines.lmembers()) == (STATUSES.SUCCESS, "ours", [])
        assert guarded == before

    def test_makes_the_job_an_error_that_says_what_to_write(self, concurrency: int) -> None:
        job = Careless.add_job("a")
        work(callback=None, concurrency=concurrency)
        (error,) = Error.collection_for_job(job).instances()
        assert error.type.hget() == "BlockingCall"
        assert "write await job.aget('note')" in error.message.hget()

    def test_may_be_made_in_a_thread(self, concurrency: int) -> None:
        Awaiting.add_job("a")
        work(callback=None, concurrency=concurrency)
        assert seen == ["x", "x"]

    def test_may_be_made_in_loops_of_the_application(self, concurrency: int) -> None:
        InAnotherLoop.add_job("a")
        work(callback=None, concurrency=concurrency)
        assert seen == ["a"]

    def test_is_allowed_if_the_worker_says_so(self, concurrency: int) -> None:
        Trying.add_job("a", note="ours")
        work(callback=None, concurrency=concurrency, blocking_calls="allow")
        assert ("await job.aget('note')", "got 'ours'") in seen
        assert not [text for _, text in seen if "BlockingCall" in text]


@both
class TestTheArguments:
    def test_are_at_hand_if_they_are_too_long_to_come_with_the_claim(self, concurrency: int) -> None:
        Reading.add_job("a", size=5, text="x" * 70_000)
        work(callback=None, concurrency=concurrency)
        assert seen == [(5, 70_000)]

    def test_are_at_hand_if_the_worker_did_not_get_the_reply_to_its_claim(
        self, concurrency: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Reading.add_job("a", size=5, text="yes")
        monkeypatch.setattr("limpyd_jobs.models.claims.job_claim.know_arguments", lambda job, texts: None)
        work(callback=None, concurrency=concurrency)
        assert seen == [(5, 3)]


class Noting(Worker):
    def log(self, message: str, level: str = "info") -> None:
        seen.append(message)
        super().log(message, level)


class TestTheWatchdog:
    @pytest.mark.parametrize("job_class", [Holding, HoldingAtTheEnd])
    @both
    def test_names_the_job_and_the_line_that_holds_the_loop_once(
        self, job_class: type[Job], concurrency: int, log: pytest.LogCaptureFixture
    ) -> None:
        job_class.add_job("a")
        work(callback=None, concurrency=concurrency, worker_class=Noting)
        told = [text for text in messages(log) if "wait_until(" in text]
        assert len(told) == 1
        assert told[0].startswith("[a] holds the event loop for longer than 0.1 s: ")
        assert f"{__file__}:" in told[0]
        assert ", in holding: wait_until(lambda:" in told[0]
        assert "servers.py:" in told[0]

    def test_ends_with_the_loop(self) -> None:
        Awaiting.add_job("a")
        work(callback=None)
        names = {"limpyd-jobs-watchdog", "limpyd-jobs-coroutines"}
        wait_until(lambda: names.isdisjoint(thread.name for thread in threading.enumerate()))


class TestUvloop:
    @both
    @pytest.mark.filterwarnings("ignore:.*(event_loop_policy|EventLoopPolicy):DeprecationWarning")  # until Python 3.16
    def test_may_be_the_loop_of_the_worker(self, concurrency: int, monkeypatch: pytest.MonkeyPatch) -> None:
        uvloop = pytest.importorskip("uvloop")
        policy = asyncio.get_event_loop_policy()
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        monkeypatch.setattr(watchdog, "LIMIT", 0.02)
        try:
            for job_class in (Careless, Awaiting, InAnotherLoop, Holding):
                job_class.add_job("a")
            work(callback=None, concurrency=concurrency, max_loops=4, worker_class=Noting)
        finally:
            asyncio.set_event_loop_policy(policy)
        assert sum("BlockingCall" in str(text) for text in seen) == 1
        assert seen.count("x") == 2
        assert any("[a] holds the event loop" in str(text) for text in seen)
        assert "done" in seen
