"""Releasing a job whose worker will not do so."""

from __future__ import annotations

from collections.abc import Mapping

from limpyd_jobs import transitions
from limpyd_jobs.classes.job_classes import job_classes
from limpyd_jobs.exceptions import LimpydJobsException, naming
from limpyd_jobs.idents import Ident
from limpyd_jobs.models.explaining.details import JobDetails, details_of, stored_job
from limpyd_jobs.records.audit import entry_request, refusing_if_unaudited
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import connection_to, on, replies_to
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import one_line


def release_job(
    ident: str,
    database: JobsDatabase | None = None,
    *,
    force: bool = False,
    dry_run: bool = False,
    unaudited: bool = False,
) -> None:
    """Release a job that is recorded as running, though its worker is dead: it waits at the front of its list.

    The try is not counted. A canceled job ends instead. Whatever the worker reports, should it be alive, is refused.
    Without this, another worker releases the job when the lease ends.

    Parameters
    ----------
    ident: str
    database: JobsDatabase
        The database of `BaseJobsModel` by default.
    force: bool
        True to release it even if its worker seems to be alive: it may go on, and the job be run twice.
    dry_run: bool
        True to change nothing, and only to raise what is raised otherwise.
    unaudited: bool
        True to do it even if Redis refuses to write it to the audit.

    Raises
    ------
    LookupError, ValueError
        If there is no such job, or the text is not an ident.
    LimpydJobsException
        If the job does not run, names no queue that there is, or its worker seems to be alive.
    NotAudited
        If Redis refuses to write it to the audit.
    Exception
        Whatever the module of its class raises as it is imported.
    """
    stored = stored_job(ident, database)
    _check(details_of(ident, stored, database), stored, database, force=force)
    if dry_run:
        return
    job_class = on(job_classes.resolve(Ident.of(ident).path), database)
    audit = entry_request(unaudited, verb="release", filter=ident, how="force" if force else "", done=1)
    token, queue_key = stored.get("_claim_token") or transitions.UNCLAIMED, stored["_queue_key"]
    with refusing_if_unaudited():
        outcome = transitions.force_release(job_class, ident, token, queue_key, audit)
    if outcome != "done":
        raise LimpydJobsException(f"{ident} was not released: it changed at this moment")


def _check(details: JobDetails, stored: Mapping[str, str], database: JobsDatabase | None, *, force: bool) -> None:
    claimed = (STATUSES.WAITING, STATUSES.CANCELED) if stored.get("_claim_token") else ()
    if stored.get("status") not in (STATUSES.RUNNING, *claimed):
        raise LimpydJobsException(f"{details.ident} does not run: it is {details.status}")
    _check_queue(details.ident, stored.get("_queue_key", ""), database)
    if force:
        return
    if not stored.get("_claim_token"):
        raise naming(LimpydJobsException, f"{details.ident} has no claim: a worker of version 2 may run it.", *_FORCE)
    if not details.silence.startswith("silent") and _holds(details.ident, stored["_queue_key"], database):
        raise naming(LimpydJobsException, f"{details.owner} runs {details.ident}, and seems to be alive.", *_FORCE)


def _check_queue(ident: str, queue_key: str, database: JobsDatabase | None) -> None:
    if not queue_key:
        raise LimpydJobsException(f"{ident} does not say in which queue it was: {_REPAIR}")
    (queue,) = replies_to(connection_to(database), [("HMGET", f"{queue_key}:hash", "name", "priority")])
    if not all(queue or [None]):
        raise LimpydJobsException(f"{ident} names {one_line(queue_key)} as its queue, which is not a queue: {_REPAIR}")


_REPAIR = "limpyd-jobs check tells more, and check --repair puts it in a queue"
_FORCE = " If you are sure that it does not, give ", ("force", "force=True")


def _holds(ident: str, queue_key: str, database: JobsDatabase | None) -> bool:
    commands = [("ZSCORE", f"{queue_key}:_running", ident), ("TIME",)]
    lease, (seconds, microseconds) = replies_to(connection_to(database), commands)
    return lease is not None and float(lease) > seconds + microseconds / 1e6
