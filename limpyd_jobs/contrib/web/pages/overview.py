"""A database at a glance: what needs attention, what stands in the queues, what was run in the last hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import NamedTuple

from redis.exceptions import ConnectionError

from limpyd_jobs.contrib.web.masking import Masking
from limpyd_jobs.contrib.web.protocol import Asked, Page
from limpyd_jobs.contrib.web.settings import Settings
from limpyd_jobs.integration import JobsDatabase
from limpyd_jobs.query import (
    Glance,
    Incident,
    QueueState,
    Series,
    Totals,
    Verdict,
    attention,
    glance,
    masked_fields,
    series_of,
    verdict,
)
from limpyd_jobs.views import glance_of_all

# Of how much time the charts are, how many queues are listed, and how many sentences say what needs attention.
SINCE, MAX_QUEUES, MAX_ATTENTION = timedelta(hours=1), 50, 50


class Trouble(NamedTuple):
    """What every page shows of the state of a database.

    Attributes
    ----------
    problems: int
    is_grave: bool
        Whether jobs fail, or are not run.
    failing: int
        How many queues have jobs that fail now.
    silent: int
        How many workers are silent.
    """

    problems: int = 0
    is_grave: bool = False
    failing: int = 0
    silent: int = 0


@dataclass(frozen=True)
class OverviewShown:
    """A database, as it was when it was looked at.

    The queues are those in which most jobs wait; `others` says how many more there are, and `other_attention` how many
    more things need attention. `unseen` names the shards that cannot be used: what is in them is nowhere in it.
    """

    database: str
    totals: Totals
    verdict: Verdict
    attention: Sequence[Incident]
    other_attention: int
    workers_there: int
    workers_busy: int
    queues: Sequence[QueueState]
    others: int
    series: Series
    at: datetime
    unseen: Sequence[str] = ()

    @property
    def trouble(self) -> Trouble:
        """What every page shows of it."""
        failing = {name for each in self.attention if each.is_failing for name in each.queues}
        found = self.verdict
        return Trouble(found.problems, found.gravity == "error", len(failing), found.workers - found.workers_well)


def look(settings: Settings) -> OverviewShown:
    """Look at a database, in some round trips; or at all shards, as if they were one."""
    unseen: Mapping[int, str] = {}

    def read(database: JobsDatabase | None) -> Glance:
        masking = Masking(settings.masked, partial(masked_fields, database))
        return glance(database, SINCE, mask=masking.message)

    if settings.shards:
        found_of, unseen = settings.shards.each(read)
        if not found_of:
            raise ConnectionError("; ".join(unseen.values()))
        seen = glance_of_all(found_of)
    else:
        seen = read(settings.database)
    return _shown(seen, [f"shard {number}, {why}" for number, why in unseen.items()])


def _shown(glanced: Glance, unseen: Sequence[str]) -> OverviewShown:
    seen, found = glanced.overview, attention(glanced)
    queues = sorted(seen.queues, key=lambda each: (-each.waiting, -each.running, each.name))
    return OverviewShown(
        seen.database,
        seen.totals,
        verdict(glanced, found),
        found[:MAX_ATTENTION],
        len(found[MAX_ATTENTION:]),
        len(seen.workers),
        sum(worker.status == "busy" for worker in seen.workers),
        queues[:MAX_QUEUES],
        len(queues[MAX_QUEUES:]),
        series_of(glanced.periods),
        datetime.now(timezone.utc),
        unseen,
    )


def show(asked: Asked) -> OverviewShown:
    return look(asked.settings)


PAGE = Page("/", "Overview", show, "overview.html", "Overview", "overview", "o")
