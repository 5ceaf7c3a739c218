"""Jobs that are added once a transaction is committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import transaction

from limpyd_jobs import Job


@dataclass
class OnCommit:
    """A job that is added once a transaction is committed.

    Attributes
    ----------
    job: Job
        None until then; and for good, if the transaction is rolled back.
    """

    job: Job | None = None


def add_job_on_commit(job_class: type[Job], *args: Any, using: str | None = None, **kwargs: Any) -> OnCommit:
    """Add a job once the transaction is committed that this is called in; at once if there is none.

    The job is not added if the transaction, or the innermost ``atomic`` block, is rolled back. If the process dies
    after the commit and before the job is added, it is lost.

    >>> with transaction.atomic():
    ...     order = Order.objects.create(book="Emma")
    ...     add_job_on_commit(SendInvoice, f"order:{order.pk}", order=order)

    Parameters
    ----------
    job_class: type of Job
    *args, **kwargs
        The arguments of its `add_job`. What is wrong with them is raised when the job is added.
    using: str
        The alias of the database whose transaction counts; the default one without.
    """
    later = OnCommit()

    def add() -> None:
        later.job = job_class.add_job(*args, **kwargs)

    if transaction.get_connection(using).in_atomic_block:
        transaction.on_commit(add, using=using)
    else:
        add()
    return later
