"""The events of jobs and workers, as typed values for observers in the same process.

An observer is a function that takes one event. `subscribe` adds it. It is called in the thread of the worker, before
the next thing is done, so it should be quick. An exception that it raises is logged, and changes nothing for the job.
The log lines on jobs are written by such an observer, `write_log_line`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from limpyd_jobs.observing.emitting import Event as Event
from limpyd_jobs.observing.emitting import Observer as Observer
from limpyd_jobs.observing.emitting import Source as Source
from limpyd_jobs.observing.emitting import emit as emit
from limpyd_jobs.observing.emitting import is_observed as is_observed
from limpyd_jobs.observing.emitting import logged as logged
from limpyd_jobs.observing.emitting import subscribe as subscribe
from limpyd_jobs.observing.emitting import unsubscribe as unsubscribe
from limpyd_jobs.observing.emitting import write_log_line as write_log_line

if TYPE_CHECKING:
    from limpyd_jobs.models import Job, Queue
    from limpyd_jobs.schedules.model import Schedule


class WorkerStarted(Event):
    """A worker is about to run its first job."""


@dataclass(frozen=True)
class WorkerStatusChanged(Event):
    """The status of a worker changed to ``starting``, ``waiting``, ``running`` or ``terminated``; or the worker was
    asked to end. While one job follows the other at once, it stays ``running``, which is emitted about once a
    second."""

    status: str | None


class WorkerEnded(Event):
    """The run of a worker is over."""


@dataclass(frozen=True)
class JobEvent(Event):
    """Something that happened to a job, which came from a queue, and is recorded in Redis."""

    job: Job
    queue: Queue


class JobStarted(JobEvent):
    """A job is claimed, and about to be executed."""


@dataclass(frozen=True)
class JobSucceeded(JobEvent):
    """A job was executed without an exception; its code returned the result."""

    result: Any


@dataclass(frozen=True)
class JobFailed(JobEvent):
    """The execution of a job raised an exception. If the job is requeued, it may run again, and `JobRequeued`
    follows."""

    level: ClassVar[str] = "error"

    exception: BaseException
    trace: str | None
    requeued: bool


class JobRequeued(JobEvent):
    """A job that failed, or asked for it, is back in a queue: it waits, or is delayed."""


@dataclass(frozen=True)
class JobDelayed(JobEvent):
    """A job was delayed, before or while it ran, until a date: a text, naive UTC."""

    level: ClassVar[str] = "warning"

    delayed_until: str


class JobSkipped(JobEvent):
    """A job did not wait any more when it came out of its list, or was canceled while it ran."""

    level: ClassVar[str] = "warning"


class JobReleased(JobEvent):
    """A job was interrupted, because its worker has to end, and waits again."""

    level: ClassVar[str] = "warning"


class JobWaits(JobReleased):
    """The code of a job waits for a signal, or for what it spawned: the job is delayed until that is there. See
    `Job.wait_for` and `Job.children_results`."""

    level: ClassVar[str] = "info"


class JobRescued(JobEvent):
    """A job whose worker died waits again."""

    level: ClassVar[str] = "warning"


@dataclass(frozen=True)
class JobScheduled(Event):
    """A job was added by a schedule that was due at a time, naive UTC."""

    job: Job
    schedule: Schedule
    time: datetime


@dataclass(frozen=True)
class ScheduleMissed(Event):
    """A schedule was due at a time, naive UTC, that is too long ago, so no job was added."""

    level: ClassVar[str] = "warning"

    schedule: Schedule
    time: datetime
