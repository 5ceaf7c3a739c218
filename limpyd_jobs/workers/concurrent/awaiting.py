"""Running a coroutine while the thread of the worker waits for it, or goes on beside it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from limpyd_jobs.retrying import Cancel
from limpyd_jobs.workers.concurrent.event_loop import Awaited, EventLoop, LoopFailed
from limpyd_jobs.workers.run import Run
from limpyd_jobs.workers.timers import JobTimer

# A coroutine that goes on after its time is over is canceled again after this many seconds.
CANCEL_AGAIN_AFTER = 1.0

# How many seconds code has to end once it was canceled, told or interrupted. Then the worker goes on without it.
LAST_SECONDS = 3.0


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
