"""Every kind of failure this library raises by itself."""

from __future__ import annotations

from limpyd.exceptions import DoesNotExist


class LimpydJobsException(Exception):
    """The base of the exceptions of this library."""


class ConfigurationException(LimpydJobsException):
    """A worker, a model or a command was given something it cannot work with."""


class WorkerLost(LimpydJobsException):
    """A job is in error, as the workers that ran it died, one after the other."""


class JobTimeout(BaseException):
    """The code of a job ran for longer than it may. No `Exception`, so that the code does not catch it by chance."""


class GracePeriodOver(BaseException):
    """The code of a job has to stop, as its worker does; the job will be run again."""


class ClassUnresolved(LimpydJobsException):
    """A job is dead-lettered, as no worker that met it could resolve its class."""


class CodeNotRun(LimpydJobsException):
    """The code of a job is a coroutine or a generator, which nobody runs."""


class NotRecorded(LimpydJobsException):
    """How a job ended could not be recorded, as Redis did not answer, or refused."""


class ClaimLost(LimpydJobsException):
    """What a worker reports of a job is not recorded, as it no longer holds the claim on that job."""


class JobGone(DoesNotExist):  # type: ignore[misc]
    """A job was deleted meanwhile.

    Attributes
    ----------
    ident: str
        Which one.
    """

    def __init__(self, ident: str) -> None:
        super().__init__(f"{ident} does not exist anymore")
        self.ident = ident
