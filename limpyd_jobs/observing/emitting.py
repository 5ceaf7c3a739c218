"""Who is called with the events of this process: observers, and the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from limpyd_jobs.observing.instruments import Instrument, install, log_failure, uninstall


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


ONLY_THE_LOG: tuple[Observer, ...] = (write_log_line,)
observers = ONLY_THE_LOG  # replaced, never changed


def subscribe(observer: Observer | Instrument) -> None:
    """Let a function be called with each event from now on, of all workers of this process; once, however often it is
    subscribed.

    An `Instrument` stands around the adding and the running of jobs from now on. It is called with each event only if
    it can be called.
    """
    global observers
    if isinstance(observer, Instrument):
        install(observer)
    if callable(observer) and observer not in observers:
        observers = (*observers, observer)


def unsubscribe(observer: Observer | Instrument) -> None:
    """Let a function no longer be called, an instrument no longer stand around anything."""
    global observers
    uninstall(observer)
    others = tuple(each for each in observers if each != observer)
    observers = ONLY_THE_LOG if others == ONLY_THE_LOG else others


def is_observed() -> bool:
    """Whether there is an observer beside the log."""
    return observers is not ONLY_THE_LOG


def emit(kind: type[Event], worker: Source, message: str = "", *details: Any) -> None:
    """Tell an event to all observers. As long as there is only the log, the event is not even made: that would take
    longer than all the rest."""
    if observers is not ONLY_THE_LOG:
        make: Callable[..., Event] = kind
        event = make(worker, message, *details)
        for observer in observers:
            try:
                observer(event)
            except Exception as error:
                log_failure(observer, kind.__name__, error)
    elif message:
        try:
            worker.log(message, kind.level)
        except Exception as error:
            log_failure(write_log_line, kind.__name__, error)
