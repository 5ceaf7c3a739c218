"""Waiting until replicas have a copy of what was written, for databases whose settings ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redis import Redis
from redis.exceptions import ConnectionError, RedisError

from limpyd_jobs.exceptions import ConfigurationException, NotReplicated

# The settings of a database that are not those of redis-py.
SETTINGS = ("wait_for_replicas", "replica_timeout")

TIMEOUT = 0.2

# Redis counts a WAIT from the last write of the same connection, but a job that is there already is not written again.
# A message is copied to replicas like a write, and is kept nowhere.
PUBLISHED = ("PUBLISH", "limpyd-jobs:copied", "")

# What WAIT says if the server became a replica, meanwhile or just before.
_DEMOTED = ("UNBLOCKED", "WAIT cannot be used with replica")


class Copies(NamedTuple):
    """How many replicas must have a copy, and within how many seconds."""

    replicas: int
    seconds: float

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Copies:
        """Read and check the settings of a database; without them, no replica must have a copy."""
        replicas, seconds = settings.get("wait_for_replicas", 0), settings.get("replica_timeout", TIMEOUT)
        if type(replicas) is not int or replicas < 0:
            raise ConfigurationException(f"wait_for_replicas must be a number of replicas, not {replicas!r}")
        longest = settings.get("socket_timeout", 10) or float("inf")
        if type(seconds) not in (int, float) or not seconds >= 0.001 or (replicas and seconds >= longest):
            raise ConfigurationException(
                "replica_timeout must be a number of seconds, less than the socket_timeout "
                f"({longest:g}), not {seconds!r}"
            )
        return cls(replicas, seconds)


class CopyingSender:
    """Sends commands to Redis, and waits each time until replicas have what they wrote, in the same round trip."""

    def __init__(self, client: Redis, wanted: Copies) -> None:
        self._client, self._wanted = client, wanted
        self._copied: Any = None

    @property
    def connection_pool(self) -> Any:
        """The pool of the client."""
        return self._client.connection_pool

    def execute_command(self, *words: Any) -> Any:
        """Send a command; return its reply."""
        reply = self._send(words)
        if isinstance(reply, RedisError):
            raise reply
        return reply

    def wait(self) -> None:
        """Wait until replicas have what was written before, over any connection."""
        self._send()

    def check(self, idents: Sequence[str]) -> None:
        """Raise an exception if the jobs that were written have too few copies, or Redis does not allow to wait for
        them."""
        if isinstance(self._copied, RedisError):
            if any(told in str(self._copied) for told in _DEMOTED):
                raise ConnectionError(f"The server is not the primary any more: {self._copied}") from self._copied
            raise self._copied
        if self._copied is not None and self._copied < self._wanted.replicas:
            raise NotReplicated(idents, self._copied, *self._wanted)

    def _send(self, *commands: Sequence[Any]) -> Any:
        pipeline: Any = self._client.pipeline(transaction=False)
        for words in self.with_wait(*commands):
            pipeline.execute_command(*words)
        return self.accept(pipeline.execute(raise_on_error=False))

    def with_wait(self, *commands: Sequence[Any]) -> list[Sequence[Any]]:
        """Return some commands, and those that wait for the replicas."""
        return [*commands, PUBLISHED, ("WAIT", self._wanted.replicas, int(1000 * self._wanted.seconds))]

    def accept(self, replies: Sequence[Any]) -> Any:
        """Take the replies to all these, for `check`; return the first one, which may be an error."""
        reply, *_, self._copied = replies
        return reply
