"""give_order: something is asked of somebody who is there, and told with the next sign of life."""

from __future__ import annotations

import pytest
import redis
from worlds import World

from limpyd_jobs import WorkerPresence
from limpyd_jobs.records import presences
from limpyd_jobs.records.audit import entry_request

LEASES = "jobs:workerpresence:leases"
ORDERS = "jobs:workerpresence:a:orders"
FIELDS = {"name": "a", "kind": "worker", "host": "h", "pid": "1", "details": "{}"}


def keep(world: World) -> list[str]:
    """Give a sign of life; return the orders."""
    return presences.keep(WorkerPresence, "a", FIELDS, 10, world.client, takes_orders="1").orders


def give(order: str, pk: str = "a") -> bool:
    return presences.give_order(WorkerPresence, pk, order, 5)


def test_orders_are_told_once_in_their_order(world: World) -> None:
    assert keep(world) == []
    assert give("quiet")
    assert give("stop é")
    assert 0 < world.client.pttl(ORDERS) <= 5000
    assert keep(world) == ["quiet", "stop é"]
    assert keep(world) == []
    assert not world.client.exists(ORDERS)


def test_only_the_last_ones_are_kept(world: World) -> None:
    keep(world)
    for number in range(presences.MAX_ORDERS + 5):
        give(str(number))
    orders = keep(world)
    assert (len(orders), orders[0]) == (presences.MAX_ORDERS, "5")


def test_no_process_who_left_or_lapsed_is_asked(world: World) -> None:
    with world.unchanged():
        assert not give("quiet")
    keep(world)
    world.client.zadd(LEASES, {"a": 1})
    with world.unchanged():
        assert not give("quiet")
    keep(world)
    give("quiet")
    presences.leave(world.client, WorkerPresence, "a")
    assert not world.client.exists(ORDERS, LEASES, "jobs:workerpresence:collection")


def test_nothing_is_written_where_a_key_has_a_wrong_type(world: World) -> None:
    keep(world)
    world.client.set(ORDERS, "x")
    with world.unchanged(), pytest.raises(redis.ResponseError):
        presences.give_order(WorkerPresence, "a", "quiet", 5, **entry_request(verb="quiet"))
    assert keep(world) == []
    assert give("quiet")


def test_what_is_told_replaces_what_was_told_before(world: World) -> None:
    keep(world)
    changed = {**FIELDS, "details": '{"a": 1}', "name": "b"}
    presences.keep(WorkerPresence, "a", changed, 10, world.client, takes_orders="1")
    (alive,) = WorkerPresence.alive()
    assert (alive.name, alive.details) == ("b", {"a": 1})
    assert list(WorkerPresence.collection(name="b")) == ["a"]
    assert list(WorkerPresence.collection(name="a")) == []
