"""The metrics that there are: their names, labels and meaning. The manual shows this table."""

from __future__ import annotations

from typing import NamedTuple

# How many queues, each with a priority, have labels of their own. Redis keeps as many rows of queues and classes.
MAX_NAMED = 500

# The label of all beyond these.
OTHER = "other"

# What became of a job.
OUTCOMES = ("succeeded", "failed")

# What a worker may tell that it does.
STATUSES = ("starting", "no queue", "busy", "idle", "quiet", "stopping", "silent")


class Row(NamedTuple):
    """A metric: its name without the prefix, its type, its labels, and what it is."""

    name: str
    kind: str  # counter, gauge or histogram
    labels: tuple[str, ...]
    about: str

    @property
    def full_name(self) -> str:
        """Its name, as a query has it."""
        return f"limpyd_jobs_{self.name}"


QUEUE_JOBS = Row(
    "queue_jobs",
    "gauge",
    ("queue", "priority", "status"),
    "How many jobs are waiting, delayed or running",
)
LAPSED = Row(
    "lapsed_jobs",
    "gauge",
    ("queue",),
    "Of how many running jobs the lease ended, because their worker died or is silent, and no worker put them back yet",
)
QUEUE_LATENCY = Row(
    "queue_latency_seconds",
    "gauge",
    ("queue", "priority"),
    "For how long the first waiting job has waited: the oldest one, unless jobs were prepended or put back. 0 if none "
    "waits; left out if the class of that job is not known",
)
QUEUE_PAUSED = Row("queue_paused", "gauge", ("queue", "priority"), "1 if the queue is paused, else 0")
QUEUE_WORKERS = Row(
    "queue_workers",
    "gauge",
    ("queue",),
    "How many workers listen to the queue: not those that are silent, quiet or stopping",
)
JOBS = Row(
    "jobs_total",
    "counter",
    ("queue", "job_class", "outcome"),
    "How often jobs succeeded, and failed: each try counts, some seconds after it ended",
)
RUN = Row(
    "run_seconds",
    "histogram",
    ("queue", "job_class"),
    "For how long the code of jobs ran until it returned or raised",
)
WAIT = Row(
    "wait_seconds",
    "histogram",
    ("queue",),
    "For how long jobs waited before they ran: since they were added, put back by hand, or no longer delayed",
)
WORKERS = Row("workers", "gauge", ("status",), "How many workers there are, by what they do")
STALLED = Row(
    "claims_stalled",
    "gauge",
    (),
    "How many workers are idle though a job of one of their queues has waited for more than a minute",
)
LATENESS = Row(
    "schedule_lateness_seconds",
    "gauge",
    (),
    "For how long the schedule has been due that is due for longest; 0 if none is",
)
QUARANTINE = Row("quarantine_entries", "gauge", (), "How many entries of queues no worker could do anything with")
QUEUES = Row(
    "queues",
    "gauge",
    ("shown",),
    f"How many queues there are: by_name; as_{OTHER}, beyond the first {MAX_NAMED}; not_at_all, beyond 20,000",
)

LIMIT_TAKEN = Row(
    "limit_taken",
    "gauge",
    ("limit", "of"),
    "How many running jobs hold a slot of a limit, of all its values together; `of` is what the keys of its jobs begin "
    "with, or those of their queues, if classes share it",
)
LIMIT_ALLOWED = Row(
    "limit_allowed",
    "gauge",
    ("limit", "of"),
    "How many may at once: the sum for the values of which a job runs or waits, or for which a number was set. Left "
    "out for a limit that has a rate only",
)
PARKED = Row(
    "parked",
    "gauge",
    ("limit", "of"),
    "How many jobs wait for a limit. One that needs several limits counts for each",
)

# Only where classes have limits.
OF_LIMITS = (LIMIT_TAKEN, LIMIT_ALLOWED, PARKED)

ROWS = (
    QUEUE_JOBS,
    LAPSED,
    QUEUE_LATENCY,
    QUEUE_PAUSED,
    QUEUE_WORKERS,
    JOBS,
    RUN,
    WAIT,
    WORKERS,
    STALLED,
    LATENESS,
    QUARANTINE,
    QUEUES,
    *OF_LIMITS,
)
