"""Looking for new queues."""

from __future__ import annotations

from limpyd_jobs.workers.context import Context, Face


class QueueRefresh:
    """Lets a worker find the waiting lists of its queues."""

    name = "update_keys"

    def __init__(self, worker: Face) -> None:
        self._worker = worker

    @property
    def interval(self) -> float:
        return self._worker.fetch_priorities_delay

    def run(self, context: Context) -> None:
        self._worker.update_keys()
