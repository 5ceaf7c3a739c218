"""repair_schedules: schedules stand among those that are due, at their next time, if they are active."""

from __future__ import annotations

import pytest
from worlds import World

from limpyd_jobs import Schedule
from limpyd_jobs.check import scripts
from limpyd_jobs.records import records

KEY = "jobs:schedule:due"
DATE, SCORE = "2099-01-01 00:00:00.250000", 4070908800.25


def repair_placement(world: World, *pks: str, repair: bool = False) -> list[list[str]]:
    return scripts.repair_schedules(world.client, Schedule, pks, repair)


@pytest.mark.parametrize(
    ("due", "fields", "problem", "repaired"),
    [
        ("4070908800.25", {"next_run": DATE}, None, {"1": SCORE}),
        ("", {"next_run": DATE, "paused": "1"}, None, {}),
        ("", {"name": "a"}, None, {}),
        ("5", {"next_run": "no date"}, None, {"1": 5.0}),
        ("", {"next_run": DATE}, "not among those due", {"1": SCORE}),
        ("4070908800", {"next_run": DATE}, "wrong due time", {"1": SCORE}),
        ("5", {"next_run": DATE, "paused": "1"}, "due but not active", {}),
        ("5", {"name": "a"}, "due but not active", {}),
    ],
)
def test_its_place_is_what_its_hash_says(
    world: World, due: str, fields: dict[str, str], problem: str | None, repaired: dict[str, float]
) -> None:
    records.set_schedule(Schedule, "", due, fields)
    for repair in (False, True):
        before = world.contents()
        assert repair_placement(world, "1", repair=repair) == ([["1", problem, due]] if problem else [])
        if not repair:
            assert world.contents() == before
    assert world.contents().get(KEY, {}) == repaired
    assert repair_placement(world, "1") == []


def test_one_that_does_not_exist_loses_its_place(world: World) -> None:
    world.client.zadd(KEY, {"77": 5})
    assert repair_placement(world, "77", "78", repair=True) == [["77", "no such schedule", "5"]]
    assert world.contents() == {}


def test_a_set_of_a_wrong_type_is_made_anew(world: World) -> None:
    records.set_schedule(Schedule, "", "", {"next_run": DATE})
    world.client.set(KEY, "x")
    assert repair_placement(world, "1") == [["", "due set of a wrong type", "string"]]
    assert repair_placement(world, "1", repair=True)[1:] == [["1", "not among those due", ""]]
    assert world.contents()[KEY] == {"1": SCORE}


def test_a_hash_of_a_wrong_type_is_left_alone(world: World) -> None:
    records.set_schedule(Schedule, "", "5", {"next_run": DATE})
    world.client.delete("jobs:schedule:1:hash")
    world.client.set("jobs:schedule:1:hash", "x")
    with world.unchanged():
        assert repair_placement(world, "1", repair=True) == []
