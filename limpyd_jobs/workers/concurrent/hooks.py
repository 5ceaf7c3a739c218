"""The async methods of jobs, such as ``on_success``, while other jobs run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from queue import Empty, SimpleQueue
from typing import Any

from limpyd_jobs.workers.concurrent.awaiting import Awaiting
from limpyd_jobs.workers.concurrent.event_loop import Awaited, EventLoop
from limpyd_jobs.workers.run import Run
from limpyd_jobs.workers.running.timers import JobTimer


class AwaitingBeside(Awaiting):
    """Lets coroutines run beside the worker, which goes on at once. Those of a job that is about to begin are kept, to
    be awaited before its code."""

    def __init__(self, loop: EventLoop, ring: Callable[[], None]) -> None:
        super().__init__(loop)
        self.before: list[Coroutine[Any, Any, Any]] | None = None  # of the job that is about to begin
        self.run_of_hook: Run | None = None  # of the job whose hooks are called
        self.running = 0
        self._ring = ring
        self._ended: SimpleQueue[tuple[Awaited, Run | None]] = SimpleQueue()

    def run(self, coroutine: Coroutine[Any, Any, Any], timer: JobTimer | None = None) -> Any:
        if self.before is not None:
            self.before.append(coroutine)
            return
        run = self.run_of_hook
        self.running += 1
        self._loop.start(coroutine, lambda awaited: self._has_ended(awaited, run))

    def _has_ended(self, awaited: Awaited, run: Run | None) -> None:
        self._ended.put((awaited, run))
        self._ring()

    def pop_ended(self) -> tuple[Awaited, Run | None] | None:
        """Return one that has ended, with the run of its job; None if there is none."""
        try:
            found = self._ended.get_nowait()
        except Empty:
            return None
        self.running -= 1
        return found
