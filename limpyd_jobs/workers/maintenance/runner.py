"""Running the maintenance tasks of a worker when they are due, between its jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple, Protocol

from limpyd_jobs.redis.servers import is_denied, is_transient
from limpyd_jobs.texts import MESSAGE, described, one_line, traceback_of
from limpyd_jobs.workers.context import Context


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
