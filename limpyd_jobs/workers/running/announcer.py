"""Telling others of the turns in the life of a job: an event, which is logged, and the method of the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CoroutineType
from typing import Any

from limpyd_jobs import events
from limpyd_jobs.classes.unrun import is_async
from limpyd_jobs.models import Job, Queue
from limpyd_jobs.records.lazy_fields import has_method
from limpyd_jobs.workers.concurrent.awaiting import Awaiting
from limpyd_jobs.workers.concurrent.stepping import code_of
from limpyd_jobs.workers.context import Face
from limpyd_jobs.workers.naming import ClassNames


@dataclass(eq=False)
class Announcer:
    """Emits the events of jobs, and calls the methods that their classes have for them."""

    worker: Face
    is_among_few: Callable[[str, str], bool]  # see `Repeats`
    awaiting: Awaiting

    def __post_init__(self) -> None:
        self.class_names = ClassNames()

    def emit(self, kind: type[events.Event], job: Job, queue: Queue, message: str, *details: Any) -> None:
        """Emit an event of a job; the log names its class if there are several in the queue, and its shard if that is
        another one than that of the worker: there are jobs of the same pk in each."""
        if message and self.class_names.are_several:
            message += self.class_names.mark(getattr(queue, "_cached_name", ""), job.get_model_repr())
        shards = self.worker._settings.shards
        if message and shards and queue.database in shards.databases:
            message += f" (shard {shards.databases.index(queue.database)})"
        events.emit(kind, self.worker, message, job, queue, *details)

    def emit_again(self, kind: type[events.Event], job: Job, queue: Queue, message: str, *details: Any) -> None:
        """Emit an event that a job listed thousands of times brings as often: then few have a message for the log."""
        self.emit(kind, job, queue, message if self.is_among_few(message, kind.level) else "", *details)

    def notify(self, job: Job, event: str, *args: Any) -> None:
        """Call the method of a job for an event, if its class has one; await it if it is an async one."""
        if has_method(job, event):
            method = getattr(job, event)
            result = method(*args)
            if type(result) is CoroutineType and is_async(method):
                with code_of(job):
                    self.awaiting.run(result)

    def failed(self, job: Job, queue: Queue, exception: BaseException, trace: str | None, is_requeued: bool) -> None:
        """A job failed."""
        # version 2 says 0 or None if these are its requeue_times
        shown: Any = is_requeued or (self.worker.requeue_times and False)
        message = self.worker.job_error_message(job, queue, shown, exception, trace)
        self.emit(events.JobFailed, job, queue, message, exception, trace, is_requeued)

    def requeued(self, job: Job, queue: Queue) -> None:
        """A job is back in a queue."""
        self.emit(events.JobRequeued, job, queue, self.worker.job_requeue_message(job, queue))
