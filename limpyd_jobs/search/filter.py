"""A filter of records, by what is in them: to count them, to list them, and to change them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from limpyd_jobs.classes.awaitable import awaited, by_steps, finished
from limpyd_jobs.records.audit import Entry, beginning, refusing_if_unaudited
from limpyd_jobs.records.known_classes import KnownClass
from limpyd_jobs.redis.calls import Steps, Stream, listed, streamed
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.actions import Action, Tally
from limpyd_jobs.search.classes import connection_to
from limpyd_jobs.search.conditions import Condition, limited
from limpyd_jobs.search.found import Count, Page, cursor_of, positions_of
from limpyd_jobs.search.walk import Ask, OnStep, Source, Walk
from limpyd_jobs.transitions.many import Changed, Found, last_turn

T = TypeVar("T")

# How many records a step of a page brings at most.
MAX_PAGE_STEP = 200


class Follower(Protocol):
    """Is given which jobs were put back, some at once, `step` at most, and sees what becomes of them. The entry in the
    audit has its `token`, what it `told`, and the `numbers` that it counted. It may wait in `progress`, and at the end.
    """

    token: str
    step: int

    @property
    def told(self) -> str: ...
    @property
    def numbers(self) -> Mapping[str, Any]: ...

    def begins(self, entry: Entry) -> None: ...
    def took(self, name: str, pks: Sequence[str]) -> None: ...
    def ends(self) -> None: ...


class Plan:
    """A verb on the records of a filter, whose words the audit gets. Where to look is asked once, for the count and for
    what is done then. Records that are added meanwhile are left alone. `found` has sources, each with a model to change
    its records with, or with the `LookupError` that says why this process cannot."""

    def __init__(
        self, connection: Any, words: str, action: Action, found: Sequence[tuple[Source, Any]], left_out: int = 0
    ) -> None:
        self._connection, self._words, self._action = connection, words, action
        self._found, self._left_out = found, left_out
        self._is_counted = False

    @property
    def unseen(self) -> int:
        """How many records are left out, because of their pk."""
        return sum(source.unseen for source, _ in self._found)

    def counting(self, progress: OnStep | None = None) -> Steps[Tally]:
        """Count what would be done."""
        would = yield from self._going(None, progress)
        yield from self._action.heed(self._connection, would)
        self._is_counted = would.is_exact
        return would

    def doing(
        self, progress: OnStep | None = None, *, unaudited: bool = False, follower: Follower | None = None
    ) -> Steps[Tally]:
        """Do it."""
        if self._action.is_counted_first and not self._is_counted:
            yield from self.counting(progress)
        if not self._found:
            return (yield from self._going(None, progress))
        told: dict[str, Any] = {"verb": self._action.verb, "filter": self._words, "how": self._action.how}
        if follower:
            told |= {"how": f"{self._action.how} {follower.told}".strip(), "token": follower.token}
        tally = yield from self._audited(told, progress, follower, unaudited=unaudited)
        if tally.is_exact:
            yield from self._action.end(self._connection)
        return tally

    def _audited(
        self, told: Mapping[str, str], progress: OnStep | None, follower: Follower | None, *, unaudited: bool
    ) -> Steps[Tally]:
        room = self._action.needs_room
        entry = yield from beginning(self._connection, told, unaudited=unaudited, needs_room=room)
        try:
            with refusing_if_unaudited(needs_room=room):
                tally = yield from self._going(entry, progress, follower)
        except GeneratorExit:
            raise
        except BaseException as error:
            yield from entry.fail(error)
            raise
        yield from entry.end(entry.outcome)
        return tally

    def _going(self, entry: Entry | None, progress: OnStep | None, follower: Follower | None = None) -> Steps[Tally]:
        """Change the records of each source, the oldest first, or count what would be changed."""
        walk = Walk.over([source for source, _ in self._found], self._left_out, progress)
        added = _Added(entry, follower)
        if follower and entry:
            follower.begins(entry)
        for source, model in self._found:
            if walk.is_cut:
                break
            is_known = not isinstance(model, LookupError)
            ask: Ask[Any] = self._action.asking(source, model, entry) if is_known else source.find
            parts = yield from source.parts_to_change(added.step, is_counted=entry is None)
            for which in parts:
                reply = yield from ask(which)
                if is_known:
                    added.add(reply, source.known.name)
                else:
                    added.add(Changed({f"{model}": reply.number}))
                if walk.is_over(parts, reply):
                    break
        added.add(Changed({"the pk is not a number": self.unseen}))
        if follower and entry:
            follower.ends()
            added.add(Changed({}))
        return added.tally(walk.is_whole)


class _Added:
    """What was done of a plan so far, which its entry in the audit has, too; without an entry, what would be done."""

    def __init__(self, entry: Entry | None, follower: Follower | None) -> None:
        self.entry, self._follower = entry, follower
        self.step = follower.step if follower else 0
        self._outcomes = Counter[str]()
        self._until: datetime | None = None

    def add(self, each: Changed, name: str = "") -> None:
        """Add what was done with some records, of the class whose keys begin so."""
        if self._follower and name:
            self._follower.took(name, each.pks)
        self._outcomes.update(each.outcomes)
        number = each.outcomes.get("done", 0) if self.entry else self._outcomes["done"]
        self._until = last_turn(each.first, each.interval, number) if each.first and number else self._until
        if self.entry:
            followed = self._follower.numbers if self._follower else {}
            self.entry.numbers = {**self.tally().written, **followed}

    def tally(self, is_exact: bool = True) -> Tally:
        return Tally.of(self._outcomes, self._until, is_exact)


class _Shown(Generic[T]):
    """The records of a source that are not yet on a page."""

    def __init__(self, known: KnownClass, position: int | None, found: Stream[Found], make: Callable[..., T]) -> None:
        self.known = known
        self.position = position
        self.pending: deque[tuple[int, T]] = deque()
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

    def take(self) -> T:
        self.position, record = self.pending.popleft()
        return record


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

    def counting(self, timeout: float | None = None, progress: OnStep | None = None) -> Steps[Count]:
        """Return the steps of `count`."""
        walk = yield from self._begun(timeout, progress)
        number = 0
        for source in walk.sources:
            number += yield from walk.number_in(source)
        self.unseen = walk.unseen
        return Count(number, walk.is_complete)

    @by_steps
    def count(self, timeout: float | None = None, progress: OnStep | None = None) -> Steps[Count]:
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
        return self.counting(timeout, progress)

    acount = awaited(count)

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
        found, following = yield from self._page_of(walk, after, limit, newest_first)
        self.unseen = walk.unseen
        is_full = len(found) == limit and len(walk.sources) == 1  # of several, one may have newer ones
        return Page(found, following, is_full or walk.is_whole, walk.looked, walk.size)

    apage = awaited(page)

    def _page_of(
        self, walk: Walk, after: str | None, limit: int, newest_first: bool
    ) -> Steps[tuple[list[T], str | None]]:
        """Return the next records of all sources of a walk, and where to go on; None at the end."""
        positions = positions_of(after) if after else {}
        names, most = listed(self._fields), min(limit + 1, MAX_PAGE_STEP)

        def shown_of(source: Source) -> _Shown[T]:
            name = source.known.name
            find = partial(source.find, names=names, most=most)
            looks = walk.stream(source, find, start=positions.get(name), is_upwards=not newest_first)
            return _Shown(source.known, positions.get(name), looks, self._record.of)

        def rest() -> Steps[list[_Shown[T]]]:
            filled = []
            for each in shown:
                if (yield from each.fill()):
                    filled.append(each)
            return filled

        shown, found = [shown_of(source) for source in walk.sources], list[T]()
        best = max if newest_first else min
        while len(found) < limit and (left := (yield from rest())):
            found.append(best(left, key=lambda each: getattr(each.pending[0][1], self._date) or "").take())
        if not walk.is_cut and not (yield from rest()):
            return found, None
        reached = {each.known.name: each.position for each in shown if each.position is not None}
        return found, cursor_of({**positions, **reached})

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
        """Return a model, to change its records; a `LookupError` if that cannot be done by this process."""
        raise NotImplementedError

    def _planned(self, action: Action) -> Steps[Plan]:
        """Return what a verb does with the records."""
        walk = yield from self._begun()
        found = [(source, self._model_of(source.known)) for source in walk.sources]
        return Plan(self._connection, f"{self}", action, found, walk.left_out)

    def _acting(self, action: Action, dry_run: bool, progress: OnStep | None, unaudited: bool) -> Steps[Tally]:
        """Change the records, or only count them."""
        plan = yield from self._planned(action)
        steps = plan.counting(progress) if dry_run else plan.doing(progress, unaudited=unaudited)
        tally = yield from steps
        self.unseen = plan.unseen
        return tally
