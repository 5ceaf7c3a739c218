"""A job as a record: its stored fields, and how its class is found again."""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Any

from limpyd import fields

from limpyd_jobs import transitions
from limpyd_jobs.classes.job_classes import job_classes, path_of
from limpyd_jobs.dates import parse_datetime
from limpyd_jobs.fields.atomic_fields import AtomicHashField
from limpyd_jobs.fields.own_fields import OwnField, OwnSetting, with_own_fields
from limpyd_jobs.models.base import BaseJobsModel
from limpyd_jobs.models.collection import JobCollection
from limpyd_jobs.records.layout import found_by
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.retrying import Retry
from limpyd_jobs.statuses import STATUSES


@with_own_fields
@found_by("identifier", "queued")
class JobRecord(BaseJobsModel):
    """The fields of a job, and what can be read from them. Subclass `Job`, not this."""

    abstract = True
    collection_manager = JobCollection

    identifier = fields.InstanceHashField(indexable=True)
    status = fields.InstanceHashField(indexable=True)
    priority = fields.InstanceHashField(indexable=True, default=0)
    added = fields.InstanceHashField()
    start = fields.InstanceHashField()
    end = fields.InstanceHashField()
    tries = fields.InstanceHashField()
    delayed_until = fields.InstanceHashField()
    queued = fields.InstanceHashField(indexable=True)
    cancel_on_error = fields.InstanceHashField()
    claim_token = OwnField(AtomicHashField())
    rescues = OwnField(AtomicHashField())
    last_claim = OwnField(AtomicHashField())
    queue_key = OwnField(AtomicHashField())
    job_timeout = OwnField(AtomicHashField())
    retry_policy = OwnField(AtomicHashField())
    start_within = OwnSetting(AtomicHashField())
    retry_for = OwnSetting(AtomicHashField())
    uncounted_tries = OwnField(AtomicHashField())
    quick_returns = OwnField(AtomicHashField())
    requeued_at = OwnField(AtomicHashField())
    first_priority = OwnField(AtomicHashField())
    failing_since = OwnField(AtomicHashField())
    follows = OwnField(AtomicHashField())
    followed_by = OwnField(AtomicHashField())
    cancel_reason = OwnField(AtomicHashField())
    progress_state = OwnField(AtomicHashField())
    cursor = OwnField(AtomicHashField())
    trace_context = OwnField(AtomicHashField())

    always_cancel_on_error = False
    default_retry_policy: Retry | None = None

    @classmethod
    def collection(cls, manager: Any = None, **filters: Any) -> Any:
        """Return the jobs that fit, as any collection of limpyd. It warns if a status is given by its name."""
        name = str(filters.get("status")).upper()
        if name in STATUSES:
            warnings.warn(
                f"{filters['status']!r} is not a status, no job has it: filter by STATUSES.{name}, {STATUSES[name]!r}",
                UserWarning,
                stacklevel=2,
            )
        return super().collection(manager, **filters)

    @property
    def ident(self) -> str:
        """The class path and pk of the job, ``'myapp.jobs.MyJob:12'``: what the lists of a queue hold."""
        return f"{self.get_model_repr()}:{pk_of(self)}"

    @classmethod
    def get_model_repr(cls) -> str:
        """Return the path of the class, ``'myapp.jobs.MyJob'``."""
        return path_of(cls)

    @property
    def must_be_cancelled_on_error(self) -> Any:
        """Whether the job must not be put back in a queue after an error: any true value, such as the text of its
        field."""
        return self.always_cancel_on_error or self.cancel_on_error.hget()

    def claim_owner(self) -> str | None:
        """Return who holds the claim on the job; None if it is not claimed, or a worker of version 2.

        The name of a worker is its host, the pid of its process, and a code that tells it from others there.
        """
        return transitions.owner_of(transitions.status_and_claim(self)[1])

    def claim_state(self) -> transitions.ClaimState:
        """Return the status of the job, who holds the claim on it, and for how long, all of one moment."""
        return transitions.claim_state(self)

    @property
    def duration(self) -> timedelta | None:
        """How long the job ran; None if it did not begin or end yet."""
        start, end = map(parse_datetime, self.hmget("start", "end"))
        return end - start if start and end else None


def job_modules() -> tuple[str, ...] | None:
    """Return the modules and packages whose jobs this process runs, as ``--job-modules`` names them; None for any."""
    return job_classes.modules
