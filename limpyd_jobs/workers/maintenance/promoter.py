"""Moving delayed jobs that are due to their waiting lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from time import monotonic

from limpyd_jobs.functions import overrides
from limpyd_jobs.models import Queue
from limpyd_jobs.models.promoting import promote
from limpyd_jobs.redis.calls import finish
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.workers.context import Context, Face

# For how many seconds one run moves jobs, at most. Then jobs are run for as long.
MAX_PROMOTION = 0.1


class Promoter:
    """Lets a worker move its delayed jobs that are due."""

    name = "requeue_delayed_jobs"

    def __init__(self, worker: Face, context: Context, defer: Callable[[str, str, Exception], None]) -> None:
        self._worker = worker
        self._context = context
        self._defer = defer
        self._queue_model = worker.queue_model
        is_custom = overrides(self._queue_model, Queue, "requeue_delayed_jobs")
        self._promote = self._promote_customly if is_custom else self._promote_ours
        self._has_more = False

    @property
    def interval(self) -> float:
        return self._worker.fetch_delayed_delay

    def run(self, context: Context) -> float | None:
        self._has_more = False
        self._worker.requeue_delayed_jobs()
        return MAX_PROMOTION if self._has_more else None

    def promote(self) -> None:
        """Move the jobs that are due; what `Worker.requeue_delayed_jobs` does."""
        for ident, reason in self._promote():  # of jobs that could not be moved
            failed = "delayed job could not be put back in its waiting list"
            self._context.log_repeated(failed, f"[{one_line(ident)}] {failed}: {one_line(reason, MESSAGE)}")

    def _promote_ours(self) -> Iterable[tuple[str, str]]:
        until = inf if self._worker.status is None else monotonic() + MAX_PROMOTION
        steps = promote(self._queue_model, self._context.queue_keys, self._defer, until)
        self._has_more, failures = finish(steps)
        return failures

    def _promote_customly(self) -> Iterable[tuple[str, str]]:
        return [
            failure
            for queue in self._queue_model.get_all_by_priority(self._worker.queues)
            for failure in queue.requeue_delayed_jobs() or ()
        ]
