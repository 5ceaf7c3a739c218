"""Ending a wait at a moment: Redis itself looks only ten times a second whether the time of a wait is over."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic

LONGEST = 3600.0  # seconds that the thread sleeps at once


class WakeupTimer:
    """Calls a function at a moment that may be changed, in a thread of its own, while the context is entered.

    Parameters
    ----------
    wake: callable
        What to call. It must not raise.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._moment: float | None = None
        self._moments: SimpleQueue[float | None] = SimpleQueue()  # without a lock that a signal handler may wait for

    def set(self, moment: float | None) -> None:
        """Call the function at that moment, of the monotonic clock, instead of any other; None for never.

        A signal handler may do so. A moment that has come already counts, whatever is set next.
        """
        if moment != self._moment:
            self._moment = moment
            self._moments.put(moment)

    def __enter__(self) -> None:
        Thread(target=self._run, name="limpyd-jobs-waker", daemon=True).start()

    def __exit__(self, *exc_info: object) -> None:
        self._moments.put(inf)

    def _run(self) -> None:
        moment: float | None = None
        while moment != inf:
            with suppress(Empty):
                moment = self._moments.get(timeout=_seconds_until(moment))
            if moment is not None and monotonic() >= moment:
                moment = None
                self._wake()


def _seconds_until(moment: float | None) -> float:
    return LONGEST if moment is None else min(max(moment - monotonic(), 0.0), LONGEST)
