"""Where a child process runs, and after its end another one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkProcess
from time import monotonic

from limpyd_jobs.workers.backoff import FIRST, LONGEST, Backoff

FORK = multiprocessing.get_context("fork")


class ChildProcess:
    """One of several processes, and those that follow it.

    Attributes
    ----------
    process: ForkProcess
        None between two.
    was_ready: bool
        Whether one of them ever was.
    is_done: bool
        Whether one of them ended as no job is left.
    due: float
        When to start the next one, at the earliest, by the monotonic clock.
    """

    def __init__(self) -> None:
        self.process: ForkProcess | None = None
        self.was_ready = False
        self.is_done = False
        self.due = 0.0
        self._jobs = 0
        self._started = 0.0
        self._backoff = Backoff()

    def start(self, live: Callable[[], None]) -> ForkProcess:
        """Start a child, which does what it is told to; raise `OSError` if that is impossible."""
        self._jobs, self._started = 0, monotonic()
        process = FORK.Process(target=live)
        process.start()
        self.process = process
        return process

    def take_report(self, pid: int, jobs: int, is_done: bool) -> None:
        """Remember what a child reports, if it is the one of this slot."""
        if self.process and self.process.pid == pid:
            self.was_ready = True
            self._jobs = jobs
            self.is_done = is_done

    def clear(self) -> tuple[int, int, int]:
        """Forget the child, which has ended; return its process id, its exit status, and how many jobs it ran."""
        process, self.process = self.process, None
        assert process is not None
        assert process.pid is not None
        assert process.exitcode is not None
        ended = process.pid, process.exitcode, self._jobs
        process.close()
        return ended

    def next_after(self, status: int) -> float:
        """Set and return how many seconds to wait before the next start, after an end with that exit status."""
        lived = monotonic() - self._started
        if lived >= (LONGEST if status else FIRST) or (self._jobs and not status):
            self._backoff.reset()
            delay = 0.0
        else:
            delay = self._backoff.next()
        self.due = monotonic() + delay
        return delay
