"""Looking at a database for the pages that show all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from redis.exceptions import ConnectionError

from limpyd_jobs.contrib.web.masking import HIDDEN, Masking
from limpyd_jobs.contrib.web.settings import Settings
from limpyd_jobs.integration import JobsDatabase
from limpyd_jobs.query import (
    SPANS,
    Glance,
    Levels,
    MetricsReader,
    Period,
    glance,
    masked_fields,
    read_levels,
    read_span,
)
from limpyd_jobs.views import glance_of_all, levels_of_all, periods_of_all

# The time of which the lanes are, if no other is asked for.
HOUR = next(iter(SPANS))


def _shown(masking: Masking, field: str | None, value: str) -> str:
    """Return a value of a field; replaced if it is secret, or may be: as of a field that is not known."""
    return masking.any.field(field, value) if field else HIDDEN


class Looks:
    """Looks at a database, or at all shards as if they were one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reader = MetricsReader()

    def glance(self) -> tuple[Glance, Mapping[int, str]]:
        """Return all that is known at a glance, in some round trips, and which shards cannot be used, and why."""

        def read(database: JobsDatabase | None) -> Glance:
            masking = Masking(self._settings.masked, partial(masked_fields, database))
            return glance(database, mask=masking.message, reader=self._reader, mask_value=partial(_shown, masking))

        shards = self._settings.shards
        unseen: Mapping[int, str] = {}
        if not shards:
            return read(self._settings.database), unseen
        found, unseen = shards.each(read)
        if not found:
            raise ConnectionError("; ".join(unseen.values()))
        return glance_of_all(found), unseen

    def periods(self, seen: Glance, span: str) -> Sequence[Period]:
        """Return what was run in some time, of which that of the last hour is known."""
        if span == HOUR:
            return seen.periods
        shards = self._settings.shards
        if shards is None:
            return read_span(span, self._settings.database, self._reader)
        found, _ = shards.each(partial(read_span, span, reader=self._reader))
        return periods_of_all(found)

    def levels(self, span: str, queue: str = "") -> Levels:
        """Return how many jobs waited and ran in some time: those of a queue, or of all."""
        shards = self._settings.shards
        if shards is None:
            return read_levels(span, self._settings.database, queue)
        found, _ = shards.each(partial(read_levels, span, queue=queue))
        return levels_of_all(found)
