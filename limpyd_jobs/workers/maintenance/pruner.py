"""Keeping as many finished jobs as the user wants, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

from limpyd_jobs import transitions
from limpyd_jobs.models import Error, Queue, job_classes
from limpyd_jobs.models.pruning import Pruned, Retention, prune
from limpyd_jobs.redis.calls import finish
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.workers.context import Context

# How many seconds to let pass between two runs; and after a run that did not finish.
INTERVAL, BUSY_INTERVAL = 60, 0.1

# The limits of a run: steps for each list, of 100 jobs each, and seconds. Meanwhile no job is run.
MAX_STEPS, MAX_SECONDS = 10, 0.5


class Pruner:
    """Deletes the oldest finished jobs of some queues, step by step."""

    name = "prune_jobs"
    interval: float = INTERVAL

    def __init__(
        self,
        queue_model: type[Queue],
        error_model: type[Error],
        keep_success: int | timedelta | None = None,
        keep_errors: int | timedelta | None = None,
    ) -> None:
        self._queue_model = queue_model
        self._error_model = error_model
        self._retention = Retention.of(queue_model, keep_success, keep_errors)
        self._starts: dict[str, int] = {}
        if self._retention != (None, None):
            transitions.check_prunable(queue_model, error_model)

    def run(self, context: Context) -> float:
        deleted, failures, starts = self.prune(context.queue_keys)
        if deleted:
            context.log(f"{deleted} finished jobs deleted")
        for ident, reason in list(failures.items())[:1]:
            failed = f"{len(failures)} finished jobs could not be deleted"
            context.log(f"{failed}, as {one_line(ident)}: {one_line(reason, MESSAGE)}", "error")
        return BUSY_INTERVAL if starts else INTERVAL

    def prune(self, queue_keys: Sequence[str]) -> Pruned:
        """Delete jobs beyond the retention, or some of them. The queues are given by the beginnings of their keys."""
        lists, until = self._retention.lists(queue_keys), monotonic() + MAX_SECONDS
        starts, self._starts = self._starts, {}
        steps = prune(self._queue_model, self._error_model, lists, job_classes, starts, MAX_STEPS, until)
        pruned = finish(steps)
        self._starts = pruned.starts
        return pruned
