"""The timer that interrupts the code of a job, without its cooperation."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from math import inf
from time import monotonic
from types import FrameType

# Code that swallows the exception is interrupted again after this many seconds.
INTERRUPT_AGAIN_AFTER = 1.0

# After how many seconds to look again at a coroutine that goes on after its time is over.
ASK_AGAIN_AFTER = 0.25

# The longest time limit, in seconds, which is 30 years: a timer, or a float, may not hold a longer one.
MAX_TIME_LIMIT = 1e9

# The longest wait for a coroutine, in seconds: a signal that another thread caught is handled after it.
MAX_WAIT = 1.0


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
