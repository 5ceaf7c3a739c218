"""Looking at the jobs of a class in steps, in the order in which they were added."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from limpyd_jobs.idents import EXACT_DIGITS, read_pk
from limpyd_jobs.records.known_classes import KnownClass
from limpyd_jobs.redis.calls import Commands, Steps, Stream, commanded, given, listed, streamed
from limpyd_jobs.search.conditions import Condition
from limpyd_jobs.transitions import many
from limpyd_jobs.transitions.many import Changed, Found, Grouped

# How many jobs one step looks at: it takes Redis about a millisecond.
PER_STEP = 500

# How many records one step changes: it takes Redis some milliseconds.
CHANGES_PER_STEP = 100

# A set of up to `SMALL_SET` pks is read, and sorted; one of up to `MEDIUM_SET`, too, if it has few of all pks, or if
# all records are wanted, and not only the first ones, a fourth of them. Any other set is asked for one range of pks
# after another.
SMALL_SET, MEDIUM_SET, FEW_OF_ALL, FEWER_THAN_ALL = 10_000, 200_000, 0.05, 0.25

# A larger set is read, too, if it has one of so many pks: then nearly all steps would find none. The counter of pks may
# be corrupt.
VERY_FEW_OF_ALL = 0.001

EVERYWHERE = ("-inf", "+inf")  # the ends of a sorted set

Pks = Sequence[int]  # numbers, or a range of them

# Is called after each step with how many records were looked at, and how many at most there are.
OnStep = Callable[[int, int], object]


class Enough(Exception):
    """Raise it in `progress` to look at no more: what was counted or done by then is returned."""


# The reply of a script that includes ``finding.lua``: it says how many jobs were looked at, and the pk of the last one.
Look = Found | Changed | Grouped
ALook = TypeVar("ALook", bound=Look)

# Asks about some records: it is given the part of a request that says which.
Ask = Callable[[Mapping[str, Any]], Steps[ALook]]


class MissingIndex(NamedTuple):
    """An index that a job class does not have. Without it, its jobs are looked at one by one.

    Attributes
    ----------
    path: str
        The path of the class.
    field: str
    kind: str
        The name of the class of the index: ``EqualIndex``, ``NumberRangeIndex`` or ``DateTimeRangeIndex``.
    """

    path: str
    field: str
    kind: str

    def __str__(self) -> str:
        return f"{self.field} of {self.path} has no {self.kind}"


class Source:
    """The smallest set that is known to have all the records of a class that meet some conditions.

    It is exact if all in it meet them, and whole if there is no condition.
    """

    def __init__(
        self,
        connection: Any,
        known: KnownClass,
        conditions: Sequence[Condition],
        tests: Sequence[Mapping[str, Any]],
        pks: Sequence[int] | None = None,
        standing: Mapping[str, str] | None = None,
    ) -> None:
        self.known = known
        self.model = json.dumps({"name": known.name})
        self._connection = connection
        # what scripts test, and what they need to find jobs that do not say in which queue they are
        self._asking = {"conditions": listed(tests), **(standing or {})}
        indexed = [each for each in conditions if each.is_equality and each.field in known.indexes.keys() - known.dates]
        self._keys = [f"{known.name}:collection", *(f"{known.indexes[it.field]}{it.value}" for it in indexed)]
        self._pks = pks
        self.unseen = 0
        for each in conditions:
            if each.field == "pk" and each.is_equality:
                self._pks = [int(each.value)]
        self._ranges, met = _ranges_of(known, conditions)
        spared = {*indexed, *met}
        self._asked = [each for each in conditions if each not in spared]
        self.is_whole = not conditions and pks is None
        self.is_exact = len(indexed) + len(self._ranges) <= 1 and not self._asked and pks is None
        of_dates = {known.ranges.get(name) for name in known.dates}
        self._doubtful = [key for key, *ends in self._ranges if key not in of_dates and _have_zero(*ends)]
        self._key, self.size, self._highest = "", 0, 0
        self._range: tuple[str, str, str] | None = None

    @property
    def missing_indexes(self) -> list[MissingIndex]:
        """The indexes with which the jobs of the class need not be looked at one by one."""
        fields = [each for each in self._asked if each.field in self.known.fields]
        wanted = {each.field: each.fitting_index(is_date=each.field in self.known.dates) for each in fields}
        return [MissingIndex(self.known.path, name, kind) for name, kind in wanted.items() if kind]

    @property
    def measuring(self) -> list[Sequence[Any]]:
        """The commands that ask for the sizes of the sets, and for the highest pk."""
        return [
            ("GET", f"{self.known.name}:max_pk"),
            *[("SCARD", key) for key in self._keys],
            *[("ZCOUNT", *each) for each in self._ranges],
            *[("ZCOUNT", key, 0, 0) for key in self._doubtful],
        ]

    def choose(self, replies: Iterator[Any]) -> None:
        """Take the smallest of the sets and ranges, by the replies to `measuring`. A wrong type counts as empty."""
        last = next(replies)
        self._highest = (read_pk(last) if isinstance(last, str) and len(last) <= EXACT_DIGITS else None) or 0
        measured = [size if isinstance(size, int) else 0 for size in islice(replies, len(self._keys))]
        self._key, self.size = min(zip(self._keys, measured, strict=True), key=itemgetter(1))
        for each, number in zip(self._ranges, islice(replies, len(self._ranges)), strict=True):
            in_range = number if isinstance(number, int) else 0
            if in_range < self.size:
                self._range, self.size = each, in_range
        if any(list(islice(replies, len(self._doubtful)))):
            self.is_exact = False  # limpyd's index has values that are not numbers at 0
        if self._pks is not None:
            self.size = min(self.size, len(self._pks))

    def find(self, which: Mapping[str, Any], **options: Any) -> Steps[Found]:
        """Look at some. For the options see ``search.lua``."""
        found: Found = yield many.search.call(self._connection, {"model": self.model, **which, **given(**options)})
        return found

    def last(self, number: int, **options: Any) -> Steps[Found]:
        """Look at the records of the last pks, at once, whatever there is before them."""
        ends = {"first": self._highest, "last": max(self._highest - number, 0) + 1}
        return self.find({**self._asking, "within": self._key, **ends}, **options)

    def parts(
        self,
        start: int | None = None,
        is_upwards: bool = False,
        size: int | None = None,
        few: float = FEW_OF_ALL,
    ) -> Steps[Parts]:
        """Return all of it in parts of a size, the newest first, or upwards, behind the pk `start`. A set that has less
        than that part of all pks is read first."""
        pks: Pks = (yield from self._pks_in_order(start, is_upwards, few)) if self.size else ()
        return Parts({**self._asking, "within": self._key}, pks, size or PER_STEP)

    def parts_to_change(self, most: int, *, is_counted: bool) -> Steps[Parts]:
        """Return the parts for what changes records, of so many at most, or only counts them, the oldest first."""
        return self.parts(is_upwards=True, size=None if is_counted else most or CHANGES_PER_STEP, few=FEWER_THAN_ALL)

    def _pks_in_order(self, start: int | None, is_upwards: bool, few: float) -> Steps[Pks]:
        if self._pks is not None:
            return _in_order(self._pks, start, is_upwards)
        if self._is_to_be_read(few):
            members = yield from self._members()
            known = {number for number in map(read_pk, members) if number is not None}
            self.unseen = len(members) - len(known)
            return _in_order(known, start, is_upwards)
        first = (1 if is_upwards else self._highest) if start is None else start + (1 if is_upwards else -1)
        return range(first, self._highest + 1) if is_upwards else range(min(first, self._highest), 0, -1)

    def _is_to_be_read(self, few: float) -> bool:
        """Whether to read the set, rather than to look at one range of pks after another."""
        most = self._highest * (few if self.size <= MEDIUM_SET else VERY_FEW_OF_ALL)
        return self.size <= SMALL_SET or self.size <= most or not self._highest

    def _members(self) -> Steps[set[str]]:
        if self._range:
            return {*(yield from commanded(self._connection, "ZRANGEBYSCORE", *self._range))}
        cursor, members = 0, set[str]()
        while True:
            cursor, some = yield from commanded(self._connection, "SSCAN", self._key, cursor, "COUNT", PER_STEP)
            members.update(some)
            if not cursor:
                return members


class Parts:
    """The parts of a source, each as a request says which records it is about. If only some of a part are seen,
    the rest of it is the next one."""

    def __init__(self, asking: Mapping[str, str], pks: Pks, size: int) -> None:
        self._asking, self._pks, self._size = asking, pks, size
        self._seen = 0

    def were_seen_to(self, pk: int) -> None:
        """Take note of the last pk of a part that was seen."""
        self._seen = pk

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for first in range(0, len(self._pks), self._size):
            rest = self._pks[first : first + self._size]
            while rest:
                is_range = isinstance(rest, range)
                which = {"first": rest[0], "last": rest[-1]} if is_range else {"pks": listed(map(str, rest))}
                yield {**self._asking, **which}
                rest = rest[rest.index(self._seen) + 1 :]


def _ranges_of(
    known: KnownClass, conditions: Sequence[Condition]
) -> tuple[list[tuple[str, str, str]], list[Condition]]:
    """Return ranges of scores: the key of each index, and both ends. Also return the conditions that they answer."""
    ranges: dict[str, list[str]] = {}
    met = []
    for each in conditions:
        bounds = each.field in known.ranges and each.bounds(is_date=each.field in known.dates)
        if not bounds:
            continue
        ends = ranges.setdefault(known.ranges[each.field], [*EVERYWHERE])
        if all(none in (old, new) for old, new, none in zip(ends, bounds, EVERYWHERE, strict=True)):
            ends[:] = [old if new == none else new for old, new, none in zip(ends, bounds, EVERYWHERE, strict=True)]
            met.append(each)
    return [(key, *ends) for key, ends in ranges.items()], met  # type: ignore[misc]


def _have_zero(low: str, high: str) -> bool:
    """Whether 0 is between two ends, as Redis has them."""
    is_excluded = {low, high} & {"(0.0", "(-0.0"}
    return not is_excluded and float(low.lstrip("(")) <= 0 <= float(high.lstrip("("))


class Walk:
    """A look at the records of some sources; it is cut if there was no time to look at all of them."""

    def __init__(self, timeout: float | None = None, progress: OnStep | None = None) -> None:
        self.sources: list[Source] = []
        self.is_cut = False
        self.left_out = 0  # how many records it does not know of
        self._until = float("inf") if timeout is None else monotonic() + timeout
        self._progress = progress
        self.looked = self.size = 0

    @classmethod
    def over(cls, sources: list[Source], left_out: int = 0, progress: OnStep | None = None) -> Walk:
        """Return a look at sources that were measured for another one."""
        walk = Walk(None, progress)
        walk.sources, walk.left_out = sources, left_out
        walk.size = sum(source.size for source in sources)
        return walk

    @property
    def unseen(self) -> int:
        """How many records were left out, because of their pk."""
        return sum(source.unseen for source in self.sources)

    @property
    def is_whole(self) -> bool:
        """Whether it looked at all that it knows of, and knows of all."""
        return not (self.is_cut or self.left_out)

    @property
    def is_complete(self) -> bool:
        return self.is_whole and not self.unseen

    def measure(self, connection: Any, sources: Sequence[Source]) -> Steps[None]:
        """Take the sources that are not empty."""
        commands = [command for source in sources for command in source.measuring]
        sizes = iter((yield Commands(connection, commands)))
        for source in sources:
            source.choose(sizes)
        self.sources = [source for source in sources if source.size]
        self.size = sum(source.size for source in self.sources)

    def look(
        self, source: Source, start: int | None = None, *, is_upwards: bool = False, **options: Any
    ) -> Iterator[Found]:
        """Yield looks at the records of a source until there is no time left. For the options see `Source.find`."""
        find = partial(source.find, **options)
        return streamed(self.stream(source, find, start=start, is_upwards=is_upwards))

    def stream(self, source: Source, ask: Ask[ALook], **how: Any) -> Stream[ALook]:
        """Return the same looks as a stream."""
        found: deque[ALook] = deque()
        return Stream(self.each(source, ask, found.append, **how), found)

    def each(self, source: Source, ask: Ask[ALook], act: Callable[[ALook], object], **how: Any) -> Steps[None]:
        """Ask about the records of a source, and act on each reply, until there is no time left: not at all if there
        was none for an earlier source. For `how` see `Source.parts`."""
        if self.is_cut:
            return
        parts = yield from source.parts(**how)
        for which in parts:
            look = yield from ask(which)
            act(look)
            if self.is_over(parts, look):
                return

    def is_over(self, parts: Parts, look: Look) -> bool:
        """Take note of a look at a part; return whether there is no time left."""
        parts.were_seen_to(look.seen)
        self.looked += look.looked
        is_late = self._is_enough() or monotonic() >= self._until
        self.is_cut = is_late and self.looked < self.size
        return is_late

    def _is_enough(self) -> bool:
        try:
            if self._progress:
                self._progress(self.looked, self.size)
        except Enough:
            return True
        return False

    def number_in(self, source: Source) -> Steps[int]:
        """Return how many records of a source meet the conditions: without a look, if it has no others."""
        if source.is_exact:
            return source.size
        found: list[Found] = []
        yield from self.each(source, source.find, found.append)
        return sum(each.number for each in found)


def _in_order(pks: Iterable[int], start: int | None, is_upwards: bool) -> list[int]:
    """Return the pks beyond `start`, if that is given, sorted upwards or downwards."""
    beyond = pks if start is None else (pk for pk in pks if (pk > start if is_upwards else pk < start))
    return sorted(beyond, reverse=not is_upwards)
