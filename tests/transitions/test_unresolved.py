"""unresolved: jobs of classes that cannot be had are taken out of queues, but for those that somebody runs."""

from __future__ import annotations

import pytest
import redis
from worlds import World

from limpyd_jobs.check import scripts

LATER = 4102444799


@pytest.fixture
def key(world: World) -> str:
    """A queue with two such jobs in each place, of which one may be run by somebody, and a good one that waits."""
    world.add("good")
    key = world.queue_key()
    world.client.rpush(f"{key}:waiting", "gone.A:1", "gone.B:2", "gone.A:1")
    world.client.zadd(f"{key}:delayed", {"gone.A:1": 1, "gone.B:2": LATER})
    world.client.zadd(f"{key}:_running", {"gone.A:1": 1, "gone.B:2": LATER})
    world.client.hset(f"{key}:_deferrals", mapping={"gone.A:1": 3, "gone.B:2": 1, "gone.C:3": 1})
    return key


def take(world: World, key: str, place: str, choice: str) -> list[str]:
    return scripts.unresolved(world.client, key, place, ["gone.A:1", "gone.B:2", "gone.D:4"], choice)


TAKEN = {
    "waiting": ["gone.A:1", "gone.B:2"],
    "delayed": ["gone.A:1", "gone.B:2"],
    "_running": ["gone.A:1"],
}
place_and_taken = pytest.mark.parametrize(("place", "taken"), TAKEN.items(), ids=TAKEN)


@pytest.mark.leaves("I5", "I6", "I7", "I10")
@place_and_taken
def test_what_may_be_taken_out_is_told(world: World, key: str, place: str, taken: list[str]) -> None:
    with world.unchanged():
        assert take(world, key, place, "leave") == taken


@pytest.mark.leaves("I5", "I6", "I7", "I10")
@pytest.mark.parametrize("choice", ["quarantine", "delete"])
@place_and_taken
def test_it_is_taken_out(world: World, key: str, place: str, taken: list[str], choice: str) -> None:
    good = world.client.lrange(f"{key}:waiting", 0, 0)
    assert take(world, key, place, choice) == taken
    assert take(world, key, place, choice) == []
    assert world.client.lrange(f"{key}:_quarantine", 0, -1) == (taken if choice == "quarantine" else [])
    assert not {"gone.A:1", *taken}.intersection(world.client.hkeys(f"{key}:_deferrals"))
    assert world.client.lrange(f"{key}:waiting", 0, 0) == good


@pytest.mark.leaves("I5", "I6", "I7", "I10")
@pytest.mark.parametrize(
    ("place", "kind"), [("waiting", "_deferrals"), ("delayed", "_quarantine"), ("waiting", "waiting")]
)
def test_a_key_of_a_wrong_type_leaves_nothing_half_done(world: World, key: str, place: str, kind: str) -> None:
    world.client.delete(f"{key}:{kind}")
    world.client.set(f"{key}:{kind}", "x")
    with world.unchanged(), pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        take(world, key, place, "quarantine")
