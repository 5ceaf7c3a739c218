"""A database at a glance: what needs attention, what stands in the queues, what was run in the last hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from limpyd_jobs.contrib.web.protocol import Asked, Page
from limpyd_jobs.integration import JobsDatabase
from limpyd_jobs.query import Attention, QueueState, Series, Totals, attention, overview, read_series

# Of how much time the charts are, and how many queues are listed.
SINCE, MAX_QUEUES = timedelta(hours=1), 50


@dataclass(frozen=True)
class OverviewShown:
    """A database, as it was when it was looked at.

    The queues are those in which most jobs wait; `others` says how many more there are.
    """

    database: str
    totals: Totals
    attention: Sequence[Attention]
    workers: int
    busy: int
    queues: Sequence[QueueState]
    others: int
    series: Series
    at: datetime


def look(database: JobsDatabase | None) -> OverviewShown:
    """Look at a database, in some round trips."""
    seen, series = overview(database), read_series(SINCE, database=database)
    queues = sorted(seen.queues, key=lambda each: (-each.waiting, -each.running, each.name))
    return OverviewShown(
        seen.database,
        seen.totals,
        attention(seen, series),
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
