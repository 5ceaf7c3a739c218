"""Ending a wait at a moment: Redis itself looks only ten times a second whether the time of a wait is over."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Thread
from time import monotonic


class Waker:
    """Calls a function at a moment that may be changed, in a thread of its own, while the context is entered.

    Parameters
    ----------
    wake: callable
        What to call. It must not raise.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._moment: float | None = None
        self._is_over = False
        self._changed = Condition()

    def set(self, moment: float | None) -> None:
        """Call the function at that moment, of the monotonic clock, instead of any other; None for never."""
        with self._changed:
            if moment != self._moment:
                self._moment = moment
                self._changed.notify()

    def __enter__(self) -> None:
        Thread(target=self._run, name="limpyd-jobs-waker", daemon=True).start()

    def __exit__(self, *exc_info: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def _run(self) -> None:
        while self._wait():
            self._wake()

    def _wait(self) -> bool:
        """Wait for the moment; return False if there is none to come any more."""
        with self._changed:
            while not self._is_over and (self._moment is None or monotonic() < self._moment):
                self._changed.wait(None if self._moment is None else self._moment - monotonic())
            self._moment = None
            return not self._is_over
