"""A connection to Redis that one thread keeps, so that a command over it takes less time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

# A connection that was not used for so many seconds goes back to the pool first, which looks whether it is still good.
IDLE = 1.0


class Line:
    """Sends commands over one connection of a client's pool, and reads their replies, as scripts need them.

    A client of redis-py takes a connection out of its pool, and puts it back, for each command: together with what else
    it does for all kinds of commands that is a third of the time. Not to be used by two threads, nor across a fork. A
    connection is taken when it is needed first, and another one after a failure.

    Parameters
    ----------
    client: callable
        Returns the client, a `redis.Redis`.
    """

    def __init__(self, client: Callable[[], Redis]) -> None:
        self._client = client
        self._own: Any = None  # a client of its own, which holds a connection
        self._used_at = 0.0

    def execute_command(self, *words: Any) -> Any:
        """Send a command; return its reply.

        Raises
        ------
        redis.exceptions.RedisError
            If that is an error, or if the connection fails.
        """
        (reply,) = self.execute_commands(words)
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    def execute_commands(self, *commands: Sequence[Any]) -> list[Any]:
        """Send some commands at once; return their replies, of which some may be errors.

        Raises
        ------
        redis.exceptions.RedisError
            If the connection fails.
        """
        connection = self._connection()
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            replies = [_reply_or_error(connection) for _ in commands]
        except BaseException:
            connection.disconnect()  # a reply may be on its way still
            self.close()
            raise
        self._used_at = monotonic()
        return replies

    def close(self) -> None:
        """Give the connection back to the pool. A later use takes another one."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def _connection(self) -> Any:
        if monotonic() - self._used_at > IDLE:
            self.close()
        if self._own is None:
            client: Any = self._client()
            self._own = client.client()
        return self._own.connection


def _reply_or_error(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error
