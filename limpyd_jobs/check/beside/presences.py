"""The presences: whether any are left of processes that died."""

from __future__ import annotations

from collections.abc import Iterator

from limpyd_jobs.arguments import MAX_LEASE
from limpyd_jobs.check.catalogue import Catalogue, Model, Symptom
from limpyd_jobs.check.reader import Reader
from limpyd_jobs.dates import date_of_score
from limpyd_jobs.models import Presence
from limpyd_jobs.records import records
from limpyd_jobs.records.layout import layout_of

# For how many seconds a presence that ended is not a problem: other processes delete it with their next heartbeat.
GRACE_TIME = 60


class Presences:
    """Looks at all presences, and again if something looked wrong: there are few."""

    def __init__(self, reader: Reader, catalogue: Catalogue) -> None:
        self._reader = reader
        self._models = [model for model in catalogue.timed if issubclass(model, Presence)]
        self.is_suspicious = False

    def look(self) -> Iterator[int]:
        found = len(list(self.look_again(repair=False)))
        self.is_suspicious = found > 0
        yield found

    def look_again(self, repair: bool) -> Iterator[Symptom]:
        """Yield the presences that no process keeps up, and delete them if asked to."""
        (time,) = self._reader.all([("TIME",)])
        for model in self._models:
            for pk, kind, until in self._left(model, time[0]):
                if repair:
                    records.delete_many(model, [pk] if pk else [])
                    records.redis_of(model).zrem(layout_of(model).description["leases"], pk)  # of no record, too
                yield model, pk, kind, (until,)

    def _left(self, model: Model, now: int) -> Iterator[tuple[str, str, str]]:
        """Yield the pk of each presence that is left, the kind of the problem, and when it ended."""
        ends = dict(pair for chunk in self._reader.scores(layout_of(model).description["leases"]) for pair in chunk)
        for pk, end in ends.items():
            if end < now - GRACE_TIME:
                yield pk, "presence that ended", date_of_score(end)
            elif end > now + MAX_LEASE + GRACE_TIME:
                yield pk, "presence without an end", ""
        for chunk in self._reader.members(f"{model._name}:collection"):
            yield from ((pk, "presence without an end", "") for pk in chunk if pk not in ends)
