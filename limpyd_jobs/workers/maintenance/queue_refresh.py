"""Looking for new queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from limpyd_jobs.workers.engine import Engine
    from limpyd_jobs.workers.worker import Worker


class QueueRefresh:
    """Lets a worker find the waiting lists of its queues."""

    name = "update_keys"

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def interval(self) -> float:
        return self._worker.fetch_priorities_delay

    def run(self, context: Engine) -> None:
        self._worker.update_keys()
