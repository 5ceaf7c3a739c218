"""What the code of a job says of its limits while it runs."""

from __future__ import annotations

from datetime import timedelta
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, NoReturn

from limpyd_jobs import dates, transitions
from limpyd_jobs.arguments import MAX_DURATION, is_number
from limpyd_jobs.exceptions import ClaimLost, JobInterrupted
from limpyd_jobs.limiting.limit import limits_of_class
from limpyd_jobs.records.lazy_fields import held_token
from limpyd_jobs.redis.calls import Steps


def settling(job: Any, limit: str, amount: float) -> Steps[None]:
    """Do what `Job.settle` says."""
    if not is_number(amount) or not isfinite(amount) or amount < 0:
        raise ValueError(f"what is used of the limit {limit!r} must be a number from 0, not {amount!r}")
    _check_name(job, limit)
    outcome = yield transitions.settle.call(job, _token_of(job), limit, amount)
    if outcome == "no rate":
        raise ValueError(f"{job.ident} used nothing of a rate of the limit {limit!r}")
    _check_held(job, outcome)


def resting(job: Any, limit: str, seconds: float | str | timedelta) -> Steps[NoReturn]:
    """Do what `Job.rest` says."""
    pause = seconds_of(seconds)
    _check_name(job, limit)
    outcome = yield transitions.rest.call(job, _token_of(job), limit, pause)
    if outcome == "no limit":
        raise ValueError(f"{job.ident} has no value for the limit {limit!r}, so nothing can rest")
    _check_held(job, outcome)
    raise JobInterrupted(f"its limit {limit!r} rests for {pause:g} s")


def seconds_of(value: float | str | timedelta) -> float:
    """Return for how many seconds to rest: a number, a text of one, a timedelta, or a date as ``Retry-After`` has it.

    Raises
    ------
    ValueError, TypeError
        If it is none of these.
    """
    seconds: Any = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, str):
        try:
            seconds = float(seconds)
        except ValueError:
            moment = parsedate_to_datetime(seconds)
            seconds = max((moment.replace(tzinfo=None) - dates.utcnow()).total_seconds(), 0.0)
    if not is_number(seconds):
        raise TypeError(f"seconds must be a number, a timedelta or the value of a Retry-After header, not {value!r}")
    if not (isfinite(seconds) and 0 <= seconds <= MAX_DURATION):
        raise ValueError(f"seconds must be from 0 to {MAX_DURATION:,}, not {value!r}")
    return float(seconds)


def _check_name(job: Any, limit: str) -> None:
    labels = [each.label for each in limits_of_class(type(job))]
    if limit not in labels:
        named = f"its limits are {', '.join(labels)}" if labels else "it has none"
        raise ValueError(f"{type(job).__name__} has no limit named {limit!r}: {named}")


def _token_of(job: Any) -> str:
    return held_token(job, "say this of its limits")


def _check_held(job: Any, outcome: str) -> None:
    if outcome != "done":
        raise ClaimLost(f"{job.ident} has lost its claim: its limits are no longer its own")
