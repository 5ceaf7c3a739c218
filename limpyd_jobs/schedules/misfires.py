"""Which times of a due schedule to run: one, or several if workers were away."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from limpyd_jobs.schedules.triggers import Times

MISFIRE_POLICIES = ("latest", "all", "none")

# How late a time may be run with ``none``, by default.
DEFAULT_GRACE_TIME = timedelta(minutes=1)


class Step(NamedTuple):
    """A time to run, None to pass over missed times; and the next time, None for never again."""

    run: datetime | None
    following: datetime | None


def steps(
    times: Times,
    due: datetime,
    now: datetime,
    misfire_policy: str = "latest",
    misfire_grace_time: timedelta | None = None,
    most: int = 100,
) -> list[Step]:
    """Return the steps to do, one after the other, from the first time that was not run yet; all times are aware."""
    if misfire_grace_time is None and misfire_policy == "none":
        misfire_grace_time = DEFAULT_GRACE_TIME
    following = times.after(now)
    missed = _missed(times, due, now, most) if misfire_policy == "all" else [times.latest(due, now)]
    to_run = [time for time in missed if misfire_grace_time is None or now - time <= misfire_grace_time]
    if not to_run:
        return [Step(None, following)]
    return [Step(run, after) for run, after in zip(to_run, [*to_run[1:], following], strict=True)]


def _missed(times: Times, due: datetime, now: datetime, most: int) -> list[datetime]:
    """Return the latest of the missed times, in their order."""
    found = []
    for time in times.until(due, now):
        found.append(time)
        if len(found) > most:
            return _latest(times, due, now, most)
    return found


def _latest(times: Times, due: datetime, now: datetime, most: int) -> list[datetime]:
    found: list[datetime] = []
    while len(found) < most:
        found.append(times.latest(due, now))
        now = found[-1] - timedelta(microseconds=1)
    return found[::-1]
