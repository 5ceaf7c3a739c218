"""The maintenance of a worker: what it does again and again, between its jobs; and the small tasks: looking for queues,
moving jobs that are due, deleting finished ones, and those of integrations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from math import inf
from time import monotonic
from typing import NamedTuple, Protocol

from limpyd_jobs import transitions
from limpyd_jobs.functions import overrides
from limpyd_jobs.models import Error, Queue, job_classes
from limpyd_jobs.models.promoting import promote
from limpyd_jobs.models.pruning import Pruned, Retention, prune
from limpyd_jobs.observing.worker_tasks import WorkerTask
from limpyd_jobs.redis.calls import finish
from limpyd_jobs.redis.servers import is_denied, is_transient
from limpyd_jobs.texts import MESSAGE, described, one_line, traceback_of
from limpyd_jobs.workers.context import Context, Face

# For how many seconds one run moves jobs that are due, at most. Then jobs are run for as long.
MAX_PROMOTION = 0.1

# How many seconds to let pass between two runs that delete jobs; and after a run that did not finish.
PRUNE_EVERY, PRUNE_SOON = 60, 0.1

# The limits of a run that deletes jobs: steps for each list, of 100 jobs each, and seconds. Meanwhile no job is run.
MAX_STEPS, MAX_SECONDS = 10, 0.5


class Task(Protocol):
    """What a worker does again and again, beside its jobs."""

    name: str  # the name in log lines

    @property
    def interval(self) -> float: ...  # how many seconds to let pass between two runs

    def run(self, context: Context) -> float | None:
        """Do the task once; return after how many seconds to do it again, if that is not the interval.

        Its exceptions are logged, and the worker goes on.
        """


class Finders(NamedTuple):
    """The tasks that find queues, or jobs that are to be run: a wait for jobs may hasten them."""

    queue_refresh: Task
    promoter: Task
    scheduler: Task


class Maintenance:
    """Knows when each task is due; at first, all are. Tasks that are due are run in the given order."""

    def __init__(self, context: Context, tasks: Sequence[Task], finders: Finders, may_log: Callable[[], bool]) -> None:
        self._context = context
        self.finders = finders  # among the tasks
        self._may_log = may_log
        self._due = dict.fromkeys(tasks, 0.0)
        self.next_due = 0.0  # when a task is due next, by the clock of `monotonic`

    def put_first(self, task: Task) -> None:
        """Run another task before all others, each time that it is due."""
        self._due = {task: 0.0, **self._due}
        self.next_due = 0.0

    def is_due(self, task: Task) -> bool:
        """Whether a task is due."""
        return monotonic() >= self._due[task]

    def postpone(self, task: Task, seconds: float = 0.0) -> None:
        """Let a task be due after a number of seconds, instead of its earlier moment."""
        self._set(task, monotonic() + seconds)

    def hasten(self, task: Task, moment: float) -> None:
        """Let a task be due at a moment, if it is not due before."""
        self._set(task, min(self._due[task], moment))

    def _set(self, task: Task, moment: float) -> None:
        self._due[task] = moment
        self.next_due = min(self._due.values())

    def run_due(self) -> None:
        """Run the tasks that are due. It raises `RedisError` if Redis fails in a way that may pass."""
        for task in self._due:
            if self.is_due(task):
                self._try(task)

    def run(self, task: Task) -> None:
        """Run a task, due or not. Its exceptions are raised."""
        self.postpone(task, task.interval)
        seconds = task.run(self._context)
        if seconds is not None:
            self.postpone(task, seconds)

    def _try(self, task: Task) -> None:
        try:
            self.run(task)
        except Exception as error:
            if is_transient(error):
                raise
            self.log_failure(task, error)

    def log_failure(self, task: Task, error: Exception) -> None:
        """Log that a task failed. To be called while the exception is handled."""
        if not is_denied(error):
            self._context.log(f"{task.name} failed: {described(error)}\n{traceback_of(error)}", "error")
        elif self._may_log():
            self._context.log(f"{task.name} failed: {one_line(error, MESSAGE)}", "error")


# -- The small tasks


class StatusRefresh:
    """Lets a worker that runs several jobs at once show how far it is: while it is busy, its status does not change."""

    name = "set_status"
    interval = 1.0

    def __init__(self, worker: Face) -> None:
        self._worker = worker

    def run(self, context: Context) -> float | None:
        if self._worker.status != "running":
            return inf  # until it is busy again
        self._worker.set_status("running")
        return None


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


class Pruner:
    """Deletes the oldest finished jobs of some queues, step by step."""

    name = "prune_jobs"
    interval: float = PRUNE_EVERY

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
        return PRUNE_SOON if starts else PRUNE_EVERY

    def prune(self, queue_keys: Sequence[str]) -> Pruned:
        """Delete jobs beyond the retention, or some of them. The queues are given by the beginnings of their keys."""
        lists, until = self._retention.lists(queue_keys), monotonic() + MAX_SECONDS
        starts, self._starts = self._starts, {}
        steps = prune(self._queue_model, self._error_model, lists, job_classes, starts, MAX_STEPS, until)
        pruned = finish(steps)
        self._starts = pruned.starts
        return pruned


class OfIntegration:
    """Runs such a task as the others are run."""

    def __init__(self, task: WorkerTask) -> None:
        self._task = task
        self.name = task.name
        self.interval = task.interval

    def run(self, context: Context) -> float | None:
        return self._task.run(context.log)
