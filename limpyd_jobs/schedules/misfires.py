"""Which times of a due schedule to run: one, or several if workers were away."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from limpyd_jobs.schedules.triggers import Times

MISFIRE_POLICIES = ("latest", "all", "none")

# How late a time may be run with ``none``, by default.
DEFAULT_GRACE_TIME = timedelta(minutes=1)


class DueTime(NamedTuple):
    """A time to run, None to pass over missed times; and the next time, None for never again."""

    run: datetime | None
    following: datetime | None


def due_times(
    times: Times,
    due: datetime,
    now: datetime,
    misfire_policy: str = "latest",
    misfire_grace_time: timedelta | None = None,
    most: int = 100,
) -> list[DueTime]:
    """Return what to do, one after the other, from the first time that was not run yet; all times are aware."""
    if misfire_grace_time is None and misfire_policy == "none":
        misfire_grace_time = DEFAULT_GRACE_TIME
    following = times.after(now)
    missed = _missed(times, due, now, most) if misfire_policy == "all" else [times.latest(due, now)]
    to_run = [time for time in missed if misfire_grace_time is None or now - time <= misfire_grace_time]
    if not to_run:
        return [DueTime(None, following)]
    return [DueTime(run, after) for run, after in zip(to_run, [*to_run[1:], following], strict=True)]


def _missed(times: Times, due: datetime, now: datetime, most: int) -> list[datetime]:
    """Return the latest of the missed times, in their order."""
    found = []
    for time in times.until(due, now):
        found.append(time)
        if len(found) > most:
            return _latest(times, due, now, most)
    return found


def _latest(times: Times, due: datetime, now: datetime, most: int) -> list[datetime]:
    """Return the latest of many times: look back twice as far each time, and then not so far if that was too far."""
    too_short, too_long, back = timedelta(0), now - due, timedelta(seconds=1)
    while True:
        first = times.after(now - back)
        found = [*islice(times.until(first, now), 2 * most)] if first else []
        if most <= len(found) < 2 * most:
            return found[-most:]
        if len(found) < most:
            too_short = back
        else:
            too_long = back
        back = min(2 * back, (too_short + too_long) / 2)
