"""The exceptions that this library raises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from limpyd.exceptions import DoesNotExist
from redis.exceptions import ResponseError

from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import one_line


class LimpydJobsException(Exception):
    """The base of the exceptions of this library."""


E = TypeVar("E", bound=Exception)
Part = str | tuple[str, str]  # a text; or the name of a parameter, and how Python says it


def naming(kind: type[E], *parts: Part) -> E:
    """Return an exception whose text has parameters as parts."""
    error = kind("".join(part if isinstance(part, str) else part[1] for part in parts))
    error._parts = parts  # type: ignore[attr-defined]
    return error


def parts_of(error: Exception) -> Sequence[Part]:
    """Return the parts of the text of an exception: only the whole, if it names no parameter."""
    whole = error.args[0] if isinstance(error, KeyError) and error.args else error  # its text has quotes
    return getattr(error, "_parts", (str(whole),))


def as_written(error: Exception, options: Mapping[str, str]) -> str:
    """Return the text of an exception, as a command line says it that has options for some parameters."""
    return "".join(part if isinstance(part, str) else options.get(part[0], part[1]) for part in parts_of(error))


class ConfigurationException(LimpydJobsException):
    """A worker, a model or a command was given a value that it cannot work with."""


class NotAudited(LimpydJobsException):
    """What would be done to many jobs, or to a queue, is not done, because Redis refuses to write it to the audit."""


class WorkerLost(LimpydJobsException):
    """A job is in error, because the workers that ran it died, one after the other."""


class WorkerFailed(LimpydJobsException):
    """A worker ended at once, because what it cannot work without is broken: its event loop, or one of its threads.

    Its jobs are rescued when their leases have lapsed.
    """


class DatabaseMoved(LimpydJobsException, ResponseError):
    """Nothing is added to a database, and no job is claimed there, because its jobs are being moved to another one, or
    were moved there: see ``limpyd-jobs move-to``. It is a `redis.ResponseError`, too."""


class JobTimeout(BaseException):
    """The code of a job ran for longer than it may. It is not an `Exception`, so that the code does not catch it by
    chance."""


class GracePeriodOver(BaseException):
    """The code of a job has to stop, because its worker does; the job will be run again."""


class JobInterrupted(BaseException):
    """The code of a job gives way between two items of a loop, after a step, or to wait for a signal, or for what it
    spawned; the job goes on from there later.

    It is not an `Exception`, so that the code does not catch it by chance.

    Attributes
    ----------
    goes_last: bool
        Whether the job goes to the end of its waiting list, so that others have their turn.
    waits: str
        What the job waits for, as its field ``waits`` has it, such as ``signal approval``; empty if for nothing.
    """

    def __init__(self, reason: str, *, goes_last: bool = False, waits: str = "") -> None:
        super().__init__(reason)
        self.goes_last, self.waits = goes_last, waits


class BlockingCall(LimpydJobsException):
    """Code of a coroutine would wait for Redis in the event loop of its worker: see ``blocking_calls`` of workers."""


class CursorLost(LimpydJobsException):
    """The cursor of a job does not fit the source of its loop any more: `requeue` it with ``restart=True``."""


class ClassUnresolved(LimpydJobsException):
    """A job is dead-lettered, because no worker that met it could resolve its class."""


class RetriedTooLate(LimpydJobsException):
    """A job that failed is not tried again, because its turn came after the time for which it is."""


class RetriedTooOften(LimpydJobsException):
    """A job asked to be put back in its queue, as a try that counts, when it had no tries left."""


class CodeNotRun(LimpydJobsException):
    """The code of a job returned a generator, or a coroutine of another function, which is never run."""


class NotRecorded(LimpydJobsException):
    """The end of a job could not be recorded, because Redis did not answer, or refused."""


class NotReplicated(LimpydJobsException):
    """Jobs were added, but the replicas did not say in time that they have a copy: a failover now may lose the jobs.

    The jobs are there, and will be run. To add them again is harmless because of their identifiers, unless they ended
    meanwhile: it waits once more. It is raised only if the settings of the database say ``wait_for_replicas``.

    Attributes
    ----------
    idents: list of str
        The idents of the jobs.
    copied, wanted: int
        How many replicas have a copy, and how many should.
    """

    def __init__(self, idents: Sequence[str], copied: int, wanted: int, seconds: float) -> None:
        what = f"{idents[0]} was" if len(idents) == 1 else f"{len(idents)} jobs, the last of them {idents[-1]}, were"
        super().__init__(
            f"{what} added, but copied to {copied} of {wanted} replicas within {seconds:g} seconds: "
            "add again what must survive a failover"
        )
        self.idents, self.copied, self.wanted = list(idents), copied, wanted


class ClaimLost(LimpydJobsException):
    """The report of a worker on a job is not recorded, because the worker no longer holds the claim on that job."""


class NotClaimable(LimpydJobsException):
    """A job cannot be claimed, because it is finished, or delayed and not due.

    Attributes
    ----------
    ident: str
        The ident of the job.
    status: str
        The status of the job: a value of `STATUSES`.
    """

    def __init__(self, ident: str, status: str, delayed_until: str = "", reason: str = "") -> None:
        name = STATUSES.by_value(status, status or "none")
        more = f", until {delayed_until} (UTC)" if delayed_until else f": {reason}" if reason else ""
        super().__init__(f"{ident} cannot be claimed: its status is {name}{more}")
        self.ident = ident
        self.status = status


class AlreadyClaimed(NotClaimable):
    """A job cannot be claimed, because another owner has a claim on it.

    Attributes
    ----------
    ident, status: str
        As in `NotClaimable`.
    owner: str
        Who holds the claim; None if it is a worker of version 2, or if only the status was set to running.
    until: datetime
        When the lease ends, unless it is extended, naive UTC; None if there is no lease.
    """

    def __init__(self, ident: str, owner: str | None, until: datetime | None) -> None:
        super().__init__(ident, STATUSES.RUNNING)
        who = one_line(owner) if owner else "an owner without a name"
        self.args = (f"{ident} is claimed already, by {who}{f', until {until} (UTC)' if until else ''}",)
        self.owner = owner
        self.until = until


class NotEditable(LimpydJobsException):
    """A job is not edited, because it is claimed, neither waits nor is delayed, or changed since the caller read it; or
    it is not duplicated, because its identifier is queued."""


class JobGone(DoesNotExist):  # type: ignore[misc]
    """A job was deleted meanwhile.

    Attributes
    ----------
    ident: str
        The ident of the job.
    """

    def __init__(self, ident: str) -> None:
        super().__init__(f"{ident} does not exist anymore")
        self.ident = ident


class NoResult(LimpydJobsException):
    """A job succeeded, but its result was not kept, or is gone."""


class ResultTimeout(LimpydJobsException, TimeoutError):
    """A job has not ended in time, so there is no result yet."""


class SignalTimeout(LimpydJobsException, TimeoutError):
    """A job waited for a signal until its deadline, and it did not come."""


class JobCanceled(LimpydJobsException):
    """A job was canceled, so there is no result."""


class JobFailed(LimpydJobsException):
    """A job is in error, so there is no result.

    Attributes
    ----------
    ident: str
        The ident of the job.
    type, message, traceback: str
        The values of the last error that is recorded of the job; empty if no error is. The exception of the job itself
        is not made again, because no class is looked up by a stored name.
    """

    def __init__(self, ident: str, type: str, message: str, traceback: str) -> None:
        what = f"{one_line(type)}: {one_line(message)}" if type else "no error of it is recorded"
        super().__init__(f"{ident} failed: {what}")
        self.ident, self.type, self.message, self.traceback = ident, type, message, traceback
