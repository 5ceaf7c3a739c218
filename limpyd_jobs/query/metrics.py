"""How many jobs were added and run, how they ended, how long they waited and ran: by the minute, or by the day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice, takewhile
from math import ceil
from typing import Any, NamedTuple

from limpyd_jobs.dates import EPOCH
from limpyd_jobs.records import metrics as stored
from limpyd_jobs.records.metrics import Metrics, is_number, metrics_of
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import connection_to

# For how long metrics are kept by each period.
PERIODS = {"minute": timedelta(minutes=1), "day": timedelta(days=1)}
KEPT = {"minute": timedelta(days=2), "day": timedelta(days=366)}

# How many periods are read in a round trip.
AT_ONCE = 240

# For how many seconds a period that is over is not kept: a clock may be set back, or a replica behind. And of how many
# queues and classes, in all periods of a kind, metrics are kept: 100,000 take some 60 MB.
LATE, MOST_ROWS = 120, 100_000


class _Numbers(NamedTuple):
    start: datetime  # naive UTC
    metrics: Mapping[tuple[str, str], Metrics]  # by queue and class; two empty texts stand for all beyond some hundreds
    added: Mapping[str, int]  # by class, since the last period with metrics: workers note these numbers


class Period(_Numbers):
    """The metrics of a minute, or a day."""

    @cached_property
    def by_queue(self) -> Mapping[str, Metrics]:
        """The sums of each queue; those of an empty name stand for all beyond some hundreds."""
        return summed([self], lambda queue, _: queue)

    @cached_property
    def total(self) -> Metrics:
        """The sum of all."""
        return metrics_sum(self.by_queue.values())

    def of(self, queue: str = "", job_class: str = "") -> Metrics:
        """Return the sum of a queue, of a class, of a class in a queue, or of all."""
        if job_class:
            return metrics_sum(row for names, row in self.metrics.items() if names == (queue or names[0], job_class))
        return self.by_queue.get(queue, Metrics()) if queue else self.total


class _Column(NamedTuple):
    """What is kept of a period that is over."""

    period: Period
    last_pks: Mapping[str, int]  # of each class, at its end
    sizes: Sequence[int]  # how many fields its minutes or days have: one that was deleted since has none


def read_metrics(
    since: timedelta = timedelta(hours=1), by: str = "minute", database: JobsDatabase | None = None, step: int = 1
) -> list[Period]:
    """Return the metrics of the last minutes or days, the oldest first; `ValueError` if they are not kept so long.

    With a `step`, so many minutes or days are one period, as 15 minutes are for a chart of a day.
    """
    return MetricsReader()(since, by, database, step)


class MetricsReader:
    """Reads metrics as `read_metrics` does, and keeps those of times that are over, as nothing is added to them: for a
    process that reads them again and again."""

    def __init__(self) -> None:
        self._kept: dict[Any, list[_Column]] = {}

    def __call__(
        self,
        since: timedelta = timedelta(hours=1),
        by: str = "minute",
        database: JobsDatabase | None = None,
        step: int = 1,
    ) -> list[Period]:
        if by not in PERIODS:
            raise ValueError(f"{by!r} is not a period: {', '.join(PERIODS)}")
        if not timedelta() < since <= KEPT[by]:
            raise ValueError(f"metrics by the {by} go back at most {KEPT[by].days} days, so not {since}")
        connection = connection_to(database)
        starts = starts_of(connection, since, by, step)
        known = self._still_known(connection, (database, by, step), starts)
        found = [*known, *_read(connection, by, step, starts[len(known) * step :], known[-1:])]
        over = (starts[-1] - LATE - starts[0]) // (starts.step * step)
        is_much = sum(len(each.period.metrics) for each in found) > MOST_ROWS
        self._kept[database, by, step] = [] if is_much else found[: max(over, 0)]
        return [each.period for each in found]

    def _still_known(self, connection: Any, kind: tuple[Any, str, int], starts: range) -> list[_Column]:
        """Return the first periods, if they are known, and none of them was deleted since."""
        first = EPOCH + timedelta(seconds=starts[0])
        kept = [each for each in self._kept.get(kind, ()) if each.period.start >= first]
        if not kept or kept[0].period.start != first:
            return []
        _, by, step = kind
        sizes = iter(stored.sizes(connection, by, starts[: len(kept) * step]))
        return [*takewhile(lambda each: [*islice(sizes, step)] == each.sizes, kept)]


def _read(connection: Any, by: str, step: int, starts: Sequence[int], before: Sequence[_Column]) -> Iterator[_Column]:
    """Read some periods. How many jobs were added in the first one is known by the last of those before."""
    size = int(PERIODS[by].total_seconds())
    last_pks = dict(before[0].last_pks) if before else {}
    read = [*([] if before or not starts else [starts[0] - size]), *starts]
    fields = (
        each for at in range(0, len(read), AT_ONCE) for each in stored.read(connection, by, read[at : at + AT_ONCE])
    )
    if len(read) > len(starts):
        _period(read[0], next(fields), last_pks)
    for at in range(0, len(starts), step):
        some = [*islice(fields, step)]
        periods = [_period(start, each, last_pks) for start, each in zip(starts[at : at + step], some, strict=True)]
        yield _Column(_as_one(periods), dict(last_pks), [*map(len, some)])


def starts_of(connection: Any, since: timedelta, by: str, step: int) -> range:
    """Return the first seconds of the last minutes or days, by the clock of Redis. The first one begins a step."""
    size = int(PERIODS[by].total_seconds())
    now = int(connection.time()[0])
    first = (now - ceil(since.total_seconds())) // (size * step) * size * step
    return range(first, now // size * size + size, size)


def added_up(numbers: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sum up what was counted by name."""
    total = Counter[str]()
    for each in numbers:
        total.update(each)
    return total


def _as_one(periods: Sequence[Period]) -> Period:
    if len(periods) == 1:
        return periods[0]
    return Period(periods[0].start, summed(periods, lambda *names: names), added_up(each.added for each in periods))


def _period(start: int, fields: Mapping[str, str], last_pks: dict[str, int]) -> Period:
    """Return the metrics of a minute or a day as they are stored, and note the last pk of each class."""
    metrics, added = {}, {}
    for name, text in fields.items():
        queue, _, path = name.partition("\n")
        of_names = metrics_of(text)
        if not queue and path and is_number(text):
            if path in last_pks:
                added[path] = max(int(text) - last_pks[path], 0)
            last_pks[path] = int(text)
        elif of_names:
            metrics[queue, path] = of_names
    return Period(EPOCH + timedelta(seconds=start), metrics, added)


def metrics_sum(rows: Iterable[Metrics]) -> Metrics:
    """Sum up metrics."""
    total = Metrics()
    for row in rows:
        total.add(row)
    return total


def summed(periods: Iterable[Period], key: Callable[[str, str], Any]) -> dict[Any, Metrics]:
    """Sum up metrics by what a function returns for the name of a queue and the path of a class, but None."""
    total: dict[Any, Metrics] = {}
    for period in periods:
        for names, metrics in period.metrics.items():
            group = key(*names)
            if group is not None:
                total.setdefault(group, Metrics()).add(metrics)
    return total
