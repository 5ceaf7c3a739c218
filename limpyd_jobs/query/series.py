"""The metrics of the last time, as series for charts: minute by minute, queue by queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import NamedTuple

from limpyd_jobs.dates import EPOCH
from limpyd_jobs.query.metrics import Period, metrics_sum, read_metrics, starts_of
from limpyd_jobs.records import metrics as stored
from limpyd_jobs.records.metrics import Metrics
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import connection_to

OTHERS = "(others)"

# Of which part of the jobs the times are.
MOST_JOBS = 0.95


# What charts may be of, by name: how much time, by which period, and how many of these are one column.
SPANS = {
    "1h": (timedelta(hours=1), "minute", 1),
    "6h": (timedelta(hours=6), "minute", 5),
    "24h": (timedelta(hours=24), "minute", 15),
    "7d": (timedelta(days=7), "day", 1),
    "30d": (timedelta(days=30), "day", 1),
}

# Of how many minutes the rates are, the present one among them.
LATELY = 5


class Lately(NamedTuple):
    """What was run in the last five minutes: all numbers that are "a minute" are of it.

    Attributes
    ----------
    periods: list of Period
        The present minute is the last one.
    minutes: float
        How long that was.
    """

    periods: Sequence[Period]
    minutes: float

    @property
    def by_queue(self) -> Mapping[str, Metrics]:
        """The sums of each queue."""
        found: dict[str, Metrics] = {}
        for period in self.periods:
            for queue, row in period.by_queue.items():
                found.setdefault(queue, Metrics()).add(row)
        return found

    def of(self, queue: str = "", job_class: str = "") -> Metrics:
        """Return the sum of a queue, of a class, of a class in a queue, or of all."""
        return metrics_sum(period.of(queue, job_class) for period in self.periods)


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
    """The metrics of the last time.

    Attributes
    ----------
    starts: list of datetime
        The beginnings of the minutes or days, naive UTC.
    queues: list of QueueSeries
        Those in which most jobs began; all others as ``(others)``. They are for pictures: what is counted is counted
        in the metrics.
    total: QueueSeries
        All queues together.
    is_cut: bool
        Whether there were more than 500 queues and classes in a minute, or 5,000 in a day: what was run of the rest has
        no names, and is in ``(others)``.
    """

    starts: list[datetime]
    queues: list[QueueSeries]
    total: QueueSeries
    is_cut: bool


class Levels(NamedTuple):
    """How many jobs waited and ran, as workers noted it once a minute.

    Attributes
    ----------
    starts: list of datetime
        The beginnings of the minutes, naive UTC.
    waiting, running: list of int
        How many did at these times: the most, if several minutes are one column. None where no worker noted it.
    is_cut: bool
        Whether there were queues of more names than are noted.
    """

    starts: list[datetime]
    waiting: list[int | None]
    running: list[int | None]
    is_cut: bool


class HeatMap(NamedTuple):
    """How long jobs waited and ran, as the buckets that are stored.

    Attributes
    ----------
    starts: list of datetime
        The beginnings of the minutes or days, naive UTC.
    waited, ran: list of list of int
        For each of these, how many took up to each of the `BOUNDS`, in seconds, and more than the one before; the last
        number is of those that took longer.
    """

    starts: list[datetime]
    waited: list[list[int]]
    ran: list[list[int]]


def read_series(
    since: timedelta = timedelta(hours=1), by: str = "minute", database: JobsDatabase | None = None, most: int = 6
) -> Series:
    """Return series of the queues of which most jobs began, and one of all others. Parameters: see `read_metrics`."""
    return series_of(read_metrics(since, by, database), most)


def lately(periods: Sequence[Period], at: datetime) -> Lately:
    """Return the last five minutes of some metrics by the minute, as they were at a time, naive UTC."""
    last = periods[-LATELY:]
    minutes = (at - last[0].start).total_seconds() / 60 if last else 0.0
    # The clock of Redis, by which minutes begin, may not be the one that was looked at.
    return Lately(last, max(min(max(minutes, len(last) - 1), len(last)), 1.0))


def read_span(
    span: str, database: JobsDatabase | None = None, reader: Callable[..., list[Period]] = read_metrics
) -> list[Period]:
    """Return the metrics for the columns of a chart of one of the `SPANS`, which a `MetricsReader` may read."""
    since, by, step = SPANS[span]
    return reader(since, by, database, step)


def read_levels(span: str, database: JobsDatabase | None = None, queue: str = "") -> Levels:
    """Return the levels of a queue, or of all queues together, for a chart of one of the `SPANS`. They are kept by the
    minute only: of a longer time, nothing is known."""
    since, by, step = SPANS[span]
    if by != "minute":
        return Levels([], [], [], False)
    connection = connection_to(database)
    starts = starts_of(connection, since, by, step)
    found = stored.read_levels(connection, starts)
    levels = [_level_of(fields, queue) for fields in found]
    columns = [[each for each in levels[at : at + step] if each] for at in range(0, len(levels), step)]
    return Levels(
        [EPOCH + timedelta(seconds=start) for start in starts[::step]],
        [max((waiting for waiting, _ in column), default=None) for column in columns],
        [max((running for _, running in column), default=None) for column in columns],
        any(stored.IS_CUT in fields for fields in found),
    )


def waited_before(periods: Sequence[Period], database: JobsDatabase | None = None) -> dict[str, int]:
    """Return how many jobs waited in each queue when the first of the last minutes of some metrics began, without those
    in which none did; nothing if not all queues were noted."""
    last = periods[-LATELY:]
    if not last:
        return {}
    start = int((last[0].start - EPOCH).total_seconds())
    (fields,) = stored.read_levels(connection_to(database), [start])
    found = {name: _level_of(fields, name) for name in fields if stored.IS_CUT not in fields}
    return {name: level[0] for name, level in found.items() if level}


def _level_of(fields: Mapping[str, str], queue: str) -> tuple[int, int] | None:
    """Return how many jobs waited and ran in a minute; None if that is not known."""
    texts = [fields[queue]] if queue in fields else [] if queue else [*fields.values()]
    numbers = [words for text in texts if len(words := text.split()) == 2 and all(map(stored.is_number, words))]
    return (
        (sum(int(waiting) for waiting, _ in numbers), sum(int(running) for _, running in numbers)) if numbers else None
    )


def series_of(periods: Sequence[Period], most: int = 6) -> Series:
    """Return them of metrics that are read."""
    started = Counter[str]()
    for period in periods:
        for name, row in period.by_queue.items():
            started[name] += row.started
    named = sorted(started, key=lambda name: (-started[name], name))
    own = [name for name in named if name][:most]
    queues = [QueueSeries.of(name, [period.of(name) for period in periods]) for name in own]
    if len(named) > len(own):
        queues.append(QueueSeries.of(OTHERS, [_others(period, own) for period in periods]))
    total = QueueSeries.of("", [period.total for period in periods])
    return Series([*map(attrgetter("start"), periods)], queues, total, "" in started)


def heat_map(periods: Sequence[Period], queue: str = "", job_class: str = "") -> HeatMap:
    """Return how long the jobs of a queue or class, or of all, waited and ran."""
    rows = [period.of(queue, job_class) for period in periods]
    starts = [*map(attrgetter("start"), periods)]
    return HeatMap(starts, [list(row.waited.counts) for row in rows], [list(row.ran.counts) for row in rows])


def _others(period: Period, own: Sequence[str]) -> Metrics:
    """Return the sum of all queues but some."""
    parts = [period.of(name).numbers for name in own]
    return Metrics(total - sum(each) for total, *each in zip(period.total.numbers, *parts, strict=True))
