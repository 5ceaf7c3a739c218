"""A database at a glance: its queues, jobs and workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from limpyd_jobs.models.presence import AliveWorker, WorkerPresence
from limpyd_jobs.models.queue import Queue
from limpyd_jobs.query.queues import QueueState, queue_states
from limpyd_jobs.records.known_classes import one_of_each
from limpyd_jobs.records.sizes import LargeJobs, large_jobs
from limpyd_jobs.redis.database import JobsDatabase, database_name
from limpyd_jobs.search.classes import classes_of, connection_to, database_of, on, queue_models_of
from limpyd_jobs.search.found import FoundJob
from limpyd_jobs.search.jobs import JobFilter
from limpyd_jobs.statuses import STATUSES


class Totals(NamedTuple):
    """The numbers of all jobs of a database, by their status, and of all its queues together.

    Attributes
    ----------
    jobs, waiting, delayed, running, success, error, canceled: int
        How many jobs there are, and have each status.
    latency: float
        The highest latency of all queues, in seconds; None if no job waits.
    quarantine: int
        How many entries no worker could do anything with.
    memory: int
        How many bytes Redis uses, for all its users; None if it does not tell.
    max_memory: int
        How many it may use; None for no limit.
    """

    jobs: int
    waiting: int
    delayed: int
    running: int
    success: int
    error: int
    canceled: int
    latency: float | None
    quarantine: int
    memory: int | None
    max_memory: int | None


class Overview(NamedTuple):
    """A database at a glance.

    Attributes
    ----------
    database: str
        Its name, without a password.
    totals: Totals
    queues: list of QueueState
    workers: list of AliveWorker
        The workers of version 3 that are there.
    running: sequence of FoundJob
        Some of the jobs that run, the newest first.
    """

    database: str
    totals: Totals
    queues: list[QueueState]
    workers: list[AliveWorker]
    running: Sequence[FoundJob]


def overview(
    database: JobsDatabase | None = None, most_running: int = 0, queue_model: type[Queue] | None = None
) -> Overview:
    """Look at a database, in some round trips. Their number does not depend on the number of jobs.

    Parameters
    ----------
    database: JobsDatabase
        The database of `BaseJobsModel` by default.
    most_running: int
        How many of the running jobs to return.
    queue_model: type of Queue
        Queues and workers of this model only; None for all models. The numbers of jobs are those of all.
    """
    queues = queue_states(database=database, queue_model=queue_model)
    model = queue_models_of(database, queue_model)[0].name if queue_model else ""
    workers = [each for each in on(WorkerPresence, database).alive() if model in ("", each.queue_model)]
    by_status = JobFilter(database=database).facets("status").counts
    numbers = {name.lower(): by_status.get(name.lower(), 0) for name in STATUSES}
    jobs = JobFilter(database=database).count().number
    about_memory = connection_to(database).info("memory")
    memory, max_memory = about_memory.get("used_memory"), about_memory.get("maxmemory") or None
    latency = max((each.latency for each in queues if each.latency is not None), default=None)
    quarantine = sum(each.quarantine for each in queues)
    running = JobFilter(status="running", database=database).page(most_running).found if most_running else []
    name = database_name(database_of(database).connection_settings)
    totals = Totals(jobs, **numbers, latency=latency, quarantine=quarantine, memory=memory, max_memory=max_memory)
    return Overview(name, totals, queues, workers, running)


def large_jobs_of(database: JobsDatabase | None = None) -> list[LargeJobs]:
    """Look at some jobs of each class, at random; return what is known of those classes that have large ones."""
    names = {path: known.name for path, known in one_of_each(classes_of(database)).items()}
    return [*large_jobs(connection_to(database), names)]
