"""Lanes: what was run, one below the other, on one time axis, each with its own scale."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil, log10
from typing import NamedTuple

from limpyd_jobs.query import BOUNDS, SPANS, AppVersion, Glance, Histogram, Levels, Metrics, Period, lately
from limpyd_jobs.views import rounded

# How long the periods of metrics are.
PERIODS = {"minute": timedelta(minutes=1), "day": timedelta(days=1)}

# The size of a picture in its own units: it is stretched to its place.
WIDTH, HEIGHT = 600, 48

# Up to how many columns are bars, so that none seems to be more than one number.
MAX_BARS = 31

# How many rows a heat map has, at most and at least, and up to which part of its column each step of opacity
# is of; the last one is of more.
MAX_ROWS, MIN_ROWS, SHARES = 8, 5, (0.05, 0.15, 0.3, 0.5)

# The bounds of what times are shown as, in seconds: what is quicker is in the first row.
ROWS = tuple(bound for bound in BOUNDS if bound >= 0.01)

# Between the ends of a range; alone, it stands for nothing.
DASH = "\N{EN DASH}"

# How far the labels of two versions of the application are apart at least, as a part of the width; and how long one is.
APART, MAX_LABEL = 0.2, 24


class Lane(NamedTuple):
    """A picture, and what stands beside it.

    Attributes
    ----------
    name, last, unit, below: str
        ``Succeeded``, ``3,118``, ``a minute``; ``below`` is a second line.
    colour: str
        That of its classes: ``flow``, ``err``, ``run``, ``idle``.
    area, line: str
        Paths. Without a line, the area is of bars.
    heat: sequence of str
        The paths of a heat map, by opacity.
    scale: sequence of str
        What stands at its right, from the top.
    values: sequence of str
        What each column is.
    """

    name: str
    last: str
    unit: str
    colour: str
    area: str = ""
    line: str = ""
    heat: Sequence[str] = ()
    scale: Sequence[str] = ()
    values: Sequence[str] = ()
    below: str = ""


class Mark(NamedTuple):
    """A moment on the axis: where it is, as a part of the width, and its label; empty if there is no room for it."""

    at: float
    text: str
    label: str
    anchor: str
    is_last: bool


class Tick(NamedTuple):
    """A moment below the axis; `is_roomy` where a phone has no room for it."""

    at: float
    moment: datetime
    anchor: str
    is_roomy: bool


class Strip(NamedTuple):
    """Lanes on one time axis."""

    span: str
    what: str
    lanes: Sequence[Lane]
    marks: Sequence[Mark]
    ticks: Sequence[Tick]
    is_of_days: bool
    is_cut: bool
    is_empty: bool


class Choice(NamedTuple):
    """Which jobs a strip is of: those of a queue, of a class, or all."""

    queue: str = ""
    job_class: str = ""

    def has(self, queue: str, path: str) -> bool | None:
        return (self.queue in ("", queue) and self.job_class in ("", path)) or None


ALL = Choice()


class Now(NamedTuple):
    """How many jobs wait and run now, of how many that may run at once, and how many did before."""

    waiting: int
    running: int
    slots: int
    before: Levels


COLUMNS = {"1h": "by the minute", "6h": "by 5 minutes", "24h": "by 15 minutes", "7d": "by the day", "30d": "by the day"}


def strip_of(
    span: str,
    periods: Sequence[Period],
    seen: Glance,
    now: Now | None = None,
    *,
    of: Choice = ALL,
    fails: bool = False,
) -> Strip:
    """Return the lanes of what was run, with what waits and runs now. The failures are red only if some are of now.
    The rates are those of the last minutes, whatever time the pictures are of; or today's."""
    _, by, step = SPANS[span]
    size = PERIODS[by] * step
    is_of_days = by == "day"
    shown = periods if is_of_days or len(periods) < 3 else periods[:-1]  # the present minute is not over
    rows = [period.of(*of) for period in shown]
    latest = lately(seen.periods, seen.at)
    last = _added(rows[-1:]) if is_of_days else latest.of(*of)
    unit, per = ("today", 1.0) if is_of_days else ("a minute", 1 / latest.minutes)
    lanes = [
        _lane("Succeeded", [row.succeeded for row in rows], last.succeeded * per, unit, "flow"),
        _lane("Failed", [row.failed for row in rows], last.failed * per, unit, "err" if fails else "idle"),
    ]
    if now is not None and not is_of_days:
        lanes += [
            _level("Waiting", now.before.waiting, now.waiting, shown, now.before, "now", "idle"),
            _level("Running", now.before.running, now.running, shown, now.before, _of_slots(now.slots), "run"),
        ]
    times = _added(rows) if is_of_days or not sum(last.waited.counts) else last
    lanes += [
        _heat("Waited", [row.waited for row in rows], times.waited),
        _heat("Ran", [row.ran for row in rows], times.ran),
    ]
    starts = [period.start for period in shown]
    marks = marks_of(seen.versions, starts, size)
    return Strip(
        span=span,
        what=COLUMNS[span],
        lanes=lanes,
        marks=marks,
        ticks=[*_ticks(starts, size, marks)],
        is_of_days=is_of_days,
        is_cut=any(("", "") in period.metrics for period in shown),
        is_empty=not any(row.started or row.succeeded or row.failed for row in [*rows, last]),
    )


def _of_slots(slots: int) -> str:
    return f"of {slots:,} slot{'s' * (slots != 1)}" if slots else "now, no slot"


def _level(
    name: str,
    values: Sequence[int | None],
    now: int,
    periods: Sequence[Period],
    before: Levels,
    unit: str,
    colour: str,
) -> Lane:
    """Return how many jobs wait or run: what is known of the columns, and of the last one at least what is so now."""
    known = dict(zip(before.starts, values, strict=True))
    found = [known.get(period.start) for period in periods]
    return _lane(name, [*found[:-1], now if found[-1] is None else found[-1]] if found else [], now, unit, colour)


def _added(rows: Iterable[Metrics]) -> Metrics:
    total = Metrics()
    for row in rows:
        total.add(row)
    return total


def _lane(name: str, values: Sequence[int | None], last: float, unit: str, colour: str) -> Lane:
    top = ceiling(max((value for value in values if value is not None), default=0))
    area, line = path_of(values, top)
    texts = ["" if value is None else f"{value:,}" for value in values]
    return Lane(name, rounded(last), unit, colour, area, line, scale=[f"{top:,}"], values=texts)


def ceiling(value: float) -> int:
    """Return the least of the numbers 1, 2, 3, 5, 6, 8, 10, 12, 15, 20… that is not below a value."""
    if value <= 1:
        return 1
    size = 10 ** int(log10(value))
    return next(ceil(each * size) for each in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if ceil(each * size) >= value)


def path_of(values: Sequence[float | None], top: float, width: int = WIDTH, height: int = HEIGHT) -> tuple[str, str]:
    """Return the area below some values, and the line above it; bars, and no line, if there are few. What is not known
    is a gap."""
    count = max(len(values), 1)

    def y(value: float) -> str:
        return f"{height - 1 - value / top * (height - 4):.4g}"

    if len(values) <= MAX_BARS:
        bars = (
            f"M{width * at / count:.4g} {height}V{y(value)}h{width * 0.86 / count:.3g}V{height}z"
            for at, value in enumerate(values)
            if value
        )
        return "".join(bars), ""
    areas, lines = [], []
    for first, part in _parts(values):
        points = [(width * (first + at + 0.5) / count, y(value)) for at, value in enumerate(part)]
        left, right = width * first / count, width * (first + len(part)) / count
        line = f"{left:.4g} {points[0][1]}" + "".join(f"L{x:.4g} {high}" for x, high in points)
        lines.append(f"M{line}H{right:.4g}")
        areas.append(f"M{left:.4g} {height}L{line}H{right:.4g}V{height}z")
    return "".join(areas), "".join(lines)


def _parts(values: Sequence[float | None]) -> Iterator[tuple[int, list[float]]]:
    """Yield the values between gaps, with the position of the first."""
    part: list[float] = []
    for at, value in enumerate([*values, None]):
        if value is not None:
            part.append(value)
        elif part:
            yield at - len(part), part
            part = []


def _heat(name: str, rows: Sequence[Histogram], last: Histogram) -> Lane:
    columns = [[*_merged(row.counts)] for row in rows]
    used = [at for column in columns for at, number in enumerate(column) if number]
    low, high = (min(used), max(used)) if used else (1, MIN_ROWS)
    low = min(low, max(high - MIN_ROWS + 1, 0))
    high = max(high, low + MIN_ROWS - 1)
    low = max(low, high - MAX_ROWS + 1)
    shown = [[sum(column[: low + 1]), *column[low + 1 : high + 1]] for column in columns]
    middle, most = last.quantile(0.5), last.quantile(0.95)
    return Lane(
        name,
        _range_of(middle, last),
        "",
        "run",
        heat=_heat_paths(shown, high - low + 1),
        scale=[_bound(at) for at in (high, (low + high) // 2, low)],
        values=[_range_of(row.quantile(0.5), row) or "none" for row in rows],
        below=f"95 %: under {short(most)}" if most else "",
    )


def _merged(counts: Sequence[int]) -> Iterator[int]:
    """Yield the numbers of the rows: what is quicker than the first bound together."""
    first = BOUNDS.index(ROWS[0])
    yield sum(counts[: first + 1])
    yield from counts[first + 1 :]


def _heat_paths(columns: Sequence[Sequence[int]], rows: int) -> list[str]:
    paths: list[list[str]] = [[] for _ in range(len(SHARES) + 1)]
    width, height = WIDTH / max(len(columns), 1), 60 / rows
    for at, column in enumerate(columns):
        total = sum(column)
        for row, number in enumerate(column):
            if number:
                step = bisect_left(SHARES, number / total)
                x, y = at * width, (rows - 1 - row) * height
                paths[step].append(f"M{x:.4g} {y:.3g}h{width - 0.8:.3g}v{height - 0.8:.3g}H{x:.4g}z")
    return ["".join(path) for path in paths]


def _bound(row: int) -> str:
    return f"over {short(ROWS[-1])}" if row >= len(ROWS) else short(ROWS[row])


def _range_of(bound: float | None, times: Histogram) -> str:
    """Return the bucket with the median, as a range; empty without any times."""
    if bound is None:
        return DASH if not sum(times.counts) else ""
    at = BOUNDS.index(bound)
    return f"under {short(bound)}" if bound <= ROWS[0] else between(BOUNDS[at - 1], bound)


def between(low: float, high: float) -> str:
    """Return a range of times, with the unit once if it is one: from 0.1 to 1 s, or from 30 s to 2 min."""
    first, last = short(low), short(high)
    same = first.rpartition(" ")[2] == last.rpartition(" ")[2]
    return f"{first.rpartition(' ')[0] if same else first}{DASH}{last}"


def short(seconds: float) -> str:
    """Return a bound of times in the shortest way: ``10 ms``, ``0.1 s``, ``5 min``."""
    if seconds < 0.1:
        return f"{seconds * 1000:g} ms"
    unit, size = next((u, s) for u, s, most in (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 90000)) if seconds < most)
    if seconds < 600 and seconds % 60:
        unit, size = "s", 1
    return f"{seconds / size:.3g} {unit}"


def marks_of(
    versions: Sequence[AppVersion], starts: Sequence[datetime], size: timedelta = PERIODS["minute"]
) -> list[Mark]:
    """Return the versions of the application that were seen first within the time, the last ones with their label."""
    return [*_marks(versions, starts, size)] if starts else []


def _marks(versions: Sequence[AppVersion], starts: Sequence[datetime], size: timedelta) -> Iterator[Mark]:
    first, whole = starts[0], starts[-1] + size - starts[0]
    found = [((each.first_seen - first) / whole, each) for each in versions]
    found = [(at, each) for at, each in found if 0 <= at < 1]
    labelled: list[float] = []
    for at, _ in reversed(found):
        if all(abs(at - other) >= APART for other in labelled):
            labelled.append(at)
    for at, each in found:
        label = each.version[-MAX_LABEL:] if at in labelled else ""
        yield Mark(at, each.version, label, "end" if at > 0.65 else "start", each is found[-1][1])


def _ticks(starts: Sequence[datetime], size: timedelta, marks: Sequence[Mark]) -> Iterator[Tick]:
    if not starts:
        return
    whole = starts[-1] + size - starts[0]
    labelled = [mark for mark in marks if mark.label]
    if size >= PERIODS["day"]:
        places = [((at + 0.5) / len(starts), start) for at, start in enumerate(starts)][:: ceil(len(starts) / 7)]
    else:
        places = [(at, starts[0] + whole * at) for at in (0.0, 0.25, 0.5, 0.75, 1.0)]
    for at, moment in places:
        if not any(_hides(mark, at, APART / 2) for mark in labelled):
            anchor = "start" if at == 0 else "end" if at == 1 else "middle"
            is_roomy = 0 < at < 1 or any(_hides(mark, at, 2 * APART) for mark in labelled)
            yield Tick(at, moment, anchor, is_roomy)


def _hides(mark: Mark, at: float, length: float) -> bool:
    begin, end = (mark.at - length, mark.at) if mark.anchor == "end" else (mark.at, mark.at + length)
    return begin - 0.08 < at < end + 0.08


def spark_of(values: Sequence[int], columns: int = 30) -> tuple[str, str]:
    """Return the small picture of a row: the area and the line of some values, several of which are one column."""
    size = max(1, ceil(len(values) / columns))
    sums = [sum(values[at : at + size]) for at in range(len(values) % size, len(values), size)]
    top = max([*sums, 1])
    points = [f"{96 * at / max(len(sums) - 1, 1):.3g} {19 - each / top * 16:.3g}" for at, each in enumerate(sums)]
    line = f"M{'L'.join(points)}" if points else ""
    return f"{line}V20H0z" if line else "", line


def bars_of(values: Sequence[int], width: int = WIDTH, height: int = 112) -> str:
    """Return bars of some values; where there is nothing, there is none."""
    top, count = max([*values, 1]), max(len(values), 1)
    high = (max(value / top * (height - 8), 1.5 * bool(value)) for value in values)
    return "".join(
        f"M{width * at / count:.4g} {height}v{-each:.4g}h{width * 0.84 / count:.3g}V{height}z"
        for at, each in enumerate(high)
        if each
    )


def by_queue(periods: Sequence[Period], names: Iterable[str]) -> Mapping[str, list[int]]:
    """Return how many tries of each queue ended in each period."""
    found = {name: [0] * len(periods) for name in names}
    for at, period in enumerate(periods):
        for queue, row in period.by_queue.items():
            if queue in found:
                found[queue][at] = row.succeeded + row.failed
    return found


def steps_of(bounds: Sequence[float]) -> list[str]:
    """Return the names of what is between some bounds: under 1 s, from 1 to 10 s, over 10 s."""
    return [f"under {short(bounds[0])}", *(between(*pair) for pair in pairwise(bounds)), f"over {short(bounds[-1])}"]
