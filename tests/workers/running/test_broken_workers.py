"""A worker that cannot keep its promises any more notices it, says so, and ends: its jobs go on elsewhere."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from invariants import violations
from parts import with_part
from running import messages, worker_of, working
from servers import wait_until

from limpyd_jobs import STATUSES, Argument, Error, Job, Queue, Worker
from limpyd_jobs.exceptions import WorkerFailed
from limpyd_jobs.workers.claiming.leases import Leases
from limpyd_jobs.workers.running import watchdog
from limpyd_jobs.workers.running.interrupting import Canceling
from limpyd_jobs.workers.running.slots import Slots

pytestmark = pytest.mark.usefixtures("jobs_database")

FOR_EVER = 60  # seconds: the tests fail long before

go_on = threading.Event()


class Base(Job):
    namespace = "broken"
    queue_name = "queue"
    seen: list[str] = []
    abstract = True

    async def note(self) -> None:
        self.seen.append(await self.aget("identifier"))


class Patient(Base):
    async def run(self, queue: Queue) -> None:
        await self.note()
        await asyncio.sleep(FOR_EVER)


class Quick(Base):
    async def run(self, queue: Queue) -> None:
        await self.note()


class Breaking(Base):
    """Jobs that break the loop of their worker when they run for the first time."""

    how = Argument(str, default="")

    async def run(self, queue: Queue) -> None:
        if await self.aget("identifier") in self.seen:
            return
        await self.note()
        loop: Any = asyncio.get_running_loop()
        if self.arguments.how == "close":
            loop._selector.close()
        elif self.arguments.how == "replace":
            loop._selector = None
        elif self.arguments.how == "hang":
            loop._selector.select = lambda timeout: go_on.wait(FOR_EVER) and []
        await asyncio.sleep(FOR_EVER)


class Stubborn(Base):
    async def run(self, queue: Queue) -> str:
        with suppress(asyncio.CancelledError):  # a slow machine may be that late
            await self.note()
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return "late"


class InThread(Base):
    """Jobs that call something in a thread, which does not end."""

    async def run(self, queue: Queue) -> None:
        await asyncio.to_thread(go_on.wait, FOR_EVER)


class InThreadForAMoment(Base):
    async def run(self, queue: Queue) -> None:
        await self.note()
        await asyncio.to_thread(int)


class WithStep(Base):
    async def run(self, queue: Queue) -> None:
        async with self.step("first"):
            pass
        async for _ in self.iterate(range(3)):
            pass


class Crowded(Base):
    """No thread can be started when the first of these jobs begins."""

    def run(self, queue: Queue) -> None: ...

    def on_started(self, queue: Queue) -> None:
        if not self.seen:
            self.seen.append("a")
            threading.stack_size(1 << 46)

    def on_error(self, *args: Any) -> None:
        threading.stack_size(0)


class AsyncCrowded(Crowded):
    async def run(self, queue: Queue) -> None: ...  # type: ignore[override]


class TakingTheLast(Base):
    """Jobs after which no thread can be started, until another of them runs."""

    def run(self, queue: Queue) -> None:
        self.seen.append(threading.current_thread().name)
        if len(self.seen) == 1:
            threading.stack_size(1 << 46)
            go_on.wait(FOR_EVER)
        threading.stack_size(0)


@pytest.fixture(autouse=True)
def _same_state_afterwards() -> Iterator[None]:
    Base.seen.clear()
    go_on.clear()
    yield
    go_on.set()
    threading.stack_size(0)


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code has a moment to end."""
    for module in ("interrupting", "event_loop"):
        monkeypatch.setattr(f"limpyd_jobs.workers.running.{module}.LAST_SECONDS", 0.1)


def many(concurrency: int = 2, jobs: int = 1000, **options: Any) -> Worker:
    return worker_of(callback=None, concurrency=concurrency, max_loops=jobs, **options)


def statuses(job_class: type[Job]) -> list[str]:
    return sorted(job.status.hget() for job in job_class.collection().instances())


def threads_of_loop() -> int:
    return min(32, (os.cpu_count() or 1) + 4)


class TestAnEventLoop:
    @pytest.mark.parametrize(
        ("how", "concurrency", "why"),
        [
            ("close", 1, "The event loop died"),
            ("close", 2, "The event loop died"),
            ("replace", 2, "The event loop died"),
            ("hang", 1, "The event loop turns no more"),
            ("hang", 2, "The event loop turns no more"),
        ],
    )
    def test_that_a_job_breaks_ends_the_worker_and_all_its_jobs_are_rescued(
        self,
        how: str,
        concurrency: int,
        why: str,
        redis_client: redis.Redis,
        log: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for name in ("IDLE_TICK", "LOOK_AGAIN_AFTER"):
            monkeypatch.setattr(watchdog, name, 0.05)
        job = Breaking.add_job("a", how=how)
        with pytest.raises(WorkerFailed, match=why):
            many(concurrency, lease=0.4).run()
        assert job.hmget("status", "tries") == [STATUSES.RUNNING, "1"]
        assert any(message.startswith(why) and "ending at once" in message for message in messages(log))
        many(concurrency, lease=0.4, jobs=1).run()
        assert job.status.hget() == STATUSES.SUCCESS
        assert violations(redis_client, Breaking, Queue, Error) == []


@pytest.mark.parametrize("concurrency", [1, 2])
class TestAThreadOfTheWorker:
    def test_that_dies_ends_it_and_its_jobs_are_rescued(
        self, concurrency: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        renew = Leases.renew

        def renew_until_it_runs(*args: Any) -> None:
            if Base.seen:
                raise SystemExit
            renew(*args)

        job = Patient.add_job("a")
        monkeypatch.setattr(Leases, "renew", renew_until_it_runs)
        with pytest.raises(WorkerFailed, match="The thread limpyd-jobs-heartbeat died: SystemExit"):
            many(concurrency, lease=0.4).run()
        assert job.status.hget() == STATUSES.RUNNING


def test_a_worker_that_cannot_listen_for_canceled_jobs_any_more_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(self: Canceling) -> None:
        raise SystemExit

    Queue.get_queue("queue")
    monkeypatch.setattr(Canceling, "_next", die)
    with pytest.raises(WorkerFailed, match="The thread limpyd-jobs-cancels died"):
        many().run()


@pytest.mark.usefixtures("_soon")
class TestACoroutineThatSwallowsItsCancellation:
    def test_is_given_up_after_its_time_and_holds_its_slot_until_it_returns(
        self, redis_client: redis.Redis, log: pytest.LogCaptureFixture
    ) -> None:
        job = Stubborn.add_job("a", job_timeout=0.05)
        worker, slots = with_part(Slots, lambda: many(jobs=5))
        with working(worker):
            wait_until(lambda: job.status.hget() == STATUSES.ERROR)
            Quick.add_jobs(["1", "2", "3"])
            wait_until(lambda: statuses(Quick) == ["s"] * 3)
            assert (slots.lost, slots.free) == (1, 1)
            go_on.set()
            wait_until(lambda: slots.free == 2)
            Quick.add_job("4")
        (error,) = Error.collection_for_job(job).instances()
        assert error.type.hget() == "JobTimeout"
        assert job.status.hget() == STATUSES.ERROR
        assert any("[a] did not end when it was to, and is given up" in message for message in messages(log))
        assert violations(redis_client, Stubborn, Quick, Queue, Error) == []

    @pytest.mark.parametrize("concurrency", [1, 2])
    def test_does_not_keep_its_identifier_once_it_is_canceled(self, concurrency: int) -> None:
        job = Stubborn.add_job("a")
        with working(many(concurrency, jobs=1, lease=0.4)):
            wait_until(lambda: Base.seen)
            job.cancel()
            wait_until(lambda: job.queued.hget() is None)
            assert job.status.hget() == STATUSES.CANCELED
            assert Stubborn.add_job("a", delayed_for=60).pk.get() != job.pk.get()

    @pytest.mark.parametrize("concurrency", [1, 2])
    def test_ends_a_worker_in_which_it_holds_all_slots(self, concurrency: int, log: pytest.LogCaptureFixture) -> None:
        jobs = Stubborn.add_jobs(map(str, range(concurrency)), job_timeout=0.05)
        waiting = Quick.add_job("waiting", priority=-1)
        worker = many(concurrency)
        worker.run()
        assert worker.num_loops == concurrency
        assert {job.status.hget() for job in jobs} == {STATUSES.ERROR}
        assert {error.type.hget() for error in Error.collection().instances()} == {"JobTimeout"}
        assert waiting.status.hget() == STATUSES.WAITING
        assert any("did not end when" in message and message.endswith(": ending") for message in messages(log))


class TestCallsInThreadsThatDoNotEnd:
    def test_hold_up_no_step_and_no_loop_of_others(self) -> None:
        InThread.add_jobs(map(str, range(threads_of_loop())))
        worker = many(threads_of_loop() + 1)
        with working(worker):
            wait_until(lambda: statuses(InThread) == ["r"] * threads_of_loop())
            job = WithStep.add_job("a")
            wait_until(lambda: job.status.hget() == STATUSES.SUCCESS)
            worker.end_forced = True
            go_on.set()

    def test_end_the_worker_once_they_hold_all_threads_and_their_jobs_have_ended(
        self, log: pytest.LogCaptureFixture
    ) -> None:
        InThread.add_jobs(map(str, range(threads_of_loop())), job_timeout=1)
        worker = many(threads_of_loop() + 1, lease=0.4)
        with working(worker):
            wait_until(lambda: statuses(InThread) == ["e"] * threads_of_loop())
            InThreadForAMoment.add_job("a")
        assert any(
            "hold all" in message and message.endswith("threads of asyncio.to_thread: ending")
            for message in messages(log)
        )
        assert statuses(InThreadForAMoment) in (["s"], ["w"])


class TestAWorkerThatCannotStartAThread:
    @pytest.mark.parametrize(("job_class", "concurrency"), [(Crowded, 2), (AsyncCrowded, 1), (AsyncCrowded, 2)])
    def test_makes_the_job_an_error_and_goes_on(
        self, job_class: type[Job], concurrency: int, redis_client: redis.Redis
    ) -> None:
        job, others = job_class.add_job("a", priority=5), job_class.add_jobs(["b", "c", "d"])
        worker, slots = with_part(Slots, lambda: many(concurrency, jobs=4))
        worker.run()
        (error,) = Error.collection_for_job(job).instances()
        assert error.message.hget().startswith("can't start new thread")
        assert [each.status.hget() for each in others] == ["s"] * 3
        assert (slots.lost, slots.free) == (0, concurrency)
        assert violations(redis_client, job_class, Queue, Error) == []

    def test_lets_the_job_wait_for_one_that_is_there(self) -> None:
        TakingTheLast.add_job("a")
        worker, slots = with_part(Slots, lambda: many(jobs=2))
        with working(worker):
            wait_until(lambda: Base.seen)
            job = TakingTheLast.add_job("b")
            wait_until(lambda: job.status.hget() == STATUSES.RUNNING)
            go_on.set()
        assert statuses(TakingTheLast) == ["s", "s"]
        assert len({*Base.seen}) == 1
        assert (slots.lost, slots.free) == (0, 2)
