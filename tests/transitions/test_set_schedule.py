"""set_schedule: a schedule is made or changed, with its place among those that are due, in one step."""

from __future__ import annotations

import pytest
import redis
from limpyd.exceptions import DoesNotExist, UniquenessError
from worlds import World

from limpyd_jobs import Schedule, records

KEY = "jobs:schedule:due"


def test_the_whole_effect(world: World) -> None:
    assert records.set_schedule(Schedule, "", "12.500000", {"name": "a", "next_run": "x", "paused": "1"}) == "1"
    assert world.contents() == {
        "jobs:schedule:max_pk": "1",
        "jobs:schedule:collection": {"1"},
        "jobs:schedule:1:hash": {"name": "a", "next_run": "x", "paused": "1", "priority": "0"},
        "jobs:schedule:name:a": {"1"},
        "jobs:schedule:paused:1": {"1"},
        KEY: {"1": 12.5},
    }


@pytest.mark.parametrize(("due", "expected"), [("", {}), ("keep", {"1": 5.0}), ("7", {"1": 7.0})])
def test_a_change_sets_and_unsets_fields_and_the_place(world: World, due: str, expected: dict[str, float]) -> None:
    records.set_schedule(Schedule, "", "5", {"name": "a", "paused": "1"})
    records.set_schedule(Schedule, "1", due, {"paused": "", "grace": "3"})
    stored = world.contents()
    assert stored["jobs:schedule:1:hash"] == {"name": "a", "grace": "3", "priority": "0"}
    assert "jobs:schedule:paused:1" not in stored
    assert stored.get(KEY, {}) == expected


def test_a_name_is_given_once(world: World) -> None:
    records.set_schedule(Schedule, "", "5", {"name": "a"})
    records.set_schedule(Schedule, "", "5", {"name": "b"})
    records.set_schedule(Schedule, "1", "keep", {"name": "a"})
    for pk in ("", "2"):
        with world.unchanged(), pytest.raises(UniquenessError):
            records.set_schedule(Schedule, pk, "6", {"name": "a"})


def test_one_that_was_deleted_is_not_made_again(world: World) -> None:
    with world.unchanged(), pytest.raises(DoesNotExist):
        records.set_schedule(Schedule, "5", "6", {"name": "a"})


def test_a_place_of_a_wrong_type_changes_nothing(world: World) -> None:
    world.client.set(KEY, "x")
    with world.unchanged(), pytest.raises(redis.ResponseError):
        records.set_schedule(Schedule, "", "6", {"name": "a"})
