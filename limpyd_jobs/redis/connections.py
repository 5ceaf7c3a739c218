"""Connections to Redis: what they do beside those of redis-py; and some that are kept, which takes less time."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from inspect import Parameter, signature
from math import inf
from time import monotonic
from typing import Any

import redis
from redis import ConnectionPool, Redis
from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.redis.blocking import guarded, refuse_on_guarded_loop
from limpyd_jobs.redis.cluster import tags
from limpyd_jobs.redis.cluster.refusals import resent
from limpyd_jobs.redis.forks import this_process
from limpyd_jobs.redis.servers import as_lost, note_default, reasons_to_leave, refuse_other_protocol

try:
    import hiredis
except ImportError:
    _pack: Any = None
else:
    _pack = hiredis.pack_command

# A connection that was not used for this long, in seconds, goes back to the pool first, which checks it.
IDLE = 0.1

# So does a connection of a pool that limits how long it may be kept (`limpyd_jobs.redis.primary`): the pool asks where
# it leads.

# The first releases of redis-py 5 need the name of a command to take a connection out of a pool, later ones warn of it.
_name = signature(ConnectionPool.get_connection).parameters.get("command_name")
_FOR_ANYTHING = ("_",) if _name and _name.default is Parameter.empty else ()


class PinnedConnection:
    """Sends commands over one connection of a client's pool, and reads their replies, as scripts need them.

    For each command, a client of redis-py takes a connection out of its pool, and puts it back. With its other work for
    all kinds of commands, that is a third of the time. Not to be used by two threads at once. A connection is taken at
    the first use; another one is taken after a failure, and in a forked child. A caller that tries only once `looks`
    each time whether the connection is still good, as the pool does. `before_replies` is called with the connection
    once commands are sent; it may do something else until there is a reply to read.
    """

    def __init__(
        self,
        client: Callable[[], Redis],
        *,
        looks: bool = False,
        before_replies: Callable[[Any], None] | None = None,
    ) -> None:
        self._client = client
        self._before_replies = before_replies
        self._looks = looks
        self._pool: Any = None
        self._connection: Any = None
        self._used_at = -inf
        self._keep_until = inf
        self._pid = 0
        self._is_resending = False

    def execute_command(self, *words: Any) -> Any:
        """Send a command; return its reply."""
        if tags.used:
            (reply,) = self.execute_commands(words)
            if isinstance(reply, ResponseError):
                raise reply
            return reply
        connection = self._send((words,))
        try:
            reply = connection.read_response()
        except ResponseError:
            self._used_at = monotonic()
            raise
        except BaseException:
            self._drop()
            raise
        self._used_at = monotonic()
        return reply

    def execute_commands(self, *commands: Sequence[Any]) -> list[Any]:
        """Send some commands at once; return their replies. Some of them may be errors."""
        connection = self._send(commands)
        try:
            replies = [_reply_or_error(connection) for _ in commands]
        except BaseException:
            self._drop()
            raise
        self._used_at = monotonic()
        return self._without_refused(commands, replies) if tags.used and not self._is_resending else replies

    def _send(self, commands: Sequence[Sequence[Any]]) -> Any:
        """Send some commands; return the connection, once there may be a reply to read."""
        if guarded:
            refuse_on_guarded_loop()
        connection = self._connection
        now = monotonic()
        if now - self._used_at > IDLE or now > self._keep_until or self._pid != this_process.pid or self._looks:
            connection = self._checked_connection(now)
        try:
            connection.send_packed_command(packed(connection.encoder, commands))
            if self._before_replies:
                self._before_replies(connection)
        except BaseException:
            self._drop()
            raise
        return connection

    def _drop(self) -> None:
        """Close the connection: a reply may still be on its way."""
        if self._connection is not None:
            self._connection.disconnect()
        self.close()

    def _without_refused(self, commands: Sequence[Any], replies: list[Any]) -> list[Any]:
        """Send again what a cluster refused because the slot moves."""
        if not any(isinstance(reply, ResponseError) for reply in replies) or not getattr(self._pool, "tag", ""):
            return replies
        self._is_resending = True
        try:
            return resent(self._pool, commands, replies, self._send_again)
        finally:
            self._is_resending = False

    def _send_again(self, commands: list[Any]) -> list[Any]:
        self.close()  # the server may be another one now
        return self.execute_commands(*commands)

    @property
    def connection_pool(self) -> Any:
        """The pool of the client."""
        return self._client().connection_pool if self._connection is None else self._pool

    def close(self) -> None:
        """Give the connection back to the pool. A later use takes another one."""
        if self._connection is not None:
            self._pool.release(self._connection)
            self._connection, self._used_at = None, -inf

    def interrupt(self) -> None:
        """Make the command that another thread waits for fail."""
        _interrupt(self._connection)

    def _checked_connection(self, now: float) -> Any:
        """Return the connection if it is good, else another one, which the pool has checked."""
        if self._connection is not None and not self._is_good(now):
            self.close()
        if self._connection is None:
            self._pool = self._client().connection_pool
            self._connection = self._pool.get_connection(*_FOR_ANYTHING)
            self._keep_until = monotonic() + getattr(self._pool, "kept_for", inf)
            self._pid = this_process.pid
        return self._connection

    def _is_good(self, now: float) -> bool:
        if self._pid != this_process.pid or now - self._used_at > IDLE or now > self._keep_until:
            return False
        try:
            # no command was sent, so there can only be its end to read
            return not (self._looks and _can_read(self._connection))
        except (RedisError, OSError):
            return False


class SharedConnection:
    """One line for all threads of a process, one connection more than the other users of the pool take. If it is in
    use, a thread sends by the client instead."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._begin()

    @property
    def connection_pool(self) -> Any:
        """The pool of the client."""
        return self._client.connection_pool

    def _begin(self) -> None:
        self._pid = this_process.pid
        self._free = [PinnedConnection(lambda: self._client, looks=True)]

    def execute_command(self, *words: Any) -> Any:
        """Send a command; return its reply."""
        if self._pid != this_process.pid:  # a thread of the parent process may have had the line in use
            self._begin()
        try:
            line = self._free.pop()
        except IndexError:
            return self._client.execute_command(*words)  # type: ignore[no-untyped-call]
        try:
            return line.execute_command(*words)
        finally:
            self._free.append(line)

    def close_idle(self) -> None:
        """Give the line back, unless it is in use."""
        with suppress(IndexError):
            line = self._free.pop()
            line.close()
            self._free.append(line)


def interrupt_all(pool: Any) -> None:
    """Make the commands fail that threads wait for over the connections of a pool."""
    for name in ("_in_use_connections", "_connections"):  # one kind of pool knows only all of them
        for connection in list(getattr(pool, name, ())):
            _interrupt(connection)


def _interrupt(connection: Any) -> None:
    used = getattr(connection, "_sock", None)
    if used is not None:
        with suppress(OSError):
            used.shutdown(socket.SHUT_RDWR)


def shorter_than_timeout(client: Redis, seconds: float) -> float:
    """Return for how many of some seconds a command may wait: less than until the connection gives up."""
    timeout = client.connection_pool.connection_kwargs.get("socket_timeout")
    return min(seconds, timeout / 2) if timeout else seconds


def _can_read(connection: Any) -> bool:
    """Whether there is data or the end to read: as the connection itself tells, in less than half of the time."""
    used = connection._sock
    if used is None or not hasattr(select, "poll"):
        return bool(connection.can_read())
    poll = select.poll()
    poll.register(used, select.POLLIN)
    return bool(poll.poll(0))


def packed(encoder: Any, commands: Sequence[Sequence[Any]]) -> list[bytes]:
    """Return the bytes of some commands, as a connection with that encoder makes them, in a third of the time."""
    if _pack:
        try:
            return [b"".join([_pack(tuple(words)) for words in commands])]
        except (TypeError, UnicodeEncodeError):  # of a value, or a text, that only the encoder can encode
            pass
    parts = []
    encoding, errors = encoder.encoding, encoder.encoding_errors
    for words in commands:
        parts.append(b"*%d\r\n" % len(words))
        for word in words:
            text = word.encode(encoding, errors) if type(word) is str else encoder.encode(word)
            parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return [b"".join(parts)]


def _reply_or_error(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


# -- What all connections do


@cache
def escaping(connection_class: Any) -> Any:
    """Return a class of connections that writes any text that was read, and that no coroutine of a guarded loop waits
    for."""

    # hiredis, which redis-py uses if it is installed, knows no surrogate escapes, and has shorter error messages

    class Connection(connection_class):  # type: ignore[misc]
        def _connect(self) -> Any:
            if guarded:
                refuse_on_guarded_loop()
            return super()._connect()

        def send_command(self, *args: Any, **kwargs: Any) -> Any:
            if guarded:
                refuse_on_guarded_loop()
            try:
                return super().send_command(*args, **kwargs)
            except (UnicodeEncodeError, redis.DataError):
                return super().send_command(*map(self.encoder.encode, args), **kwargs)

        def pack_commands(self, commands: Iterable[Iterable[Any]]) -> Any:
            if guarded:
                refuse_on_guarded_loop()
            commands = list(commands)
            try:
                return super().pack_commands(commands)
            except (UnicodeEncodeError, redis.DataError):
                return super().pack_commands([map(self.encoder.encode, command) for command in commands])

    return Connection


@cache
def improved(connection_class: Any) -> Any:
    """Return the same class, but its connections also leave a server that is not a primary any more."""
    reasons, is_tls = reasons_to_leave(connection_class), issubclass(connection_class, redis.SSLConnection)

    class Connection(escaping(connection_class)):  # type: ignore[misc]
        def __init__(self, *, socket_timeout: float | None, **settings: Any) -> None:
            super().__init__(socket_timeout=socket_timeout, **settings)
            self.socket_timeout = socket_timeout  # forgotten by the first releases of redis-py 5, on unix sockets

        def connect(self) -> None:
            try:
                super().connect()
            except redis.RedisError as error:
                host, port = getattr(self, "host", None), getattr(self, "port", 0)
                refuse_other_protocol(error, host, port, is_tls=is_tls)
                note_default(error, host, port)
                raise

        def read_response(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().read_response(*args, **kwargs)
            except redis.ResponseError as error:
                lost = as_lost(error, reasons)
                if not lost:
                    raise
                self.disconnect()
                raise lost from error
            except (ValueError, AttributeError) as error:
                if isinstance(error, UnicodeError):
                    raise
                raise redis.ConnectionError(f"The connection was closed while it was read: {error}") from error

    return Connection
