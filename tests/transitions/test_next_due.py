"""next_due: leases are given back, and it is told when to look again."""

from __future__ import annotations

from reminders import DUE, LEASES, Reminder, stored
from test_lease_due import let_lapse, make, pks
from worlds import World


def test_there_may_be_nothing_to_wait_for(world: World) -> None:
    make(never=None)
    with world.unchanged():
        assert Reminder.next_due() == (None, None)


def test_the_first_that_no_process_leases_is_told_and_when_a_lease_ends(world: World) -> None:
    make(a=1, b=2, c=3)
    pks("ann", limit=2, lease=60)
    due, lapse = Reminder.next_due("bob")
    assert due == 3
    assert lapse is not None
    assert 55 < lapse <= 60


def test_an_owner_gives_back_what_it_did_not_use(world: World) -> None:
    make(a=1, b=2)
    pks("ann")
    pks("bob")
    assert Reminder.next_due("bob", returned=["a"]).due is None
    assert Reminder.next_due("ann", returned=["a", "gone"]).due == 1
    assert world.client.zrange(LEASES, 0, -1) == ["b"]
    assert "leased_by" not in stored("a")
    assert stored("b")["leased_by"] == "ann"


def test_a_lease_that_has_ended_counts_no_more(world: World) -> None:
    make(a=1)
    pks("ann")
    let_lapse(world, "a")
    assert Reminder.next_due("bob") == (1, None)


def test_some_do_not_count(world: World) -> None:
    make(a=1, b=2)
    assert Reminder.next_due(skipped=["a"]).due == 2


def test_what_is_no_record_is_never_due(world: World) -> None:
    make(b=2)
    world.client.zadd(DUE, {"gone": 0})
    assert Reminder.next_due().due == 2
