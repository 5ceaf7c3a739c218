"""Why the jobs of schedules are not run in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from math import inf, isfinite
from time import monotonic
from typing import Any

from limpyd_jobs.classes.binding import concrete
from limpyd_jobs.classes.job_classes import path_of
from limpyd_jobs.dates import parse_datetime, span, utcnow
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models import Job, WorkerPresence
from limpyd_jobs.models.presence import SILENT
from limpyd_jobs.query.queues import paused_queues
from limpyd_jobs.records.records import due_key
from limpyd_jobs.redis.calls import chunks, passing_over_wrong_types
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.schedules.misfires import due_times
from limpyd_jobs.schedules.model import Schedule, aware, identifier_of
from limpyd_jobs.schedules.triggers import Times
from limpyd_jobs.search.classes import classes_of, connection_to, on, replies_to
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line

# After how many seconds a schedule is late: until then, a worker may be about to add its job.
LATE_AFTER = 5

# How many schedules are asked about at once.
AT_ONCE = 500

# What is said of a job that is queued, by its status.
QUEUED = {STATUSES.WAITING: "waiting", STATUSES.DELAYED: "delayed", STATUSES.RUNNING: "running"}


def notes_of(
    schedules: Sequence[Mapping[str, str]], database: JobsDatabase | None = None, timeout: float = inf
) -> list[list[str] | None]:
    """Return why, by their stored fields: ``late 4 min``, ``last job still waiting``, ``queue paused``; None of those
    that it did not look at within some seconds."""
    until, looking, notes = monotonic() + timeout, _Looking(database), list[list[str] | None]()
    for some in chunks(schedules, AT_ONCE):
        last_jobs = looking.last_jobs(some) if monotonic() < until else [""] * len(some)
        for each, last_job in zip(some, last_jobs, strict=True):
            notes.append(looking.notes(each, last_job) if monotonic() < until else None)
    return notes


def lateness(database: JobsDatabase | None = None, after: float = 0.0) -> tuple[float, int]:
    """Return for how many seconds the schedule has been due that is due for longest, 0 if none is; and how many have
    been for more than some seconds."""
    connection, key = connection_to(database), due_key(on(Schedule, database))
    seconds, microseconds = connection.time()
    now, first, late = seconds + microseconds / 1_000_000, [], 0
    with passing_over_wrong_types():
        first, late = connection.zrange(key, 0, 0, withscores=True), connection.zcount(key, "-inf", now - after)
    longest = now - first[0][1] if first else 0.0
    return (max(longest, 0.0) if isfinite(longest) else 0.0), late


class _Looking:
    def __init__(self, database: JobsDatabase | None) -> None:
        self._connection = connection_to(database)
        self._classes = classes_of(database)
        self._queue_models = {path_of(each): each.queue_model._name for each in concrete(Job)}
        self._paused = {name for _, name in paused_queues(database)}
        workers = [each for each in on(WorkerPresence, database).alive() if each.status != SILENT]
        self._obstacle = lru_cache(maxsize=None)(_obstacle)  # many schedules may have one trigger
        self._served = {(worker.queue_model, name) for worker in workers for name in worker.queues}

    def notes(self, stored: Mapping[str, str], last_job: str) -> list[str]:
        if stored.get("paused") or not stored.get("next_run"):
            return []
        queue = stored.get("queue_name", "")
        found = [
            self._obstacle(*(stored.get(name, "") for name in ("next_run", "trigger", "timezone", "misfire_policy"))),
            self._late(stored),
            last_job,
            "queue paused" if queue in self._paused else "",
        ]
        model = self._queue_models.get(stored.get("job_model_repr", ""), stored.get("queue_model"))
        if not any(name == queue and model in (None, of) for of, name in self._served):
            found.append(f"no worker listens to {one_line(queue)}")
        return [note for note in found if note]

    def _late(self, stored: Mapping[str, str]) -> str:
        due = parse_datetime(stored.get("next_run"))
        late = (utcnow() - due).total_seconds() if due else 0
        return f"late {span(late)}" if late >= LATE_AFTER else ""

    def last_jobs(self, schedules: Sequence[Mapping[str, str]]) -> list[str]:
        """Say of each schedule whether the job that was added last is still queued, in two round trips for all."""
        sets = [self._indexes_of_last_job(each) for each in schedules]
        pks = iter(replies_to(self._connection, (("SINTER", *keys) for _, keys in filter(None, sets))))
        hashes = [f"{found[0]}:{pk}:hash" if found and (pk := _first(next(pks))) else "" for found in sets]
        statuses = iter(replies_to(self._connection, (("HGET", key, "status") for key in filter(None, hashes))))
        found = (next(statuses) if key else None for key in hashes)
        return [f"last job still {QUEUED[status]}" if status in QUEUED else "" for status in found]

    def _indexes_of_last_job(self, stored: Mapping[str, str]) -> tuple[str, list[str]] | None:
        """The name of its model, and the keys of the two indexes that both have it while it is queued."""
        known, last = self._classes.get(stored.get("job_model_repr", "")), aware(stored.get("last_run"))
        if not known or last is None or not {"identifier", "queued"} <= known.indexes.keys():
            return None
        with suppress(TypeError, ValueError):  # what is stored makes no identifier
            identifier = identifier_of(stored, last)
            return known.name, [f"{known.indexes['identifier']}{identifier}", f"{known.indexes['queued']}1"]
        return None


def _first(pks: Any) -> str:
    """The first of the members that Redis answered; empty without one."""
    return str(next(iter(pks or ()), ""))


def _obstacle(next_run: str, trigger: str, timezone: str, misfire_policy: str) -> str:
    """Say what is wrong with the trigger of a schedule."""
    due, now = aware(next_run), aware(str(utcnow()))
    if not due or not now:
        return f"cannot be enqueued: its next_run is not a date: {one_line(next_run)}"
    try:
        due_times(Times.of(trigger, timezone), due, max(due, now), misfire_policy)
    except ConfigurationException:  # without APScheduler
        return ""
    except Exception as error:
        return f"cannot be enqueued: {one_line(error, MESSAGE)}"
    return ""
