"""A database at a glance: its queues, jobs and workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NamedTuple

from limpyd_jobs.classes.binding import concrete
from limpyd_jobs.idents import Ident
from limpyd_jobs.models.following.progress import Progress, read_progress
from limpyd_jobs.models.presence import AliveWorker, WorkerPresence
from limpyd_jobs.models.pruning import Retention, kept_for_ever
from limpyd_jobs.models.queue import Queue
from limpyd_jobs.query.foreign import foreign_keys
from limpyd_jobs.query.queues import QueueState, lapsed_jobs, queue_states
from limpyd_jobs.query.schedules import lateness
from limpyd_jobs.records.known_classes import one_of_each
from limpyd_jobs.records.sizes import LargeJobs, large_jobs
from limpyd_jobs.redis.cluster.tags import without_tag
from limpyd_jobs.redis.database import JobsDatabase, database_name
from limpyd_jobs.redis.servers import memory_of
from limpyd_jobs.search.classes import (
    classes_of,
    connection_to,
    database_of,
    models_of,
    on,
    queue_models_of,
    replies_to,
)
from limpyd_jobs.search.found import FoundJob
from limpyd_jobs.search.jobs import JobFilter
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import one_line, some_named

# After how many seconds a schedule that is due needs attention.
LATE_SCHEDULE = 60.0

# How many queues that keep finished jobs for ever are named.
MAX_NAMES = 3


class Totals(NamedTuple):
    """The numbers of all jobs of a database, by their status, and of all its queues together."""

    jobs: int
    waiting: int
    delayed: int
    running: int
    success: int
    error: int
    canceled: int
    latency: float | None  # the highest of all queues, in seconds; None if no job waits
    quarantine: int
    memory: int | None  # how many bytes Redis uses, for all its users; None if it does not tell
    max_memory: int | None  # None for no limit


class Overview(NamedTuple):
    """A database at a glance."""

    database: str
    totals: Totals
    queues: list[QueueState]
    workers: list[AliveWorker]
    running: Sequence[FoundJob]  # some of them, the newest first
    lapsed: Set[str]  # the idents of some that are recorded as running, but whose lease ended
    lateness: float = 0.0  # of the schedule that is due for longest, in seconds
    late_schedules: int = 0  # how many have been due for more than a minute
    unread: Sequence[str] = ()  # the beginnings of keys that this user of Redis may not read
    foreign: Sequence[str] = ()  # which keys are of a wrong type, so that what is in them is not known
    parts: Mapping[int, Overview] = MappingProxyType({})  # if it is of several shards: that of each, by its number


def overview(
    database: JobsDatabase | None = None, most_running: int = 0, queue_model: type[Queue] | None = None
) -> Overview:
    """Look at a database, in some round trips, whatever the number of jobs. Queues and workers may be of one model."""
    queues = queue_states(database=database, queue_model=queue_model)
    models = {each.name for each in queue_models_of(database, queue_model)} if queue_model else set()
    workers = [each for each in on(WorkerPresence, database).alive() if not queue_model or each.queue_model in models]
    by_status = JobFilter(database=database).facets("status").counts
    numbers = {name.lower(): by_status.get(name.lower(), 0) for name in STATUSES}
    jobs = JobFilter(database=database).count().number
    about_memory = memory_of(connection_to(database))
    memory, max_memory = about_memory[:2] if about_memory else (None, None)
    latency = max((each.latency for each in queues if each.latency is not None), default=None)
    quarantine = sum(each.quarantine for each in queues)
    running = JobFilter(status="running", database=database).page(most_running).found if most_running else []
    name = database_name(database_of(database).connection_settings)
    totals = Totals(jobs, **numbers, latency=latency, quarantine=quarantine, memory=memory, max_memory=max_memory)
    lapsed = lapsed_jobs(queues, database) if running else set()
    late = lateness(database, LATE_SCHEDULE)
    unread, foreign = models_of(database).unread, foreign_keys(database)
    return Overview(name, totals, queues, workers, running, lapsed, *late, unread, foreign)


def kept_without_limit(seen: Overview) -> str:
    """Say how many finished jobs are kept in queues that no worker that is there limits, nor their class; empty if
    there are none."""
    models = {each._name: each for each in (Queue, *concrete(Queue))}
    numbers: dict[str, int] = {}
    names: dict[str, None] = {}
    for state in seen.queues:
        lengths = {"success": state.success_list, "errors": state.errors_list}
        for name in _unlimited(seen, state, models):
            numbers[name] = numbers.get(name, 0) + lengths[name]
            names |= {one_line(state.name): None} if lengths[name] else {}
    return kept_for_ever(some_named([*names], MAX_NAMES), numbers)


def _unlimited(seen: Overview, state: QueueState, models: dict[str, Any]) -> list[str]:
    """Return the names of the lists of a queue that only grow."""
    model = without_tag(state.model)
    limits = Retention.of(models[model]) if model in models else Retention(None, None)
    of_workers = [
        each.options for each in seen.workers if state.name in each.queues and without_tag(each.queue_model) == model
    ]
    return [name for name in limits.unlimited if all(each.get(f"keep_{name}") is None for each in of_workers)]


def progress_of(idents: Iterable[str], database: JobsDatabase | None = None) -> dict[str, Progress]:
    """Return how far some jobs are, of those that said so, by their idents, in a round trip."""
    known, connection = classes_of(database), connection_to(database)
    parsed = {ident: Ident.of(ident) for ident in idents}
    keys = {ident: f"{known[it.path].name}:{it.pk}:hash" for ident, it in parsed.items() if it.path in known}
    stored = replies_to(connection, [("HGET", key, "_progress_state") for key in keys.values()])
    found = ((ident, read_progress(text)) for ident, text in zip(keys, stored, strict=True))
    return {ident: progress for ident, progress in found if progress}


def ping(database: JobsDatabase | None = None) -> None:
    """Ask Redis for an answer; raise an exception of redis-py if it gives none."""
    connection_to(database).ping()


def large_jobs_of(database: JobsDatabase | None = None) -> list[LargeJobs]:
    """Look at some jobs of each class, at random; return what is known of those classes that have large ones."""
    names = {path: known.name for path, known in one_of_each(classes_of(database)).items()}
    return [*large_jobs(connection_to(database), names)]
