"""One connection of an event loop to a database, which all tasks share: each command is sent at once, and the replies
come in the same order. Nothing here knows what the commands are for.

The replies are read here, and not by redis-py: its connections of asyncio await each reply on its own, which takes
three times the processor time, and a task more.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from inspect import signature
from time import monotonic
from typing import Any

import redis
from redis import asyncio as redis_asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.sentinel import SentinelConnectionPool

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.redis.cluster.pool import ClusterPool
from limpyd_jobs.redis.cluster.refusals import Patience, places_to_resend
from limpyd_jobs.redis.connections import packed
from limpyd_jobs.redis.primary import ANSWER_VALID_FOR, PrimaryPool
from limpyd_jobs.redis.servers import (
    as_lost,
    check_server,
    note_default,
    reasons_to_leave,
    refuse_cluster,
    refuse_other_protocol,
)
from limpyd_jobs.threads import in_own_thread

# The settings of the connections of a pool that those of asyncio have, too.
_SETTINGS = re.compile(
    r"host|port|path|db|username|password|credential_provider|client_name|encoding|encoding_errors|ssl_.+"
    r"|socket_(?:connect_)?timeout|socket_keepalive(?:_options)?"
)

# For how many seconds a connection to a primary that Sentinel named is used before Sentinel is asked again.
_FOR_EVER = float("inf")


# How many bytes are gathered before they are sent, and for how many seconds, while other tasks run: Redis then works on
# some commands while tasks make others.
SEND_AT, SEND_AFTER = 16_384, 0.0005


class Incomplete(Exception):
    """The rest of a reply is on its way."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """A task that waits for the replies to its commands."""

    number: int
    future: asyncio.Future[list[Any]]
    replies: list[Any] = field(default_factory=list)


class Wire(asyncio.Protocol):
    """A connection, as soon as it is set up. Who waits for a reply may be canceled: the reply is then dropped.

    Parameters
    ----------
    connection: redis.asyncio.Connection
        It is not used any more, only what lies below.
    timeout: float
        For how many seconds to wait for the next reply; None for no limit.
    reasons: sequence of str
        With which errors a server tells that it is not the primary any more.
    """

    def __init__(self, connection: Any, timeout: float | None, reasons: Sequence[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._encoder, self._parser = connection.encoder, connection._parser
        self._timeout, self._reasons = timeout, reasons
        self._waiting: deque[_Waiting] = deque()
        self._outgoing: list[bytes] = []
        self._size, self._sent_at, self._is_to_flush = 0, 0.0, False
        self._received = bytearray()
        self._arrays: list[tuple[list[Any], int]] = []  # those that are not complete, the outermost first
        self._progress_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._writable: asyncio.Future[None] | None = None
        self.is_open, self._is_lost = True, False
        self._writer, connection._writer, connection._reader = connection._writer, None, None
        self._transport: Any = self._writer.transport
        self._transport.set_protocol(self)

    async def execute(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send some commands; return the reply to each, or the error."""
        data = packed(self._encoder, commands)
        while self._writable is not None:
            await asyncio.shield(self._writable)
        if self._is_lost:
            raise redis.ConnectionError("The connection was lost before the command was sent")
        waiting = _Waiting(len(commands), self._loop.create_future())
        self._outgoing += data
        self._waiting.append(waiting)
        self._size += len(data[0])
        if self._size >= SEND_AT or monotonic() - self._sent_at > SEND_AFTER:
            self._flush()
        elif not self._is_to_flush:
            self._is_to_flush = True
            self._loop.call_soon(self._flush)
        return await waiting.future

    def retire(self) -> None:
        """Send nothing new: close the connection once all replies have come."""
        self.is_open = False
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Close the connection. Who waits for a reply gets an error."""
        self._lose(redis.ConnectionError("The connection was closed"))

    def _flush(self) -> None:
        """Send what tasks gave since it was sent the last time, in one piece."""
        data, self._outgoing, self._size = b"".join(self._outgoing), [], 0
        self._sent_at, self._is_to_flush = monotonic(), False
        if self._is_lost or not data:
            return
        self._transport.write(data)
        if self._watch is None and self._timeout is not None:
            self._progress_at = monotonic()
            self._watch = self._loop.call_later(self._timeout, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        self._watch = None
        if not self._waiting or self._timeout is None:
            return
        left = self._progress_at + self._timeout - monotonic()
        if left <= 0:
            self._lose(redis.TimeoutError(f"Redis did not answer within {self._timeout:g} seconds"))
        else:
            self._watch = self._loop.call_later(left, self._look_at_the_time)

    def data_received(self, data: bytes) -> None:
        """Hand the replies to those who wait for them."""
        self._received += data
        self._progress_at = monotonic()
        position = 0
        try:
            while position < len(self._received):
                position = self._read(position)
        except Incomplete:
            pass
        except Exception as error:
            self._lose(redis.ConnectionError(f"What was received is not a reply of Redis: {error!r}"))
        del self._received[:position]
        if not self._waiting and not self.is_open:
            self.close()

    def _deliver(self, reply: Any) -> None:
        if isinstance(reply, ResponseError):
            lost = as_lost(reply, self._reasons)
            if lost:
                lost.__cause__ = reply
                reply, self.is_open = lost, False
        waiting = self._waiting[0]
        waiting.replies.append(reply)
        if len(waiting.replies) == waiting.number:
            self._waiting.popleft()
            if not waiting.future.done():  # else the task was canceled
                waiting.future.set_result(waiting.replies)

    def _read(self, start: int) -> int:
        """Take in what begins at a position, as RESP2 has it; return where the next begins. An array is taken in
        element by element: none is read twice, in however many pieces a long reply comes."""
        end = self._received.find(b"\r\n", start)
        if end < 0:
            raise Incomplete
        kind, line, end = self._received[start], self._received[start + 1 : end], end + 2
        value: Any = None
        if kind == 36:  # $
            if (stop := end + int(line)) >= end:
                if len(self._received) < stop + 2:
                    raise Incomplete
                value, end = self._text(self._received[end:stop]), stop + 2
        elif kind == 58:  # :
            value = int(line)
        elif kind == 43:  # +
            value = self._text(line)
        elif kind == 45:  # -
            value = self._parser.parse_error(self._text(line))
        elif kind != 42:  # *
            raise ValueError(bytes(self._received[start : start + 20]))
        elif (number := int(line)) > 0:
            self._arrays.append(([], number))
            return end
        elif number == 0:
            value = []
        self._complete(value)
        return end

    def _complete(self, value: Any) -> None:
        """Add a value to the array it stands in, and so on if that is complete; deliver what stands in none."""
        while self._arrays:
            values, number = self._arrays[-1]
            values.append(value)
            if len(values) < number:
                return
            self._arrays.pop()
            value = values
        self._deliver(value)

    def _text(self, data: bytearray) -> str:
        return data.decode(self._encoder.encoding, self._encoder.encoding_errors)

    def pause_writing(self) -> None:
        """Let those wait who send something: Redis does not keep up."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Let them go on."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell those who wait."""
        self._lose(redis.ConnectionError(f"Connection closed by server: {error}" if error else "Connection closed"))

    def _lose(self, error: RedisError) -> None:
        self.is_open = False
        if self._is_lost:
            return
        self._is_lost = True
        if self._watch is not None:
            self._watch.cancel()
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.future.done():
                each.future.set_exception(error)
        self.resume_writing()
        if not self._loop.is_closed():
            self._transport.abort()


class Line:
    """The way of the tasks of one loop to the database of a pool. It connects when it is first used, and again after a
    failure, but sends no command twice: as the clients of `JobsDatabase`, it repeats only what the setting ``retry`` of
    the database asks for."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._wire: Wire | None = None
        self._opening: asyncio.Future[Wire] | None = None
        self._valid_until = _FOR_EVER
        self._address: Any = None
        self._retry = _retry_of(pool.connection_kwargs.get("retry"))

    async def execute(self, *commands: Sequence[Any]) -> list[Any]:
        """Send some commands; return the reply to each, or the error. If the connection fails, that is raised."""
        if self._retry is not None:
            return list(await self._retry.call_with_retry(lambda: self._execute(commands), _nothing))
        return await self._execute(commands)

    async def _execute(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        wire = self._wire
        if wire is None or not wire.is_open or monotonic() > self._valid_until:
            wire = await self._ready()
        replies = await wire.execute(commands)
        if isinstance(self._pool, ClusterPool):
            replies = await self._without_refused(commands, replies)
        for reply in replies:
            if isinstance(reply, redis.ConnectionError):  # not the primary any more, or it loads its data
                raise reply
        return replies

    async def _without_refused(self, commands: Sequence[Sequence[Any]], replies: list[Any]) -> list[Any]:
        """Send again what a cluster refused because the slot moves, until nothing is refused."""
        places = places_to_resend(commands, replies)
        patience = Patience(self._pool)
        while places:
            await asyncio.sleep(patience.pause(replies[places[0]]))
            wire = await self._ready()
            again = await wire.execute([commands[place] for place in places])
            for place, reply in zip(places, again, strict=True):
                replies[place] = reply
            places = places_to_resend(commands, replies)
        return replies

    async def _ready(self) -> Wire:
        """Return a wire that may be used. All who need one wait for the same task, which no cancellation ends."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._opened())
            self._opening.add_done_callback(self._was_opened)
        return await asyncio.shield(self._opening)

    def _was_opened(self, opening: asyncio.Future[Wire]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # all who waited for it may have been canceled

    async def _opened(self) -> Wire:
        address = None
        if isinstance(self._pool, PrimaryPool):
            address = await in_own_thread(self._pool.primary_address)
            self._valid_until = monotonic() + ANSWER_VALID_FOR
        elif isinstance(self._pool, ClusterPool):
            address = await in_own_thread(self._pool.owner)
        wire = self._wire
        if wire is not None and wire.is_open and address == self._address:
            return wire
        self.retire()
        self._wire, self._address = await _connected(self._pool, address), address
        return self._wire

    def retire(self) -> None:
        """Close the connection, once the replies that are on their way have come. A later use opens another one."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.retire()

    def close(self) -> None:
        """Close the connection at once."""
        wire, self._wire = self._wire, None
        if self._opening is not None:
            self._opening.cancel()
        if wire is not None:
            wire.close()


async def _nothing(*_: Any) -> None:
    """Do nothing between a failure and the next try: the connection is closed already."""


def _retry_of(retry: Any) -> Retry | None:
    """Return how asyncio repeats what the setting of a database asks for; None if nothing is repeated."""
    times = getattr(retry, "_retries", 0)
    return Retry(retry._backoff, times, retry._supported_errors) if times else None


async def _connected(pool: Any, address: tuple[str, int] | None) -> Wire:
    """Connect as the connections of a pool do."""
    if isinstance(pool, SentinelConnectionPool) and address is None:
        raise ConfigurationException("Of clients of Sentinel, only those of a JobsDatabase can be used by asyncio")
    kwargs = pool.connection_kwargs
    given = {name: value for name, value in kwargs.items() if _SETTINGS.fullmatch(name) and value is not None}
    if address is not None:
        given["host"], given["port"] = address
    kind = _kind_of(pool.connection_class)
    unknown = {name: value for name, value in given.items() if name not in _settings_of(kind)}
    if any(unknown.values()):
        names = ", ".join(name for name, value in unknown.items() if value)
        raise ConfigurationException(f"With asyncio, this release of redis-py has no {names}")
    known = {name: value for name, value in given.items() if name not in unknown}
    connection = kind(**known, decode_responses=True, protocol=2, retry=Retry(NoBackoff(), 0))
    try:
        await connection.connect()
        await _greet(connection, is_in_cluster=isinstance(pool, ClusterPool))
    except BaseException as error:
        await connection.disconnect(nowait=True)
        if isinstance(error, RedisError) and "host" in given:
            is_tls = issubclass(kind, redis_asyncio.SSLConnection)
            asked = error, given["host"], given.get("port", 6379)
            await in_own_thread(partial(refuse_other_protocol, *asked, is_tls=is_tls))
            note_default(*asked)
        raise
    return Wire(connection, kwargs.get("socket_timeout"), reasons_to_leave(pool.connection_class))


async def _greet(connection: Any, is_in_cluster: bool) -> None:
    await connection.send_command("INFO", "server", check_health=False)
    try:
        information = str(await connection.read_response())
    except ResponseError:
        return  # INFO is forbidden to this user
    check_server(information)
    if not is_in_cluster:
        refuse_cluster(information, connection)


@cache
def _settings_of(kind: Any) -> set[str]:
    """Return the names of the settings that a class of connections takes."""
    return {name for each in kind.__mro__ if "__init__" in vars(each) for name in signature(each.__init__).parameters}


@cache
def _kind_of(connection_class: Any) -> Any:
    """Return the class of connections of asyncio that is like one of redis-py."""
    if issubclass(connection_class, redis.UnixDomainSocketConnection):
        return redis_asyncio.UnixDomainSocketConnection
    if issubclass(connection_class, redis.SSLConnection):
        return redis_asyncio.SSLConnection
    return redis_asyncio.Connection
