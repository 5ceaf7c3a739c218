"""A worker of several slots: coroutines and ordinary functions at once, and how they end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from invariants import violations
from parts import calls_of, with_part
from running import messages, worker_of, working
from servers import wait_until

from limpyd_jobs import STATUSES, Argument, ConfigurationException, Error, Job, Queue, Worker, events
from limpyd_jobs.models import job as job_module
from limpyd_jobs.models import job_classes
from limpyd_jobs.observing.instruments import Instrument, Running
from limpyd_jobs.retrying import Cancel, Requeue
from limpyd_jobs.workers.claiming import stock
from limpyd_jobs.workers.claiming.claimer import Claimer
from limpyd_jobs.workers.claiming.waiter import Waiter
from limpyd_jobs.workers.running import turns
from limpyd_jobs.workers.running.endings import Endings
from limpyd_jobs.workers.running.interrupting import Canceling

pytestmark = pytest.mark.usefixtures("jobs_database")

FOR_EVER = 60  # seconds: the tests fail long before


class Base(Job):
    namespace = "many"
    queue_name = "queue"
    seen: list[Any] = []
    abstract = True


class Meeting(Base):
    """Jobs that end once all of them have begun."""

    all_there = threading.Event()
    number = 0
    begun = 0
    lock = threading.Lock()

    @classmethod
    def arrive(cls) -> None:
        with Meeting.lock:
            Meeting.begun += 1
            if Meeting.begun == Meeting.number:
                Meeting.all_there.set()

    async def run(self, queue: Queue) -> None:
        self.arrive()
        while not Meeting.all_there.is_set():
            await asyncio.sleep(0.005)


class PlainMeeting(Meeting):
    def run(self, queue: Queue) -> None:  # type: ignore[override]
        self.arrive()
        Meeting.all_there.wait(FOR_EVER)


class Various(Base):
    kind = Argument(str, default="")

    async def run(self, queue: Queue) -> Any:
        await asyncio.sleep(0)
        if self.arguments.kind == "fail":
            raise ValueError("it failed")
        if self.arguments.kind == "requeue":
            raise Requeue(delayed_for=60)
        if self.arguments.kind == "cancel":
            raise Cancel("no need")
        if self.arguments.kind == "exit":
            raise SystemExit(3)
        if self.arguments.kind == "factory":
            asyncio.get_running_loop().set_task_factory(lambda *args, **options: 1 / 0)
        if self.arguments.kind == "alone":
            await asyncio.sleep(0.05)
        return "done"


class PlainVarious(Base):
    kind = Argument(str, default="")

    def run(self, queue: Queue) -> Any:
        if self.arguments.kind == "fail":
            raise ValueError("it failed")
        if self.arguments.kind == "generator":
            return (number for number in range(3))
        if self.arguments.kind == "requeue":
            raise Requeue(delayed_for=60)
        if self.arguments.kind == "cancel":
            raise Cancel("no need")
        return "done"


class Methods(Base):
    async def run(self, queue: Queue) -> None:
        self.seen.append("run")

    async def on_started(self, queue: Queue) -> None:
        await asyncio.sleep(0)
        self.seen.append("started")

    async def on_success(self, queue: Queue, result: Any) -> None:
        await asyncio.sleep(0.01)
        self.seen.append("success")


class PlainMethods(Methods):
    def run(self, queue: Queue) -> None:  # type: ignore[override]
        self.seen.append("run")


class FailingMethod(Methods):
    async def on_success(self, queue: Queue, result: Any) -> None:
        raise ValueError("the method failed")


class Unsafe(Base):
    thread_safe = False
    running = 0

    def run(self, queue: Queue) -> None:
        Base.seen.append(Alone.running)
        time.sleep(0.02)
        Base.seen.append(Alone.running)


class Alone(Base):
    running = 0
    lock = threading.Lock()

    def run(self, queue: Queue) -> None:
        with Alone.lock:
            Alone.running += 1
        time.sleep(0.02)
        with Alone.lock:
            Alone.running -= 1


class Patient(Base):
    async def run(self, queue: Queue) -> None:
        self.seen.append(self.ident)
        await asyncio.sleep(FOR_EVER)


class PatientInLoop(Base):
    """A coroutine that keeps how far it is."""

    async def run(self, queue: Queue) -> None:
        async for number in self.iterate(range(3)):
            if number:
                self.seen.append(self.ident)
                await asyncio.sleep(FOR_EVER)


class Stubborn(Base):
    async def run(self, queue: Queue) -> None:
        self.seen.append(self.ident)
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(FOR_EVER)


class StubbornPlain(Base):
    go_on = threading.Event()

    def run(self, queue: Queue) -> None:
        self.seen.append(self.ident)
        self.go_on.wait(FOR_EVER)


class Asking(Base):
    def run(self, queue: Queue) -> None:
        self.seen.append(self.ident)
        while not self.is_cancelled():
            time.sleep(0.005)


class Ordered(Base):
    async def run(self, queue: Queue) -> None:
        self.seen.append(await asyncio.to_thread(queue.priority.hget))


class Chain(Base):
    async def run(self, queue: Queue) -> None:
        await asyncio.sleep(0.05)
        if await self.aget("identifier") == "first":
            await asyncio.to_thread(type(self).add_job, "second")


class Ending(Base):
    async def run(self, queue: Queue) -> None:
        self.seen.append(self.ident)
        while len(self.seen) < 5:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)


class Holding(Base):
    """Jobs that hold the loop, so that nothing else runs on it."""

    async def run(self, queue: Queue) -> None:
        self.seen.append(self.ident)
        while len(self.seen) < 5:
            await asyncio.sleep(0.005)
        StubbornPlain.go_on.wait(FOR_EVER)


class Quick(Base):
    async def run(self, queue: Queue) -> None: ...


class Polling(Base):
    async def run(self, queue: Queue) -> None:
        self.seen.append(self.ident)
        while not StubbornPlain.go_on.is_set():
            await asyncio.sleep(0.005)


class Killer(Base):
    async def run(self, queue: Queue) -> None:
        await asyncio.sleep(0.05)
        if await self.aget("identifier") == "killer":
            os._exit(1)
        await asyncio.sleep(0.05)


@pytest.fixture(autouse=True)
def _same_state_afterwards() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in numbers}
    Base.seen.clear()
    StubbornPlain.go_on.clear()
    yield
    StubbornPlain.go_on.set()
    for number, handler in before.items():
        signal.signal(number, handler)


def many(jobs: int, concurrency: int = 10, **options: Any) -> Worker:
    return worker_of(callback=None, concurrency=concurrency, max_loops=jobs, **options)


def run(jobs: int, concurrency: int = 10, **options: Any) -> Worker:
    worker = many(jobs, concurrency, **options)
    worker.run()
    return worker


def statuses(job_class: type[Job]) -> list[str]:
    return sorted(job.status.hget() for job in job_class.collection().instances())


def meet(number: int) -> None:
    Meeting.number, Meeting.begun = number, 0
    Meeting.all_there.clear()


class TestJobs:
    @pytest.mark.parametrize("job_class", [Meeting, PlainMeeting])
    def test_run_as_many_at_once_as_there_are_slots(self, job_class: type[Job], redis_client: redis.Redis) -> None:
        meet(10)
        job_class.add_jobs(map(str, range(30)))
        run(30)
        assert statuses(job_class) == ["s"] * 30
        assert violations(redis_client, job_class, Queue, Error) == []

    def test_may_be_awaited_by_an_ordinary_callback(self) -> None:
        job = Various.add_job("a", kind="")
        worker_of(callback=lambda job, queue: job.run(queue), concurrency=2).run()
        assert job.status.hget() == STATUSES.SUCCESS

    def test_of_both_kinds_are_mixed_in_one_queue(self) -> None:
        meet(10)
        for number in range(5):
            Meeting.add_job(str(number))
            PlainMeeting.add_job(str(number))
        run(10)
        assert Meeting.begun == 10
        assert statuses(Meeting) + statuses(PlainMeeting) == ["s"] * 10

    @pytest.mark.parametrize("job_class", [Various, PlainVarious])
    def test_end_as_they_do_one_by_one(
        self, job_class: type[Job], redis_client: redis.Redis, log: pytest.LogCaptureFixture
    ) -> None:
        jobs = {kind: job_class.add_job(kind, kind=kind) for kind in ("fail", "requeue", "cancel", "plain")}
        worker = run(4)
        assert [job.status.hget() for job in jobs.values()] == ["e", "d", "c", "s"]
        assert worker.num_loops == 4
        (error,) = Error.collection_for_job(jobs["fail"]).instances()
        assert "it failed" in error.message.hget()
        assert 'raise ValueError("it failed")' in error.traceback.hget()
        assert violations(redis_client, job_class, Queue, Error) == []
        assert sum("success, in" in message for message in messages(log)) == 1

    def test_that_return_what_is_not_run_are_errors(self) -> None:
        job = PlainVarious.add_job("a", kind="generator")
        run(1)
        (error,) = Error.collection_for_job(job).instances()
        assert error.type.hget() == "CodeNotRun"

    def test_come_while_others_run_without_ending_their_wait(self) -> None:
        meet(2)
        Meeting.add_job("first")
        with working(many(2)):
            wait_until(lambda: Meeting.begun == 1)
            Meeting.add_job("second")
        assert statuses(Meeting) == ["s", "s"]

    def test_of_a_higher_priority_come_first_as_slots_get_free(self) -> None:
        Ordered.add_jobs(map(str, range(4)))
        Ordered.add_jobs([f"high {number}" for number in range(4)], priority=5)
        run(8, 2)
        assert Base.seen[:2] == ["5", "5"]
        assert sorted(Base.seen) == ["0"] * 4 + ["5"] * 4

    def test_that_exit_end_the_worker_when_the_others_have_ended(self) -> None:
        other = Various.add_job("other", kind="alone")
        job = Various.add_job("a", kind="exit")
        with pytest.raises(SystemExit):
            run(100)
        assert [job.status.hget(), other.status.hget()] == ["e", "s"]

    def test_begin_whatever_factory_of_tasks_one_of_them_gives_the_loop(self) -> None:
        Various.add_job("bad", kind="factory")
        Quick.add_jobs(map(str, range(5)))
        run(6, 2)
        assert statuses(Quick) == ["s"] * 5

    def test_may_be_a_burst_that_ends_when_none_runs_any_more(self) -> None:
        Chain.add_job("first")
        worker = many(1000, burst=True)
        worker.run()
        assert statuses(Chain) == ["s", "s"]

    @pytest.mark.parametrize("concurrency", [1, 10])
    def test_leave_nothing_to_the_garbage_collector(self, concurrency: int) -> None:
        """To look for it would stop all that run at once for some 50 ms, again and again."""
        Quick.add_jobs(map(str, range(100)))
        gc.collect()
        gc.disable()
        try:
            run(100, concurrency)
            assert gc.collect() < 1000  # what a worker, or an earlier test, leaves; a cycle of each job is ten objects
        finally:
            gc.enable()

    def test_have_instruments_around_them(self) -> None:
        class Noting(Instrument):
            def running(self, running: Running) -> Any:
                Base.seen.append(running.attempt)
                return super().running(running)

        noting = Noting()
        events.subscribe(noting)
        try:
            Various.add_job("a")
            run(1)
        finally:
            events.unsubscribe(noting)
        assert Base.seen == [1]


class TestAJobThatIsNotThreadSafe:
    def test_runs_alone(self) -> None:
        for number in range(6):
            Alone.add_job(str(number))
            Unsafe.add_job(str(number))
        run(12)
        assert Base.seen == [0] * 12
        assert statuses(Alone) + statuses(Unsafe) == ["s"] * 12


class TestAsyncMethodsOfJobs:
    @pytest.mark.parametrize("job_class", [Methods, PlainMethods])
    def test_are_awaited_before_and_after(self, job_class: type[Job]) -> None:
        job_class.add_job("a")
        run(1)
        assert Base.seen == ["started", "run", "success"]

    def test_that_fail_are_logged(self, log: pytest.LogCaptureFixture) -> None:
        job = FailingMethod.add_job("a")
        run(1)
        assert job.status.hget() == STATUSES.SUCCESS
        assert any("the method failed" in message for message in messages(log))


class TestATimeLimit:
    @pytest.mark.parametrize("job_class", [Patient, StubbornPlain])
    def test_makes_a_job_an_error(
        self, job_class: type[Job], redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("limpyd_jobs.workers.running.interrupting.LAST_SECONDS", 0.05)
        job, other = job_class.add_job("a", job_timeout=0.05), Various.add_job("b")
        run(2)
        (error,) = Error.collection_for_job(job).instances()
        assert error.hmget("type", "message") == ["JobTimeout", "It ran for more than 0.05 seconds"]
        assert other.status.hget() == STATUSES.SUCCESS
        assert violations(redis_client, job_class, Various, Queue, Error) == []

    def test_is_told_to_code_in_a_thread_that_asks(self) -> None:
        job = Asking.add_job("a", job_timeout=0.05)
        run(1)
        (error,) = Error.collection_for_job(job).instances()
        assert error.type.hget() == "JobTimeout"

    def test_that_all_threads_ignore_ends_the_worker(
        self, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("limpyd_jobs.workers.running.interrupting.LAST_SECONDS", 0.05)
        StubbornPlain.add_jobs([str(number) for number in range(3)], job_timeout=0.05)
        worker = run(1000, 2)
        assert worker.num_loops == 2
        assert any("2 jobs did not end when their time was over" in message for message in messages(log))


class TestTheEnd:
    def end(self, job_class: type[Job], jobs: int, **options: Any) -> float:
        """Ask a worker to end once all jobs run; return how many seconds it took."""
        job_class.add_jobs(map(str, range(jobs)))
        asked: list[float] = []

        def ask() -> None:
            wait_until(lambda: len(Base.seen) >= jobs)
            asked.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=ask)
        thread.start()
        many(1000, jobs, terminate_gracefuly=True, **options).run()
        thread.join()
        return time.monotonic() - asked[0]

    @pytest.mark.parametrize("job_class", [Patient, Stubborn, StubbornPlain, Asking])
    def test_after_the_grace_period_releases_the_jobs_in_their_order(
        self, job_class: type[Job], redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("limpyd_jobs.workers.running.interrupting.LAST_SECONDS", 0.1)
        self.end(job_class, 20, grace_period=0.05)
        assert statuses(job_class) == ["w"] * 20
        assert {job.tries.hget() for job in job_class.collection().instances()} == {None}
        waiting = Queue.get_queue("queue").waiting.lmembers()
        assert sorted(waiting) == sorted(Base.seen)
        assert violations(redis_client, job_class, Queue, Error) == []

    def test_waits_for_the_jobs_and_begins_no_other(self, redis_client: redis.Redis) -> None:
        self.end(Ending, 5)
        assert statuses(Ending) == ["s"] * 5

    def test_by_a_keyboard_interrupt_releases_them(self) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        Patient.add_jobs(map(str, range(5)))

        def ask() -> None:
            wait_until(lambda: len(Base.seen) == 5)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=ask)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run(1000)
        thread.join()
        assert statuses(Patient) == ["w"] * 5


@pytest.fixture
def claiming_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker claim jobs ahead even if a task is due."""

    def may_claim(waiter: Waiter) -> bool:
        begins_no_more = waiter.context.state.is_quiet or waiter.worker.must_stop()
        return not (begins_no_more or waiter.stock.releasing)

    job_classes.look_again()  # what is claimed together ends at a job of a class that is not known yet
    monkeypatch.setattr(Waiter, "may_claim", property(may_claim))


@pytest.mark.usefixtures("claiming_ahead")
class TestClaimingAhead:
    @pytest.mark.parametrize("why", ["late", "quiet", "stop"])
    def test_releases_what_does_not_begin(
        self, why: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stock, "MAX_WAIT_AHEAD", 0.3 if why == "late" else FOR_EVER)
        waiting = Queue.get_queue("queue").waiting
        jobs = Polling.add_jobs(map(str, range(20)))
        found: list[bool] = []

        def look() -> None:
            try:
                wait_until(lambda: waiting.llen() == 8 and len(Base.seen) == 2)
                if why != "late":
                    os.kill(os.getpid(), signal.SIGUSR2 if why == "quiet" else signal.SIGTERM)
                wait_until(lambda: waiting.lmembers() == [job.ident for job in jobs[2:]])
                found.extend((len(Base.seen) == 2, jobs[2].tries.hget() is None))
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                StubbornPlain.go_on.set()

        thread = threading.Thread(target=look)
        thread.start()
        many(1000, 2, prefetch=10, terminate_gracefuly=True, grace_period=FOR_EVER).run()
        thread.join()
        assert found == [True, True]

    def test_lets_ends_wait_for_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(turns, "MAX_ACK_DELAY", FOR_EVER)
        record, steps = Endings.record, []

        def counted(self: Endings, limit: int = 0) -> int:
            steps.append(limit)
            return record(self, limit)

        monkeypatch.setattr(Endings, "record", counted)
        Quick.add_jobs(map(str, range(200)))
        run(200, 2, prefetch=10)
        assert statuses(Quick) == ["s"] * 200
        assert len(steps) < 80


class TestTheLeases:
    def test_are_renewed_while_the_loop_is_held(self, redis_client: redis.Redis) -> None:
        jobs = Holding.add_jobs(map(str, range(5)))
        leases = f"{Queue.get_queue('queue').key.removesuffix(':hash')}:_running"

        def ends() -> list[float]:
            return [redis_client.zscore(leases, job.ident) or 0.0 for job in jobs]

        with working(many(5, lease=2)):
            wait_until(lambda: len(Base.seen) == 5)
            before = ends()
            wait_until(lambda: all(new > old for new, old in zip(ends(), before, strict=True)))
            StubbornPlain.go_on.set()
        assert [job.tries.hget() for job in jobs] == ["1"] * 5

    @pytest.mark.parametrize("job_class", [Patient, PatientInLoop])
    def test_of_canceled_jobs_cancel_their_coroutines(self, job_class: type[Job]) -> None:
        job = job_class.add_job("a")
        with working(many(1, lease=0.4)):
            wait_until(lambda: Base.seen)
            job.cancel()
        assert job.status.hget() == STATUSES.CANCELED


class TestACanceledJob:
    """The leases are so long that no renewal tells of it."""

    @pytest.mark.parametrize("job_class", [Patient, PatientInLoop, StubbornPlain, Asking])
    def test_is_told_at_once(self, job_class: type[Job], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(job_module, "QUESTION_INTERVAL", FOR_EVER)  # it asks Redis once
        job = job_class.add_job("a")
        with working(many(1, lease=3600)):
            wait_until(lambda: Base.seen)
            job.cancel()
            if job_class is StubbornPlain:
                StubbornPlain.go_on.set()
        assert job.status.hget() == STATUSES.CANCELED

    def test_is_told_so_among_all_that_a_filter_finds(self) -> None:
        jobs = Patient.add_jobs(map(str, range(20)))
        with working(many(20, 20, lease=3600)):
            wait_until(lambda: len(Base.seen) == 20)
            Patient.collection().cancel_all()
        assert {job.status.hget() for job in jobs} == {STATUSES.CANCELED}

    @pytest.mark.usefixtures("claiming_ahead")
    @pytest.mark.parametrize("job_class", [Polling, Asking])
    def test_does_not_begin_if_it_is_claimed_ahead(
        self, job_class: type[Job], redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stock, "MAX_WAIT_AHEAD", FOR_EVER)
        running = Polling.add_jobs(["a", "b"])
        job = job_class.add_job("ahead")
        worker, canceling = with_part(Canceling, lambda: many(3, 2, lease=3600, prefetch=10))
        with working(worker):
            wait_until(lambda: len(Base.seen) == 2 and job.status.hget() == STATUSES.RUNNING)
            told = calls_of(canceling, "_cancel")
            job.cancel()
            wait_until(lambda: told)
            StubbornPlain.go_on.set()
        assert job.status.hget() == STATUSES.CANCELED
        assert sorted(Base.seen) == sorted(each.ident for each in running)

    def test_is_told_once_the_worker_is_connected_again(self, redis_client: redis.Redis) -> None:
        job = Patient.add_job("a")
        with working(many(1, lease=3600)):
            wait_until(lambda: Base.seen)
            redis_client.client_kill_filter(_type="normal", skipme=True)
            job.cancel()
        assert job.status.hget() == STATUSES.CANCELED

    def test_of_an_earlier_run_is_another(self, redis_client: redis.Redis) -> None:
        job = Polling.add_job("a")
        worker, claimer = with_part(Claimer, lambda: many(1, lease=3600))
        with working(worker):
            wait_until(lambda: Base.seen)
            token = job.claim_token.hget()
            redis_client.rpush(claimer.canceled_key, f"{job.ident} {token}0", "garbage", f"{job.ident}0 {token}")
            wait_until(lambda: not redis_client.exists(claimer.canceled_key))
            StubbornPlain.go_on.set()
        assert job.status.hget() == STATUSES.SUCCESS

    def test_is_told_with_the_lease_if_another_program_took_the_list(
        self, redis_client: redis.Redis, log: pytest.LogCaptureFixture
    ) -> None:
        job = Patient.add_job("a")
        worker, claimer = with_part(Claimer, lambda: many(1, lease=0.4))
        redis_client.set(claimer.canceled_key, "text")
        with working(worker):
            wait_until(lambda: any("Unable to listen for canceled jobs" in message for message in messages(log)))
            wait_until(lambda: Base.seen)
            job.cancel()
        assert job.status.hget() == STATUSES.CANCELED
        redis_client.delete(claimer.canceled_key)


class TestAKilledWorker:
    @pytest.mark.proof
    def test_ruins_no_neighbour_of_the_job_that_kills_it(self, redis_client: redis.Redis) -> None:
        jobs = Killer.add_jobs([*map(str, range(9)), "killer"])
        killer = jobs.pop()

        def work_in_child() -> None:
            pid = os.fork()
            if not pid:
                try:
                    many(1000, 10, lease=0.3, burst=True, max_rescues=0, max_duration=20).run()
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)

        def all_ended() -> bool:
            work_in_child()
            return killer.status.hget() == "e" and all(job.status.hget() == "s" for job in jobs)

        wait_until(all_ended)
        (error,) = Error.collection_for_job(killer).instances()
        assert error.type.hget() == "WorkerLost"


class TestWrongOptions:
    @pytest.mark.parametrize("concurrency", [0, -1, True, "many", 10_001, 1.5])
    def test_a_wrong_number_is_refused(self, concurrency: Any) -> None:
        with pytest.raises(ConfigurationException, match="concurrency must be a number from 1 to 10000"):
            worker_of(concurrency=concurrency)

    def test_a_measured_batch_with_it_is_refused(self) -> None:
        with pytest.raises(ConfigurationException, match="concurrency=2 runs several at once: it finds out by itself"):
            worker_of(concurrency=2, prefetch="auto")

    @pytest.mark.parametrize("name", ["execute", "wait_for_job"])
    def test_a_worker_with_its_own_way_is_refused(self, name: str) -> None:
        own = type("OwnWorker", (Worker,), {name: lambda *args: None})
        with pytest.raises(ConfigurationException, match=f"OwnWorker has its own {name} method"):
            own("queue", concurrency=2)
        own("queue", concurrency=1)
