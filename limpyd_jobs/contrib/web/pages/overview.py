"""Mission control: how it is, what is worst, what helps; what was run, and the queues, the worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from typing import Any, NamedTuple

from limpyd_jobs.contrib.web.pictures.lanes import Mark, Now, Strip, bars_of, by_queue, marks_of, spark_of, strip_of
from limpyd_jobs.contrib.web.pictures.looks import HOUR, Looks
from limpyd_jobs.contrib.web.protocol import Asked, Page
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.query import (
    SPANS,
    Glance,
    Incident,
    QueueState,
    Series,
    Totals,
    Verdict,
    attention,
    series_of,
    verdict,
)
from limpyd_jobs.views import QueueRow, queue_rows

# How many queues are listed, how many incidents there are, and how many of these are cards.
MAX_QUEUES, MAX_ATTENTION, MAX_CARDS = 50, 50, 4

# What is on the page only, and not sent to programs.
OF_PAGE = ("rows", "strip", "failures", "failing")


class Trouble(NamedTuple):
    """What every page shows of the state of a database.

    Attributes
    ----------
    problems: int
    is_grave: bool
        Whether jobs fail, or are not run.
    failing: int
        How many causes fail now.
    silent: int
        How many workers are silent.
    foreign: str
        Which keys another program wrote to, so that pages do not show what is in them; empty if there are none.
    """

    problems: int = 0
    is_grave: bool = False
    failing: int = 0
    silent: int = 0
    foreign: str = ""


class ShownRow(NamedTuple):
    """A queue, with the small picture of what ended in it lately: the area, and the line."""

    queue: QueueRow
    area: str
    line: str


class Failures(NamedTuple):
    """The failures of the worst incident, minute by minute: bars, when they begin and end, and versions."""

    bars: str
    starts: datetime
    ends: datetime
    marks: Sequence[Mark]
    last: int


@dataclass(frozen=True)
class OverviewShown:
    """A database, as it was when it was looked at.

    The queues are those in which most jobs wait; `others` says how many more there are, and `other_attention` how many
    more things need attention. `unseen` names the shards that cannot be used: what is in them is nowhere in it.
    `rows` are the queues as the page lists them, the worst first; `other_rows` says how many more there are. Of causes,
    `failing` fail now.
    """

    database: str
    totals: Totals
    verdict: Verdict
    attention: Sequence[Incident]
    other_attention: int
    workers_there: int
    workers_busy: int
    slots: int
    queues: Sequence[QueueState]
    others: int
    series: Series
    at: datetime
    unseen: Sequence[str]
    rows: Sequence[ShownRow]
    other_rows: int
    strip: Strip
    failures: Failures | None
    failing: int

    def as_dict(self) -> Mapping[str, Any]:
        """Return what a program is sent."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in OF_PAGE}

    @property
    def is_new(self) -> bool:
        """Whether there was neither a job nor a worker yet."""
        return not (self.totals.jobs or self.rows or self.workers_there)

    @property
    def trouble(self) -> Trouble:
        """What every page shows of it."""
        found = self.verdict
        foreign = next((each.text for each in self.attention if each.code == "foreign"), "")
        silent = found.workers - found.workers_well
        return Trouble(found.problems, found.gravity == "error", self.failing, silent, foreign)


def span_of(asked: Asked) -> str:
    """Return of which time pictures are asked for."""
    span = asked.query.get("span", HOUR)
    if span not in SPANS:
        raise Refusal(400, f"span must be one of {', '.join(SPANS)}")
    return span


def overview_of(looks: Looks, span: str = HOUR) -> OverviewShown:
    """Look at all of it."""
    glanced, unseen = looks.glance()
    periods = looks.periods(glanced, span)
    seen, found = glanced.overview, attention(glanced)
    queues = sorted(seen.queues, key=lambda each: (-each.waiting, -each.running, each.name))
    rows, said = queue_rows(glanced, found), verdict(glanced, found)
    slots = sum(worker.slots_there for worker in seen.workers)
    fails = any(each.is_failing for each in found)
    now = Now(seen.totals.waiting, seen.totals.running, slots, looks.levels(span))
    return OverviewShown(
        database=seen.database,
        totals=seen.totals,
        verdict=said,
        attention=found[:MAX_ATTENTION],
        other_attention=len(found[MAX_ATTENTION:]),
        workers_there=len(seen.workers),
        workers_busy=sum(worker.status == "busy" for worker in seen.workers),
        slots=slots,
        queues=queues[:MAX_QUEUES],
        others=len(queues[MAX_QUEUES:]),
        series=series_of(periods),
        at=datetime.now(timezone.utc),
        unseen=[f"shard {number}, {why}" for number, why in unseen.items()],
        rows=with_sparks(glanced, rows[:MAX_QUEUES]),
        other_rows=len(rows[MAX_QUEUES:]),
        strip=strip_of(span, periods, glanced, now, fails=fails),
        failures=_failures(glanced, found[0]) if found and found[0].code == "failures" else None,
        failing=len(glanced.recent.failing(glanced.at)),
    )


def with_sparks(glanced: Glance, rows: Sequence[QueueRow]) -> list[ShownRow]:
    """Return queues with what ended in each in the last hour."""
    ended = by_queue(glanced.periods[:-1], [row.name for row in rows])
    return [ShownRow(row, *(spark_of(ended[row.name]) if any(ended[row.name]) else ("", ""))) for row in rows]


def _failures(glanced: Glance, incident: Incident) -> Failures | None:
    periods, names = glanced.periods[:-1], {*incident.queues}
    if not periods:
        return None
    failed = [sum(each.of(name).failed for name in names if name) for each in periods]
    marks = marks_of(glanced.versions, [each.start for each in periods])
    return Failures(bars_of(failed), periods[0].start, glanced.periods[-1].start, marks, failed[-1])


def show(asked: Asked) -> OverviewShown:
    return overview_of(asked.looks, span_of(asked))


PAGE = Page("/", "Overview", show, "overview.html", "Overview", "overview", "o")
