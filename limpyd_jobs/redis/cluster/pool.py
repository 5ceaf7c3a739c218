"""The server of a cluster that has the slot of a tag, and connections that follow it."""

from __future__ import annotations

import socket
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from time import monotonic
from typing import Any

import redis
from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.redis.cluster.refusals import Refusal
from limpyd_jobs.redis.cluster.tags import prefix_of, slot_of, used
from limpyd_jobs.redis.servers import refuse_other_protocol

Address = tuple[str, int]

# For how many seconds an answer of a server about the cluster counts when another connection is made.
ANSWER_VALID_FOR = 1.0

# How many seconds one server has to connect, and to answer. Then another one is asked.
TIMEOUT = 1.0

# A host that is gone closes no connection. After four seconds without a sign of its system the connection is an error,
# whether a reply is waited for or not; systems that cannot do that leave it to the `socket_timeout`. A server that is
# slow is not meant: its system answers.
_SILENCE = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 4000}
NOTICING_DEAD_HOSTS: dict[str, Any] = {
    "socket_keepalive": True,
    "socket_keepalive_options": {
        getattr(socket, name): value for name, value in _SILENCE.items() if hasattr(socket, name)
    },
}

# What is asked about the cluster needs no more than these settings.
_TO_ASK = ("username", "password", "credential_provider", "protocol", "socket_keepalive")


class Topology:
    """Which server has a slot: any server that is known is asked, the one that answered last first."""

    def __init__(self, seeds: Sequence[Address], slot: int, kind: Any, settings: dict[str, Any]) -> None:
        self._slot, self._kind = slot, kind
        self.seeds = [(host, int(port)) for host, port in seeds]
        self._known = list(self.seeds)
        self._settings = {
            **{name: value for name, value in settings.items() if name in _TO_ASK or name.startswith("ssl_")},
            "socket_timeout": TIMEOUT,
            "socket_connect_timeout": TIMEOUT,
            "decode_responses": True,
        }

    def owner(self) -> Address:
        """Return the address of the primary that has the slot, as a server says that answers."""
        failure: Exception | None = None
        for address in tuple(self._known):
            try:
                slots = self._slots_by(address)
            except (RedisError, OSError) as error:
                self._known = [*(each for each in self._known if each != address), address]  # the last to be asked
                failure = error
                continue
            found = self._read(slots, address)
            if found:
                return found
            failure = redis.ConnectionError(f"slot {self._slot} is on no server, as {address[0]}:{address[1]} says")
        raise redis.ConnectionError(f"No server of the cluster tells who has the keys: {failure}") from failure

    def _slots_by(self, address: Address) -> Any:
        host, port = address
        connection = self._kind(host=host, port=port, **self._settings)
        try:
            connection.connect()
            connection.send_command("CLUSTER", "SLOTS")
            return connection.read_response()
        except ResponseError as error:
            if "cluster support disabled" in str(error):
                raise ConfigurationException(
                    f"{host}:{port} is not a server of a cluster: write redis://{host}:{port}/0"
                ) from None
            raise
        except RedisError as error:
            is_tls = issubclass(self._kind, redis.SSLConnection)
            refuse_other_protocol(error, host, port, is_tls=is_tls)
            raise
        finally:
            connection.disconnect()

    def _read(self, slots: Any, asked: Address) -> Address | None:
        """Return the address of the owner, and know all others; a server that tells no host means itself."""
        servers: dict[Address, None] = {asked: None}
        owner = None
        for first, last, *nodes in slots:
            addresses = [(f"{node[0] or asked[0]}", int(node[1])) for node in nodes if node[0] != "?"]
            servers |= dict.fromkeys(addresses)
            if int(first) <= self._slot <= int(last) and addresses:
                owner = addresses[0]
        self._known = list(servers | dict.fromkeys(self.seeds))
        return owner


class ClusterPool(redis.ConnectionPool):
    """Connections to the server that has the slot of a tag.

    The topology is asked for before a connection is made, unless that was done within the last second, and followed
    when a server says that the slot is elsewhere. Then connections to the old owner are closed; those in use are when
    they are given back.
    """

    def __init__(self, seeds: Sequence[Address], tag: str, connection_class: Any, **settings: Any) -> None:
        self.tag, self.prefix = tag, prefix_of(tag)
        self.topology = Topology(seeds, slot_of(tag), connection_class, settings)
        self._owner: Address | None = None
        self._ask_at = 0.0
        super().__init__(connection_class=_to_owner(connection_class), **settings)
        self.connection_kwargs["owners"] = weakref.proxy(self)
        used.add(tag)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of the keys of {self.tag!r}>"

    def owner(self) -> Address:
        """Return the address of the server that has the slot."""
        if self._owner is None or monotonic() >= self._ask_at:
            self._turn_to(self.topology.owner())
        assert self._owner is not None
        return self._owner

    def follow(self, refusal: Refusal | None) -> None:
        """Turn to the server that a refusal names; ask before the next connection if it names none."""
        if refusal and refusal.host:
            self._turn_to((refusal.host, refusal.port))
        elif refusal and refusal.reason != "ASK":
            self.look_again()

    def look_again(self) -> None:
        """Ask for the topology before the next connection is made."""
        self._ask_at = 0.0

    def _turn_to(self, address: Address) -> None:
        is_new, self._owner = address != self._owner, address
        self._ask_at = monotonic() + ANSWER_VALID_FOR
        if is_new:
            self.disconnect(inuse_connections=False)

    def release(self, connection: Any) -> None:
        """Take a connection back, and close it if it leads to a server that the slot has left."""
        if self._owner is not None and (connection.host, connection.port) != self._owner:
            connection.disconnect()
        super().release(connection)


@cache
def _to_owner(kind: Any) -> Any:
    """Return a class of connections that lead to the owner at the time when they connect."""

    class Connection(kind):  # type: ignore[misc]
        def __init__(self, *, owners: Any = None, **settings: Any) -> None:
            super().__init__(**settings)
            self._owners = owners

        def _connect(self) -> Any:
            self.host, self.port = self._owners.owner()
            try:
                return super()._connect()
            except BaseException:
                with suppress(ReferenceError):
                    self._owners.look_again()
                raise

    return Connection
