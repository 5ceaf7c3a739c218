"""A database at a glance: what needs attention, what stands in the queues, what was run in the last hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from limpyd_jobs.contrib.web.protocol import Asked, Page
from limpyd_jobs.integration import JobsDatabase
from limpyd_jobs.query import Attention, QueueState, Series, Totals, attention, overview, read_series

# Of how much time the charts are, how many queues are listed, and how many sentences say what needs attention.
SINCE, MAX_QUEUES, MAX_ATTENTION = timedelta(hours=1), 50, 50


@dataclass(frozen=True)
class OverviewShown:
    """A database, as it was when it was looked at.

    The queues are those in which most jobs wait; `others` says how many more there are, and `other_attention` how many
    more things need attention.
    """

    database: str
    totals: Totals
    attention: Sequence[Attention]
    other_attention: int
    workers: int
    busy: int
    queues: Sequence[QueueState]
    others: int
    series: Series
    at: datetime


def look(database: JobsDatabase | None) -> OverviewShown:
    """Look at a database, in some round trips."""
    seen, series = overview(database), read_series(SINCE, database=database)
    found = attention(seen, series)
    queues = sorted(seen.queues, key=lambda each: (-each.waiting, -each.running, each.name))
    return OverviewShown(
        seen.database,
        seen.totals,
        found[:MAX_ATTENTION],
        len(found[MAX_ATTENTION:]),
        len(seen.workers),
        sum(worker.status == "busy" for worker in seen.workers),
        queues[:MAX_QUEUES],
        len(queues[MAX_QUEUES:]),
        series,
        datetime.now(timezone.utc),
    )


def show(asked: Asked) -> OverviewShown:
    return look(asked.database)


PAGE = Page("/", "Overview", show, "overview.html", "Overview")
