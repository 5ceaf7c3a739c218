"""What the code of jobs holds and does not give back: threads, slots, the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from limpyd_jobs.workers.concurrent.event_loop import EventLoop
from limpyd_jobs.workers.concurrent.slots import Slots
from limpyd_jobs.workers.context import Context, Face
from limpyd_jobs.workers.run import Runs


@dataclass(eq=False)
class Held:
    """Shows it, and ends a worker in which nothing is left that jobs could use."""

    worker: Face
    context: Context
    runs: Runs
    slots: Slots
    event_loop: EventLoop
    end_wait: Callable[[], None]

    def __post_init__(self) -> None:
        self._lost: set[object] = set()

    def check(self) -> None:
        """End the worker if calls of jobs that have ended hold all threads of ``asyncio.to_thread``, and did so when it
        was called before. The heartbeat calls it."""
        threads, lost = self.event_loop.threads, self._lost_calls()
        is_for_good = threads is not None and len(lost & self._lost) >= threads.most
        self._lost = lost
        if threads is not None and is_for_good and not self.worker.end_forced:
            text = f"calls of jobs that have ended hold all {threads.most} threads of asyncio.to_thread"
            self.context.log(f"{text}: ending", "error")
            self.context.state.why, self.worker.end_forced = text, True
            threads.grow()  # so that the jobs that run can end
            self.end_wait()

    def _lost_calls(self) -> set[object]:
        threads = self.event_loop.threads
        if threads is None or not threads.held:
            return set()
        return threads.held_by_others([each.job for each in self.runs.now_running()])

    def too_long(self, seconds: float) -> str:
        """Return what jobs have held for longer than some seconds, so that others cannot go on; empty if nothing."""
        threads, held_for = self.event_loop.threads, self.event_loop.held_for
        if threads is not None and threads.full_for > seconds:
            full = f"{threads.full_for:.0f} seconds"
            return f"calls of jobs have held all {threads.most} threads of asyncio.to_thread for {full}"
        return f"a job has held the event loop for {held_for:.0f} seconds" if held_for > seconds else ""

    def lines(self) -> Iterator[str]:
        """Return it in words, for a report."""
        threads = self.event_loop.threads
        if self.slots.lost:
            yield f"{self.slots.lost} of {self.slots.limit} slots are held by jobs that were given up"
        if threads is not None and threads.held:
            what = f"{threads.held} of {threads.most} threads of asyncio.to_thread are held"
            yield f"{what}, {len(self._lost_calls())} of them by jobs that have ended"
