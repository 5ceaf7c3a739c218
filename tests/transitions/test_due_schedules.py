"""due_schedules: the schedules that are due, by the clock of Redis, and when the next one is."""

from __future__ import annotations

import time

import pytest
from worlds import World

from limpyd_jobs import Schedule
from limpyd_jobs.records import records

KEY = "jobs:schedule:due"


def make(*dues: float | str) -> None:
    for number, due in enumerate(dues):
        records.set_schedule(Schedule, "", str(due), {"name": str(number)})


def test_without_schedules_there_is_only_the_time(world: World) -> None:
    began = time.time()
    with world.unchanged():
        due = records.due_schedules(Schedule, 10)
    assert began - 1 <= due.moment <= time.time() + 1
    assert due[1:] == (None, 0, [])


def test_those_that_are_due_come_with_their_fields_the_first_first(world: World) -> None:
    make(20, "", 4e9, 10)
    with world.unchanged():
        due = records.due_schedules(Schedule, 10)
    assert (due.upcoming, due.number) == (4e9, 2)
    assert due.found == [("4", {"name": "3", "priority": "0"}), ("1", {"name": "0", "priority": "0"})]


@pytest.mark.parametrize(("part", "pks"), [(0, ["1", "2"]), (0.5, ["2", "3"]), (0.99, ["2", "3"]), (1, ["3", "4"])])
def test_it_returns_so_many_at_the_most_from_a_part_of_all(world: World, part: float, pks: list[str]) -> None:
    make(1, 2, 3, 4)
    due = records.due_schedules(Schedule, 2, part)
    assert (due.number, [pk for pk, _ in due.found]) == (4, pks)


def test_those_that_are_gone_lose_their_place(world: World) -> None:
    make(1)
    world.client.zadd(KEY, {"7": 1})
    assert [pk for pk, _ in records.due_schedules(Schedule, 5).found] == ["1"]
    assert world.client.zrange(KEY, 0, -1) == ["1"]


@pytest.mark.parametrize("kind", ["string", "list"])
def test_a_hash_of_a_wrong_type_has_no_fields(world: World, kind: str) -> None:
    make(1)
    world.client.delete("jobs:schedule:1:hash")
    if kind == "string":
        world.client.set("jobs:schedule:1:hash", "x")
    else:
        world.client.rpush("jobs:schedule:1:hash", "x")
    assert records.due_schedules(Schedule, 5).found == [("1", {})]
