"""Timers that interrupt the code of a job, without its cooperation, and the wait for a job."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from types import FrameType

from limpyd_jobs.threads import OnDeath, start_thread

# Code that swallows the exception is interrupted again after this many seconds.
INTERRUPT_AGAIN_AFTER = 1.0

# After how many seconds to look again at a coroutine that goes on after its time is over.
ASK_AGAIN_AFTER = 0.25

# The longest time limit, in seconds, which is 30 years: a timer, or a float, may not hold a longer one.
MAX_TIME_LIMIT = 1e9

# The longest wait for a coroutine, in seconds: a signal that another thread caught is handled after it.
MAX_WAIT = 1.0

# How many seconds the thread of a `WakeupTimer` sleeps at once.
MAX_SLEEP = 3600.0


class JobTimer:
    """Raises an exception in the code of a job once its time is over.

    It uses SIGALRM, so it works in the main thread of a process only, and only if the code does not use that signal
    itself. A call into C is interrupted only when it returns to Python.
    """

    def __init__(self) -> None:
        self._rings: dict[str, tuple[float, BaseException]] = {}
        self._is_armed = False
        # Called when an exception is set, by whoever waits for a coroutine, which no alarm can interrupt.
        self.on_set: Callable[[], None] | None = None

    @staticmethod
    def is_possible() -> bool:
        """Whether the code of this thread can be interrupted."""
        return threading.current_thread() is threading.main_thread()

    def set(self, name: str, seconds: float, exception: BaseException) -> None:
        """Raise an exception in the code of a job, if one runs, after some seconds, unless it is cleared by then."""
        self._rings[name] = (monotonic() + min(seconds, MAX_TIME_LIMIT), exception)
        if self._is_armed:
            self._start_timer()
        elif self.on_set:
            self.on_set()

    def clear(self, name: str) -> bool:
        """Forget the exception that was set under that name; return whether it was raised."""
        ring = self._rings.pop(name, None)
        return ring is not None and ring[1].__traceback__ is not None

    def arm(self) -> None:
        """Note that the code of a job begins."""
        self._is_armed = True
        if self._rings:
            self._start_timer()

    def disarm(self) -> None:
        """Note that the code of a job is over. Call it twice: an alarm may ring before the first call has effect."""
        self._is_armed = False
        if self._rings and self.is_possible():
            signal.setitimer(signal.ITIMER_REAL, 0)

    def due(self) -> tuple[float, BaseException | None]:
        """Return the exception whose time came last, and the moment of that; no exception if none is due."""
        rings = [ring for ring in list(self._rings.values()) if ring[0] <= monotonic()]
        return max(rings, key=lambda ring: ring[0]) if rings else (inf, None)

    def seconds_left(self) -> float:
        """Return in how many seconds to ask again what is due: soon, if something is due already."""
        soonest = min((moment for moment, _ in list(self._rings.values())), default=inf) - monotonic()
        return min(soonest, MAX_WAIT) if soonest > 0 else ASK_AGAIN_AFTER

    def _start_timer(self) -> None:
        if not self.is_possible():
            return
        signal.signal(signal.SIGALRM, self._ring)
        soonest = min(moment for moment, _ in list(self._rings.values())) - monotonic()  # a signal handler may add one
        signal.setitimer(signal.ITIMER_REAL, max(soonest, 0.001), INTERRUPT_AGAIN_AFTER)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if not self._is_armed:
            return
        for moment, exception in sorted(self._rings.values(), key=lambda ring: ring[0]):
            if moment <= monotonic():
                raise exception
        self._start_timer()


def _forget_alarm() -> None:
    """Let a process that the code of a job forked handle SIGALRM as any other: it has no timer of ours."""
    if getattr(signal.getsignal(signal.SIGALRM), "__func__", None) is JobTimer._ring:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_forget_alarm)


class WakeupTimer:
    """Calls a function at a moment that may be changed, in a thread of its own, while the context is entered.

    The function must not raise: the thread would end, and `on_death` is called. Redis itself looks only ten times a
    second whether the time of a wait is over.
    """

    def __init__(self, wake: Callable[[], None], on_death: OnDeath) -> None:
        self._wake, self._on_death = wake, on_death
        self._moment: float | None = None
        self._moments: SimpleQueue[float | None] = SimpleQueue()  # without a lock that a signal handler may wait for

    def set(self, moment: float | None) -> None:
        """Call the function at that moment of the monotonic clock, instead of any other; None for never.

        A signal handler may do so. A moment that has come already still counts after the next call.
        """
        if moment != self._moment:
            self._moment = moment
            self._moments.put(moment)

    def __enter__(self) -> None:
        start_thread("limpyd-jobs-waker", self._run, self._on_death)

    def __exit__(self, *exc_info: object) -> None:
        self._moments.put(inf)

    def _run(self) -> None:
        moment: float | None = None
        while moment != inf:
            with suppress(Empty):
                seconds = MAX_SLEEP if moment is None else min(max(moment - monotonic(), 0.0), MAX_SLEEP)
                moment = self._moments.get(timeout=seconds)
            if moment is not None and monotonic() >= moment:
                moment = None
                self._wake()
