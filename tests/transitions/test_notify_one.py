"""notify_one: ends the wait of an idle worker, for a job that was put in a waiting list by other means."""

from __future__ import annotations

from typing import Any

from worlds import World

from limpyd_jobs.records import records


def tokens(world: World) -> int:
    return world.client.llen(records.signal_key(world.queue_class, "q"))


def notify_one(queue: Any) -> None:
    records.notify_one(records.redis_of(queue), records.queue_key_of(queue))


def test_one_who_waits_is_told(any_world: World) -> None:
    queue = any_world.queue()
    any_world.client.zadd(f"{any_world.queues}:idle_workers", {"a worker": 1, "another": 1})
    notify_one(queue)
    assert tokens(any_world) == 1


def test_no_process_is_if_no_process_waits(any_world: World) -> None:
    notify_one(any_world.queue())
    assert tokens(any_world) == 0


def test_a_queue_that_is_none_any_more_has_no_process_to_tell(any_world: World) -> None:
    queue = any_world.queue()
    any_world.client.flushdb()
    any_world.client.zadd(f"{any_world.queues}:idle_workers", {"a worker": 1})
    notify_one(queue)
    assert tokens(any_world) == 0
