"""Schedules: how each stands, and what people do with one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from math import inf
from typing import Any, NamedTuple

from limpyd.exceptions import DoesNotExist, UniquenessError

from limpyd_jobs.arguments import read_priority, read_seconds
from limpyd_jobs.classes.imports import not_imported
from limpyd_jobs.classes.job_classes import job_classes
from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.models.adding import why_not_added
from limpyd_jobs.query.schedules import notes_of
from limpyd_jobs.records import records
from limpyd_jobs.records.audit import audited
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.schedules.model import Schedule, aware, now_of_redis
from limpyd_jobs.search.classes import connection_to, on

# What is raised if nothing was done.
REFUSALS = (
    *(LookupError, TypeError, ValueError, AttributeError, ImportError, RecursionError),
    *(DoesNotExist, UniquenessError, LimpydJobsException),
)


class ScheduleState(NamedTuple):
    """A schedule, as it is stored.

    Attributes
    ----------
    name: str
    state: str
        ``active``, ``paused`` or ``over``.
    next_run, last_run: str
        Dates in UTC; None if there is no such time.
    job: str
        The path of the class of its jobs.
    queue: str
    priority: int
        None if another program wrote a text that is not a number.
    timezone: str
    trigger: object
        The description, see `limpyd_jobs.schedules.triggers`; a text, if it is not JSON.
    identifier, misfire_policy, misfire_grace_time: str
        As they are stored; None for the default.
    job_fields: str
        The other fields of its jobs, as JSON.
    notes: list of str
        Why its jobs are not run in time: ``late 4 min``, ``queue paused``. None if there was no time to look.
    owner: str
        Who declared it; None if that is not known.
    jitter: float
        By how many seconds each job is delayed at most; None for none.
    """

    name: str
    state: str
    next_run: str | None
    last_run: str | None
    job: str | None
    queue: str | None
    priority: int | None
    timezone: str | None
    trigger: Any
    identifier: str | None
    misfire_policy: str | None
    misfire_grace_time: str | None
    job_fields: str | None
    notes: list[str] | None
    owner: str | None = None
    jitter: float | None = None

    @classmethod
    def of(cls, stored: Mapping[str, str], notes: list[str] | None) -> ScheduleState:
        trigger: Any = stored.get("trigger")
        with suppress(TypeError, ValueError, RecursionError):
            trigger = json.loads(trigger)
        state = "paused" if stored.get("paused") else "active" if stored.get("next_run") else "over"
        return cls(
            name=stored.get("name", ""),
            state=state,
            next_run=stored.get("next_run"),
            last_run=stored.get("last_run"),
            job=stored.get("job_model_repr"),
            queue=stored.get("queue_name"),
            priority=read_priority(stored.get("priority")),
            timezone=stored.get("timezone"),
            trigger=trigger,
            identifier=stored.get("identifier"),
            misfire_policy=stored.get("misfire_policy"),
            misfire_grace_time=stored.get("misfire_grace_time"),
            job_fields=stored.get("job_fields"),
            notes=notes,
            owner=stored.get("owner"),
            jitter=read_seconds(stored.get("jitter")),
        )


class Schedules(NamedTuple):
    """Some schedules, by name, and how many there are of that kind."""

    found: list[ScheduleState]
    number: int


class ScheduledRun(NamedTuple):
    """The job that a schedule was asked for; whether it was added; and what `add_job` says of it, see
    `Job.add_outcome`."""

    ident: str
    is_new: bool
    outcome: str = "added"

    @property
    def why_not_added(self) -> str:
        """What is to be said of the job if it is not new."""
        return why_not_added(self.outcome)


def schedules(
    text: str = "",
    most: int | None = None,
    timeout: float | None = None,
    database: JobsDatabase | None = None,
    owner: str | None = None,
) -> Schedules:
    """Return the schedules in whose names a text occurs.

    Parameters
    ----------
    text: str
    most: int
        How many to return, the first ones by name; None for all.
    timeout: float
        For how many seconds to look why jobs are not run in time; None to look at all.
    database: JobsDatabase
        The database of `BaseJobsModel` by default.
    owner: str
        Only those of an owner.
    """
    model = on(Schedule, database)
    pks = model.collection() if owner is None else model.collection(owner=owner)
    stored = (fields for _, fields in model.read_many(pks))
    meant = sorted((each for each in stored if text in each.get("name", "")), key=lambda each: each.get("name", ""))
    shown = meant[:most]
    notes = notes_of(shown, database, inf if timeout is None else timeout)
    return Schedules([ScheduleState.of(each, of_it) for each, of_it in zip(shown, notes, strict=True)], len(meant))


def schedule_named(name: str, database: JobsDatabase | None = None) -> Schedule:
    """Return the schedule of a name.

    Raises
    ------
    LookupError
        If there is no such schedule.
    ValueError
        If another program made something else of it.
    """
    model = on(Schedule, database)
    try:
        schedule: Schedule = model.get_by_name(name)
    except DoesNotExist as error:
        pk = next((pk for pk, stored in model.read_many(model.collection()) if stored.get("name") == name), None)
        if pk is None:
            raise LookupError(str(error)) from None
        schedule = records.attached(model, pk)  # the index of names lacks it
    key = f"{model._name}:{pk_of(schedule)}:hash"
    kind = connection_to(database).type(key)
    if kind not in ("hash", "none"):
        raise ValueError(f"{key} is a {kind}: limpyd-jobs check --repair deletes it; then add {name!r} again")
    return schedule


def schedule_state(name: str, database: JobsDatabase | None = None) -> ScheduleState:
    """Return the schedule of a name, as it is stored. For the exceptions see `schedule_named`."""
    stored = schedule_named(name, database).hgetall()
    return ScheduleState.of(stored, notes_of([stored], database)[0])


def next_times(name: str, number: int = 10, database: JobsDatabase | None = None) -> list[datetime]:
    """Return the next times of a schedule, as `Schedule.next_times` does."""
    return schedule_named(name, database).next_times(number)


def pause_schedule(
    name: str, database: JobsDatabase | None = None, *, pauses: bool = True, unaudited: bool = False
) -> None:
    """Pause a schedule, or resume it, and write that to the audit."""
    with _changing("pause" if pauses else "resume", name, database, unaudited, needs_room=pauses) as schedule:
        schedule.pause() if pauses else schedule.resume()


def remove_schedule(name: str, database: JobsDatabase | None = None, *, unaudited: bool = False) -> None:
    """Delete a schedule, and write that to the audit. Its queued jobs stay."""
    with _changing("remove", name, database, unaudited) as schedule:
        schedule.delete()


def edit_schedule(
    name: str, database: JobsDatabase | None = None, *, unaudited: bool = False, **changes: Any
) -> datetime | None:
    """Change a schedule as `Schedule.edit` does, write that to the audit, and return its next time."""
    told = " ".join(sorted(changes))
    with _changing("edit", name, database, unaudited, needs_room=True, how=told) as schedule:
        schedule.edit(**changes)
    return next(iter(schedule.next_times(1)), None)


def run_schedule_now(name: str, database: JobsDatabase | None = None, *, unaudited: bool = False) -> ScheduledRun:
    """Add the job of a schedule now, beside its times, and write that to the audit."""
    with _changing("run-now", name, database, unaudited, needs_room=True) as schedule:
        path = schedule.job_model_repr.hget() or ""
        try:
            job_classes.like(type(schedule)).resolve(path)
        except Exception as error:  # whatever its module raises
            raise ValueError(not_imported(path, error)) from None
        before = now_of_redis(type(schedule))
        job = schedule.run_now()
        outcome = vars(job).get("_add_outcome")
        if outcome is None:  # it is of an `add_job` of the application
            added = aware(job.added.hget())
            outcome = "added" if added is None or added >= before else "existing"
        return ScheduledRun(job.ident, outcome == "added", outcome)


@contextmanager
def _changing(
    verb: str,
    name: str,
    database: JobsDatabase | None,
    unaudited: bool,
    needs_room: bool = False,
    **told: str,
) -> Iterator[Schedule]:
    schedule = schedule_named(name, database)
    how: dict[str, Any] = {"unaudited": unaudited, "needs_room": needs_room, "refusals": REFUSALS, **told}
    with audited(connection_to(database), verb=f"schedules {verb}", filter=name, **how) as entry:
        yield schedule
        entry.numbers = {"done": 1}
