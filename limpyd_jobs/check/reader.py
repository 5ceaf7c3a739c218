"""Reading a database of any size in small parts, so that no other process has to wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from redis import Redis

from limpyd_jobs.redis.calls import chunks, passing_over_wrong_types
from limpyd_jobs.redis.cluster.tags import prefix_at

T = TypeVar("T")

# How much one command reads, and how many commands are sent at once.
CHUNK = 1000


class Reader:
    """Reads keys of any size in chunks. Entries that change meanwhile may be missed, or read twice."""

    def __init__(self, connection: Redis) -> None:
        self.connection: Any = connection

    def all(self, commands: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Yield the replies to some commands; an exception for a command that Redis refuses."""
        for chunk in chunks(commands, CHUNK):
            pipeline = self.connection.pipeline(transaction=False)
            for command in chunk:
                pipeline.execute_command(*command)
            yield from pipeline.execute(raise_on_error=False)

    def all_keys(self) -> Iterator[list[str]]:
        prefix = prefix_at(self.connection)
        return self._scan(partial(self.connection.scan, match=f"{prefix}*") if prefix else self.connection.scan)

    def members(self, key: str) -> Iterator[list[str]]:
        return self._scan(self.connection.sscan, key)

    def scores(self, key: str) -> Iterator[list[tuple[str, float]]]:
        return self._scan(self.connection.zscan, key)

    def _scan(self, command: Callable[..., Any], *key: str) -> Iterator[list[Any]]:
        cursor = None
        with passing_over_wrong_types():
            while cursor != 0:
                cursor, found = command(*key, cursor or 0, count=CHUNK)
                yield list(found)

    def entries(self, key: str) -> Iterator[list[str]]:
        """Yield the entries of a list, from its end, so that those that leave at the beginning move no others."""
        last, read = None, 0
        while True:
            entries = []
            with passing_over_wrong_types():
                entries = list(self.connection.lrange(key, -read - CHUNK + (read > 0), -max(read, 1)))
            if not entries:
                return
            length = len(entries)
            if last in entries:
                position = length - 1 - entries[::-1].index(last)
                entries, shift = entries[:position], length - 1 - position
                read += shift
            read += len(entries)
            if entries:
                yield entries
                last = entries[0]
            elif length < CHUNK:
                return
