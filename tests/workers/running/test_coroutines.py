"""Jobs, callbacks and methods of jobs that are async functions, run one at a time."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from invariants import violations
from running import messages, work, worker_of, working
from servers import wait_until

from limpyd_jobs import STATUSES, ConfigurationException, Error, Job, Queue, Worker, events
from limpyd_jobs.fields.argument import Argument
from limpyd_jobs.observing.instruments import Instrument
from limpyd_jobs.retrying import Cancel, Requeue

pytestmark = pytest.mark.usefixtures("jobs_database")

FOR_EVER = 60  # seconds: the tests fail long before
LOOP_THREAD = "limpyd-jobs-coroutines"


class Awaited(Job):
    namespace = "coroutines"
    queue_name = "queue"
    word = Argument(str, default="")
    seen: list[Any] = []

    async def run(self, queue: Queue) -> Any:
        await asyncio.sleep(0)
        return [await self.aget("identifier"), threading.current_thread().name]


class Kept(Awaited):
    keep_result = True


class Hooked(Awaited):
    async def run(self, queue: Queue) -> None:
        if self.arguments.word:
            raise ValueError(self.arguments.word)

    async def on_started(self, queue: Queue) -> None:
        await self.note("started")

    async def on_success(self, queue: Queue, result: Any) -> None:
        await self.note("success")

    async def on_error(self, queue: Queue, exception: BaseException, trace: str) -> None:
        await self.note(f"error {exception}")

    async def on_requeued(self, queue: Queue) -> None:
        await self.note("requeued")

    async def on_rescued(self, queue: Queue) -> None:
        await self.note(f"rescued {self.arguments.word}")

    async def on_skipped(self, queue: Queue) -> None:
        await self.note(f"skipped {self.arguments.word}")

    async def note(self, what: str) -> None:
        await asyncio.sleep(0)
        self.seen.append(what)


class Raising(Hooked):
    async def on_success(self, queue: Queue, result: Any) -> None:
        raise ValueError("the method failed")


@pytest.fixture(autouse=True)
def _same_state_afterwards() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in numbers}
    Awaited.seen.clear()
    wait_until(lambda: not loop_threads(), "the end of the loops of earlier tests, which end by themselves")
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def run_as(code: Any, job_class: type[Job] = Awaited, **options: Any) -> Job:
    """Run a job whose callback is given."""
    job = job_class.add_job("a")
    work(callback=code, **options)
    return job


def the_error(job: Job) -> Error:
    (error,) = Error.collection_for_job(job).instances()
    return error


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == LOOP_THREAD]


class TestAnAsyncFunction:
    def test_of_a_job_is_run_on_a_loop_in_a_thread_of_its_own(self) -> None:
        job = Kept.add_job("a")
        work(callback=None)
        assert job.result() == ["a", LOOP_THREAD]
        assert job.hmget("status", "tries", "queued") == ["s", "1", None]
        wait_until(lambda: not loop_threads())

    def test_starts_that_thread_only_if_there_is_one(self) -> None:
        run_as(lambda *_: Awaited.seen.append(loop_threads()))
        assert Awaited.seen == [[]]

    def test_may_be_the_callback_or_the_execute_method(self) -> None:
        async def callback(job: Job, queue: Queue) -> str:
            return str(await job.aget("identifier"))

        class AsyncWorker(Worker):
            async def execute(self, job: Job, queue: Queue) -> Any:
                return await super().execute(job, queue)

        for given in ({"callback": callback}, {"callback": None, "worker_class": AsyncWorker}):
            job = Kept.add_job("a")
            work(**given)
            assert "a" in job.result()

    def test_may_be_called_by_an_ordinary_execute_method(self) -> None:
        class LookingWorker(Worker):
            def execute(self, job: Job, queue: Queue) -> Any:
                return super().execute(job, queue)

        job = Awaited.add_job("a")
        work(callback=None, worker_class=LookingWorker)
        assert job.status.hget() == STATUSES.SUCCESS

    @pytest.mark.parametrize("name", ["job_success", "wait_for_job"])
    def test_is_refused_as_a_hook_of_a_worker(self, name: str) -> None:
        async def hook(*args: Any) -> None: ...

        with pytest.raises(ConfigurationException, match=f"The {name} method is an async function"):
            type("AsyncWorker", (Worker,), {name: hook})("queue")

    def test_has_the_context_of_the_worker(self) -> None:
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

        class Setting(Instrument):
            def running(self, running: Any) -> Any:
                variable.set(running.job.identifier.hget())
                return super().running(running)

        async def callback(job: Job, queue: Queue) -> str:
            return await asyncio.ensure_future(asyncio.to_thread(variable.get))

        setting = Setting()
        events.subscribe(setting)
        try:
            assert run_as(callback, Kept).result() == "a"
        finally:
            events.unsubscribe(setting)


class TestTheEnd:
    def test_an_exception_is_an_error_with_the_line_that_raised_it(self) -> None:
        async def failing(job: Job, queue: Queue) -> None:
            await asyncio.sleep(0)
            raise ValueError("it failed")

        error = the_error(run_as(failing))
        assert error.hmget("type", "message") == ["ValueError", "it failed"]
        assert 'raise ValueError("it failed")' in error.traceback.hget()

    def test_it_may_ask_to_be_put_back_or_canceled(self) -> None:
        async def asking(job: Job, queue: Queue) -> None:
            raise Requeue(delayed_for=60)

        async def refusing(job: Job, queue: Queue) -> None:
            raise Cancel("no need")

        job = run_as(asking)
        assert job.hmget("status", "tries") == ["d", "1"]
        job.enqueue_or_delay()
        work(callback=refusing)
        assert job.status.hget() == STATUSES.CANCELED

    def test_it_is_cancelled_with_the_renewal_of_its_lease(self) -> None:
        told: list[str] = []

        async def waiting(job: Job, queue: Queue) -> None:
            try:
                told.append("begun")
                await asyncio.sleep(FOR_EVER)
            except asyncio.CancelledError:
                told.append("told")
                raise

        job = Awaited.add_job("a")
        with working(worker_of(callback=waiting, lease=0.4)):
            wait_until(lambda: told)
            job.cancel()
        assert (told, job.status.hget()) == (["begun", "told"], STATUSES.CANCELED)

    def test_a_cancellation_of_its_own_is_an_error_of_the_job_alone(self) -> None:
        async def canceling(job: Job, queue: Queue) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(FOR_EVER)

        first, second = Awaited.add_job("first"), Awaited.add_job("second")
        work(callback=canceling, max_loops=2)
        for job in (first, second):
            assert the_error(job).type.hget() == "CancelledError"

    @pytest.mark.parametrize("is_in_task", [False, True])
    def test_an_exit_ends_the_worker_and_not_the_loop(self, is_in_task: bool) -> None:
        async def leave() -> None:
            raise SystemExit(3)

        async def leaving(job: Job, queue: Queue) -> None:
            try:
                await (asyncio.ensure_future(leave()) if is_in_task else leave())
            finally:
                await asyncio.sleep(0.01)

        job = Awaited.add_job("a")
        with pytest.raises(SystemExit):
            work(callback=leaving, max_loops=2)
        assert the_error(job).type.hget() == "SystemExit"

    def test_tasks_that_it_left_are_canceled_when_the_worker_ends(self) -> None:
        async def lingering() -> None:
            try:
                await asyncio.sleep(FOR_EVER)
            finally:
                Awaited.seen.append("ended")

        async def leaving(job: Job, queue: Queue) -> None:
            job.task = asyncio.ensure_future(lingering())  # type: ignore[attr-defined]
            await asyncio.sleep(0)

        run_as(leaving)
        assert Awaited.seen == ["ended"]

    def test_a_forked_child_ends_at_its_next_await(self) -> None:
        async def forking(job: Job, queue: Queue) -> int:
            pid = os.fork()
            if not pid:
                await asyncio.sleep(0)
                os._exit(7)
            return os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1])

        assert run_as(forking, Kept).result() == 0

    @pytest.mark.parametrize(("code", "status"), [("return", 0), ("raise", 1)])
    def test_a_forked_child_ends_with_its_code(self, code: str, status: int) -> None:
        async def forking(job: Job, queue: Queue) -> int:
            pid = os.fork()
            if pid:
                return os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1])
            if code == "raise":
                raise ValueError("in the child")
            return 0

        assert run_as(forking, Kept).result() == status


async def patient(job: Job, queue: Queue) -> None:
    await asyncio.sleep(FOR_EVER)


async def stubborn(job: Job, queue: Queue) -> None:
    while True:
        try:
            await asyncio.sleep(FOR_EVER)
        except asyncio.CancelledError:
            Awaited.seen.append("swallowed")


class TestALimit:
    def test_of_time_makes_it_an_error(self, redis_client: redis.Redis) -> None:
        job = run_as(patient, job_timeout=0.05)
        error = the_error(job)
        assert error.hmget("type", "message") == ["JobTimeout", "It ran for more than 0.05 seconds"]
        assert "asyncio.sleep" in error.traceback.hget()
        assert violations(redis_client, Awaited, Queue, Error) == []

    def test_of_time_holds_in_a_worker_outside_of_the_main_thread(self, log: pytest.LogCaptureFixture) -> None:
        job = Awaited.add_job("a")
        thread = threading.Thread(target=work, kwargs={"callback": patient, "job_timeout": 0.05})
        thread.start()
        thread.join()
        assert the_error(job).type.hget() == "JobTimeout"
        assert not any("may run for ever" in message for message in messages(log))

    def test_of_time_does_not_count_what_it_returns_all_the_same(self) -> None:
        async def late(job: Job, queue: Queue) -> str:
            try:
                await asyncio.sleep(FOR_EVER)
            except asyncio.CancelledError:
                return "late"
            return ""

        assert run_as(late, Kept, job_timeout=0.05).result() == "late"

    @pytest.mark.parametrize("code", [patient, stubborn])
    def test_of_the_grace_period_releases_it(
        self, code: Any, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("limpyd_jobs.workers.running.event_loop.LAST_SECONDS", 0.1)
        job = Awaited.add_job("a")

        async def asked_to_end(job: Job, queue: Queue) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await code(job, queue)

        worker = worker_of(callback=asked_to_end, terminate_gracefuly=True, grace_period=0.05, max_loops=5)
        worker.run()
        assert job.hmget("status", "tries", "start") == ["w", None, None]
        assert worker.num_loops == 1
        assert violations(redis_client, Awaited, Queue, Error) == []

    def test_a_keyboard_interrupt_releases_it_and_ends_the_worker(self) -> None:
        async def interrupted(job: Job, queue: Queue) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(FOR_EVER)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        job = Awaited.add_job("a")
        with pytest.raises(KeyboardInterrupt):
            work(callback=interrupted)
        assert job.hmget("status", "tries") == ["w", None]


class TestAsyncMethodsOfAJob:
    def test_are_awaited_at_each_turn(self) -> None:
        Hooked.add_job("a")
        work(callback=None)
        assert Hooked.seen == ["started", "success"]

    def test_see_a_failure_before_the_job_is_put_back(self) -> None:
        job = Hooked.add_job("a", word="it failed")
        work(callback=None, requeue_times=1)
        assert Hooked.seen == ["started", "error it failed", "requeued"]
        assert job.status.hget() == STATUSES.DELAYED

    @pytest.mark.parametrize("concurrency", [1, 2])
    def test_have_the_arguments_of_a_job_that_was_not_claimed(self, concurrency: int) -> None:
        lost = Hooked.add_job("a", word="b")
        lost.claim("one that dies", lease=0.001)
        wait_until(lambda: not lost.claim_state().is_held)
        work(callback=None, max_loops=1, max_duration=10, concurrency=concurrency)
        Hooked.add_job("c", word="d").status.hset(STATUSES.CANCELED)
        work(callback=None, max_loops=1, max_duration=10, concurrency=concurrency)
        assert Hooked.seen == ["rescued b", "started", "error b", "skipped d"]

    def test_that_fail_are_logged_and_do_not_end_the_worker(self, log: pytest.LogCaptureFixture) -> None:
        job = Raising.add_job("a")
        work(callback=None)
        assert job.status.hget() == STATUSES.SUCCESS
        assert any("the method failed" in message for message in messages(log))
        wait_until(lambda: not loop_threads())
