"""The metrics of the last time, as series for charts: minute by minute, queue by queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import NamedTuple

from limpyd_jobs.query.metrics import Period, read_metrics, summed
from limpyd_jobs.records.metrics import Metrics
from limpyd_jobs.redis.database import JobsDatabase

OTHERS = "(others)"

# Of which part of the jobs the times are.
MOST_JOBS = 0.95


class QueueSeries(NamedTuple):
    """What was run of a queue, by the minute or by the day.

    Attributes
    ----------
    name: str
        ``(others)`` for all queues that have no series of their own.
    started, succeeded, failed: list of int
        How many jobs began, and how many ended so.
    waited, ran: list of float
        Within how many seconds 95 % of them began, and ended: the upper bound of a bucket. None where none did.
    """

    name: str
    started: list[int]
    succeeded: list[int]
    failed: list[int]
    waited: list[float | None]
    ran: list[float | None]

    @classmethod
    def of(cls, name: str, rows: Sequence[Metrics]) -> QueueSeries:
        return cls(
            name,
            [row.started for row in rows],
            [row.succeeded for row in rows],
            [row.failed for row in rows],
            [row.waited.quantile(MOST_JOBS) for row in rows],
            [row.ran.quantile(MOST_JOBS) for row in rows],
        )


class Series(NamedTuple):
    """The metrics of the last time: the beginnings of the minutes or days, naive UTC, and the series of each queue."""

    starts: list[datetime]
    queues: list[QueueSeries]


def read_series(
    since: timedelta = timedelta(hours=1), by: str = "minute", database: JobsDatabase | None = None, most: int = 6
) -> Series:
    """Return series of the queues of which most jobs began, and one of all others. Parameters: see `read_metrics`."""
    return series_of(read_metrics(since, by, database), most)


def series_of(periods: Sequence[Period], most: int = 6) -> Series:
    """Return them of metrics that are read."""
    totals = summed(periods, lambda queue, path: queue)
    named = sorted(totals, key=lambda name: (-totals[name].started, name))
    own = [name for name in named if name][:most]
    groups = [*own, *([OTHERS] if len(named) > len(own) else [])]
    return Series([*map(attrgetter("start"), periods)], [QueueSeries.of(it, _rows(periods, it, own)) for it in groups])


def _rows(periods: Sequence[Period], group: str, own: Sequence[str]) -> list[Metrics]:
    def key(queue: str, path: str) -> str:
        return queue if queue in own else OTHERS

    return [summed([period], key).get(group, Metrics()) for period in periods]
