"""lease_due: what is due is given to one owner, for a while."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis
from reminders import DUE, LEASES, Reminder, stored
from worlds import World


def make(**dues: Any) -> None:
    for pk, at in dues.items():
        Reminder.make(pk, {"at": at})


def pks(owner: str, **options: Any) -> list[str]:
    return [pk for pk, _ in Reminder.lease_due(owner, **options)]


def let_lapse(world: World, *pks: str) -> None:
    world.client.zadd(LEASES, dict.fromkeys(pks, time.time() - 1))


def test_the_whole_effect(world: World) -> None:
    make(tea=20, egg=10, never=None, later=4e9)
    began = time.time()
    assert Reminder.lease_due("ann", lease=60) == [
        ("egg", {"at": "10", "colour": "blue"}),
        ("tea", {"at": "20", "colour": "blue"}),
    ]
    ends = world.client.zrange(LEASES, 0, -1, withscores=True)
    assert [pk for pk, _ in ends] == ["egg", "tea"]
    assert all(began + 59 < end < time.time() + 61 for _, end in ends)
    assert sorted(Reminder.collection(leased_by="ann")) == ["egg", "tea"]
    assert world.client.zrange(DUE, 0, -1) == ["egg", "tea", "later"]


def test_what_is_due_is_for_the_caller_to_say(world: World) -> None:
    make(tea=20, egg=10)
    assert pks("ann", moment=15) == ["egg"]
    assert pks("ann", moment=9.999999) == []


def test_others_get_the_rest_and_its_owner_the_same_once_more(world: World) -> None:
    make(a=1, b=2, c=3)
    assert pks("ann", limit=2) == ["a", "b"]
    assert pks("bob") == ["c"]
    assert pks("ann") == ["a", "b"]
    assert pks("bob", limit=1) == ["c"]
    assert pks("eve") == []


def test_a_lease_that_has_ended_is_of_no_process(world: World) -> None:
    make(a=1, b=2)
    pks("ann")
    let_lapse(world, "a")
    assert pks("bob") == ["a"]
    assert stored("a")["leased_by"] == "bob"
    assert list(Reminder.collection(leased_by="ann")) == ["b"]
    let_lapse(world, "b")
    assert pks("bob", moment=0) == []
    assert list(Reminder.collection(leased_by="ann")) == []


def test_some_may_be_passed_over(world: World) -> None:
    make(a=1, b=2, c=3)
    assert pks("ann", limit=1, skipped=["a", "x"]) == ["b"]


def test_many_that_are_leased_by_others_are_passed(world: World) -> None:
    make(**{f"n{number}": number for number in range(250)})
    assert len(pks("ann", limit=240)) == 240
    assert len(pks("bob")) == 10


def test_many_are_leased_at_once(world: World) -> None:
    names = [f"n{number}" for number in range(1_010)]
    make(**{name: place for place, name in enumerate(names)})
    assert pks("ann") == names[:1_000]
    assert sorted(world.client.zrange(LEASES, 0, -1)) == sorted(names[:1_000])
    assert sorted(Reminder.collection(leased_by="ann")) == sorted(names[:1_000])
    assert {stored(name).get("leased_by") for name in names} == {"ann", None}
    assert pks("bob") == names[1_000:]


def test_an_index_of_a_wrong_type_is_told_and_nothing_is_given(world: World) -> None:
    make(a=1)
    world.client.set("lab:reminder:leased_by:ann", "foreign")
    with world.unchanged(), pytest.raises(redis.ResponseError):
        pks("ann")


def test_what_is_no_record_is_passed(world: World) -> None:
    make(a=1, b=2)
    world.client.zadd(DUE, {"gone": 0})
    world.client.delete("lab:reminder:a:hash")
    world.client.set("lab:reminder:a:hash", "x")
    assert pks("ann") == ["b"]


def test_leases_of_records_that_are_gone_end(world: World) -> None:
    let_lapse(world, "gone")
    assert pks("ann") == []
    assert not world.client.exists("lab:reminder:gone:hash", LEASES)


def test_leases_of_a_wrong_type_are_told_and_nothing_is_given(world: World) -> None:
    make(a=1)
    world.client.set(LEASES, "foreign")
    with world.unchanged(), pytest.raises(redis.ResponseError):
        pks("ann")


def test_one_that_is_due_later_than_its_index_says_is_passed_over(world: World) -> None:
    make(a=1, b=5, c=9)
    world.client.hset("lab:reminder:a:hash", "at", "7")
    assert Reminder.next_due().due == 5
    assert pks("ann", moment=6) == ["b"]
    assert pks("ann", moment=7) == ["a", "b"]


def test_one_whose_owner_stands_in_a_foreign_key_does_not_keep_others_waiting(world: World) -> None:
    make(a=1, b=2, c=3)
    world.client.set("lab:reminder:leased_by:evil", "foreign")
    for name in ("a", "c"):
        world.client.hset(f"lab:reminder:{name}:hash", "leased_by", "evil")
    let_lapse(world, "c")
    assert pks("ann") == ["b"]


def test_a_lapsed_lease_of_a_foreign_record_does_not_keep_others_waiting(world: World) -> None:
    make(b=2)
    world.client.set("lab:reminder:a:hash", "foreign")
    world.client.sadd("lab:reminder:collection", "a")
    let_lapse(world, "a")
    assert pks("ann") == ["b"]


@pytest.mark.parametrize(
    ("argument", "error"),
    [
        ({"limit": 0}, ValueError),
        ({"limit": 1.5}, ValueError),
        ({"limit": True}, ValueError),
        ({"limit": None}, ValueError),
        ({"moment": float("nan")}, ValueError),
        ({"moment": "5"}, ValueError),
        ({"skipped": "abc"}, TypeError),
    ],
)
def test_invalid_arguments_are_refused(world: World, argument: Any, error: Any) -> None:
    make(a=1)
    with world.unchanged(), pytest.raises(error, match="must be"):
        Reminder.lease_due("ann", **argument)


@pytest.mark.parametrize("lease", [0, -1, float("nan"), True, "5"])
def test_a_lease_is_a_number_of_seconds(lease: Any) -> None:
    with pytest.raises(ValueError, match="lease"):
        Reminder.lease_due("ann", lease=lease)


@pytest.mark.parametrize(("owner", "error"), [("", ValueError), (None, TypeError)])
def test_an_owner_is_a_text(owner: Any, error: Any) -> None:
    with pytest.raises(error, match="owner"):
        Reminder.lease_due(owner)
