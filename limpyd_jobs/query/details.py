"""All that is stored of one job."""

from __future__ import annotations

from typing import NamedTuple

from limpyd_jobs.idents import Ident
from limpyd_jobs.models import BaseJobsModel, Error
from limpyd_jobs.query.classes import classes_of, connection_to, on
from limpyd_jobs.query.found import name_of_status
from limpyd_jobs.store.database import JobsDatabase
from limpyd_jobs.transitions import owner_of

# How many errors are shown at the most, the last ones.
MOST_ERRORS = 20


class JobDetails(NamedTuple):
    """A job, as it was when it was read.

    Attributes
    ----------
    ident: str
    status: str
        The name of the status, as ``error``.
    queue: str
        The name of the queue; None if the job does not say.
    owner: str
        Who holds the claim on it; None if nobody does.
    fields: dict
        What is stored in its hash, without what is of the library's own.
    errors: list of dict
        The fields of the last errors that are recorded of it, the newest first.
    """

    ident: str
    status: str
    queue: str | None
    owner: str | None
    fields: dict[str, str]
    errors: list[dict[str, str]]


def job_details(ident: str, database: JobsDatabase | None = None) -> JobDetails:
    """Read a job, of a class that this process can import or not.

    Raises
    ------
    ValueError
        If that is no ident.
    LookupError
        If nothing is known of its class in the database, or there is no such job.
    """
    database = database or BaseJobsModel.database
    stored, parsed = stored_job(ident, database), Ident.of(ident)
    queue_key = stored.get("_queue_key")
    return JobDetails(
        ident,
        name_of_status(stored.get("status")),
        connection_to(database).hget(f"{queue_key}:hash", "name") if queue_key else None,
        owner_of(stored.get("_claim_token")),
        {name: value for name, value in sorted(stored.items()) if not name.startswith("_")},
        _errors_of(on(Error, database), parsed),
    )


def stored_job(ident: str, database: JobsDatabase) -> dict[str, str]:
    """Return the hash of a job; exceptions as `job_details`."""
    parsed = Ident.parse(ident)
    if not parsed:
        raise ValueError(f"{ident!r} is not the ident of a job, as myapp.jobs.SendMail:12")
    known = classes_of(database).get(parsed.path)
    if not known:
        raise LookupError(f"{parsed.path} is no job class of this database, as far as is known")
    stored: dict[str, str] = connection_to(database).hgetall(f"{known.name}:{parsed.pk}:hash")
    if not stored:
        raise LookupError(f"There is no job {ident}")
    return stored


def _errors_of(error_model: type[Error], ident: Ident) -> list[dict[str, str]]:
    pks = error_model.collection(job_model_repr=ident.path, job_pk=ident.pk).sort()[-MOST_ERRORS:]
    return [fields for _, fields in error_model.read_many(reversed(list(pks)))]
