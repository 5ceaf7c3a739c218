"""orphan_keys: keys of records that do not exist, or of a wrong type."""

from __future__ import annotations

from typing import Any

import pytest
from worlds import World

from limpyd_jobs.check import scripts


def orphan_keys(world: World, *keys: tuple[str, str, str], repair: bool = False) -> Any:
    return scripts.orphan_keys(world.client, world.queue_class, keys, repair)


def test_a_key_of_a_record_that_does_not_exist_is_deleted(world: World) -> None:
    world.client.rpush("jobs:queue:9:success", "x")
    with world.unchanged():
        assert orphan_keys(world, ("jobs:queue:9:success", "9", "list")) == [
            ["jobs:queue:9:success", "no owner", "list"]
        ]
    orphan_keys(world, ("jobs:queue:9:success", "9", ""), repair=True)
    assert not world.client.exists("jobs:queue:9:success")


def test_a_key_of_a_wrong_type_is_deleted(world: World) -> None:
    key = f"{world.queue_key()}:waiting"
    world.client.set(key, "x")
    with world.unchanged():
        assert orphan_keys(world, (key, "1", "list")) == [[key, "wrong type", "string"]]
        assert orphan_keys(world, (key, "1", "")) == []
    orphan_keys(world, (key, "1", "list"), repair=True)
    assert not world.client.exists(key)


@pytest.mark.parametrize("kind", ["list", ""])
def test_a_sound_key_is_left_alone(world: World, kind: str) -> None:
    world.add("a")
    with world.unchanged():
        assert (
            orphan_keys(world, ("jobs:queue:1:waiting", "1", kind), ("jobs:queue:7:waiting", "7", kind), repair=True)
            == []
        )
