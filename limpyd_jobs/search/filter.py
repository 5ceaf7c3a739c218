"""A filter of records, by what is in them: to count them, to list them, and to change them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from limpyd_jobs.classes.awaitable import awaited, by_steps, finished
from limpyd_jobs.records.audit import Entry, auditing
from limpyd_jobs.records.known_classes import KnownClass
from limpyd_jobs.redis.calls import Steps, Stream, finish, listed, streamed
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.actions import Tally
from limpyd_jobs.search.classes import connection_to
from limpyd_jobs.search.conditions import Condition, limited
from limpyd_jobs.search.found import Count, Page
from limpyd_jobs.search.pages import read_page
from limpyd_jobs.search.walk import Ask, OnStep, Source, Walk
from limpyd_jobs.transitions.many import Changed, Found, last_turn

T = TypeVar("T")

# Makes what changes the records of a source, given their model; without an entry of the audit, that only counts.
Change = Callable[[Source, Any, Entry | None], Ask[Changed]]


async def _streamed(stream: Stream[T]) -> AsyncIterator[T]:
    while (each := await finished(stream.next())) is not None:
        yield each


class Filter(Generic[T]):
    """The records that meet some conditions. Each subclass is about one kind of record.

    `unseen` says how many the last look left out, because their pk is not a number of at most 18 digits.
    """

    # What is found, the fields that are read of it, and the one by which it is sorted.
    _record: ClassVar[Any]
    _fields: ClassVar[Sequence[str]]
    _date: ClassVar[str]

    def __init__(self, conditions: Sequence[Condition], named: Mapping[str, Any], database: JobsDatabase) -> None:
        self._database = database
        self._connection = connection_to(database)
        self.conditions = limited([*conditions, *(Condition.named(name, value) for name, value in named.items())])
        self.unseen = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(str(each)) for each in self.conditions)})"

    def __str__(self) -> str:
        return " ".join(map(str, self.conditions))

    def _begun(self, timeout: float | None = None, progress: OnStep | None = None) -> Steps[Walk]:
        """Return a walk that knows where to look."""
        raise NotImplementedError

    def count(self, timeout: float | None = None, progress: OnStep | None = None) -> Count:
        """Count the records: at once if at most one indexed field is asked for; else by looking at them, in steps.

        Parameters
        ----------
        timeout: float
            After how many seconds to return what was counted by then; None to look at all.
        progress: callable
            Called after each step with how many records were looked at, and how many at most there are to look at.

        Raises
        ------
        ValueError
            If no class of the database has a field that is asked for.
        """
        return finish(self.counting(timeout, progress))

    async def acount(self, timeout: float | None = None, progress: OnStep | None = None) -> Count:
        """Do as `count`, under asyncio: see :doc:`/howto/asyncio`."""
        return await finished(self.counting(timeout, progress))

    def counting(self, timeout: float | None = None, progress: OnStep | None = None) -> Steps[Count]:
        """Return the steps of `count`."""
        walk = yield from self._begun(timeout, progress)
        number = 0
        for source in walk.sources:
            number += yield from walk.number_in(source)
        self.unseen = walk.unseen
        return Count(number, walk.is_complete)

    @by_steps
    def page(
        self, limit: int = 50, after: str | None = None, *, newest_first: bool = True, timeout: float | None = None
    ) -> Steps[Page[T]]:
        """Return some records, the newest first, or the oldest. Those of several classes are in the order of their
        dates: when a job was added, or an error happened.

        Parameters
        ----------
        limit: int
            How many records at most.
        after: str
            The `following` of the previous page.
        timeout: float
            After how many seconds to return the records that were found by then; None to look at all if need be.

        Raises
        ------
        ValueError
            If no class of the database has a field that is asked for, `after` is not the `following` of a page, or
            `limit` is less than 1.
        """
        if limit < 1:
            raise ValueError(f"A page has 1 record or more, not {limit!r}")
        walk = yield from self._begun(timeout)
        shown = walk, after, limit, self._fields, self._record.of, self._date, newest_first
        found, following = yield from read_page(*shown)
        self.unseen = walk.unseen
        is_full = len(found) == limit and len(walk.sources) == 1  # of several, one may have newer ones
        return Page(found, following, is_full or walk.is_whole, walk.looked, walk.size)

    apage = awaited(page)

    def __iter__(self) -> Iterator[T]:
        """Yield all the records, class by class, the newest of each first. A round trip reads some hundreds."""
        return streamed(self._records())

    def __aiter__(self) -> AsyncIterator[T]:
        """Yield the same under asyncio, by ``async for``: see :doc:`/howto/asyncio`."""
        return _streamed(self._records())

    def _records(self) -> Stream[T]:
        records: deque[T] = deque()

        def keep(known: KnownClass, step: Found) -> None:
            records.extend(self._record.of(known, pk, values) for pk, values in step.records)

        def steps() -> Steps[None]:
            walk = yield from self._begun()
            for source in walk.sources:
                find = partial(source.find, names=listed(self._fields))
                yield from walk.each(source, find, partial(keep, source.known))
            self.unseen = walk.unseen

        return Stream(steps(), records)

    def _model_of(self, known: KnownClass) -> Any:
        """Return a model, to change its records; raise `LookupError` if that cannot be done by this process."""
        raise NotImplementedError

    def _change(
        self,
        change: Change,
        verb: str,
        how: str = "",
        *,
        dry_run: bool,
        progress: OnStep | None,
        unaudited: bool,
        needs_room: bool | None = False,
    ) -> Steps[Tally]:
        """Change the records, or only count them."""
        told: dict[str, Any] = {"verb": verb, "filter": f"{self}", "how": how}
        told |= {"unaudited": unaudited, "needs_room": needs_room}
        return self._changing(change, told, dry_run, progress)

    def _changing(
        self, change: Change, told: Mapping[str, Any], dry_run: bool, progress: OnStep | None
    ) -> Steps[Tally]:
        walk = yield from self._begun(None, progress)
        if dry_run or not walk.sources:
            return (yield from self._changed(walk, change, None))
        return (yield from auditing(self._connection, partial(self._changed, walk, change), **told))

    def _changed(self, walk: Walk, change: Change, entry: Entry | None) -> Steps[Tally]:
        outcomes, until = Counter[str](), None

        def add(each: Changed) -> None:
            nonlocal until
            outcomes.update(each.outcomes)
            number = each.outcomes.get("done", 0) if entry else outcomes["done"]
            until = last_turn(each.first, each.interval, number) if each.first and number else until
            if entry:
                entry.numbers = Tally.of(outcomes, until).written

        def refuse(why: str, found: Found) -> None:
            add(Changed({why: found.number}))

        for source in walk.sources:
            if walk.is_cut:
                break
            try:
                model = self._model_of(source.known)
            except LookupError as error:
                yield from walk.each(source, source.find, partial(refuse, f"{error}"))
            else:
                yield from walk.change(source, change(source, model, entry), add, is_counted=entry is None)
        self.unseen = walk.unseen
        add(Changed({"the pk is not a number": walk.unseen}))
        return Tally.of(outcomes, until, walk.is_whole)
