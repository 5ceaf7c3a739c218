"""A job queue on Redis whose jobs, queues and errors are models you can read, filter and subclass."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from limpyd_jobs_startup import standing_in_for_setuptools

with standing_in_for_setuptools():
    import limpyd  # noqa: F401
    import limpyd_extensions  # noqa: F401

from limpyd.exceptions import DoesNotExist

from limpyd_jobs.exceptions import (
    AlreadyClaimed,
    ClaimLost,
    ConfigurationException,
    DatabaseMoved,
    JobCanceled,
    JobFailed,
    JobGone,
    LimpydJobsException,
    NoResult,
    NotAudited,
    NotClaimable,
    NotEditable,
    NotRecorded,
    NotReplicated,
    ResultTimeout,
    SignalTimeout,
)
from limpyd_jobs.fields.argument import Argument, ValueField, typed
from limpyd_jobs.indexes import DateTimeRangeIndex
from limpyd_jobs.limiting.limit import Limit
from limpyd_jobs.models import Claim, Error, Job, Presence, Queue, Session, TimedRecord, WorkerPresence
from limpyd_jobs.models.calls.prepared import PreparedJob
from limpyd_jobs.models.functions.current import current_job
from limpyd_jobs.models.functions.decorator import job
from limpyd_jobs.models.functions.function import AddedJob, JobFunction, PreparedCall
from limpyd_jobs.models.functions.giving import GIVEN, Resource
from limpyd_jobs.retrying import Cancel, Exponential, Requeue, Retry
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.version import EXACT_VERSION, VERSION

__version__ = EXACT_VERSION

__all__ = [
    "EXACT_VERSION",
    "GIVEN",
    "STATUSES",
    "VERSION",
    "AddedJob",
    "AlreadyClaimed",
    "Argument",
    "Cancel",
    "Claim",
    "ClaimLost",
    "ConfigurationException",
    "DatabaseMoved",
    "DateTimeRangeIndex",
    "DoesNotExist",
    "Error",
    "Exponential",
    "Flow",
    "FlowNode",
    "Job",
    "JobCanceled",
    "JobFailed",
    "JobFunction",
    "JobGone",
    "Limit",
    "LimpydJobsException",
    "NoResult",
    "NotAudited",
    "NotClaimable",
    "NotEditable",
    "NotRecorded",
    "NotReplicated",
    "PreparedCall",
    "PreparedJob",
    "Presence",
    "Queue",
    "Requeue",
    "Resource",
    "ResultTimeout",
    "Retry",
    "Schedule",
    "Session",
    "SignalTimeout",
    "TimedRecord",
    "ValueField",
    "Worker",
    "WorkerPresence",
    "asend_signal",
    "asent_signals",
    "atake_back_signal",
    "chain",
    "current_job",
    "job",
    "job_resource",
    "send_signal",
    "sent_signals",
    "take_back_signal",
    "typed",
    "worker_resource",
]

# Half of the package runs jobs, or looks at them. An application that adds jobs does not import it: these names, and
# modules that code may name without an import of its own, as ``limpyd_jobs.workers``, are imported when asked for.
_IMPORTED_WHEN_ASKED_FOR = {
    **dict.fromkeys(
        (
            *("Flow", "FlowNode", "asend_signal", "asent_signals", "atake_back_signal", "chain"),
            *("send_signal", "sent_signals", "take_back_signal"),
        ),
        "flows",
    ),
    "Schedule": "schedules",
    "Worker": "workers",
    **dict.fromkeys(("job_resource", "worker_resource"), "models.functions.resources"),
}
_MODULES = ("events", "schedules", "shards", "workers")

if TYPE_CHECKING:
    from limpyd_jobs.flows import (
        Flow,
        FlowNode,
        asend_signal,
        asent_signals,
        atake_back_signal,
        chain,
        send_signal,
        sent_signals,
        take_back_signal,
    )
    from limpyd_jobs.models.functions.resources import job_resource, worker_resource
    from limpyd_jobs.schedules import Schedule
    from limpyd_jobs.workers import Worker
else:

    def __getattr__(name: str) -> Any:
        if name in _IMPORTED_WHEN_ASKED_FOR:
            module = import_module(f"{__name__}.{_IMPORTED_WHEN_ASKED_FOR[name]}")
            return globals().setdefault(name, getattr(module, name))
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})
