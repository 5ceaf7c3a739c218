"""The turns of a worker that runs one job after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from limpyd_jobs.models import Job, Queue
from limpyd_jobs.workers.context import Face


class OneAtATime:
    """Gets a job, runs it, and so on. `ManyAtOnce` does the same with several."""

    is_busy = False  # whether jobs run while it looks for others

    def __init__(self, worker: Face, run_job: Callable[[Any, Any], None]) -> None:
        self._worker = worker
        self._run_job = run_job

    def run(self, next_job: Callable[[], tuple[Queue, Job] | None], set_status: Callable[[str], None]) -> None:
        """Get jobs and run them until the worker has to stop."""
        worker = self._worker
        while not worker.must_stop():
            set_status("waiting")
            found = next_job()
            if found:
                worker.num_loops += 1
                set_status("running")
                self._run_job(*found)
