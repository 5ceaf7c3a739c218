"""merge_queues: what is in a queue moves to the other one of its name and priority."""

from __future__ import annotations

import pytest
from worlds import World

from limpyd_jobs.check import scripts


def merge(world: World, limit: int = 100) -> int:
    origin, target = f"{world.queues}:2", f"{world.queues}:1"
    return scripts.merge_queues(world.client, origin, target, {world.path: world.job_class}, limit)


@pytest.fixture
def twins(any_world: World) -> World:
    """Two queues, of pk 1 and 2, of one name and priority; a job waits in the first one."""
    any_world.add("a")
    any_world.queue_class(name="q", priority=0)
    return any_world


@pytest.mark.leaves("I9")
def test_all_lists_and_sets_move_in_order_and_the_jobs_know(twins: World) -> None:
    job = twins.add("b")[1]
    for name in ("waiting", "success", "errors", "_quarantine"):
        twins.client.rpush(f"{twins.queues}:2:{name}", f"{twins.path}:{job.pk.get()}", "x")
    twins.client.lpop(f"{twins.queues}:1:waiting", 2)
    twins.client.delete(f"{twins.queues}:2:waiting")
    twins.client.rpush(f"{twins.queues}:2:waiting", f"{twins.path}:1", f"{twins.path}:2")
    job.queue_key.hset(f"{twins.queues}:2")
    assert merge(twins) == 8
    assert merge(twins) == 0
    assert twins.client.lrange(f"{twins.queues}:1:waiting", 0, -1) == [f"{twins.path}:1", f"{twins.path}:2"]
    assert twins.hash(job)["_queue_key"] == f"{twins.queues}:1"
    assert not twins.client.exists(*(f"{twins.queues}:2:{name}" for name in ("waiting", "success", "errors")))


@pytest.mark.leaves("I5", "I9")
def test_scores_are_kept_and_no_more_is_moved_than_the_limit(twins: World) -> None:
    twins.client.zadd(f"{twins.queues}:2:delayed", {"a": 1.5, "b": 2.5, "c": 3.5})
    assert [merge(twins, limit=2) for _ in range(3)] == [2, 1, 0]
    assert twins.client.zrange(f"{twins.queues}:1:delayed", 0, -1, withscores=True) == [
        ("a", 1.5),
        ("b", 2.5),
        ("c", 3.5),
    ]


@pytest.mark.leaves("I2", "I9")
@pytest.mark.parametrize("name", ["name", "priority"])
def test_queues_that_are_not_alike_are_left_alone(twins: World, name: str) -> None:
    twins.client.rpush(f"{twins.queues}:2:success", "x")
    twins.client.hset(f"{twins.queues}:2:hash", name, "7")
    with twins.unchanged():
        assert merge(twins) == 0


@pytest.mark.leaves("I9")
def test_a_key_of_a_wrong_type_leaves_nothing_half_done(twins: World) -> None:
    twins.client.rpush(f"{twins.queues}:2:waiting", "x")
    twins.client.set(f"{twins.queues}:1:errors", "x")
    with twins.unchanged(), pytest.raises(Exception, match="WRONGTYPE"):
        merge(twins)
