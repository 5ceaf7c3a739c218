"""Pages of records of several classes or models, by their dates."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from limpyd_jobs.records.known_classes import KnownClass
from limpyd_jobs.redis.calls import listed
from limpyd_jobs.search.found import cursor_of, positions_of
from limpyd_jobs.search.walk import Source, Step, Walk

Record = TypeVar("Record")
Make = Callable[[str, int, Sequence[str | None]], Record]  # of the name of its source, its pk, and its values

# How many records a step brings at most.
MAX_PAGE_STEP = 200


def read_page(
    walk: Walk,
    after: str | None,
    limit: int,
    *,
    name_of: Callable[[KnownClass], str],
    fields: Sequence[str],
    make: Make[Record],
    date_of: Callable[[Record], str],
    newest_first: bool = True,
) -> tuple[list[Record], str | None]:
    """Return the next records of all sources of a walk, and where to go on; None at the end.

    Parameters
    ----------
    after: str
        Where the page before ended; None for the first page.
    name_of: callable
        Returns what names a source in `after`.

    Raises
    ------
    ValueError
        If `after` is not where a page ended.
    """
    positions = positions_of(after) if after else {}
    names, most = listed(fields), min(limit + 1, MAX_PAGE_STEP)

    def shown_of(source: Source) -> _Shown[Record]:
        name = name_of(source.known)
        steps = source.steps(positions.get(name), is_upwards=not newest_first, names=names, most=most)
        return _Shown(name, positions.get(name), walk.timed(steps), make)

    shown, found = [shown_of(source) for source in walk.sources], list[Record]()
    best = max if newest_first else min
    while len(found) < limit and (rest := [each for each in shown if each.fill()]):
        found.append(best(rest, key=lambda each: date_of(each.pending[0][1])).take())
    if not any(each.fill() for each in shown) and not walk.is_cut:
        return found, None
    return found, cursor_of({**positions, **{each.name: each.position for each in shown if each.position is not None}})


class _Shown(Generic[Record]):
    """The records of a source that are not yet on a page."""

    def __init__(self, name: str, position: int | None, steps: Iterator[Step], make: Make[Record]) -> None:
        self.name = name
        self.position = position
        self.pending: deque[tuple[int, Record]] = deque()
        self._steps, self._make = steps, make

    def fill(self) -> bool:
        """Find the next record, if there is one; return whether there is."""
        while not self.pending:
            step = next(self._steps, None)
            if step is None:
                return False
            self.pending += [(pk, self._make(self.name, pk, values)) for pk, values in step.found]
            if not self.pending:
                self.position = step.seen
        return True

    def take(self) -> Record:
        """Return the next record."""
        self.position, record = self.pending.popleft()
        return record
