"""remove_record: a timed record is deleted, if it still is as it was read, in one step."""

from __future__ import annotations

from typing import Any

import pytest
from limpyd.exceptions import DoesNotExist
from reminders import Reminder, stored
from worlds import World


@pytest.mark.parametrize("is_leased", [False, True])
def test_nothing_is_left_of_it(world: World, is_leased: bool) -> None:
    Reminder.make("tea", {"at": 12.5, "text": "now", "code": "x"})
    if is_leased:
        Reminder.lease_due("ann")
    assert Reminder.remove("tea", expected={"at": "12.5"})
    assert world.contents() == {}


def test_deleting_the_object_is_the_same(world: World) -> None:
    record = Reminder.make("tea", {"at": 12.5, "text": "now"})
    record.delete()
    assert world.contents() == {}


def test_it_stays_if_it_was_changed_and_only_the_lease_of_the_owner_ends(world: World) -> None:
    Reminder.make("tea", {"at": 12.5})
    Reminder.lease_due("ann")
    assert not Reminder.remove("tea", expected={"at": "7"}, owner="bob")
    assert stored("tea")["leased_by"] == "ann"
    assert not Reminder.remove("tea", expected={"at": "7"}, owner="ann")
    assert stored("tea") == {"at": "12.5", "colour": "blue"}


@pytest.mark.parametrize("expected", [None, {"at": "7"}])
def test_what_is_gone_is_told(world: World, expected: Any) -> None:
    with world.unchanged(), pytest.raises(DoesNotExist):
        Reminder.remove("tea", expected=expected)
