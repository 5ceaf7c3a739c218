"""The models: what jobs, queues and errors are, and the documented ways to work with them."""

from limpyd_jobs.classes.imports import import_class
from limpyd_jobs.classes.job_classes import job_classes
from limpyd_jobs.classes.roots import has_custom_placement
from limpyd_jobs.dates import compute_delayed_until, datetime_to_score
from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.models.base import BaseJobsModel
from limpyd_jobs.models.claims.claim import Claim
from limpyd_jobs.models.claims.job_claim import JobClaim
from limpyd_jobs.models.claims.session import Session
from limpyd_jobs.models.error import Error, defer_unresolved
from limpyd_jobs.models.following.changes import Change, Changes, JobChange
from limpyd_jobs.models.job import Job
from limpyd_jobs.models.presence import (
    AlivePresence,
    AliveWorker,
    Presence,
    Registration,
    RunningJob,
    WorkerDump,
    WorkerPresence,
)
from limpyd_jobs.models.queue import Queue, attached_queue, queue_name
from limpyd_jobs.models.timed import TimedRecord
from limpyd_jobs.statuses import STATUSES

__all__ = [
    "STATUSES",
    "AlivePresence",
    "AliveWorker",
    "BaseJobsModel",
    "Change",
    "Changes",
    "Claim",
    "Error",
    "Job",
    "JobChange",
    "JobClaim",
    "LimpydJobsException",
    "Presence",
    "Queue",
    "Registration",
    "RunningJob",
    "Session",
    "TimedRecord",
    "WorkerDump",
    "WorkerPresence",
    "attached_queue",
    "compute_delayed_until",
    "datetime_to_score",
    "defer_unresolved",
    "has_custom_placement",
    "import_class",
    "job_classes",
    "queue_name",
]
