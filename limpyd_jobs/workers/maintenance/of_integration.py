"""What an integration lets workers do beside their jobs."""

from __future__ import annotations

from limpyd_jobs.observing.worker_tasks import WorkerTask
from limpyd_jobs.workers.context import Context


class OfIntegration:
    """Runs such a task as the others are run."""

    def __init__(self, task: WorkerTask) -> None:
        self._task = task
        self.name = task.name
        self.interval = task.interval

    def run(self, context: Context) -> float | None:
        return self._task.run(context.log)
