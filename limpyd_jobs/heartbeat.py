"""Renewing the lease of the running job, beside the job."""

from __future__ import annotations

from collections.abc import Callable
from threading import TIMEOUT_MAX, Event, Thread


class Heartbeat:
    """Calls `beat`, which must not raise, every `interval` seconds in a thread, while its context is open."""

    def __init__(self, interval: float, beat: Callable[[], None], first: float = TIMEOUT_MAX) -> None:
        self._interval = min(interval, TIMEOUT_MAX)
        self._next = min(self._interval, first)
        self._beat = beat
        self._is_stopped = False
        self._changed = Event()

    def __enter__(self) -> None:
        Thread(target=self._run, name="limpyd-jobs-heartbeat", daemon=True).start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop calling the function. A call that is under way goes on."""
        self._is_stopped = True
        self._changed.set()

    def begin_anew(self, interval: float) -> None:
        """Let that many seconds pass until the next call, and between two calls from then on."""
        self._interval = self._next = min(interval, TIMEOUT_MAX)
        self._changed.set()

    def _run(self) -> None:
        while not self._is_stopped:
            seconds, self._next = self._next, self._interval
            if not self._changed.wait(seconds):
                self._beat()
            self._changed.clear()
