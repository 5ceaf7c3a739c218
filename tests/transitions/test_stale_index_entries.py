"""stale_index_entries: pks in the index of a value that their hashes do not have."""

from __future__ import annotations

from typing import Any

import pytest
from worlds import HARD_TEXT, World

from limpyd_jobs.check import scripts


def stale_index_entries(world: World, *members: tuple[str, ...], largest: int = 50, repair: bool = False) -> Any:
    prefix = f"{world.jobs}:identifier:"
    return scripts.stale_index_entries(world.client, world.job_class, "identifier", prefix, members, largest, repair)


@pytest.mark.parametrize("identifier", ["a", HARD_TEXT])
def test_a_pk_whose_hash_has_another_value_is_removed(any_world: World, identifier: str) -> None:
    any_world.add(identifier)
    any_world.client.sadd(f"{any_world.jobs}:identifier:{identifier}", 8, 9)
    assert sorted(stale_index_entries(any_world, (identifier,))[0]) == [[identifier, "8"], [identifier, "9"]]
    assert stale_index_entries(any_world, (identifier, "8"), (identifier, "1"), repair=True)[0] == [[identifier, "8"]]
    assert stale_index_entries(any_world, (identifier,), repair=True)[0] == [[identifier, "9"]]
    assert any_world.client.smembers(f"{any_world.jobs}:identifier:{identifier}") == {"1"}


def test_a_pk_that_is_not_there_any_more_is_not_stale(world: World) -> None:
    world.add("a")
    assert stale_index_entries(world, ("b", "1"), ("b",))[0] == []


def test_a_large_set_is_left_to_the_caller(world: World) -> None:
    world.client.sadd("jobs:job:identifier:x", *range(51))
    assert stale_index_entries(world, ("x",), repair=True) == ([], ["x"], [])
    assert stale_index_entries(world, ("x",), largest=51, repair=True)[1] == []


def test_a_key_that_is_no_set_is_deleted(world: World) -> None:
    world.client.set("jobs:job:identifier:x", "y")
    assert stale_index_entries(world, ("x",)) == ([], [], [["x", "string"]])
    assert world.client.exists("jobs:job:identifier:x")
    stale_index_entries(world, ("x",), repair=True)
    assert not world.client.exists("jobs:job:identifier:x")
