"""list_presences: who is there; those who are not any more are deleted."""

from __future__ import annotations

from test_keep_presence import FIELDS, LEASES
from worlds import World

from limpyd_jobs import Presence
from limpyd_jobs.store import presences


def listed(kind: str = "") -> list[str]:
    return [fields["name"] for _, _, fields in presences.living(Presence, kind)]


def test_those_who_are_there_are_listed_with_the_end_of_their_lease(world: World) -> None:
    for name, kind, lease in (("a", "x", 300), ("b", "y", 100), ("c", "x", 200)):
        presences.keep(Presence, "", {**FIELDS, "name": name, "kind": kind}, lease)
    with world.unchanged():
        assert listed() == ["b", "c", "a"]
        assert (listed("x"), listed("y"), listed("z")) == (["c", "a"], ["b"], [])
        (found,) = presences.living(Presence, "y")
    assert found[:2] == ("2", world.client.zscore(LEASES, "2"))


def test_those_whose_lease_lapsed_are_deleted_with_their_indexes(world: World) -> None:
    for name in ("a", "b"):
        presences.keep(Presence, "", {**FIELDS, "name": name}, 100)
    world.client.zadd(LEASES, {"1": 1})
    assert listed("no such kind") == []
    assert not world.client.exists("jobs:presence:1:hash", "jobs:presence:name:a")
    assert list(Presence.collection()) == ["2"]
    assert listed() == ["b"]


def test_more_than_a_step_deletes_are_not_listed_either(world: World) -> None:
    world.client.zadd(LEASES, {str(number): number for number in range(1500)})
    assert listed() == []
    assert world.client.zcard(LEASES) == 500


def test_what_cannot_be_deleted_is_left_to_the_check(world: World) -> None:
    presences.keep(Presence, "", FIELDS, 100)
    world.client.delete("jobs:presence:1:hash")
    world.client.set("jobs:presence:1:hash", "x")
    assert listed() == []
    world.client.zadd(LEASES, {"1": 1})
    assert listed() == []
    assert not world.client.exists(LEASES)
