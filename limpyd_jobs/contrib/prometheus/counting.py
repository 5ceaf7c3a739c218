"""Counters that never fall, whatever becomes of the sums in Redis that they are made of."""

from __future__ import annotations

from collections.abc import Mapping

from limpyd_jobs.query import Metrics

Key = tuple[str, str]

# How many rows are kept at most, of names that are not in Redis any more. There, fewer fit in.
MAX_KEPT = 2_000


class Counters:
    """The sums of all time, by queue and class. If those in Redis fall or are gone, because they were deleted or a
    backup was restored, what was counted until then is kept, and they are added to it."""

    def __init__(self) -> None:
        self._last: Mapping[Key, Metrics] = {}
        self._kept: dict[Key, Metrics] = {}

    def count(self, totals: Mapping[Key, Metrics]) -> dict[Key, Metrics]:
        """Take the sums as they are in Redis now; return those that never fall."""
        for key, last in self._last.items():
            now = totals.get(key)
            if now is None or any(number < before for number, before in zip(now.numbers, last.numbers, strict=True)):
                self._kept.setdefault(key, Metrics()).add(last)
        self._last = totals
        gone = [key for key in self._kept if key not in totals]
        for key in gone[: max(len(self._kept) - MAX_KEPT, 0)]:
            del self._kept[key]
        return {key: self._sum_of(key) for key in {**self._kept, **totals}}

    def _sum_of(self, key: Key) -> Metrics:
        total = Metrics()
        for part in (self._kept, self._last):
            if key in part:
                total.add(part[key])
        return total
