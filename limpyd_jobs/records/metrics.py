"""Metrics: how many jobs were run, how they ended, how long they waited and ran; by queue, class and minute or day, and
of all time.

Each worker gathers its metrics. Its heartbeat adds them to the metrics of all workers.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from redis import Redis

from limpyd_jobs.redis.calls import Call, listed, outcome_of, passing_over_wrong_types, send
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.redis.scripting import Script

# A hash for each minute and each day, named by its first second since the epoch. Its fields are the name of a queue and
# the path of a class, with a line break in between; for an empty name, the last pk of a class. See `write_metrics.lua`.
KEY = "limpyd-jobs:figures:"

# A hash of the same kind, of all that was ever written. Its sums only grow.
TOTAL = f"{KEY}total"

# A hash for each minute: by the name of a queue, how many jobs waited and ran then. See `note_levels.lua`.
LEVELS = f"{KEY}levels:"

# The field that says that more names had no room.
IS_CUT = "\n"

# The upper bounds of the buckets of histograms, in seconds. One more bucket is for longer times.
BOUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600, 4 * 3600, 24 * 3600)

_write_metrics = Script("metrics/write_metrics")
_note_levels = Script("metrics/note_levels")


BUCKETS = len(BOUNDS) + 1

# How many rows one call adds: it takes Redis some 3 milliseconds.
MAX_ROWS = 30

# Of how many queues a worker notes the levels: that takes Redis some 2 milliseconds.
MAX_NOTED = 300

# How many rows of all time are read: more than scripts write.
MAX_TOTALS = 600

# A number has at most this many digits: another program wrote a longer one.
DIGITS = 18

# Sums of all time may have more: those of microseconds grow by hours for each job of a long queue.
DIGITS_OF_TOTALS = 36

# The positions of the numbers in a row.
STARTED, SUCCEEDED, FAILED, WAITED, RAN = 0, 1, 2, 3, 4 + BUCKETS
LENGTH = RAN + 1 + BUCKETS


class Histogram(NamedTuple):
    """How long something took: the sum, and how many times are up to each bound, the last for longer ones."""

    microseconds: int
    counts: Sequence[int]

    @property
    def mean(self) -> float | None:
        """The mean in seconds; None without any times."""
        total = sum(self.counts)
        return self.microseconds / 1_000_000 / total if total else None

    def quantile(self, part: float) -> float | None:
        """Return the bound, in seconds, below which this part of all times is; None without any. The last bound is for
        longer ones."""
        wanted, seen = part * sum(self.counts), 0
        for bound, number in zip((*BOUNDS, BOUNDS[-1]), self.counts, strict=True):
            seen += number
            if number and seen >= wanted:
                return float(bound)
        return None


class Metrics:
    """The metrics of the jobs of a queue and a class, or of several: the numbers as they are stored."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: Iterable[int] = (0,) * LENGTH) -> None:
        self.numbers = list(numbers)

    def __repr__(self) -> str:
        return f"Metrics(started={self.started}, succeeded={self.succeeded}, failed={self.failed})"

    @property
    def started(self) -> int:
        """How many jobs began to run."""
        return self.numbers[STARTED]

    @property
    def succeeded(self) -> int:
        """How often the code of a job returned."""
        return self.numbers[SUCCEEDED]

    @property
    def failed(self) -> int:
        """How often it raised."""
        return self.numbers[FAILED]

    @property
    def waited(self) -> Histogram:
        """How long jobs waited before they began: since they were added, put back by hand, or no longer delayed."""
        return Histogram(self.numbers[WAITED], self.numbers[WAITED + 1 : RAN])

    @property
    def ran(self) -> Histogram:
        """How long the code of jobs ran until it returned or raised."""
        return Histogram(self.numbers[RAN], self.numbers[RAN + 1 :])

    def observe_start(self, waited: float | None) -> None:
        """Count a job that began after some seconds; None if not known."""
        numbers = self.numbers
        numbers[STARTED] += 1
        if waited is not None:
            numbers[WAITED] += int(waited * 1_000_000)
            numbers[WAITED + 1 + bisect_left(BOUNDS, waited)] += 1

    def observe_end(self, ran: float, is_success: bool) -> None:
        """Count a job whose code returned, or raised, after some seconds."""
        numbers = self.numbers
        numbers[SUCCEEDED if is_success else FAILED] += 1
        numbers[RAN] += int(ran * 1_000_000)
        numbers[RAN + 1 + bisect_left(BOUNDS, ran)] += 1

    def add(self, other: Metrics) -> None:
        """Add other metrics to these."""
        self.numbers = [one + another for one, another in zip(self.numbers, other.numbers, strict=True)]


OfNames = dict[tuple[str, str], Metrics]


def parts_of(metrics: OfNames) -> Iterator[OfNames]:
    """Yield metrics in parts, each of as many rows as one call of `write` may have."""
    rows = iter(metrics.items())
    while part := dict(islice(rows, MAX_ROWS)):
        yield part


def write(connection: Redis, metrics: OfNames, classes: Mapping[str, str]) -> None:
    """Add metrics, by queue and class path, to those of this minute, this day, and all time: at most `MAX_ROWS`. The
    last pk of each class, given by the name of its model, is noted: it tells how many jobs were added."""
    rows = [[queue, path, each.numbers] for (queue, path), each in metrics.items()]
    request = {"rows": listed(rows), "classes": json.dumps(classes)}
    send(Call(connection, _write_metrics, request, outcome_of, keys=[KEY]))


def note_levels(connection: Redis, queues: Sequence[str]) -> None:
    """Note how many jobs wait and run in the first `MAX_NOTED` of some queues, given by the beginnings of their keys,
    unless that was done in this minute."""
    request = {"queues": listed(queues[:MAX_NOTED])}
    send(Call(connection, _note_levels, request, outcome_of, keys=[KEY]))


def read_levels(connection: Any, starts: Iterable[int]) -> list[dict[str, str]]:
    """Return the stored levels of minutes, by their first seconds; a key of a wrong type counts as empty."""
    return _read_hashes(connection, (f"{LEVELS}{start}" for start in starts))


def read(connection: Any, period: str, starts: Iterable[int]) -> list[dict[str, str]]:
    """Return the stored metrics of periods, ``minute`` or ``day``, by their first seconds; a key of a wrong type counts
    as empty."""
    return _read_hashes(connection, (f"{KEY}{period}:{start}" for start in starts))


def sizes(connection: Any, period: str, starts: Iterable[int]) -> list[int]:
    """Return how many fields the stored metrics of periods have, by their first seconds."""
    pipeline = connection.pipeline(transaction=False)
    for start in starts:
        pipeline.hlen(at(connection, f"{KEY}{period}:{start}"))
    return [found if isinstance(found, int) else 0 for found in pipeline.execute(raise_on_error=False)]


def _read_hashes(connection: Any, keys: Iterable[str]) -> list[dict[str, str]]:
    pipeline = connection.pipeline(transaction=False)
    for key in keys:
        pipeline.hgetall(at(connection, key))
    return [found if isinstance(found, dict) else {} for found in pipeline.execute(raise_on_error=False)]


def read_totals(connection: Any) -> OfNames:
    """Return the metrics of all time, by queue and class path; those of all names without a row by two empty texts."""
    found: OfNames = {}
    with passing_over_wrong_types():
        for name, text in islice(connection.hscan_iter(at(connection, TOTAL), count=MAX_TOTALS), MAX_TOTALS):
            queue, _, path = name.partition("\n")
            metrics = metrics_of(text, DIGITS_OF_TOTALS)
            if metrics:
                found[queue, path] = metrics
    return found


def metrics_of(text: str, digits: int = DIGITS) -> Metrics | None:
    """Return the metrics of a field; None if it has no such numbers."""
    words = text.split()
    if len(words) != LENGTH or not is_number("".join(words), LENGTH * digits) or max(map(len, words)) > digits:
        return None
    return Metrics(map(int, words))


def is_number(text: str, digits: int = DIGITS) -> bool:
    """Whether a text is a number in the form that scripts write."""
    return text.isascii() and text.isdecimal() and len(text) <= digits
