"""Dates and spans of time: naive UTC, scores of sorted sets, delays."""

from __future__ import annotations

import math
import time
import warnings
from datetime import UTC, datetime, timedelta
from typing import Any

from limpyd_jobs.exceptions import naming
from limpyd_jobs.functions import frames_of_ours

EPOCH = datetime(1970, 1, 1)

MICROSECOND = timedelta(microseconds=1)

# How far tests of an application moved the time: see `limpyd_jobs.testing.clock`.
moved_time = timedelta()

# How far apart two readings of a clock may be to be taken as the same moment.
ALMOST = timedelta(seconds=10)

# A delay that ended before this much time is as good as any other in the past.
LONG_AGO = timedelta(days=10_000)


def utcnow() -> datetime:
    """Return the current time as a naive UTC datetime, the form in which dates are stored."""
    return datetime.now(UTC).replace(tzinfo=None) + moved_time


def as_naive_utc(moment: datetime) -> datetime:
    """Return the moment as a naive UTC datetime. A naive one is taken as UTC."""
    if moment.tzinfo is None:
        return moment
    return moment.astimezone(UTC).replace(tzinfo=None)


def datetime_to_score(dt: datetime) -> float:
    """Return the UTC epoch, in seconds with microseconds, of a naive UTC (or an aware) datetime."""
    return (as_naive_utc(dt) - EPOCH) // MICROSECOND / 1_000_000


def date_of_score(score: float) -> str:
    """Return the date of such a score, without its fraction, as text; a number that is not a date as it is."""
    try:
        return str(EPOCH + timedelta(seconds=math.floor(score)))
    except (OverflowError, ValueError):
        return f"{score:g}"


def parse_datetime(text: str | None) -> datetime | None:
    """Read a stored date, as naive UTC; None if nothing is stored, or it is not a date."""
    try:
        return as_naive_utc(datetime.fromisoformat(text)) if text else None
    except (ValueError, TypeError, OverflowError):
        return None


def compute_delayed_until(
    delayed_for: float | timedelta | None = None, delayed_until: datetime | None = None
) -> datetime | None:
    """Return when a delay ends, as a naive UTC datetime, or None if there is no delay.

    Parameters
    ----------
    delayed_for: int, float or timedelta
        How long to wait from now on, in seconds unless a timedelta. Beside a `delayed_until`, 0 is the same as None.
    delayed_until: datetime
        When to stop waiting: naive UTC, or aware.

    Raises
    ------
    ValueError
        If both are given, or one is of another type, not finite, or beyond the year 9999.
    """
    if delayed_for and delayed_until is not None:
        raise ValueError("delayed_until and delayed_for arguments are exclusive")
    try:
        if delayed_until is not None:
            if not isinstance(delayed_until, datetime):
                raise ValueError(f"Invalid delayed_until argument: must be a datetime object, not {delayed_until!r}")
            _warn_of_local_time(delayed_until)
            return as_naive_utc(delayed_until)
        if delayed_for is not None:
            return utcnow() + _as_timedelta(delayed_for)
    except OverflowError as error:
        argument = "delayed_for" if delayed_until is None else "delayed_until"
        raise naming(
            ValueError, "Invalid ", (argument, f"{argument} argument"), ": beyond the years 1 to 9999"
        ) from error
    return None


def _warn_of_local_time(given: datetime) -> None:
    """Warn of a naive time that is as long ago as the clocks here are behind UTC: most likely ``datetime.now()``."""
    behind = timedelta(seconds=-time.localtime().tm_gmtoff)
    if behind > timedelta() and given.tzinfo is None and abs(utcnow() - behind - given) < ALMOST:
        warnings.warn(
            f"delayed_until={given!r} is {span(behind.total_seconds())} ago: a naive datetime is UTC, and this one "
            "seems to be local time. Give an aware one, as datetime.now(timezone.utc), or delayed_for",
            stacklevel=frames_of_ours(),
        )


def _as_timedelta(delay: Any) -> timedelta:
    if isinstance(delay, timedelta):
        return max(delay, -LONG_AGO)
    if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not math.isfinite(delay):
        raise ValueError(
            f"Invalid delayed_for argument: must be an int, a float or a timedelta object, not {delay!r}"
            + (": give a number of seconds, such as 600, or timedelta(minutes=10)" if isinstance(delay, str) else "")
        )
    return timedelta(seconds=max(delay, -LONG_AGO.total_seconds()))


def span(seconds: float) -> str:
    """Return a time as people say it: ``1.5 ms``, ``0.3 s``, ``12 s``, ``4 min``, ``3 h``, ``2 d``."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for unit, most, size in (("s", 120, 60), ("min", 120, 60), ("h", 48, 24)):
        if seconds < most:
            return f"{seconds:.0f} {unit}"
        seconds /= size
    return f"{seconds:,.0f} d"


def shown_span(seconds: float | None) -> str:
    """Return a time in the same way; empty if it is not known."""
    return "" if seconds is None else span(seconds)


def get_delta(value: float | timedelta) -> timedelta:
    """Return a number of seconds as a timedelta, and a timedelta as it is."""
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, (int, float)):
        raise TypeError(f"Invalid delta: must be a number of seconds or a timedelta, not {value!r}")
    return timedelta(seconds=value)
