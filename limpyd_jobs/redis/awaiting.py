"""The verbs under asyncio: what answers the requests of their steps, and the connections that an event loop has."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import redis
from redis.exceptions import NoScriptError, RedisError

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.redis.calls import Call, Commands, Request, Steps
from limpyd_jobs.redis.multiplexed import Line
from limpyd_jobs.redis.replication import CopyingSender

T = TypeVar("T")

# A reply with this word asks for indexes that only limpyd can maintain, by commands of its own.
_REINDEX = '"reindex"'


async def finished(steps: Steps[T]) -> T:
    """Do as `limpyd_jobs.redis.calls.finish`, without keeping the loop from other tasks.

    If the task is canceled, the steps are told so, as of any other failure. What is on its way to Redis may be done all
    the same.
    """
    proceed: Callable[[], Request] = partial(next, steps)
    while True:
        try:
            request = proceed()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            reply = await _reply_to(request)
        except BaseException as error:
            proceed = partial(steps.throw, error)
        else:
            proceed = partial(steps.send, reply)


async def _reply_to(request: Request) -> Any:
    if isinstance(request, Call):
        return await sent(request)
    if isinstance(request, Commands):
        return await _replies_to(request)
    return await in_thread(request)


async def sent(call: Call[T]) -> T:
    """Do as `limpyd_jobs.redis.calls.send`."""
    if call.before:
        await in_thread(call.before)
    try:
        text = await _text_of(call)
    except RedisError as error:
        if not call.subject:
            raise
        raise call.failed(error) from error
    return await in_thread(partial(call.accept, text)) if _REINDEX in text else call.accept(text)


async def _text_of(call: Call[Any]) -> str:
    script, rest = call.script, [len(call.keys), *call.keys, *call.words()]
    text = await _reply_of(call.sender, ("EVALSHA", script.sha, *rest))
    if isinstance(text, NoScriptError):
        text = await _reply_of(call.sender, ("EVAL", script.source, *rest))
    if isinstance(text, RedisError):
        raise text
    return str(text)


async def _reply_of(sender: Any, command: Sequence[Any]) -> Any:
    if isinstance(sender, CopyingSender):  # others must not wait for the replicas, too
        return sender.accept(await line_to(sender, "copies").execute(*sender.with_wait(command)))
    (reply,) = await line_to(sender).execute(command)
    return reply


async def _replies_to(commands: Commands) -> list[Any]:
    replies = await line_to(commands.connection).execute(*commands.commands)
    return [_as_redis_py_reads(*pair) for pair in zip(commands.commands, replies, strict=True)]


def _as_redis_py_reads(command: Sequence[Any], reply: Any) -> Any:
    read = _callbacks().get(str(command[0]))
    return reply if read is None or isinstance(reply, Exception) else read(reply)


@cache
def _callbacks() -> Any:
    """Return how redis-py reads the replies to commands, by their names; the client is not used otherwise."""
    client: Any = redis.Redis(protocol=2)
    return client.response_callbacks


async def in_thread(function: Callable[[], T]) -> T:
    """Call what is not made for asyncio in a thread. If the task is canceled, it waits for the end of the call: what
    comes next must not be done at the same time."""
    loop = running_loop()
    call = loop.create_task(asyncio.to_thread(function))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        if not call.cancelled():
            await asyncio.wait([call])
            call.exception()
        raise


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
