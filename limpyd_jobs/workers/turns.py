"""The turns of a worker that runs one job after the other."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from signal import SIGTERM, getsignal
from time import monotonic
from typing import Any

from limpyd_jobs.models import Job, Queue
from limpyd_jobs.workers.context import Face
from limpyd_jobs.workers.process.leftovers import Leftovers


class OneAtATime:
    """Gets a job, runs it, and so on. `ManyAtOnce` does the same with several.

    Each job runs in a context of its own (see `contextvars`): what it sets there, no later job finds.
    """

    is_busy = False  # whether jobs run while it looks for others

    def __init__(self, worker: Face, run_job: Callable[[Any, Any], None], leftovers: Leftovers) -> None:
        self._worker = worker
        self._run_job = run_job
        self._leftovers = leftovers

    def run(self, next_job: Callable[[], tuple[Queue, Job] | None], set_status: Callable[[str], None]) -> None:
        """Get jobs and run them until the worker has to stop."""
        worker, leftovers = self._worker, self._leftovers
        while not worker.must_stop():
            set_status("waiting")
            found = next_job()
            if found:
                worker.num_loops += 1
                set_status("running")
                copy_context().run(self._run_job, *found)
                if getsignal(SIGTERM) is not leftovers.terminate or monotonic() >= leftovers.due:
                    leftovers.look(found[1])
