"""A database at a glance: what needs attention, what stands in the queues, what was run in the last hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from redis.exceptions import ConnectionError

from limpyd_jobs.contrib.web.protocol import Asked, Page
from limpyd_jobs.contrib.web.settings import Settings
from limpyd_jobs.integration import JobsDatabase
from limpyd_jobs.query import (
    Attention,
    Overview,
    Period,
    QueueState,
    Series,
    Totals,
    attention,
    overview,
    read_metrics,
    series_of,
)
from limpyd_jobs.views import overview_of_all, periods_of_all

# Of how much time the charts are, how many queues are listed, and how many sentences say what needs attention.
SINCE, MAX_QUEUES, MAX_ATTENTION = timedelta(hours=1), 50, 50


@dataclass(frozen=True)
class OverviewShown:
    """A database, as it was when it was looked at.

    The queues are those in which most jobs wait; `others` says how many more there are, and `other_attention` how many
    more things need attention. `unseen` names the shards that cannot be used: what is in them is nowhere in it.
    """

    database: str
    totals: Totals
    attention: Sequence[Attention]
    other_attention: int
    workers_there: int
    workers_busy: int
    queues: Sequence[QueueState]
    others: int
    series: Series
    at: datetime
    unseen: Sequence[str] = ()


def look(settings: Settings) -> OverviewShown:
    """Look at a database, in some round trips; or at all shards, as if they were one."""
    unseen: Mapping[int, str] = {}
    if settings.shards:
        found_of, unseen = settings.shards.each(_read)
        if not found_of:
            raise ConnectionError("; ".join(unseen.values()))
        seen = overview_of_all({number: each for number, (each, _) in found_of.items()})
        periods = periods_of_all({number: each for number, (_, each) in found_of.items()})
    else:
        seen, periods = _read(settings.database)
    return _shown(seen, series_of(periods), [f"shard {number}, {why}" for number, why in unseen.items()])


def _read(database: JobsDatabase | None) -> tuple[Overview, list[Period]]:
    return overview(database), read_metrics(SINCE, database=database)


def _shown(seen: Overview, series: Series, unseen: Sequence[str]) -> OverviewShown:
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
        unseen,
    )


def show(asked: Asked) -> OverviewShown:
    return look(asked.settings)


PAGE = Page("/", "Overview", show, "overview.html", "Overview")
