"""Loops that go on where they were."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence, Set, Sized
from typing import Any, Generic, TypeVar

from limpyd_jobs.exceptions import CursorLost
from limpyd_jobs.models.continuing.cursors import Cursors, Entry
from limpyd_jobs.texts import one_line
from limpyd_jobs.threads import in_own_thread

T = TypeVar("T")

_BEGIN_ANEW = "to begin anew, put the job back with restart=True"


class Iteration(Generic[T]):
    """The items of a source that are not done yet, for a ``for`` loop, or an ``async for``: see `Job.iterate`."""

    def __init__(self, cursors: Cursors, source: Any, key: Callable[[T], Any] | None, name: str) -> None:
        _check_source(source, key)
        self._cursors, self._source, self._key, self._name = cursors, source, key, name
        self._entry = Entry("index" if key is None else "key")
        self._total: int | None = None

    def __iter__(self) -> Iterator[T]:
        if not self._begin():
            return
        try:
            for item in self._items():
                yield item
                self._done(item)
            self._cursors.finish(self._name, self._total)
            self._cursors.tell_end()
        finally:
            self._cursors.end(self._name)

    async def __aiter__(self) -> AsyncIterator[T]:
        if not self._begin():
            return
        try:
            async for item in self._async_items():
                yield item
                self._done(item)
            self._cursors.finish(self._name, self._total)
            await in_own_thread(self._cursors.tell_end)
        finally:
            self._cursors.end(self._name)

    # -- Where it is

    def _begin(self) -> bool:
        """Begin where the job was; return False if all items are done."""
        found = self._cursors.begin(self._name)
        if found and found.kind == "done":
            self._cursors.end(self._name)
            return False
        if found and found.kind != self._entry.kind:
            self._cursors.end(self._name)
            raise self._lost(f"it is a cursor by {found.kind}, and the loop goes by {self._entry.kind} now")
        self._entry = found or self._entry
        return True

    def _done(self, item: T) -> None:
        """Note that an item is done; the job may have to give way then."""
        count = self._entry.number + 1
        kind, value = ("index", count) if self._key is None else ("key", self._key(item))
        self._entry = Entry(kind, value, count)
        self._cursors.move(self._name, self._entry, self._total)
        self._cursors.check()

    def _lost(self, why: str) -> CursorLost:
        return CursorLost(f"The loop {self._name!r} cannot go on from its cursor: {why}; {_BEGIN_ANEW}")

    # -- The items

    def _items(self) -> Iterator[T]:
        found = self._found()
        if not isinstance(found, Iterable):
            kind = type(found).__name__
            raise TypeError(f"The source of the loop {self._name!r} is of {kind}, which needs an 'async for'")
        if self._key is None:
            return self._from_index(found)
        return iter(found) if self._goes_by_itself else self._after_key(found)

    async def _async_items(self) -> AsyncIterator[T]:
        found = self._found()
        if not isinstance(found, AsyncIterable):
            for item in self._items_of(found):
                yield item
        elif self._goes_by_itself:
            async for item in found:
                yield item
        else:
            passes = self._passes()
            async for item in found:
                if passes(item):
                    yield item
            passes(None, is_end=True)

    def _items_of(self, found: Any) -> Iterator[T]:
        if self._key is None:
            return self._from_index(found)
        return iter(found) if self._goes_by_itself else self._after_key(found)

    @property
    def _goes_by_itself(self) -> bool:
        """Whether the source itself begins after the cursor."""
        return _is_function(self._source) or not self._entry.number

    def _found(self) -> Any:
        if _is_function(self._source):
            return self._source(after=self._entry.value)
        if isinstance(self._source, Sized):
            self._total = len(self._source)
        return self._source

    def _from_index(self, items: Any) -> Iterator[T]:
        index = self._entry.number
        if index > len(items):
            raise self._lost(f"{index:,} items are done, and its source has {len(items):,}")
        while index < len(items):
            yield items[index]
            index += 1

    def _after_key(self, items: Iterable[T]) -> Iterator[T]:
        passes = self._passes()
        for item in items:
            if passes(item):
                yield item
        passes(None, is_end=True)

    def _passes(self) -> Callable[..., bool]:
        """Return a function that tells of each item, in turn, whether it comes after the cursor."""
        last, key, is_found = self._entry.value, self._key, False

        def passes(item: Any, *, is_end: bool = False) -> bool:
            nonlocal is_found
            if is_found:
                return True
            if is_end:
                raise self._lost(f"its source has no item of the key {one_line(repr(last), MAX_KEY_SHOWN)}")
            is_found = key is not None and key(item) == last
            return False

        return passes


MAX_KEY_SHOWN = 100


def _is_function(source: Any) -> bool:
    return callable(source) and not isinstance(source, (Iterable, AsyncIterable))


def _check_source(source: Any, key: Any) -> None:
    """Refuse what a loop cannot go on with."""
    if key is not None and not callable(key):
        raise TypeError(f"The key must be a function of an item, not {key!r}")
    if isinstance(source, (str, bytes)) or not (callable(source) or isinstance(source, (Iterable, AsyncIterable))):
        raise TypeError(
            f"A loop needs a sequence, an iterable, or a function source(after=cursor), not {source!r:.100}"
        )
    if isinstance(source, Set):
        raise TypeError("A set has no order, so a loop cannot go on in it: give a sorted list")
    if _is_function(source):
        _check_function(source)
    has_index = isinstance(source, Sequence) or (hasattr(source, "__getitem__") and isinstance(source, Sized))
    if key is None and (not has_index or isinstance(source, Mapping)):
        raise TypeError(
            "Only a sequence can go on by its index: give the key of an item, such as key=lambda row: row.id"
        )


def _check_function(source: Any) -> None:
    try:
        inspect.signature(source).bind(after=None)
    except TypeError as error:
        raise TypeError(f"The source is called as source(after=cursor), and cannot be: {error}") from None
    except ValueError:  # it does not say what it takes
        pass
