"""Reading, writing and comparing the values of keys, in parts, by their types: servers of all versions can do that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from limpyd_jobs.relocation.renaming import Renaming
from limpyd_jobs.relocation.sides import Command, Side

# How many elements one command reads or writes.
PART = 500

Elements = Sequence[Any]


class Kind(NamedTuple):
    """A type of Redis.

    Attributes
    ----------
    size: str
        The command for how many elements there are.
    read: function
        Returns the command that reads some elements from a place on.
    found: function
        Returns the elements of its reply, and the next place; None at the end.
    write: function
        Returns the commands that add elements.
    look: function or None
        Returns the command that looks for elements, if they have no order, and what it replies if all are there.
    """

    size: str
    read: Callable[[str, Any], Command]
    found: Callable[[Any, Any], tuple[Elements, Any]]
    write: Callable[[str, Elements], Iterable[Command]]
    look: Callable[[str, Elements], tuple[Command, Any]] | None = None


def _by_rank(command: str, *options: str) -> Callable[[str, Any], Command]:
    return lambda key, place: (command, key, place or 0, (place or 0) + PART - 1, *options)


def _next_rank(elements: Elements, place: Any) -> tuple[Elements, Any]:
    return elements, (place or 0) + PART if len(elements) >= PART else None


def _scores(reply: Any, place: Any) -> tuple[Elements, Any]:
    """Return pairs of members and scores: Redis tells them one after the other, or, by its new protocol, in pairs."""
    flat = [each for pair in reply for each in pair] if reply and not isinstance(reply[0], str) else reply
    return _next_rank([(member, float(score)) for member, score in zip(flat[::2], flat[1::2], strict=True)], place)


def _scanned(reply: Any, _: Any) -> tuple[Elements, Any]:
    cursor, found = reply
    return [*(found.items() if isinstance(found, Mapping) else found)], int(cursor) or None


def _entries(reply: Any, _: Any) -> tuple[Elements, Any]:
    entries = [(id, fields or {}) for id, fields in reply]
    return entries, f"({entries[-1][0]}" if len(entries) >= PART else None


def _flat(pairs: Iterable[tuple[Any, Any]]) -> list[Any]:
    return [each for pair in pairs for each in pair]


KINDS = {
    "string": Kind(
        "STRLEN",
        lambda key, _: ("GET", key),
        lambda reply, _: ([reply], None),
        lambda key, elements: [("SET", key, elements[0])],
    ),
    "list": Kind(
        "LLEN",
        _by_rank("LRANGE"),
        _next_rank,
        lambda key, elements: [("RPUSH", key, *elements)],
    ),
    "set": Kind(
        "SCARD",
        lambda key, place: ("SSCAN", key, place or 0, "COUNT", PART),
        _scanned,
        lambda key, elements: [("SADD", key, *elements)],
        lambda key, elements: (("SMISMEMBER", key, *elements), [1] * len(elements)),
    ),
    "zset": Kind(
        "ZCARD",
        _by_rank("ZRANGE", "WITHSCORES"),
        _scores,
        lambda key, elements: [("ZADD", key, *_flat((repr(score), member) for member, score in elements))],
    ),
    "hash": Kind(
        "HLEN",
        lambda key, place: ("HSCAN", key, place or 0, "COUNT", PART),
        _scanned,
        lambda key, elements: [("HSET", key, *_flat(elements))],
        lambda key, elements: (
            ("HMGET", key, *(field for field, _ in elements)),
            [value for _, value in elements],
        ),
    ),
    "stream": Kind(
        "XLEN",
        lambda key, place: ("XRANGE", key, place or "-", "+", "COUNT", PART),
        _entries,
        lambda key, elements: [("XADD", key, id, *_flat(fields.items())) for id, fields in elements],
    ),
}


class Entry(NamedTuple):
    """A key of the source, its type, and its first elements as they are in the target."""

    key: str
    kind: Kind
    elements: Elements
    following: Any  # where the next ones begin; None if these are all
    lifetime: int  # in milliseconds; -1 if it does not end

    def is_like(self, elements: Elements, lifetime: int) -> bool:
        """Whether elements of the target are the same ones, and end if these do."""
        mine: Any = self.elements
        if self.kind.look:  # they have no order
            mine, elements = set(mine), set(elements)  # type: ignore[assignment]
        return bool(mine == elements) and (lifetime < 0) == (self.lifetime < 0)


class Values:
    """The values of keys in two databases.

    Parameters
    ----------
    source, target: Side
        Their connections read what is not UTF-8 as surrogate escapes.
    """

    def __init__(self, source: Side, target: Side, renaming: Renaming) -> None:
        self._source, self._target, self._renaming = source, target, renaming
        self.odd: dict[str, str] = {}  # the keys that cannot be copied, with their type

    def entries(self, keys: Sequence[str]) -> list[Entry]:
        """Read the beginnings of some keys. Those that are gone are left out."""
        kinds = dict(zip(keys, self._source.ask(("TYPE", key) for key in keys), strict=True))
        self.odd |= {key: kind for key, kind in kinds.items() if kind not in KINDS and kind != "none"}
        known = {key: KINDS[kind] for key, kind in kinds.items() if kind in KINDS}
        questions = ((kind.read(key, None), ("PTTL", key)) for key, kind in known.items())
        replies = iter([*self._source.ask(each for question in questions for each in question)])
        entries = []
        for (key, kind), reply, lifetime in zip(known.items(), replies, replies, strict=True):
            if lifetime != -2 and not isinstance(reply, Exception):  # it may have ended meanwhile
                entries.append(Entry(key, kind, *self._found(key, kind, reply, None), lifetime))
        return entries

    def _found(self, key: str, kind: Kind, reply: Any, place: Any) -> tuple[Elements, Any]:
        """Return the elements of a reply as they are in the target, and the next place."""
        elements, following = kind.found(reply, place)
        if kind is KINDS["hash"]:
            elements = [*self._renaming.values(key, dict(elements)).items()]
        elif kind is KINDS["stream"]:
            elements = [(id, self._renaming.values(key, fields)) for id, fields in elements]
        return elements, following

    def _parts(self, entry: Entry) -> Iterator[tuple[Any, Elements]]:
        """Yield the parts of a key, each with its place."""
        place, elements, following = None, entry.elements, entry.following
        while True:
            yield place, elements
            if following is None:
                return
            place = following
            (reply,) = self._source.ask([entry.kind.read(entry.key, place)])
            if isinstance(reply, Exception):
                raise reply
            elements, following = self._found(entry.key, entry.kind, reply, place)

    def differing(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return those that are not the same in the target."""
        questions = ((entry.kind.read(new, None), ("PTTL", new)) for entry, new in self._with_new_keys(entries))
        replies = iter([*self._target.ask(each for question in questions for each in question)])
        return [
            entry
            for entry, reply, lifetime in zip(entries, replies, replies, strict=True)
            if isinstance(reply, Exception) or not self._is_same(entry, reply, lifetime)
        ]

    def _with_new_keys(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, str]]:
        return ((entry, self._renaming.new(entry.key)) for entry in entries)

    def _is_same(self, entry: Entry, reply: Any, lifetime: int) -> bool:
        elements, following = entry.kind.found(reply, None)
        if entry.following is None and following is None:
            return entry.is_like(elements, lifetime)
        return (lifetime < 0) == (entry.lifetime < 0) and self._is_same_in_parts(entry)

    def _question(self, entry: Entry, place: Any, elements: Elements) -> tuple[Command, Any]:
        """Return the command that looks for elements in the target, and the right answer."""
        new = self._renaming.new(entry.key)
        if entry.kind.look:
            return entry.kind.look(new, elements) if elements else (("EXISTS", new), 1)
        return entry.kind.read(new, place), list(elements)

    @staticmethod
    def _answer(entry: Entry, reply: Any, place: Any) -> Any:
        return reply if entry.kind.look or isinstance(reply, Exception) else list(entry.kind.found(reply, place)[0])

    def _is_same_in_parts(self, entry: Entry) -> bool:
        (old_size,) = self._source.ask([(entry.kind.size, entry.key)])
        (new_size,) = self._target.ask([(entry.kind.size, self._renaming.new(entry.key))])
        if old_size != new_size:
            return False
        for place, elements in self._parts(entry):
            command, expected = self._question(entry, place, elements)
            (reply,) = self._target.ask([command])
            if self._answer(entry, reply, place) != expected:
                return False
        return True

    def copy(self, entries: Sequence[Entry]) -> None:
        """Copy some keys, in place of what the target has of them."""
        self._target.change(command for entry in entries for command in self._copying(entry))

    def missing(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return those of which the target has nothing."""
        there = self._target.ask(("EXISTS", new) for _, new in self._with_new_keys(entries))
        return [entry for entry, is_there in zip(entries, there, strict=True) if not is_there]

    def _copying(self, entry: Entry) -> Iterator[Command]:
        new = self._renaming.new(entry.key)
        yield "UNLINK", new
        for _, elements in self._parts(entry):
            if elements:
                yield from entry.kind.write(new, elements)
        if entry.lifetime >= 0:
            yield "PEXPIRE", new, max(entry.lifetime, 1)
