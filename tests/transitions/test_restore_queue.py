"""restore_queue: what a queue lost comes back from its indexes."""

from __future__ import annotations

from typing import Any

import pytest
from worlds import World

from limpyd_jobs.check import scripts

KEY = "jobs:queue:1:hash"


def restore_queue(world: World, repair: bool, **fields: str) -> Any:
    return scripts.restore_queue(world.client, world.queue_class, "1", fields, repair)


@pytest.mark.parametrize(
    "commands",
    [[f"DEL {KEY}"], [f"DEL {KEY}", f"RPUSH {KEY} x"], [f"HDEL {KEY} name priority", f"HSET {KEY} name \x00"]],
    ids=["record", "type", "fields"],
)
def test_all_that_is_lost_and_indexed_is_set(world: World, commands: list[str]) -> None:
    world.add("a", "q", 5)
    before = world.contents()
    for command in commands:
        world.client.execute_command(*(word.strip("\x00") for word in command.split(" ")))
    with world.unchanged():
        assert sorted(restore_queue(world, False, name="q", priority="5")) == [["name", "q"], ["priority", "5"]]
    restore_queue(world, True, name="q", priority="5")
    assert world.contents() == before


@pytest.mark.leaves("I1", "I2", "I9")
@pytest.mark.parametrize("fields", [{"name": "other"}, {"priority": "0"}], ids=["not indexed", "no name"])
def test_nothing_is_set_without_a_name_that_is_indexed(world: World, fields: dict[str, str]) -> None:
    world.add("a")
    world.client.delete(KEY)
    with world.unchanged():
        assert restore_queue(world, True, **fields) == []
