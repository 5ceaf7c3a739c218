"""The primary that Redis Sentinel names, and connections that follow it."""

from __future__ import annotations

from time import monotonic
from typing import Any

from redis.exceptions import RedisError
from redis.sentinel import Sentinel, SentinelConnectionPool

Address = tuple[str, int]

ASK = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME")

# For how many seconds an answer of Sentinel counts, and Sentinel is not asked again if it did not answer.
ANSWER_VALID_FOR = 1.0
SENTINEL_PAUSE = 10.0

# How many seconds one sentinel has to connect, and to answer. Then another one is asked.
TIMEOUT = 1.0


class Sentinels(Sentinel):
    """Some sentinels. They are asked one after the other until one answers; next time, this one is the first."""

    def primary_of(self, service: str) -> Address | None:
        """Return the address of the primary of a service; None if no sentinel tells it."""
        for sentinel in tuple(self.sentinels):
            try:
                found: Any = sentinel.execute_command(*ASK, service)  # type: ignore[no-untyped-call]
            except RedisError:
                continue
            if found:
                self.sentinels = [sentinel, *(other for other in self.sentinels if other is not sentinel)]
                host, port = (part.decode() if isinstance(part, bytes) else str(part) for part in found)
                return host, int(port)
        return None

    def count_replicas(self, service: str) -> int | None:
        """Return how many replicas of a service are known, also those that are away; None if no sentinel tells it."""
        for sentinel in tuple(self.sentinels):
            try:
                flat: Any = sentinel.execute_command("SENTINEL", "MASTER", service)  # type: ignore[no-untyped-call]
            except RedisError:
                continue
            words = [each.decode() if isinstance(each, bytes) else str(each) for each in flat]
            return int(dict(zip(words[::2], words[1::2], strict=False))["num-slaves"])
        return None

    def discover_master(self, service_name: str) -> Address:
        """Return the same address. It is right as soon as a failover has promoted a replica."""
        address: Address = self.primary_of(service_name) or super().discover_master(service_name)  # type: ignore[no-untyped-call]
        return address


class PrimaryPool(SentinelConnectionPool):
    """Connections to the primary of a service, to which Sentinel still points.

    In a planned failover the old primary goes on to take writes for some 10 seconds, and then forgets them. So Sentinel
    is asked again before a connection is handed out, unless it answered less than a second ago. If it names another
    primary, connections to the old one are closed; those in use are closed when they are given back. As long as no
    sentinel answers, connections are kept.
    """

    kept_for = ANSWER_VALID_FOR  # for how many seconds a connection may be kept before it is given back

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._ask_at = 0.0
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]

    def get_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Return a connection to the primary."""
        if monotonic() >= self._ask_at and self.master_address is not None:
            self._follow()
        return super().get_connection(*args, **kwargs)

    def primary_address(self) -> Address:
        """Return the address of the primary, to which connections of another kind lead. Sentinel is asked as often as
        for a connection of this pool."""
        if self.master_address is not None and monotonic() >= self._ask_at:
            self._follow()
        return self.master_address or self.get_master_address()  # type: ignore[no-untyped-call, no-any-return]

    def count_replicas(self) -> int | None:
        """Return how many replicas Sentinel knows, also those that are away; None if no sentinel answers."""
        return self.sentinel_manager.count_replicas(self.service_name)  # type: ignore[no-any-return]

    def _follow(self) -> None:
        self._ask_at = monotonic() + ANSWER_VALID_FOR  # so that no other thread asks meanwhile
        address = self.sentinel_manager.primary_of(self.service_name)
        if address is None:
            self._ask_at = monotonic() + SENTINEL_PAUSE
        elif address != self.master_address:
            self.get_master_address()  # type: ignore[no-untyped-call]  # closes connections that are not in use
