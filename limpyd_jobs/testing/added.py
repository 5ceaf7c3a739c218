"""Assertions on the jobs that were added. A failure shows what was added instead."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, overload

from limpyd_jobs.classes.job_classes import job_class_of
from limpyd_jobs.dates import as_naive_utc, parse_datetime
from limpyd_jobs.fields.argument import ValueField
from limpyd_jobs.fields.own_fields import stored_name
from limpyd_jobs.models import BaseJobsModel, Job, job_classes
from limpyd_jobs.models.functions.function import JobFunction
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.testing.running import AJob, queue_of, status_of
from limpyd_jobs.texts import printable

# How many jobs a message shows at most: the last ones that were added.
MAX_JOBS = 20

# Fields that a message shows only if they are asked for.
RARELY_SHOWN = ("pk", "status", "added", "start", "end", "tries", "queued", "cancel_on_error")


@overload
def added_jobs(job_class: type[AJob], **fields: Any) -> list[AJob]: ...


@overload
def added_jobs(job_class: JobFunction[..., Any, Any], **fields: Any) -> list[Job]: ...


def added_jobs(job_class: Any, **fields: Any) -> list[Any]:
    """Return the stored jobs of a class, whatever their status is, in the order in which they were added.

    Parameters
    ----------
    job_class: type of Job, or JobFunction
        Jobs of its subclasses do not count.
    **fields
        The values that they must have: `identifier`, `priority`, `queue_name`, `status` (as ``"waiting"``),
        `delayed_for` (seconds, or a timedelta, from when they were added), `delayed_until` (a datetime, or None; both
        as long as the job is delayed), and all fields of the class: arguments and other fields of values by their
        values, others by their texts or numbers. They are compared by ``==``, so ``unittest.mock.ANY`` fits as well.

    Raises
    ------
    AttributeError
        If the class has no such field.
    TypeError, ValueError
        If no job could have such a value, such as ``status="wating"``.
    """
    job_class = job_class_of(job_class)
    checked = _checked(job_class, fields)
    return [job for job in _stored(job_class) if not _differing(job, checked)]


@overload
def assert_added(job_class: type[AJob], **fields: Any) -> AJob: ...


@overload
def assert_added(job_class: JobFunction[..., Any, Any], **fields: Any) -> Job: ...


def assert_added(job_class: Any, **fields: Any) -> Any:
    """Assert that a job was added; return the last such job. For the parameters see `added_jobs`.

    Raises
    ------
    AssertionError
        If there is no such job. The message shows what was added.
    AttributeError, TypeError, ValueError
        As `added_jobs` does.
    """
    job_class = job_class_of(job_class)
    found = added_jobs(job_class, **fields)
    if not found:
        raise AssertionError(f"No {_wanted(job_class, fields)} was added.\n{_what_was_added(job_class, fields)}")
    return found[-1]


def refute_added(job_class: type[Job] | JobFunction[..., Any, Any], **fields: Any) -> None:
    """Assert that no such job was added. For the parameters see `added_jobs`.

    Raises
    ------
    AssertionError
        If there is such a job.
    AttributeError, TypeError, ValueError
        As `added_jobs` does.
    """
    found, meant = added_jobs(job_class, **fields), job_class_of(job_class)
    if found:
        shown = "\n".join(f"  {_shown(job, fields)}" for job in found[-MAX_JOBS:])
        raise AssertionError(f"No {_wanted(meant, fields)} should have been added, but there is:\n{shown}")


# The values of a job

OF_A_JOB: dict[str, Callable[[Job], Any]] = {
    "queue_name": lambda job: queue_of(job).name.hget(),
    "status": lambda job: status_of(job).lower(),
    "priority": lambda job: int(job.priority.hget() or 0),
    "delayed_until": lambda job: parse_datetime(job.delayed_until.hget()),
    "delayed_for": lambda job: _delay_of(job),
}


def _delay_of(job: Job) -> timedelta | None:
    until, added = map(parse_datetime, job.hmget("delayed_until", "added"))
    return until - added if until and added else None


def _value_of(job: Job, name: str) -> Any:
    if name in OF_A_JOB:
        return OF_A_JOB[name](job)
    field = job.get_field(stored_name(type(job), name))
    return field.value() if isinstance(field, ValueField) else field.proxy_get()


def _checked(job_class: type[Job], fields: Mapping[str, Any]) -> dict[str, Any]:
    if not (isinstance(job_class, type) and issubclass(job_class, Job)):
        raise TypeError(f"The first argument is the class of the jobs, not {job_class!r}")
    for name in fields:
        if name not in OF_A_JOB and stored_name(job_class, name) not in job_class._fields:
            names = ", ".join(sorted({*OF_A_JOB, *(each for each in job_class._fields if each[0] != "_")}))
            raise AttributeError(f"{job_class.__name__} has no field {name!r}; there are: {names}")
    return {name: _comparable(job_class, name, value) for name, value in fields.items()}


# Values of other types may be equal to anything, as `unittest.mock.ANY` is.
SCALARS = (str, bytes, int, float, bool, datetime, timedelta, type(None))

POSSIBLE: dict[str, tuple[tuple[type, ...], str]] = {
    "identifier": ((str, int), "a text"),
    "queue_name": ((str, int), "a text"),
    "status": ((str,), "a text"),
    "priority": ((int,), "a whole number"),
    "delayed_for": ((int, float, timedelta, type(None)), "a number of seconds, a timedelta or None"),
    "delayed_until": ((datetime, type(None)), "a datetime or None"),
}


def _comparable(job_class: type[Job], name: str, value: Any) -> Any:
    """Return a wanted value as it is compared; refuse one that no job can have, for which a test would always pass."""
    if type(value) not in SCALARS:
        return value
    types, words = POSSIBLE.get(name, (SCALARS, ""))
    if type(value) not in types:
        raise TypeError(f"The {name} of a job is {words}, not {value!r}")
    if name == "status":
        return _status(value)
    if name == "delayed_for" and isinstance(value, (int, float)):
        return timedelta(seconds=value)
    if name == "delayed_until" and value is not None:
        return as_naive_utc(value)
    field = None if name in POSSIBLE else job_class.get_field(stored_name(job_class, name))
    if isinstance(field, ValueField) and value is not None:
        field.stored(value)  # refuses another kind of value, as `add_job` does
    return value


def _status(value: str) -> str:
    name = STATUSES.by_value(value, value).lower()
    if name.upper() not in STATUSES:
        raise ValueError(f"There is no status {value!r}; there are: {', '.join(STATUSES).lower()}")
    return name


def _differing(job: Job, fields: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields in which a job has another value."""
    return [name for name, value in fields.items() if not _is_equal(value, _value_of(job, name))]


def _is_equal(wanted: Any, value: Any) -> bool:
    """Compare a wanted value with the value of a job. Fields without a kind store numbers as texts."""
    if isinstance(value, str) and type(wanted) in (int, float):
        return str(wanted) == value
    return bool(wanted == value)


def _stored(job_class: type[AJob]) -> list[AJob]:
    return [job_class.lazy_connect(pk) for pk in sorted(job_class.collection(), key=int)]


# Messages


def _wanted(job_class: type[Job], fields: Mapping[str, Any]) -> str:
    return f"{job_class.__name__} with {_listed(fields)}" if fields else job_class.__name__


def _what_was_added(job_class: type[Job], fields: Mapping[str, Any]) -> str:
    checked, jobs = _checked(job_class, fields), _stored(job_class)
    lines = [f"  {_shown(job, fields)}    differs in {', '.join(_differing(job, checked))}" for job in jobs[-MAX_JOBS:]]
    if jobs:
        lines.insert(0, f"{len(jobs)} of that class {'was' if len(jobs) == 1 else 'were'} added:")
    others = {other: len(other.collection()) for other in _others(job_class)}
    told = ", ".join(f"{number} {other.__name__}" for other, number in others.items() if number)
    return "\n".join([*lines, f"Of other classes: {told or 'none'}."])


def _others(job_class: type[Job]) -> list[type[Job]]:
    known = [each for each in job_classes.all() if each.database is BaseJobsModel.database]
    return sorted({*known} - {job_class}, key=lambda each: each.__name__)


def _shown(job: Job, asked: Collection[str]) -> str:
    own = [name for name in job._fields if name[0] != "_" and name not in RARELY_SHOWN and name != job._name]
    values = {
        name: _value_of(job, name) for name in dict.fromkeys(["identifier", "queue_name", *own, *asked, "status"])
    }
    kept = {name: value for name, value in values.items() if name in asked or value not in (None, [], set(), {})}
    return f"{type(job).__name__} {job.pk.get()}: {_listed(kept)}"


def _listed(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_represented(value)}" for name, value in fields.items())


def _represented(value: Any) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    text = printable(repr(value)) if not isinstance(value, datetime) else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
