"""The output of a job, whether this process can import its class or not."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from limpyd_jobs.idents import Ident
from limpyd_jobs.models.explaining.details import stored_job
from limpyd_jobs.models.following.output import Chunk, Output, Place, chunk_of, place_at
from limpyd_jobs.models.following.output_reader import entry_of
from limpyd_jobs.search.classes import classes_of, connection_to, replies_to

if TYPE_CHECKING:
    from limpyd_jobs.models.following.awaited_output import AwaitedOutput
    from limpyd_jobs.redis.database import JobsDatabase


def job_output(
    ident: str, database: JobsDatabase | None = None, after: str | None = None, timeout: float | None = None
) -> Output:
    """Follow the output of a job, as `Job.output` does, whether this process can import its class or not.

    Parameters
    ----------
    ident: str
    database: JobsDatabase
        The database of `BaseJobsModel` by default.
    after, timeout
        As `Job.output` takes them.

    Raises
    ------
    TypeError, ValueError
        If it is not an ident, or another argument is not one of the above.
    LookupError
        If its class is not known in the database, or there is no such job.
    """
    return Output(_place(ident, database), after, timeout)


def ajob_output(
    ident: str, database: JobsDatabase | None = None, after: str | None = None, timeout: float | None = None
) -> AwaitedOutput:
    """Do as `job_output`, for ``async for``. It asks for the job before it returns: call it in a thread."""
    from limpyd_jobs.models.following.awaited_output import AwaitedOutput  # it brings asyncio

    return AwaitedOutput(_place(ident, database), after, timeout)


def last_chunks(ident: str, most: int, database: JobsDatabase | None = None) -> list[Chunk]:
    """Return the last chunks of the output of a job, in their order. For the exceptions see `job_output`."""
    place = _place(ident, database)
    rows = replies_to(place.client(), [("XREVRANGE", place.key, "+", "-", "COUNT", most)])[0] or ()
    entries = [entry_of(*row) for row in reversed(rows)]
    return [chunk_of(name, fields["value"]) for name, fields in entries if "value" in fields]


def _place(ident: str, database: JobsDatabase | None) -> Place:
    stored_job(ident, database)
    parsed = Ident.of(ident)
    return place_at(partial(connection_to, database), classes_of(database)[parsed.path].name, parsed.pk)
