"""Successes that are recorded together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Event, Lock
from time import monotonic
from typing import Any

from limpyd_jobs.threads import OnDeath, start_thread
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers.run import Run

# How long the end of a job waits for other ends, in seconds.
MAX_ACK_DELAY = 0.02

# How long the thread leaves the recording to the worker after Redis failed, in seconds.
RETRY_ACK_AFTER = 1.0

Record = Callable[[Sequence[Run]], tuple[Sequence[Any], list[Delivery]]]


class AckBuffer:
    """Jobs that succeeded, and that the worker that ran them records together. If its next job takes long, a thread
    records them, while the context is entered.
    """

    def __init__(self, waiting: deque[Run], record: Record, latest: float, on_death: OnDeath) -> None:
        self._waiting = waiting  # where to keep them
        self._on_death = on_death
        self._record = record  # the thread calls it to record some of them; see `record`
        # How long the end of a job waits for other ends, in seconds; `MAX_ACK_DELAY` if it is longer.
        self._latest = min(latest, MAX_ACK_DELAY)
        self._recorded: list[tuple[Run, Any]] = []
        self._lock = Lock()
        self._is_any = Event()
        self._stopped = Event()

    def add(self, run: Run) -> None:
        """Keep a job, to record it later."""
        self._waiting.append(run)
        if not self._is_any.is_set():
            self._is_any.set()

    def __bool__(self) -> bool:
        return bool(self._waiting or self._recorded)

    @property
    def are_late(self) -> bool:
        """Whether it is time to record them: the first job began too long ago, or the thread had to step in."""
        return bool(self._recorded) or monotonic() - self._waiting[0].began > self._latest

    def record(self, record: Record) -> tuple[list[tuple[Run, Any]], list[Delivery]]:
        """Record all jobs that are kept: `record` returns how each ended, and the next jobs.

        Return each run with its ending, also those that the thread recorded; and the next jobs.
        """
        with self._lock:
            endings, prefetched = record(self._waiting)
            self._keep(endings)
            recorded, self._recorded = self._recorded, []
        return recorded, prefetched

    def _keep(self, endings: Sequence[Any]) -> None:
        for ending in endings:
            self._recorded.append((self._waiting.popleft(), ending))

    def __enter__(self) -> None:
        start_thread("limpyd-jobs-successes", self._run, self._on_death)

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        self._is_any.set()

    def _run(self) -> None:
        pause = self._latest
        while self._is_any.wait() and not self._stopped.wait(pause):
            pause = self._latest if self._record_late_ones() else RETRY_ACK_AFTER
            self._is_any.clear()
            if self._waiting:
                self._is_any.set()

    def _record_late_ones(self) -> bool:
        """Record jobs that wait for too long; return False if that failed: the worker will log it."""
        with self._lock:
            late = list(self._waiting.copy())
            if not late or monotonic() - late[0].ended_at < self._latest:
                return True
            try:
                self._keep(self._record(late)[0])
            except Exception:
                return False
            return True
