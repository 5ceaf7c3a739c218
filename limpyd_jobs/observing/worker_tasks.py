"""What integrations let each worker of this process do beside its jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class WorkerTask(Protocol):
    """What a worker does again and again, between its jobs and while it waits.

    Attributes
    ----------
    name: str
        What log lines call it.
    interval: float
        How many seconds to let pass between two runs.
    """

    name: str
    interval: float

    def run(self, log: Callable[[str, str], object]) -> float | None:
        """Do it once. Meanwhile the worker runs no job.

        Parameters
        ----------
        log: callable
            Takes a message, and a level such as ``error``.

        Returns
        -------
        float
            After how many seconds to do it again; None for the interval. An exception is logged with its traceback.
        """


installed: list[WorkerTask] = []


def register_worker_task(task: WorkerTask) -> None:
    """Let each worker that this process makes from now on do something beside its jobs."""
    if task not in installed:
        installed.append(task)
