"""Which servers are used: those that are new enough, and are the primary. And what their errors mean."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterable
from typing import Any, NamedTuple

import redis
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
from redis.sentinel import SentinelManagedConnection

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.texts import printable

OLDEST_REDIS = (6, 2)

# The environment variable that names the database where the application does not.
VARIABLE = "LIMPYD_JOBS_DATABASE"

# The server that is used if none is named.
DEFAULT = ("localhost", 6379)

# How many seconds a server has to answer when it is asked whether it speaks TLS.
PROBE_TIMEOUT = 1.0


# What workers and the check warn of, before the policy.
MAY_DELETE_JOBS = "Redis may DELETE JOBS when its memory is full: set maxmemory-policy to noeviction, not "


class OtherProtocol(redis.ConnectionError):
    """A server speaks TLS, and the address says that it does not, or the other way round."""


# What Redis answers while it cannot do something that it can do at other times.
_PASSING = (RedisConnectionError, RedisTimeoutError, ClusterError, OutOfMemoryError, ReadOnlyError, TryAgainError)

# The same, where redis-py has no class for it, or the error comes out of a script.
_PASSING_TEXT = re.compile(r"\b(BUSY|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY|UNBLOCKED)\b")

# The errors of connections to a server that is there.
_REFUSALS = (AuthenticationError, AuthorizationError, MaxConnectionsError, OtherProtocol)

# What Redis answers if the user is not allowed to do something; the last two are from scripts of Redis 7 and 6.2.
_DENIED_TEXT = re.compile(r"\bNOPERM\b|ACL failure in script|The user executing the script can't")


def refuse_other_protocol(error: Exception, host: str | None, port: int, *, is_tls: bool) -> None:
    """Raise `OtherProtocol` if a server on a network could not be connected to because only one side speaks TLS.

    The server is asked in the other way, if the failure is of that kind: a server without TLS waits for the rest of
    what it takes for a command, and one with TLS hangs up.
    """
    if host is None or not (_is_of_handshake(error) if is_tls else _is_cut(error)):
        return
    try:
        with socket.create_connection((host, port), PROBE_TIMEOUT) as probe:
            if is_tls:
                probe.sendall(b"PING\r\n")
                speaks = probe.recv(1) in (b"+", b"-")
            else:
                _trusting().wrap_socket(probe, server_hostname=host).close()
                speaks = True
    except (OSError, ValueError):
        return
    told = ("no TLS", "redis:// instead of rediss://") if is_tls else ("TLS", "rediss:// instead of redis://")
    if speaks:
        raise OtherProtocol(f"{host}:{port} speaks {told[0]}: use {told[1]}") from error


def note_default(error: Exception, host: str | None, port: int) -> None:
    """Note with an exception what to do if no server is there that was connected to because no other one is named."""
    is_default = (host, port) == DEFAULT and not os.environ.get(VARIABLE)
    if is_default and isinstance(error.__context__, ConnectionRefusedError):
        error.add_note(f"To use another server, set {VARIABLE}, or call BaseJobsModel.database.from_url(…) first")


def _is_of_handshake(error: Exception) -> bool:
    reason = error.__context__
    return isinstance(reason, (ssl.SSLError, TimeoutError)) and not isinstance(reason, ssl.SSLCertVerificationError)


def _is_cut(error: Exception) -> bool:
    if type(error) is not redis.ConnectionError:
        return isinstance(error, redis.InvalidResponse)  # an alert of TLS
    return error.__context__ is None or isinstance(error.__context__, (BrokenPipeError, ConnectionResetError))


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def check_server(information: str) -> None:
    """Refuse a server that is too old, by its reply to ``INFO server``."""
    version = re.search(r"^redis_version:((\d+)\.(\d+)\S*)", information, re.MULTILINE)
    if version and (int(version[2]), int(version[3])) < OLDEST_REDIS:
        needed = ".".join(map(str, OLDEST_REDIS))
        raise ConfigurationException(f"Redis {needed} or newer is needed, this server is Redis {version[1]}")


def refuse_cluster(information: str, connection: Any) -> None:
    """Refuse a server of a cluster, where the keys of a script must have one tag, by its reply to ``INFO server``."""
    if re.search(r"^(redis|server)_mode:cluster", information, re.MULTILINE):  # Valkey has the other name
        raise of_cluster(connection)


def of_cluster(connection: Any) -> ConfigurationException:
    """Return what to raise if a connection leads to a server of a cluster."""
    where = f"{getattr(connection, 'host', None) or 'host'}:{getattr(connection, 'port', None) or 6379}"
    return ConfigurationException(f"The server is one of a cluster: write redis+cluster://{where}/name")


def reasons_to_leave(connection_class: Any) -> tuple[str, ...]:
    """Return with which errors a server tells connections of a class that it is not the primary any more."""
    # where Sentinel may name another one, a server without its replicas is left, too: they may follow the other one
    return ("READONLY", "NOREPLICAS") if issubclass(connection_class, SentinelManagedConnection) else ("READONLY",)


class Memory(NamedTuple):
    """What a server says of its memory, in bytes."""

    used: int | None
    most: int | None  # None for no limit
    policy: str

    @property
    def deletes(self) -> bool:
        """Whether keys are deleted when it is full."""
        return self.most is not None and self.policy != "noeviction"


def memory_of(client: redis.Redis) -> Memory | None:
    """Return what the server says of its memory; None if this user may not ask."""
    try:
        found: Any = client.info("memory")
    except redis.ResponseError:
        return None
    return Memory(found.get("used_memory"), found.get("maxmemory") or None, found.get("maxmemory_policy", "noeviction"))


def as_lost(error: redis.ResponseError, reasons: Iterable[str]) -> redis.ConnectionError | None:
    """Return what to raise, and leave the server, if an error has one of these reasons; else None."""
    reason = "READONLY" if isinstance(error, redis.ReadOnlyError) else _refusal(error, reasons)
    return redis.ConnectionError(f"{reason}, so the connection is dropped: {error}") if reason else None


def _refusal(error: redis.ResponseError, reasons: Iterable[str]) -> str | None:
    """Return which of some reasons a server gives; Redis 6.2 wraps the error of a script into another one."""
    text = str(error)
    return next((reason for reason in reasons if text.startswith(f"{reason} ") or f"-{reason} " in text), None)


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
