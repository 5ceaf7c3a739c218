"""list_queues: the queues of some names, with what stands in them, all of one moment."""

from __future__ import annotations

from typing import Any

import pytest
from cases import each
from worlds import EVERYTHING, LATER, QUEUE_NAMES, World, until

from limpyd_jobs.records import records


def rows(world: World, *names: str) -> list[Any]:
    return records.list_queues(world.queue_class, names)


def test_each_queue_is_told_with_its_jobs(any_world: World) -> None:
    for identifier in "ab":
        any_world.add(identifier, "q", 3)
    any_world.add("c", "q", 3, delay=until(LATER))
    any_world.add("d", "p", delay=until(LATER))
    any_world.queue("empty")
    with any_world.unchanged():
        assert rows(any_world, "q", "p", "empty") == [
            ("1", "q", "3", 2, 1, 0),
            ("2", "p", "0", 0, 1, 0),
            ("3", "empty", "0", 0, 0, 0),
        ]


def test_the_order_is_that_of_the_names(any_world: World) -> None:
    for name in ("q", "p", "o"):
        any_world.queue(name)
    assert [row[1] for row in rows(any_world, "p", "o", "q")] == ["p", "o", "q"]
    assert [row[1] for row in rows(any_world, "p", "p")] == ["p", "p"]


def test_all_priorities_of_a_name_are_listed(any_world: World) -> None:
    priorities = [0, 5, -5, 2**63 - 1, -(2**63)]
    for priority in priorities:
        any_world.queue("q", priority)
    assert sorted(int(row[2]) for row in rows(any_world, "q")) == sorted(priorities)


@pytest.mark.parametrize("names", [(), ("none",), ("",), ("none", "neither")])
def test_there_may_be_none(any_world: World, names: tuple[str, ...]) -> None:
    any_world.queue()
    assert rows(any_world, *names) == []


@each("name", QUEUE_NAMES.values())
def test_any_name_is_found(any_world: World, name: str) -> None:
    any_world.queue(name)
    any_world.queue(f"{name[:-1]}!")
    assert [row[1] for row in rows(any_world, name)] == [name]


@pytest.mark.leaves("I1", "I2", "I9")
class TestHalfStates:
    def test_one_that_was_only_half_made_is_not_listed(self, world: World) -> None:
        world.client.sadd("jobs:queue:name:q", "7")
        assert rows(world, "q") == []

    def test_one_of_another_name_now_is_not_listed(self, world: World) -> None:
        world.queue("q")
        world.client.hset("jobs:queue:1:hash", "name", "p")
        assert rows(world, "q") == []

    def test_one_without_a_priority_is_listed(self, world: World) -> None:
        world.queue("q").priority.delete()
        assert rows(world, "q") == [("1", "q", "", 0, 0, 0)]


@pytest.mark.leaves("I10")
def test_places_of_a_wrong_type_hold_no_jobs(world: World) -> None:
    world.add("a", "q", 5)
    base = world.queue_key("q", 0)
    for name in ("waiting", "delayed"):
        world.client.set(f"{base}:{name}", "of a wrong type")
    assert sorted(rows(world, "q")) == [("1", "q", "5", 1, 0, 0), ("2", "q", "0", 0, 0, 0)]


@pytest.mark.leaves("I1", "I2", "I9")
def test_a_record_of_a_wrong_type_does_not_hide_the_others(world: World) -> None:
    for priority in range(2):
        world.queue("q", priority)
    world.client.delete("jobs:queue:1:hash")
    world.client.set("jobs:queue:1:hash", "of a wrong type")
    assert rows(world, "q") == [("2", "q", "1", 0, 0, 0)]


@pytest.mark.leaves("I1", "I2", "I9", "I10")
def test_one_with_a_pk_of_two_lines_is_not_listed(world: World) -> None:
    """The keys of waiting lists travel as lines."""
    world.queue("q")
    world.client.sadd("jobs:queue:name:q", "2\n3")
    world.client.hset("jobs:queue:2\n3:hash", mapping={"name": "q", "priority": "0"})
    assert rows(world, "q") == [("1", "q", "0", 0, 0, 0)]


def test_the_jobs_that_run_and_wait_are_told_by_priority(any_world: World) -> None:
    jobs = [any_world.add(f"{number}", "q", number // 2)[1] for number in range(4)]
    any_world.add("other", "p")
    assert any_world.claim(any_world.waiting_key("q", 1)) is not None
    with any_world.unchanged():
        found = any_world.queue_class.read_all("q")
    idents = [job.ident for job in jobs]
    assert [each[1:] for each in found] == [
        ("q", "1", [idents[2]], [idents[3]]),
        ("q", "0", [], idents[:2]),
    ]
    assert [each.queue.waiting.lmembers() for each in found] == [each.waiting for each in found]
    assert any_world.queue_class.read_all(["no", "such"]) == []


def test_those_whose_lease_holds_may_be_left_out(any_world: World) -> None:
    held, lapsed = (any_world.job_that_is("running", identifier) for identifier in "ab")
    any_world.client.zadd(f"{any_world.queue_key()}:_running", {lapsed.ident: 5})
    assert [each.running for each in any_world.queue_class.read_all("q")] == [[lapsed.ident, held.ident]]
    assert [each.running for each in any_world.queue_class.read_all("q", lapsed=True)] == [[lapsed.ident]]


@pytest.mark.leaves(*EVERYTHING)
def test_keys_of_a_wrong_type_are_empty(any_world: World) -> None:
    base = any_world.queue_key("q")
    for key in ("waiting", "_running"):
        any_world.client.set(f"{base}:{key}", "foreign")
    (found,) = any_world.queue_class.read_all("q")
    assert (found.running, found.waiting) == ([], [])
