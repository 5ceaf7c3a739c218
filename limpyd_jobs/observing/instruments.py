"""Instruments: observers that stand around the adding and the running of jobs, for traces and reports of errors.

As long as there is none, `installed` is empty, and nothing else of this is used.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from limpyd_jobs.texts import MESSAGE, one_line, traceback_of

logger = logging.getLogger("limpyd-jobs")

# The field of a job that holds what an instrument stored with it. It travels with the claim if there are instruments.
TRACE_CONTEXT = "_trace_context"

_LAST_RUN = "_limpyd_jobs_running"  # an attribute of the object of a job

MAX_TRACE_CONTEXT = 1000  # in characters


@dataclass(eq=False)
class Adding:
    """Jobs that are added to a queue in one step.

    Attributes
    ----------
    job_class: type of Job
    queue_name: str
    number: int
        How many jobs are added.
    schedule: str
        The name of the schedule that adds the job; empty if code of the application adds it.
    trace_context: str
        What to store with each new job, for those who run it. Set it before the step. At most 1,000 characters.
    idents: list of str
        The idents of the jobs, once they are added. A job that is queued already is among them.
    outcome: str
        Of a single job, as ``add_outcome`` has it: ``added``; ``existing`` or ``moved`` if it is queued already, and
        others. ``not due`` if another worker was faster to add the job of a schedule.
    """

    job_class: Any
    queue_name: str
    number: int = 1
    schedule: str = ""
    trace_context: str = ""
    idents: list[str] = field(default_factory=list)
    outcome: str = ""

    def with_context(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields of a new job, with what the instruments store with it."""
        is_fine = 0 < len(self.trace_context) <= MAX_TRACE_CONTEXT
        return {**fields, TRACE_CONTEXT: self.trace_context} if is_fine else fields

    def ended(self, pks: list[str], outcome: str = "") -> None:
        """The step is done."""
        path = self.job_class.get_model_repr()
        self.idents, self.outcome = [f"{path}:{pk}" for pk in pks if pk], outcome


@dataclass(eq=False)
class Running:
    """One try to run a job.

    Attributes
    ----------
    job: Job
    queue_name: str
    attempt: int
        1 for the first try; 0 if it is not known.
    worker: str
        The id of the worker, or the owner of the claim.
    notes: dict
        What an instrument keeps for this try, best by itself as the key.
    """

    job: Any
    queue_name: str
    attempt: int
    worker: str
    notes: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        vars(self.job)[_LAST_RUN] = self

    @staticmethod
    def of(job: Any) -> Running | None:
        """Return the last try of this object of a job; None if it was not run."""
        found: Running | None = vars(job).get(_LAST_RUN)
        return found

    @property
    def ident(self) -> str:
        """The ident of the job."""
        job = self.job
        return f"{job.get_model_repr()}:{vars(job).get('_pk')}"

    @property
    def identifier(self) -> str:
        """The identifier of the job."""
        return str(vars(self.job).get("_cached_identifier") or self.job.identifier.hget() or "")

    @property
    def trace_context(self) -> str:
        """What was stored with the job when it was added; empty without anything. Any program that writes to this Redis
        may have changed it."""
        known = vars(self.job).get("_arguments", {})
        stored = known[TRACE_CONTEXT] if TRACE_CONTEXT in known else self.job.get_field(TRACE_CONTEXT).hget()
        return stored if stored and len(stored) <= MAX_TRACE_CONTEXT else ""


def trace_id_of(stored: str | None) -> str:
    """Return the id of the trace that is stored with a job; empty if that is not a context as W3C defines it."""
    found = re.match(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}( |\Z)", stored or "")
    return found[1] if found else ""


def as_attempt(tries: str | None) -> int:
    """Return the number of a try, given the tries of a job as they are stored: any text."""
    return int(tries) if tries and re.fullmatch(r"[0-9]{1,9}", tries) else 0


class Instrument:
    """An observer that stands around the adding and the running of jobs. Subclass it, and give an instance to
    `limpyd_jobs.events.subscribe`. If it can be called, it is called with each event, too.

    The context managers of `adding` and `running` are entered in the thread that adds the job, or that calls its hooks.
    The code of the job may run in another thread: with ``--concurrency``, and always if it is a coroutine. What is
    bound to a thread, such as a connection to a database, is for `in_thread` and `in_task`. An exception of an
    instrument is logged, and changes nothing for the job.
    """

    def adding(self, adding: Adding) -> AbstractContextManager[object]:
        """Return what to enter while jobs are added. An exception that it is given left the step, and is raised."""
        return nullcontext()

    def running(self, running: Running) -> AbstractContextManager[object]:
        """Return what to enter while a job is run: its hook for the start, and its code. Its end is recorded, and its
        other hooks are called, afterwards. An exception that it is given left the code of the job."""
        return nullcontext()

    def in_thread(self, job: Any) -> AbstractContextManager[object] | None:
        """Return what to enter around the code of a job in the thread that runs it, if `running` was entered in another
        one; None for nothing. `Running.of` returns more about the run."""
        return None

    def in_task(self, job: Any) -> AbstractAsyncContextManager[object] | None:
        """Return what to enter with ``async with`` in the task that awaits the code of a job, or an async hook of it;
        None for nothing. The job waits for it, and others on its loop do not."""
        return None

    def log_fields(self, running: Running | None) -> Mapping[str, str]:
        """Return fields for each line of a log in JSON: of what runs now, or ran last for the job of the line."""
        return {}


installed: tuple[Instrument, ...] = ()
# What was logged, with the observer itself: no later one gets its id.
_failures: dict[tuple[int, str, type[Exception]], object] = {}


def install(instrument: Instrument) -> None:
    """Let an instrument stand around what is added and run from now on."""
    global installed
    if instrument not in installed:
        installed = (*installed, instrument)


def uninstall(instrument: object) -> None:
    """Take an instrument away."""
    global installed
    installed = tuple(each for each in installed if each is not instrument)


class Around:
    """Enters the context managers of all instruments, the first one outermost. None can raise or hide an exception."""

    def __init__(self, subject: Adding | Running) -> None:
        self._subject = subject
        self._name = type(subject).__name__
        self._entered: list[tuple[Instrument, AbstractContextManager[object]]] = []

    def _manager_of(self, instrument: Instrument) -> AbstractContextManager[object] | None:
        subject = self._subject
        return instrument.running(subject) if isinstance(subject, Running) else instrument.adding(subject)

    def __enter__(self) -> None:
        for instrument in installed:
            try:
                manager = self._manager_of(instrument)
                if manager is None:
                    continue
                manager.__enter__()
            except Exception as error:
                log_failure(instrument, self._name, error)
            else:
                self._entered.append((instrument, manager))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._entered:
            instrument, manager = self._entered.pop()
            try:
                manager.__exit__(kind, error, trace)
            except Exception as failure:
                if failure is not error:
                    log_failure(instrument, self._name, failure)
        if error is not None:
            error.__traceback__ = trace  # without the instruments, through which it went


class _InThread(Around):
    """The same in the thread of the code of a job."""

    def __init__(self, job: Any) -> None:
        self._job, self._name, self._entered = job, "the thread of a job", []

    def _manager_of(self, instrument: Instrument) -> AbstractContextManager[object] | None:
        return instrument.in_thread(self._job)


def call_in_thread(job: Any, code: Callable[[], Any]) -> Any:
    """Call the code of a job in this thread, which is not the one of the worker."""
    with _InThread(job):
        return code()


async def await_in_task(job: Any, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await code of a job in this task."""
    entered: list[tuple[Instrument, AbstractAsyncContextManager[object]]] = []
    reason: BaseException | None = None
    try:
        for instrument in installed:
            try:
                manager = instrument.in_task(job)
                if manager is not None:
                    await manager.__aenter__()
                    entered.append((instrument, manager))
            except Exception as error:
                log_failure(instrument, "the task of a job", error)
        return await coroutine
    except BaseException as error:
        reason = error
        raise
    finally:
        coroutine.close()  # if it was canceled before it began
        while entered and not isinstance(reason, GeneratorExit):  # after which nothing can be awaited
            instrument, manager = entered.pop()
            try:
                await manager.__aexit__(
                    type(reason) if reason else None, reason, reason.__traceback__ if reason else None
                )
            except Exception as failure:
                if failure is not reason:
                    log_failure(instrument, "the task of a job", failure)


def fields_of(instrument: Instrument, running: Running | None) -> Mapping[str, str]:
    """Return the fields that an instrument has for a line of the log; none if it fails."""
    try:
        return dict(instrument.log_fields(running))
    except Exception as error:
        log_failure(instrument, "log fields", error)
        return {}


def log_failure(observer: object, what: str, error: Exception) -> None:
    """Log that an observer failed, once for each thing that it observes, and for each type of error."""
    failure = id(observer), what, type(error)
    if failure not in _failures:
        _failures[failure] = observer
        text = one_line(error, MESSAGE)
        logger.error(f"Observer {one_line(observer)} of {what} failed: {text}\n{traceback_of(error)}")
