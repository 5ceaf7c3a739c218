"""The turns of a worker that runs one job after the other."""

from __future__ import annotations

from _signal import getsignal  # type: ignore[import-not-found]  # ten times as fast as the one of `signal`
from collections.abc import Callable
from contextvars import copy_context
from signal import SIGTERM
from time import monotonic

from limpyd_jobs.workers.context import Face
from limpyd_jobs.workers.process.leftovers import Leftovers
from limpyd_jobs.workers.run import Run


class OneAtATime:
    """Gets a job, runs it, and so on. `ManyAtOnce` does the same with several.

    Each job runs in a context of its own (see `contextvars`): what it sets there, no later job finds.
    """

    is_busy = False  # whether jobs run while it looks for others

    def __init__(
        self,
        worker: Face,
        run_job: Callable[[Run], None],
        leftovers: Leftovers,
        is_steady: Callable[[], bool],
        cancel: Callable[[Run], None],
    ) -> None:
        self._worker = worker
        self._run_job = run_job
        self._leftovers = leftovers
        self.cancel = cancel  # called by any thread with a run whose job was canceled
        self._is_steady = is_steady  # whether the next job is there, and its status need not be set

    def run(self, next_job: Callable[[], Run | None], set_status: Callable[[str], None]) -> None:
        """Get jobs and run them until the worker has to stop."""
        worker, leftovers = self._worker, self._leftovers
        while not worker.must_stop():
            if not self._is_steady():
                set_status("waiting")
            run = next_job()
            if run:
                worker.num_loops += 1
                if worker.status != "running":
                    set_status("running")
                copy_context().run(self._run_job, run)
                if getsignal(SIGTERM) is not leftovers.terminate or monotonic() >= leftovers.due:
                    leftovers.look(run.job)
