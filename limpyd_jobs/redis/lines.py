"""The connections that an event loop has."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.redis.multiplexed import Line


class _Lines(dict[tuple[Any, str], Line]):
    """The lines of a loop, by the pool of a database and what they are for.

    They are closed when the loop ends, as `asyncio.run` and all servers end theirs: after the last task, they shut down
    its asynchronous generators.
    """

    def __init__(self) -> None:
        self._end = self._closed_at_the_end()
        with suppress(StopIteration):
            self._end.__anext__().send(None)  # from now on the loop knows it

    async def _closed_at_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.close()
            await asyncio.sleep(0)

    def close(self, pool: Any = None) -> None:
        """Close the lines to the database of a pool, or all."""
        for key in [key for key in self if pool is None or key[0] is pool]:
            self.pop(key).close()


_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lines]
_lock: threading.Lock
_of_parents: list[object] = []  # never freed: that would end the connections of the parent process


def line_to(sender: Any, purpose: str = "") -> Line:
    """Return the line of this loop to the database of a client, or of anything else that has its pool."""
    loop, key = running_loop(), (sender.connection_pool, purpose)
    try:
        return _lines[loop][key]
    except KeyError:
        pass
    with _lock:
        for each in [*_lines]:
            if each.is_closed():
                del _lines[each]
        lines = _lines[loop] = _lines.get(loop) or _Lines()
    return lines.setdefault(key, Line(sender.connection_pool))


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this thread.

    Raises
    ------
    ConfigurationException
        If there is none.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigurationException(
            "The awaitable methods need an event loop of asyncio (or uvloop) that runs. Trio has none: there, call the "
            "others in a thread, by trio.to_thread.run_sync"
        ) from None


def close_line(pool: Any, purpose: str) -> None:
    """Close one connection of this loop."""
    lines = _lines.get(running_loop())
    if lines is not None and (pool, purpose) in lines:
        lines.pop((pool, purpose)).close()


async def close_lines(pool: Any) -> None:
    """Close the connections of this loop to the database of a pool."""
    lines = _lines.get(running_loop())
    if lines is not None:
        lines.close(pool)
        await asyncio.sleep(0)  # so that the loop closes the sockets


def _begin() -> None:
    """Forget the loops of the parent process: their connections are not those of its children."""
    global _lines, _lock
    _of_parents.append(globals().get("_lines"))
    _lines, _lock = WeakKeyDictionary(), threading.Lock()


_begin()
os.register_at_fork(after_in_child=_begin)
