"""When Redis fails: whether to try again, how long to wait before, and how often to say so."""

from __future__ import annotations

import random
import re

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterError,
    MaxConnectionsError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from limpyd_jobs.redis.servers import OtherProtocol
from limpyd_jobs.texts import printable

# What Redis answers while it cannot do something that it can do at other times.
_PASSING = (RedisConnectionError, RedisTimeoutError, ClusterError, OutOfMemoryError, ReadOnlyError, TryAgainError)

# The same, where redis-py has no class for it, or the error comes out of a script.
_PASSING_TEXT = re.compile(r"\b(BUSY|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY|UNBLOCKED)\b")

# The errors of connections to a server that is there.
_REFUSALS = (AuthenticationError, AuthorizationError, MaxConnectionsError, OtherProtocol)

# What Redis answers if the user is not allowed to do something; the last two are from scripts of Redis 7 and 6.2.
_DENIED_TEXT = re.compile(r"\bNOPERM\b|ACL failure in script|The user executing the script can't")

# The shortest wait in seconds, so that at most one failure is logged each second; and the longest.
FIRST_PAUSE = 1.0
MAX_PAUSE = 10.0


class Backoff:
    """Waits that grow with each failure in a row, and differ from worker to worker.

    Exponential, with half of the wait at random ("equal jitter" in
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
    """

    def __init__(self) -> None:
        self._failures = 0

    def next(self) -> float:
        """Return the seconds to wait after one more failure."""
        self._failures += 1
        longest: float = min(MAX_PAUSE, FIRST_PAUSE * 2 ** min(self._failures, 10))
        return longest / 2 + random.uniform(0, longest / 2)

    def reset(self) -> None:
        """There was a success."""
        self._failures = 0


def is_transient(error: BaseException | None) -> bool:
    """Whether Redis may well accept later what it refused now."""
    return isinstance(error, _PASSING) or bool(_PASSING_TEXT.search(printable(error)))


def is_connection_error(error: BaseException | None) -> bool:
    """Whether Redis did not answer at all, or is only starting."""
    return isinstance(error, (RedisConnectionError, RedisTimeoutError))


def is_away(error: BaseException | None) -> bool:
    """Whether no server answers there, as before it has started. One that refuses the password does answer."""
    return is_connection_error(error) and not isinstance(error, _REFUSALS)


def is_connection_cut(error: BaseException | None) -> bool:
    """Whether there was a connection that ended: so there is a server."""
    reason = error.__context__ if type(error) is RedisConnectionError else error
    return reason is None or isinstance(reason, (BrokenPipeError, ConnectionAbortedError, ConnectionResetError))


def is_denied(error: BaseException | None) -> bool:
    """Whether Redis does not allow this user to do something, until the rights are changed."""
    return isinstance(error, NoPermissionError) or bool(_DENIED_TEXT.search(printable(error)))


def is_of_replica(error: BaseException | None) -> bool:
    """Whether the server is not a primary any more."""
    return isinstance(error, ReadOnlyError) or "READONLY" in printable(error)
