"""The children of a pool, as the parent knows them; and the one pipe through which they report to it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.context import ForkProcess
from struct import Struct
from time import monotonic
from typing import NamedTuple

from limpyd_jobs.workers.backoff import FIRST_PAUSE, MAX_PAUSE, Backoff
from limpyd_jobs.workers.context import Verdict
from limpyd_jobs.workers.process.hard_limits import Board, Overdue

FORK = multiprocessing.get_context("fork")

STARTING = Verdict(True, False, "starting")

# How a report is written: at once, so those of several children do not mix.
_FORM = Struct("=qq????200s")


class Report(NamedTuple):
    """What a child reports: that it is ready, or that it ends; or how healthy it is."""

    pid: int
    jobs: int = 0  # how many it has run, if it ends
    is_done: bool = False  # whether it ends as no job is left, or was asked to stop: no other process follows
    health: Verdict | None = None


class Reports:
    """The pipe from the children of a pool to their parent. A child waits if the parent takes no reports for long."""

    def __init__(self) -> None:
        self.inbox, self._outbox = os.pipe()
        os.set_blocking(self.inbox, False)

    def take(self) -> Iterator[Report]:
        """Yield the reports that are there."""
        with suppress(BlockingIOError):
            while True:
                frames = os.read(self.inbox, _FORM.size * 100)
                for pid, jobs, is_done, is_of_health, is_live, is_ready, reason in _FORM.iter_unpack(frames):
                    verdict = Verdict(is_live, is_ready, reason.rstrip(b"\0").decode(errors="ignore"))
                    yield Report(pid, jobs, is_done, verdict if is_of_health else None)

    def close(self) -> None:
        """Close both ends."""
        self.leave_parent()
        os.close(self._outbox)

    # -- In a child

    def leave_parent(self) -> None:
        """Close the end of the parent."""
        os.close(self.inbox)

    def send(self, jobs: int = 0, is_done: bool = False, health: Verdict | None = None) -> None:
        """Report something, unless the parent has ended."""
        is_live, is_ready, reason = health or STARTING
        values = jobs, is_done, health is not None, is_live, is_ready, reason.encode()[:200]
        with suppress(BrokenPipeError):
            os.write(self._outbox, _FORM.pack(os.getpid(), *values))


class ChildProcess:
    """One of several processes, and the processes that follow it."""

    def __init__(self) -> None:
        self.process: ForkProcess | None = None  # None between two processes
        self.was_ready = False  # whether one of them was ready
        self.is_done = False  # because no job is left, or it was asked to stop: no other process follows
        self.due = 0.0  # when to start the next process, at the earliest, by the monotonic clock
        self._jobs = 0
        self._started = 0.0
        self._health, self._heard = STARTING, 0.0  # and when it was reported
        self._backoff = Backoff()
        self.board = Board()  # where the child says until when its jobs may run
        self.killed: list[Overdue] = []  # those of which the next process has to record what became of them
        self._was_killed = False

    @property
    def pid(self) -> int:
        """That of the process; 0 between two of them."""
        return (self.process and self.process.pid) or 0

    def start(self, live: Callable[[], None]) -> ForkProcess:
        """Start a child that calls a function; raise `OSError` if that is impossible."""
        self._jobs, self._health = 0, STARTING
        self.board.clear()
        self._started = self._heard = monotonic()
        # The parent has this thread only: what else it does, such as to answer for health, its loop does. So no lock is
        # held by a thread that the child does not have. An application whose import starts threads is warned by Python.
        process = FORK.Process(target=live)
        process.start()
        self.process = process
        return process

    def note(self, report: Report) -> None:
        """Remember what a child reported, if it is the child of this slot."""
        if self.pid != report.pid:
            return
        if report.health:
            self._health, self._heard = report.health, monotonic()
        else:
            self.was_ready = True
            self._jobs, self.is_done = report.jobs, report.is_done

    def verdict(self, stalled_after: float) -> Verdict:
        """Return what is known of the health of the child, which may report nothing for a number of seconds."""
        if not self.process:
            return Verdict(True, False, "a process is about to be started")
        silent = monotonic() - self._heard
        if silent > stalled_after:
            return Verdict(False, False, f"it has reported nothing for {silent:.0f} seconds")
        return self._health

    def look_for_overdue(self) -> list[Overdue]:
        """Return the jobs that run for too long, so that the child is to be killed."""
        if not self.process or self.process.exitcode is not None or self._was_killed:
            return []
        found = self.board.overdue()
        if found:
            self.killed, self._was_killed = [*self._unrecorded(), *found], True
        return found

    def _unrecorded(self) -> list[Overdue]:
        return [] if self.board.is_recorded else self.killed

    def clear(self) -> tuple[int, int, int]:
        """Forget a child that has ended; return its process id, its exit status, and how many jobs it ran."""
        process, self.process = self.process, None
        if not self._was_killed:
            self.killed = self._unrecorded()
        assert process is not None
        assert process.pid is not None
        assert process.exitcode is not None
        ended = process.pid, process.exitcode, self._jobs
        process.close()
        return ended

    def next_after(self, status: int) -> float:
        """Set and return how many seconds to wait before the next start, after a child ended with that exit status."""
        lived = monotonic() - self._started
        if self._was_killed:
            self._was_killed, delay = False, 0.0
        elif lived >= (MAX_PAUSE if status else FIRST_PAUSE) or (self._jobs and not status):
            self._backoff.reset()
            delay = 0.0
        else:
            delay = self._backoff.next()
        self.due = monotonic() + delay
        return delay
