"""sweep_presences: the records of those who are not there any more are deleted."""

from __future__ import annotations

import pytest
from test_keep_presence import FIELDS, LEASES
from worlds import World

from limpyd_jobs import Presence
from limpyd_jobs.records import presences


def test_those_whose_lease_lapsed_are_deleted_with_their_indexes(world: World) -> None:
    for name in ("a", "b"):
        presences.keep(Presence, "", {**FIELDS, "name": name}, 100)
    world.client.zadd(LEASES, {"1": 1})
    assert presences.sweep(Presence) == 1
    assert not world.client.exists("jobs:presence:1:hash", "jobs:presence:name:a")
    assert list(Presence.collection()) == ["2"]
    with world.unchanged():
        assert presences.sweep(Presence) == 0


def test_a_step_deletes_some(world: World) -> None:
    world.client.zadd(LEASES, {str(number): number for number in range(250)})
    assert [presences.sweep(Presence) for _ in range(4)] == [100, 100, 50, 0]
    assert not world.client.exists(LEASES)


def test_what_cannot_be_deleted_is_left_to_the_check(world: World) -> None:
    presences.keep(Presence, "", FIELDS, 100)
    world.client.zadd(LEASES, {"1": 1})
    world.client.delete("jobs:presence:1:hash")
    world.client.set("jobs:presence:1:hash", "x")
    assert presences.sweep(Presence) == 1
    assert not world.client.exists(LEASES)


@pytest.mark.parametrize("who", ["", "1"])
def test_who_keeps_a_presence_sweeps_too(world: World, who: str) -> None:
    presences.keep(Presence, "", {**FIELDS, "name": "a"}, 100)
    presences.keep(Presence, "", {**FIELDS, "name": "dead"}, 100)
    world.client.zadd(LEASES, {"1": 1, "2": 1})
    pk, *_ = presences.keep(Presence, who, {**FIELDS, "name": "a"}, 100)
    assert list(Presence.collection()) == [pk]
