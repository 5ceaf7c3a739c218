"""Coroutines: the event loop of a worker, their steps from one ``await`` to the next, and awaiting one."""

from __future__ import annotations

import asyncio
import os
from asyncio import AbstractEventLoop, CancelledError, Task
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread
from time import monotonic
from typing import Any

from limpyd_jobs.models.functions.current import running_job
from limpyd_jobs.observing import instruments
from limpyd_jobs.observing.instruments import await_in_task
from limpyd_jobs.redis.blocking import guarded
from limpyd_jobs.redis.forks import end_child, this_process
from limpyd_jobs.retrying import Cancel
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.threads import OnDeath
from limpyd_jobs.workers.run import Run
from limpyd_jobs.workers.running.threads import ThreadsOfJobs, stepped_task
from limpyd_jobs.workers.running.watchdog import Watchdog
from limpyd_jobs.workers.timers import JobTimer

# How many seconds the tasks that are left have to end once the worker has ended.
CLOSE_WITHIN = 1.0

# A coroutine that goes on after its time is over is canceled again after this many seconds.
CANCEL_AGAIN_AFTER = 1.0

# How many seconds code has to end once it was canceled, told or interrupted. Then the worker goes on without it.
LAST_SECONDS = 3.0


class LoopFailed(BaseException):
    """The event loop turns no more. Nothing is recorded of the job for which it is raised: its worker ends at once."""


class Awaited:
    """A coroutine that runs on the loop. `on_end` is called with it, by the thread of the loop, once it has ended.

    Nothing that it raises reaches the loop, which a `SystemExit` would stop.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], on_end: Callable[[Awaited], object]) -> None:
        self.has_ended = False
        self.reason: BaseException | None = None  # why it was canceled, if it was
        # When it was first asked to end, and why: the loop may not have got to cancel it.
        self.asked: tuple[float, BaseException] | None = None
        self._coroutine = coroutine
        self._on_end = on_end
        self._task: Task[None] | None = None
        self._watchdog: Watchdog
        self._result: Any = None
        self._error: BaseException | None = None
        self._has_begun = False
        self._pid = this_process.pid

    @property
    def result(self) -> Any:
        """What it returned. If it did not, what it raised is raised: the reason if it was canceled for one."""
        if self._error is None:
            return self._result
        if self.reason is not None and isinstance(self._error, CancelledError):
            raise self.reason from self._error
        raise self._error

    def forget(self) -> None:
        """Keep what it raised no longer: with its traceback, which leads back here, that would be a cycle, and all that
        the code had in its variables would stay until the garbage collector finds it."""
        self._error = self.reason = self.asked = None

    @property
    def swallowed(self) -> bool:
        """Whether it was canceled, and went on to its end all the same."""
        return self.reason is not None and not isinstance(self._error, CancelledError)

    # -- In the thread of the loop

    def begin(self, loop: AbstractEventLoop, watchdog: Watchdog) -> None:
        self._watchdog = watchdog
        watchdog.begin()
        self._task = stepped_task(loop, self._main())  # whatever factory a job gave the loop
        self._task.add_done_callback(self._ended)
        if self.reason is not None:
            self._task.cancel()

    def cancel(self, reason: BaseException) -> None:
        """Cancel it, for a reason."""
        if not self.has_ended:
            self.reason = reason
            if self._task is not None:
                self._task.cancel()

    async def _main(self) -> None:
        self._has_begun = True
        try:
            if instruments.installed:
                self._result = await await_in_task(running_job.get(), self._coroutine)
            else:
                self._result = await self._coroutine
        except BaseException as error:
            if this_process.pid != self._pid:
                if isinstance(error, GeneratorExit):  # a child only removes what its parent was running
                    raise
                end_child()
            self._error = error

    def _ended(self, task: Task[None]) -> None:
        if not self._has_begun:
            self._coroutine.close()
            self._error = CancelledError()
        self.has_ended = True
        self._watchdog.end()
        on_end = self._on_end
        self._on_end, self._task = _nothing, None  # so that the garbage collector need not find the cycle
        on_end(self)


class EventLoop:
    """An event loop in a thread of its own, which the first coroutine starts.

    A coroutine has a copy of the context of its caller (see `contextvars`). The policy of the application makes the
    loop: it may be one of uvloop.

    Parameters
    ----------
    log: callable
        Takes a message and its level, from any thread.
    on_death: callable
        Is given why the loop turns no more, by any thread: code of a job closed its files, say.
    is_guarded: bool
        Whether coroutines must not wait for Redis in between two of their steps.

    Attributes
    ----------
    failure: str
        Why it turns no more, or is not needed any more; empty if it is well.
    """

    def __init__(self, log: Callable[[str, str], None], on_death: OnDeath, *, is_guarded: bool = True) -> None:
        self._log, self._on_death, self._is_guarded = log, on_death, is_guarded
        self.failure = ""
        self.threads: ThreadsOfJobs | None = None  # those of ``asyncio.to_thread``, once there is a loop
        self._watchdog: Watchdog | None = None
        self._loop: AbstractEventLoop | None = None
        self._pid = 0
        self._thread: Thread
        self._is_closing = False
        self._to_begin: deque[tuple[Awaited, Context]] = deque()
        self._is_called = False

    def start(
        self,
        coroutine: Coroutine[Any, Any, Any],
        on_end: Callable[[Awaited], object],
        *,
        later: bool = False,
        reason: BaseException | None = None,
    ) -> Awaited:
        """Let a coroutine run; return at once. With `later`, it begins with the next one, or with `begin`. With a
        reason to cancel it, it does not begin.

        Raises
        ------
        LoopFailed
            If the loop turns no more.
        RuntimeError
            If no thread can be started for the loop.
        """
        try:
            self._check()
            awaited, _ = Awaited(coroutine, on_end), self._running_loop()
        except BaseException:
            coroutine.close()
            raise
        awaited.reason = reason
        self._to_begin.append((awaited, copy_context()))
        if not later:
            self.begin()
        return awaited

    def _check(self) -> None:
        if self.failure:
            raise LoopFailed(self.failure)

    def begin(self) -> None:
        """Let the coroutines begin that were to begin later."""
        if self._to_begin and not self._is_called and self._loop is not None:
            self._is_called = True
            self._loop.call_soon_threadsafe(self._begin_all, self._loop)

    def _begin_all(self, loop: AbstractEventLoop) -> None:
        self._is_called = False  # before it looks: what is added later calls it again
        while self._to_begin:
            awaited, context = self._to_begin.popleft()
            assert self._watchdog
            context.run(awaited.begin, loop, self._watchdog)

    def cancel(self, awaited: Awaited, reason: BaseException) -> None:
        """Cancel a coroutine, for a reason. Any thread may do so."""
        awaited.asked = awaited.asked or (monotonic(), reason)
        loop = self._loop
        if loop is not None and self._pid == this_process.pid:
            with suppress(RuntimeError):  # it is closed, as all that ran on it
                loop.call_soon_threadsafe(awaited.cancel, reason)

    @property
    def held_for(self) -> float:
        """For how many seconds it has not turned, because code of a job holds it; 0 if no coroutine runs."""
        return self._watchdog.held_for if self._watchdog else 0.0

    def close(self, *, is_hurried: bool = False) -> None:
        """Cancel what is left, and end the thread, unless code on the loop holds it for longer than a moment. It is not
        waited for if that is hurried."""
        loop, self._loop = self._loop, None
        if loop is None or self._pid != this_process.pid:
            return
        self._is_closing = True
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)
        if not (is_hurried or self.failure):
            self._thread.join(2 * CLOSE_WITHIN)

    def _running_loop(self) -> AbstractEventLoop:
        if self._loop is None or self._pid != this_process.pid:
            self._pid = this_process.pid
            self._to_begin.clear()
            self._is_called = self._is_closing = False
            self._loop = self._started()
        return self._loop

    def _started(self) -> AbstractEventLoop:
        """Return a new loop that turns, in a new thread."""
        loop, started = asyncio.new_event_loop(), Event()
        try:
            loop.set_task_factory(stepped_task)
            self.threads = ThreadsOfJobs(min(32, (os.cpu_count() or 1) + 4), "limpyd-jobs-to-thread")
            loop.set_default_executor(self.threads)
            loop.call_soon(started.set)
            thread = Thread(target=self._run, args=(loop, started), name="limpyd-jobs-coroutines", daemon=True)
            thread.start()
        except BaseException:  # no thread can be started
            loop.close()
            raise
        self._thread = thread
        started.wait()
        return loop

    def _run(self, loop: AbstractEventLoop, started: Event) -> None:
        try:
            self._turn(loop)
        except BaseException as error:
            if this_process.pid != self._pid:
                end_child()
            self._died(f"The event loop died: {one_line(repr(error), MESSAGE)}")
        finally:
            started.set()

    def fail(self, why: str) -> None:
        """Start no more code, and wait for none, because the worker has failed. Any thread may do so."""
        self.failure = self.failure or why

    def _died(self, why: str) -> None:
        if not (self.failure or self._is_closing):
            self._on_death(f"{why} (the code of a job may have closed its files)")
            self.failure = why  # later than that: by then the worker records nothing more
        if self._watchdog:
            self._watchdog.close()

    def _turn(self, loop: AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        self._watchdog = watchdog = Watchdog(loop, self._log, self._died)
        if self._is_guarded:
            guarded.add(loop)
        while not self._is_closing:
            with suppress(SystemExit, KeyboardInterrupt):  # of a task that a job made: the job has it, too
                loop.run_forever()
        self._end(loop)
        watchdog.close()

    def _end(self, loop: AbstractEventLoop) -> None:
        """End what is left on it, once it turns no more."""
        loop.set_task_factory(stepped_task)  # a job may have given it another one
        with suppress(BaseException):
            loop.run_until_complete(_end_tasks())
            loop.set_exception_handler(partial(_note_unclosed, self._log))
            loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), CLOSE_WITHIN))
        guarded.discard(loop)
        with suppress(BaseException):
            loop.close()


def _nothing(_: Awaited) -> None: ...


def _note_unclosed(log: Callable[[str, str], None], loop: AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log in one line that an asynchronous generator, such as a resource, did not close in time."""
    generator = context.get("asyncgen")
    if generator is None or not generator.ag_running:
        loop.default_exception_handler(context)
        return
    log(f"{generator.__qualname__} did not close within {CLOSE_WITHIN:g} second of the end, and is given up", "warning")


async def _end_tasks() -> None:
    """Cancel the tasks that jobs left, and wait for their end, but not for long."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CLOSE_WITHIN)


class Awaiting:
    """Runs coroutines one at a time. The thread that calls it waits, and handles signals, if it is the main thread."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._code: Awaited | None = None  # the code of a job, while it runs
        self.left: Awaited | None = None  # the code of the last job that was given up

    def take_left(self) -> Awaited | None:
        """Return the code of the last job that was given up, once."""
        left, self.left = self.left, None
        return left

    def cancel(self, run: Run) -> None:
        """Cancel the coroutine of a job that was canceled. Any thread may do so."""
        code = self._code  # before it looks: what runs later is another job
        if code is not None and run.is_running:
            self._loop.cancel(code, Cancel("it was canceled while it ran"))

    def run(self, coroutine: Coroutine[Any, Any, Any], timer: JobTimer | None = None) -> Any:
        """Run a coroutine to its end, and return its result, or raise what it raised.

        A timer is given for the code of a job, not for its other methods. When an exception of it is due, the coroutine
        is canceled. If that ends it, the exception is raised. If it goes on all the same, it is raised after a moment.

        Raises
        ------
        LoopFailed
            If the event loop turns no more.
        """
        is_code, timer, wakeups = timer is not None, timer or JobTimer(), SimpleQueue[None]()
        wake = partial(wakeups.put, None)  # a signal handler may do that at any time
        timer.on_set = wake
        awaited = self._loop.start(coroutine, lambda _: wake())
        self._code = awaited if is_code else None
        last: BaseException | None = None
        again_at = 0.0
        try:
            while not awaited.has_ended:
                try:
                    with suppress(Empty):
                        wakeups.get(timeout=timer.seconds_left())
                except KeyboardInterrupt as interrupt:
                    timer.set("interrupt", 0, interrupt)
                if self._loop.failure and not awaited.has_ended:
                    raise LoopFailed(self._loop.failure)
                reason, now = timer.due()[1] or (awaited.asked and awaited.asked[1]), monotonic()
                if reason is not None and (reason is not last or now >= again_at):
                    self._loop.cancel(awaited, reason)
                    last, again_at = reason, now + CANCEL_AGAIN_AFTER
                if awaited.asked and now >= awaited.asked[0] + LAST_SECONDS and not awaited.has_ended:
                    self.left = awaited
                    raise reason or awaited.asked[1]
        finally:
            self._code = timer.on_set = reason = last = None  # they are not kept by the frames of their tracebacks
            timer.clear("interrupt")
        try:
            return awaited.result
        except BaseException:
            awaited.forget()
            raise


class AwaitingBeside(Awaiting):
    """Lets coroutines run beside the worker, which goes on at once. Those of a job that is about to begin are kept, to
    be awaited before its code."""

    def __init__(self, loop: EventLoop, ring: Callable[[], None]) -> None:
        super().__init__(loop)
        self._before: list[Coroutine[Any, Any, Any]] | None = None  # of the job that is about to begin
        self._run_of_hook: Run | None = None  # of the job whose hooks are called
        self.running = 0
        self._ring = ring
        self._ended: SimpleQueue[tuple[Awaited, Run | None]] = SimpleQueue()

    def keep_in(self, coroutines: list[Coroutine[Any, Any, Any]] | None) -> None:
        """Keep coroutines in a list, from now on, instead of running them; with None, run them again."""
        self._before = coroutines

    def are_of(self, run: Run | None) -> None:
        """Coroutines are, from now on, those of hooks of this job."""
        self._run_of_hook = run

    def run(self, coroutine: Coroutine[Any, Any, Any], timer: JobTimer | None = None) -> Any:
        if self._before is not None:
            self._before.append(coroutine)
            return
        run = self._run_of_hook
        self.running += 1
        self._loop.start(coroutine, lambda awaited: self._has_ended(awaited, run))

    def _has_ended(self, awaited: Awaited, run: Run | None) -> None:
        self._ended.put((awaited, run))
        self._ring()

    def pop_ended(self) -> tuple[Awaited, Run | None] | None:
        """Return one that has ended, with the run of its job; None if there is none."""
        try:
            found = self._ended.get_nowait()
        except Empty:
            return None
        self.running -= 1
        return found
