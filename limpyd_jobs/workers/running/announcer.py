"""Announcing the turns in the life of a job: an event, a line of the log, and the method of the job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import CoroutineType
from typing import Any

from limpyd_jobs import events
from limpyd_jobs.fields.argument import know_all_arguments
from limpyd_jobs.functions import is_async
from limpyd_jobs.models import Job, Queue
from limpyd_jobs.observing import emitting
from limpyd_jobs.observing.emitting import ONLY_THE_LOG
from limpyd_jobs.observing.instruments import log_failure
from limpyd_jobs.records.lazy_fields import has_method
from limpyd_jobs.texts import LOGGED, NAME, as_lines, one_line
from limpyd_jobs.workers.context import Face
from limpyd_jobs.workers.run import Run, Runs
from limpyd_jobs.workers.running.event_loop import Awaiting
from limpyd_jobs.workers.running.threads import code_of

# What is logged when a job starts, given its name, and when it is a success, given its name and how long it took.
STARTED, SUCCEEDED = "%s starting", "%s success, in %s"

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(eq=False)
class Announcer:
    """Emits the events of jobs, and calls the methods that their classes have for them."""

    worker: Face
    runs: Runs
    is_among_few: Callable[[str, str], bool]  # see `Repeats`
    awaiting: Awaiting

    def __post_init__(self) -> None:
        self.class_names = self.runs.class_names
        self._beginning = f"[{self.worker.id}] "
        self._shards = self.worker._settings.shards

    # -- Of a job of which nothing is overridden

    def started(self, run: Run) -> None:
        """A job starts."""
        kind = events.JobStarted
        if emitting.observers is not ONLY_THE_LOG:
            self.emit(kind, run.job, run.queue, STARTED % self._label_of(run))
        elif is_read(self.worker.logger, kind.level):
            self._write(kind, run, STARTED % self._label_of(run))

    def succeeded(self, run: Run) -> None:
        """A job is a success."""
        kind = events.JobSucceeded
        if emitting.observers is not ONLY_THE_LOG:
            self.emit(kind, run.job, run.queue, self._success_of(run), run.result)
        elif is_read(self.worker.logger, kind.level):
            self._write(kind, run, self._success_of(run))

    def _success_of(self, run: Run) -> str:
        return SUCCEEDED % (run.label or self._label_of(run), duration_of(run.job))

    def _label_of(self, run: Run) -> str:
        """Return how a job is named in the log, and keep that."""
        delivery = run.delivery
        name, identifier = delivery.queue_name, delivery.identifier or run.job.identifier.hget()
        label = f"[{name}|{delivery.pk}|{identifier}]"
        if len(label) > NAME or not label.isprintable():
            label = f"[{one_line(name)}|{delivery.pk}|{one_line(identifier)}]"
        run.label = label
        return label

    def _write(self, kind: type[events.Event], run: Run, message: str) -> None:
        """Log the message of an event that only the log would see, without asking the worker."""
        try:
            end = self._end_of(run.job, run.queue) if self.class_names.are_several or self._shards else ""
            write(self.worker.logger, f"{self._beginning}{message}{end}", kind.level)
        except Exception as error:
            log_failure(events.write_log_line, kind.__name__, error)

    # -- Of any job

    def emit(self, kind: type[events.Event], job: Job, queue: Queue, message: str, *details: Any) -> None:
        """Emit an event of a job; the log names its class if there are several in the queue, and its shard if that is
        another one than that of the worker: there are jobs of the same pk in each."""
        events.emit(kind, self.worker, message and message + self._end_of(job, queue), job, queue, *details)

    def _end_of(self, job: Job, queue: Queue) -> str:
        end, shards = "", self._shards
        if self.class_names.are_several:
            end = self.class_names.mark(getattr(queue, "_cached_name", ""), job.get_model_repr())
        if shards and queue.database in shards.databases:
            end += f" (shard {shards.databases.index(queue.database)})"
        return end

    def emit_again(self, kind: type[events.Event], job: Job, queue: Queue, message: str, *details: Any) -> None:
        """Emit an event that a job listed thousands of times brings as often: then few have a message for the log."""
        self.emit(kind, job, queue, message if self.is_among_few(message, kind.level) else "", *details)

    def notify(self, job: Job, event: str, *args: Any) -> None:
        """Call the method of a job for an event, if its class has one; await it if it is an async one."""
        if has_method(job, event):
            method = getattr(job, event)
            result = method(*args)
            if type(result) is CoroutineType and is_async(method):
                self._await(job, result)

    def _await(self, job: Job, coroutine: CoroutineType[Any, Any, Any]) -> None:
        """Await a method of a job, with all arguments at hand: not every one comes after a claim."""
        try:
            know_all_arguments(job)
        except BaseException:
            coroutine.close()
            raise
        with code_of(job):
            self.awaiting.run(coroutine)

    def failed(self, job: Job, queue: Queue, exception: BaseException, trace: str | None, is_requeued: bool) -> None:
        """A job failed."""
        # version 2 says 0 or None if these are its requeue_times
        shown: Any = is_requeued or (self.worker.requeue_times and False)
        message = self.worker.job_error_message(job, queue, shown, exception, trace)
        self.emit(events.JobFailed, job, queue, message, exception, trace, is_requeued)

    def requeued(self, job: Job, queue: Queue) -> None:
        """A job is back in a queue."""
        self.emit(events.JobRequeued, job, queue, self.worker.job_requeue_message(job, queue))


def duration_of(job: Job) -> timedelta | None:
    """Return for how long a job ran, without asking Redis if it was run here."""
    if "_cached_duration" in vars(job):
        return job._cached_duration
    start, end = getattr(job, "_cached_start", None), getattr(job, "_cached_end", None)
    try:
        return datetime.fromisoformat(end) - datetime.fromisoformat(start)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # one is not known, or another program wrote it
        return job.duration


def is_read(logger: logging.Logger, level: str) -> bool:
    """Whether anything would see a line of that level. Where nothing does, to write it would take a tenth of the time
    of a job."""
    number = _LEVELS.get(level)
    if number is None or type(logger) is not logging.Logger or logger.filters:
        return True
    if not logger.isEnabledFor(number):
        return False
    each: logging.Logger | None = logger
    has_handler = False
    while each:
        for handler in each.handlers:
            if number >= handler.level:
                return True
            has_handler = True
        each = each.parent if each.propagate else None
    last = logging.lastResort
    return not has_handler and (last is None or number >= last.level)


def write(logger: logging.Logger, text: str, level: str) -> None:
    """Log a text. What would confuse a terminal is escaped."""
    if not text.isprintable() or len(text) > LOGGED:
        text = as_lines(text)
    number = _LEVELS.get(level)
    if number is None or type(logger) is not logging.Logger:
        getattr(logger, level)(text)
    elif logger.isEnabledFor(number):  # as `Logger.info` does, but it first finds out that this line called it
        logger.handle(logger.makeRecord(logger.name, number, __file__, 0, text, (), None, "log"))
