"""The events of jobs and workers, as typed values for observers in the same process.

An observer is a function that takes one event. `subscribe` adds it. It is called in the thread of the worker, before
the next thing is done, so it should be quick. An exception that it raises is logged, and changes nothing for the job.
The log lines on jobs are written by such an observer, `write_log_line`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from limpyd_jobs.observing.instruments import Instrument, install, log_failure, uninstall

if TYPE_CHECKING:
    from limpyd_jobs.models import Job, Queue
    from limpyd_jobs.schedules.model import Schedule


class Source(Protocol):
    """What an event needs of the worker that did something."""

    @property
    def id(self) -> str: ...
    @property
    def logger(self) -> logging.Logger: ...
    def log(self, message: str, level: str = ...) -> None: ...


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes
    ----------
    worker: Worker
        The worker that did it.
    message: str
        The text of its log line; empty if it has none.
    """

    level: ClassVar[str] = "info"  # in the log

    worker: Source
    message: str


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


Observer = Callable[[Event], object]


# The event whose line is being logged, for formatters.
logged: ContextVar[Event | None] = ContextVar("logged", default=None)


def write_log_line(event: Event) -> None:
    """Write the log line of an event, if it has one."""
    if event.message:
        token = logged.set(event)
        try:
            event.worker.log(event.message, event.level)
        finally:
            logged.reset(token)


_ONLY_THE_LOG: tuple[Observer, ...] = (write_log_line,)
_observers = _ONLY_THE_LOG


def subscribe(observer: Observer | Instrument) -> None:
    """Let a function be called with each event from now on, of all workers of this process; once, however often it is
    subscribed.

    An `Instrument` stands around the adding and the running of jobs from now on. It is called with each event only if
    it can be called.
    """
    global _observers
    if isinstance(observer, Instrument):
        install(observer)
    if callable(observer) and observer not in _observers:
        _observers = (*_observers, observer)


def unsubscribe(observer: Observer | Instrument) -> None:
    """Let a function no longer be called, an instrument no longer stand around anything."""
    global _observers
    uninstall(observer)
    others = tuple(each for each in _observers if each != observer)
    _observers = _ONLY_THE_LOG if others == _ONLY_THE_LOG else others


def is_observed() -> bool:
    """Whether there is an observer beside the log."""
    return _observers is not _ONLY_THE_LOG


def emit(kind: type[Event], worker: Source, message: str = "", *details: Any) -> None:
    """Tell an event to all observers. As long as there is only the log, the event is not even made: that would take
    longer than all the rest."""
    if _observers is not _ONLY_THE_LOG:
        make: Callable[..., Event] = kind
        event = make(worker, message, *details)
        for observer in _observers:
            try:
                observer(event)
            except Exception as error:
                log_failure(observer, kind.__name__, error)
    elif message:
        try:
            worker.log(message, kind.level)
        except Exception as error:
            log_failure(write_log_line, kind.__name__, error)
