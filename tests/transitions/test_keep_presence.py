"""keep_presence: who is there says so for a while."""

from __future__ import annotations

import pytest
import redis
from worlds import World

from limpyd_jobs import Presence
from limpyd_jobs.records import presences

LEASES = "jobs:presence:leases"
FIELDS = {"name": "a", "kind": "importer", "host": "h", "pid": "1", "details": "{}"}


def test_the_first_call_makes_a_record_and_later_ones_keep_it_up(world: World) -> None:
    pk, since, _ = presences.keep(Presence, "", FIELDS, 10)
    ends = world.client.zscore(LEASES, pk)
    assert world.client.hgetall(f"jobs:presence:{pk}:hash") == {**FIELDS, "since": since, "_lease": "10"}
    assert list(Presence.collection(kind="importer")) == [pk]
    assert presences.keep(Presence, pk, {**FIELDS, "since": since}, 100) == (pk, since, [])
    assert ends is not None
    assert 80 < world.client.zscore(LEASES, pk) - ends < 110
    assert list(Presence.collection()) == [pk]


def test_a_record_that_vanished_is_made_anew(world: World) -> None:
    pk, since, _ = presences.keep(Presence, "", FIELDS, 10)
    Presence.delete_many([pk])
    assert not world.client.exists(LEASES)
    assert presences.keep(Presence, pk, {**FIELDS, "since": since}, 10) == (pk, since, [])
    assert list(Presence.collection(kind="importer")) == [pk]
    assert presences.keep(Presence, "", FIELDS, 10)[0] != pk


def test_nothing_is_written_where_a_key_has_a_wrong_type(world: World) -> None:
    world.client.set(LEASES, "x")
    with world.unchanged(), pytest.raises(redis.ResponseError):
        presences.keep(Presence, "", FIELDS, 10)
