"""list_presences: who is there. Nothing is written."""

from __future__ import annotations

from test_keep_presence import FIELDS, LEASES
from worlds import World

from limpyd_jobs import Presence
from limpyd_jobs.records import presences


def listed(kind: str = "") -> list[str]:
    return [fields["name"] for _, _, fields in presences.alive(Presence, kind).records]


def test_those_who_are_there_are_listed_with_the_end_of_their_lease(world: World) -> None:
    for name, kind, lease in (("a", "x", 300), ("b", "y", 100), ("c", "x", 200)):
        presences.keep(Presence, "", {**FIELDS, "name": name, "kind": kind}, lease)
    with world.unchanged():
        assert listed() == ["b", "c", "a"]
        assert (listed("x"), listed("y"), listed("z")) == (["c", "a"], ["b"], [])
        (found,) = presences.alive(Presence, "y").records
    assert found[:2] == ("2", world.client.zscore(LEASES, "2"))


def test_those_whose_lease_lapsed_are_not_listed_and_nothing_is_written(world: World) -> None:
    for name in ("a", "b"):
        presences.keep(Presence, "", {**FIELDS, "name": name}, 100)
    world.client.zadd(LEASES, {"1": 1})
    with world.unchanged():
        assert listed("no such kind") == []
        assert listed() == ["b"]


def test_a_broken_record_is_passed_over(world: World) -> None:
    presences.keep(Presence, "", FIELDS, 100)
    world.client.delete("jobs:presence:1:hash")
    world.client.set("jobs:presence:1:hash", "x")
    assert listed() == []
    world.client.delete(LEASES)
    world.client.set(LEASES, "x")
    assert listed() == []
