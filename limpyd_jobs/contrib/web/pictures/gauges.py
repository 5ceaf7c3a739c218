"""How many jobs waited and ran, minute by minute, as this process saw it: nothing of that is stored."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import NamedTuple

from limpyd_jobs.query import Overview

MINUTE = timedelta(minutes=1)

# For how many minutes the numbers of all queues together are kept; those of each queue, and of how many queues.
MAX_MINUTES, MAX_OF_QUEUES, MAX_QUEUES = 1440, 61, 200


class Gauge(NamedTuple):
    """How many jobs waited and ran."""

    waiting: int
    running: int


class Gauges:
    """The last numbers. A minute without a look has none."""

    def __init__(self) -> None:
        self._minutes: OrderedDict[datetime, dict[str, Gauge]] = OrderedDict()
        self._lock = Lock()

    def note(self, at: datetime, seen: Overview) -> None:
        """Keep the numbers of a moment, naive UTC, in the place of others of its minute."""
        found: dict[str, Gauge] = {}
        for state in seen.queues:
            if state.name in found or len(found) < MAX_QUEUES:
                before = found.get(state.name, Gauge(0, 0))
                found[state.name] = Gauge(before.waiting + state.waiting, before.running + state.running)
        waiting, running = (sum(getattr(state, name) for state in seen.queues) for name in ("waiting", "running"))
        with self._lock:
            self._minutes[at.replace(second=0, microsecond=0)] = {**found, "": Gauge(waiting, running)}
            while len(self._minutes) > MAX_MINUTES:
                self._minutes.popitem(last=False)
            old = [*self._minutes][-MAX_OF_QUEUES - 1 : -MAX_OF_QUEUES]
            for minute in old:
                self._minutes[minute] = {"": self._minutes[minute][""]}

    def of(self, starts: Sequence[datetime], size: timedelta, queue: str = "") -> list[Gauge | None]:
        """Return the last numbers within some times, of a queue or of all together; None where there are none."""
        with self._lock:
            minutes = dict(self._minutes)
        return [_last_of(minutes, start, size, queue) for start in starts]


def _last_of(
    minutes: Mapping[datetime, Mapping[str, Gauge]], start: datetime, size: timedelta, queue: str
) -> Gauge | None:
    of_column: Iterable[datetime] = (start + number * MINUTE for number in reversed(range(size // MINUTE)))
    return next((minutes[each][queue] for each in of_column if queue in minutes.get(each, ())), None)
