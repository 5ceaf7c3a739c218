"""Pages of records of several classes or models, by their dates."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from limpyd_jobs.records.known_classes import KnownClass
from limpyd_jobs.redis.calls import Steps, Stream, listed
from limpyd_jobs.search.found import cursor_of, positions_of
from limpyd_jobs.search.walk import Source, Walk
from limpyd_jobs.transitions.many import Found

Record = TypeVar("Record")
Make = Callable[[KnownClass, int, Sequence[str | None]], Record]  # of its class, its pk, and its values

# How many records a step brings at most.
MAX_PAGE_STEP = 200


def read_page(
    walk: Walk,
    after: str | None,
    limit: int,
    fields: Sequence[str],
    make: Make[Record],
    date: str,
    newest_first: bool,
) -> Steps[tuple[list[Record], str | None]]:
    """Return the next records of all sources of a walk, and where to go on; None at the end."""
    positions = positions_of(after) if after else {}
    names, most = listed(fields), min(limit + 1, MAX_PAGE_STEP)

    def shown_of(source: Source) -> _Shown[Record]:
        name = source.known.name
        find = partial(source.find, names=names, most=most)
        looks = walk.stream(source, find, start=positions.get(name), is_upwards=not newest_first)
        return _Shown(source.known, positions.get(name), looks, make)

    def rest() -> Steps[list[_Shown[Record]]]:
        filled = []
        for each in shown:
            if (yield from each.fill()):
                filled.append(each)
        return filled

    shown, found = [shown_of(source) for source in walk.sources], list[Record]()
    best = max if newest_first else min
    while len(found) < limit and (left := (yield from rest())):
        found.append(best(left, key=lambda each: getattr(each.pending[0][1], date) or "").take())
    if not walk.is_cut and not (yield from rest()):
        return found, None
    reached = {each.known.name: each.position for each in shown if each.position is not None}
    return found, cursor_of({**positions, **reached})


class _Shown(Generic[Record]):
    """The records of a source that are not yet on a page."""

    def __init__(self, known: KnownClass, position: int | None, found: Stream[Found], make: Make[Record]) -> None:
        self.known = known
        self.position = position
        self.pending: deque[tuple[int, Record]] = deque()
        self._steps, self._make = found, make

    def fill(self) -> Steps[bool]:
        """Find the next record, if there is one; return whether there is."""
        while not self.pending:
            step = yield from self._steps.next()
            if step is None:
                return False
            self.pending += [(pk, self._make(self.known, pk, values)) for pk, values in step.records]
            if not self.pending:
                self.position = step.seen
        return True

    def take(self) -> Record:
        self.position, record = self.pending.popleft()
        return record
