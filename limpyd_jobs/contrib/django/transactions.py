"""Jobs that are added once a transaction is committed, at the latest by another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import DEFAULT_DB_ALIAS, transaction

from limpyd_jobs import ConfigurationException, Job, JobFunction
from limpyd_jobs.contrib.django import settings
from limpyd_jobs.contrib.django.outbox.entries import after, entries_of
from limpyd_jobs.contrib.django.outbox.relaying import relay_at_commit
from limpyd_jobs.integration import imported_job_class, one_line, write_call

# After how many seconds others relay an entry: before, the process that wrote it does.
GRACE = 10.0

# How many characters of an identifier, and of the path of a class, the table holds.
MAX_SHOWN, MAX_PATH = 200, 500


@dataclass
class OnCommit:
    """A job that is added once a transaction is committed.

    Attributes
    ----------
    job: Job
        None until then; and for good, if the transaction is rolled back.
    """

    job: Job | None = None


def add_job_on_commit(
    job_class: type[Job] | JobFunction[..., Any, Any],
    *args: Any,
    using: str | None = None,
    robust: bool = False,
    **kwargs: Any,
) -> OnCommit:
    """Add a job once the transaction is committed that this is called in; at once if there is none.

    The job is not added if the transaction, or the innermost ``atomic`` block, is rolled back. If the process dies
    after the commit and before the job is added, it is lost: see `add_job_through_outbox`.

    >>> with transaction.atomic():
    ...     order = Order.objects.create(book="Emma")
    ...     add_job_on_commit(SendInvoice, f"order:{order.pk}", order=order)

    Parameters
    ----------
    job_class: type of Job, or a function that is a job
    *args, **kwargs
        The arguments of its `add_job`, or of the function. What is wrong with them is raised when the job is added.
    using: str
        The alias of the database whose transaction counts; the default one without.
    robust: bool
        Whether Django logs what is raised after the commit, and goes on: for code whose transaction counts, and not
        its job.

    Raises
    ------
    django.db.transaction.TransactionManagementError
        If autocommit is off and there is no ``atomic`` block: Django does not know when that is committed.
    """
    later = OnCommit()

    def add() -> None:
        if isinstance(job_class, JobFunction):
            later.job = job_class.add(*args, **kwargs).job
        else:
            later.job = job_class.add_job(*args, **kwargs)

    if is_in_transaction(using):
        transaction.on_commit(add, using=using, robust=robust)
    else:
        add()
    return later


def is_in_transaction(using: str | None) -> bool:
    """Return whether a transaction of a database is open. That needs no connection."""
    connection = transaction.get_connection(using)
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)


@dataclass
class ThroughOutbox(OnCommit):
    """A job that was written to the outbox.

    Attributes
    ----------
    identifier: str
        The identifier of the job, known before; empty if only the ``add_job`` of its class knows.
    job: Job
        None until this process has added it. It stays None if it is rolled back, or if another process adds it.
    """

    identifier: str = ""


def add_job_through_outbox(
    job_class: type[Job] | JobFunction[..., Any, Any], *args: Any, using: str | None = None, **kwargs: Any
) -> ThroughOutbox:
    """Write a job to the outbox, in the transaction that this is called in, to be added once it is committed.

    This process adds it then. If it dies before, or Redis does not answer, a worker that runs under Django adds it some
    seconds later, or ``manage.py limpyd_jobs_outbox relay``. So none is lost, and each is added once. If the
    transaction, or the innermost ``atomic`` block, is rolled back, it is not added.

    >>> with transaction.atomic():
    ...     order = Order.objects.create(book="Emma")
    ...     add_job_through_outbox(SendInvoice, f"order:{order.pk}", order=order)

    Parameters
    ----------
    job_class: type of Job, or a function that is a job
        At the top level of a module.
    *args, **kwargs
        The arguments of its `add_job`, or of the function. What is not an argument of the job has to be what JSON can
        hold, or a date, a timedelta, a Decimal, a UUID or bytes. ``delayed_for`` counts from when the job is added.
    using: str
        The alias of the database whose transaction counts; the default one without.

    Raises
    ------
    ConfigurationException
        If the class cannot be found by its path, or ``LIMPYD_JOBS["OUTBOX_DATABASES"]`` does not name the database.
    ImproperlyConfigured
        If ``limpyd_jobs.contrib.django.outbox`` is not installed.
    AttributeError, LimpydJobsException, TypeError, ValueError
        If an argument is wrong: as `add_job` raises them.
    """
    database = using or DEFAULT_DB_ALIAS
    if isinstance(job_class, JobFunction):
        args, kwargs, job_class = (), job_class.arguments_of(*args, **kwargs), job_class.job_class
    entries, path = entries_of(database), job_class.get_model_repr()
    _check(job_class, path, database)
    identifier, text = write_call(job_class, args, kwargs)
    shown = one_line(identifier)[:MAX_SHOWN]
    entry = entries.create(job_class=path, arguments=text, identifier=shown, due=after(GRACE))
    later = ThroughOutbox(identifier=identifier)

    def relay() -> None:
        relayed = relay_at_commit(database, entry.pk, job_class)
        later.job = relayed.job if relayed else None

    transaction.on_commit(relay, using=database, robust=True)
    return later


def _check(job_class: type[Job], path: str, database: str) -> None:
    if database not in settings.outbox_databases():
        names = f"{settings.NAME}['OUTBOX_DATABASES']"
        raise ConfigurationException(f"{names} does not name {database!r}: no worker would look at that outbox")
    if imported_job_class(path) is not job_class or len(path) > MAX_PATH:
        raise ConfigurationException(f"{path} cannot be found by its path: define it at the top level of a module")
