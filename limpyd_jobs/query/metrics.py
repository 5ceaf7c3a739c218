"""How many jobs were added and run, how they ended, how long they waited and ran: by the minute, or by the day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
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


class Period(NamedTuple):
    """The metrics of a minute, or a day."""

    start: datetime  # naive UTC
    metrics: Mapping[tuple[str, str], Metrics]  # by queue and class; two empty texts stand for all beyond some hundreds
    added: Mapping[str, int]  # by class, since the last period with metrics: workers note these numbers


def read_metrics(
    since: timedelta = timedelta(hours=1), by: str = "minute", database: JobsDatabase | None = None, step: int = 1
) -> list[Period]:
    """Return the metrics of the last minutes or days, the oldest first; `ValueError` if they are not kept so long.

    With a `step`, so many minutes or days are one period, as 15 minutes are for a chart of a day.
    """
    if by not in PERIODS:
        raise ValueError(f"{by!r} is not a period: {', '.join(PERIODS)}")
    if not timedelta() < since <= KEPT[by]:
        raise ValueError(f"metrics by the {by} go back at most {KEPT[by].days} days, so not {since}")
    connection = connection_to(database)
    starts = starts_of(connection, since, by, step)
    starts = range(starts.start - starts.step, starts.stop, starts.step)  # to know how many were added in the first one
    found = (
        fields
        for at in range(0, len(starts), AT_ONCE)
        for fields in stored.read(connection, by, starts[at : at + AT_ONCE])
    )
    periods = islice(_periods(zip(starts, found, strict=True)), 1, None)
    return [_as_one(some) for some in iter(lambda: [*islice(periods, step)], [])]


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


def _periods(found: Iterable[tuple[int, Mapping[str, str]]]) -> Iterator[Period]:
    last_pks: dict[str, int] = {}
    for start, fields in found:
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
        yield Period(EPOCH + timedelta(seconds=start), metrics, added)


def summed(periods: Iterable[Period], key: Callable[[str, str], Any]) -> dict[Any, Metrics]:
    """Sum up metrics by what a function returns for the name of a queue and the path of a class, but None."""
    total: dict[Any, Metrics] = {}
    for period in periods:
        for names, metrics in period.metrics.items():
            group = key(*names)
            if group is not None:
                total.setdefault(group, Metrics()).add(metrics)
    return total
