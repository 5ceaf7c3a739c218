"""Find jobs by what is in them."""

from limpyd_jobs.models.explaining.details import FieldBeside, JobDetails, job_details
from limpyd_jobs.models.explaining.jobs import Explanation, Reason, explain_job
from limpyd_jobs.models.explaining.silence import silences
from limpyd_jobs.models.presence import AliveWorker, RunningJob, WorkerDump
from limpyd_jobs.query.attention import Attention, attention
from limpyd_jobs.query.audit import AuditEntry, audit_entries
from limpyd_jobs.query.backlog import Backlog, QueueBacklog, backlog
from limpyd_jobs.query.editing import FieldChange, edit_job
from limpyd_jobs.query.fleet import Fleet, look_at_fleet
from limpyd_jobs.query.metrics import Period, periods_of_all, read_metrics, summed
from limpyd_jobs.query.overview import Overview, Totals, large_jobs_of, overview, overview_of_all, ping
from limpyd_jobs.query.queues import (
    QuarantineEntry,
    QueueState,
    delete_queue,
    lapsed_jobs,
    leave_quarantine,
    pause_queue,
    paused_queues,
    quarantine_entries,
    queue_names,
    queue_states,
    some_quarantine_entries,
    states_of_all,
    unknown_queue_models,
)
from limpyd_jobs.query.releasing import release_job
from limpyd_jobs.query.scheduling import (
    ScheduledRun,
    Schedules,
    ScheduleState,
    edit_schedule,
    next_times,
    pause_schedule,
    remove_schedule,
    run_schedule_now,
    schedule_named,
    schedule_state,
    schedules,
)
from limpyd_jobs.query.series import QueueSeries, Series, read_series, series_of
from limpyd_jobs.query.words import (
    JobClassFields,
    completions,
    fingerprints,
    job_class_fields,
    words_of_errors,
    words_of_jobs,
)
from limpyd_jobs.query.workers import alive_workers, order_worker, worker_dump
from limpyd_jobs.records.known_classes import MaskedFields
from limpyd_jobs.records.metrics import BOUNDS, Histogram, Metrics
from limpyd_jobs.search.actions import Tally
from limpyd_jobs.search.causes import ErrorGroup, ErrorGroups, ErrorMessage
from limpyd_jobs.search.classes import masked_fields
from limpyd_jobs.search.conditions import Condition
from limpyd_jobs.search.errors import ErrorFilter, FoundError
from limpyd_jobs.search.found import Count, Facets, FoundJob, Page
from limpyd_jobs.search.jobs import JobFilter
from limpyd_jobs.search.walk import Enough, MissingIndex

__all__ = [
    "BOUNDS",
    "AliveWorker",
    "Attention",
    "AuditEntry",
    "Backlog",
    "Condition",
    "Count",
    "Enough",
    "ErrorFilter",
    "ErrorGroup",
    "ErrorGroups",
    "ErrorMessage",
    "Explanation",
    "Facets",
    "FieldBeside",
    "FieldChange",
    "Fleet",
    "FoundError",
    "FoundJob",
    "Histogram",
    "JobClassFields",
    "JobDetails",
    "JobFilter",
    "MaskedFields",
    "Metrics",
    "MissingIndex",
    "Overview",
    "Page",
    "Period",
    "QuarantineEntry",
    "QueueBacklog",
    "QueueSeries",
    "QueueState",
    "Reason",
    "RunningJob",
    "ScheduleState",
    "ScheduledRun",
    "Schedules",
    "Series",
    "Tally",
    "Totals",
    "WorkerDump",
    "alive_workers",
    "attention",
    "audit_entries",
    "backlog",
    "completions",
    "delete_queue",
    "edit_job",
    "edit_schedule",
    "explain_job",
    "fingerprints",
    "job_class_fields",
    "job_details",
    "lapsed_jobs",
    "large_jobs_of",
    "leave_quarantine",
    "look_at_fleet",
    "masked_fields",
    "next_times",
    "order_worker",
    "overview",
    "overview_of_all",
    "pause_queue",
    "pause_schedule",
    "paused_queues",
    "periods_of_all",
    "ping",
    "quarantine_entries",
    "queue_names",
    "queue_states",
    "read_metrics",
    "read_series",
    "release_job",
    "remove_schedule",
    "run_schedule_now",
    "schedule_named",
    "schedule_state",
    "schedules",
    "series_of",
    "silences",
    "some_quarantine_entries",
    "states_of_all",
    "summed",
    "unknown_queue_models",
    "words_of_errors",
    "words_of_jobs",
    "worker_dump",
]
