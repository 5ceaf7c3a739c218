"""The threads of this library. None of them holds up the end of the process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Lock, Thread
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from limpyd_jobs.texts import MESSAGE, one_line

P = ParamSpec("P")
T = TypeVar("T")

# How many seconds the thread of a `WakeupTimer` sleeps at once.
MAX_SLEEP = 3600.0

OnDeath = Callable[[str], None]  # is given what died, and why


def start_thread(name: str, run: Callable[[], None], on_death: OnDeath) -> Thread:
    """Start a thread that must not end by an exception, whatever raised it: then `on_death` is called there."""

    def run_and_tell() -> None:
        try:
            run()
        except BaseException as error:
            on_death(f"The thread {name} died: {one_line(repr(error), MESSAGE)}")

    thread = Thread(target=run_and_tell, name=name, daemon=True)
    thread.start()
    return thread


class WakeupTimer:
    """Calls a function at a moment that may be changed, in a thread of its own, while the context is entered.

    If the function raises, the thread ends, and `on_death` is called, if it is given. Two timers share no thread: what
    one calls may wait for Redis for seconds. That must not delay the other one, such as the renewal of leases, or the
    end of a job whose time is over.
    """

    _name = "limpyd-jobs-waker"
    _interval: float | None = None  # how many seconds after a call the next one follows, if no moment is set

    def __init__(self, call: Callable[[], None], on_death: OnDeath | None = None) -> None:
        self._call, self._on_death = call, on_death
        self._moment: float | None = None
        self._is_entered = False
        self._moments: SimpleQueue[float | None] = SimpleQueue()  # without a lock that a signal handler may wait for

    def set(self, moment: float | None) -> None:
        """Call the function at that moment of the monotonic clock, instead of any other; None for never.

        A signal handler may do so. A moment that has come already still counts after the next call.
        """
        if moment != self._moment:
            self._moment = moment
            if self._is_entered:  # else no thread takes them
                self._moments.put(moment)

    def __enter__(self) -> None:
        self._is_entered = True
        self._moments.put(self._moment)
        if self._on_death:
            start_thread(self._name, self._run, self._on_death)
        else:
            Thread(target=self._run, name=self._name, daemon=True).start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Call the function no more. A call that is under way goes on."""
        self._is_entered = False
        self._moments.put(inf)

    def _run(self) -> None:
        moment: float | None = None
        while moment != inf:
            with suppress(Empty):
                seconds = MAX_SLEEP if moment is None else min(max(moment - monotonic(), 0.0), MAX_SLEEP)
                moment = self._moments.get(timeout=seconds)
            if moment is not None and monotonic() >= moment:
                self._call()
                moment = None if self._interval is None else monotonic() + self._interval


class Heartbeat(WakeupTimer):
    """Calls `beat`, which must not raise, every `interval` seconds in a thread, while its context is open."""

    _name = "limpyd-jobs-heartbeat"

    def __init__(
        self, interval: float, beat: Callable[[], None], first: float = inf, on_death: OnDeath | None = None
    ) -> None:
        super().__init__(beat, on_death)
        self._interval = min(interval, TIMEOUT_MAX)
        self._first = min(self._interval, first)

    def __enter__(self) -> None:
        self.beat_in(self._first)
        super().__enter__()

    def begin_anew(self, interval: float) -> None:
        """Let that many seconds pass until the next call, and between two calls from then on."""
        self._interval = self._first = min(interval, TIMEOUT_MAX)
        self.beat_in(self._interval)

    def beat_in(self, seconds: float) -> None:
        """Let that many seconds pass until the next call."""
        self.set(monotonic() + seconds)


class DaemonThreads(ThreadPoolExecutor):
    """Runs functions in threads, at most so many at once; each thread is started when it is first needed.

    Python waits for the threads of other executors before a process ends, even for those that never end. An event loop
    takes only an executor of that type.
    """

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most)
        self._most, self._name = most, name
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._lock, self._started, self._unfinished = Lock(), 0, 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Let a function run. If no thread can be started, it waits for one that is there.

        Raises
        ------
        RuntimeError
            If no thread can be started, and none is there.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._started < min(self._unfinished + 1, self._most):
                self._start_one()
            self._unfinished += 1
        self._tasks.put((future, lambda: function(*args, **kwargs)))
        return future

    def _start_one(self) -> bool:
        name = f"{self._name}-{self._started + 1}"
        try:
            Thread(target=self._run, name=name, daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            if not self._started:
                raise RuntimeError(
                    f"{one_line(error, MESSAGE)}: raise the limit of threads or memory of this process, or run fewer "
                    "jobs in it"
                ) from error
            return False
        self._started += 1
        return True

    def grow(self) -> None:
        """Let there be twice as many threads, so that what waits for those that hang can go on."""
        with self._lock:
            self._most *= 2
            while self._started < min(self._unfinished, self._most) and self._start_one():
                pass

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Let the threads end once they have nothing to do. It never waits."""
        for _ in range(self._started):
            self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, function = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)
            with self._lock:
                self._unfinished -= 1
            del task, future, function


# How many calls of this library wait for Redis at once, at most, in threads that coroutines await.
MOST_OWN = 32

_own: DaemonThreads


async def in_own_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do as `asyncio.to_thread`, in threads that only this library uses: those of the loop may all be held by calls of
    the application that never end."""
    call = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_own, call)


def _begin() -> None:
    """Forget the threads of the parent process: a child has none of them."""
    global _own
    _own = DaemonThreads(MOST_OWN, "limpyd-jobs-own")


_begin()
os.register_at_fork(after_in_child=_begin)
