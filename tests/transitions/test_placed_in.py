"""The queue that the hash of a job names is where the job is looked for first."""

from __future__ import annotations

import redis
from worlds import LATER, World

from limpyd_jobs import Queue


def test_a_moved_job_is_found_though_its_priority_was_changed_by_hand_and_its_queue_is_one_of_many(
    redis_client: redis.Redis,
) -> None:
    world = World(redis_client)
    for number in range(20):
        Queue.get_queue(f"other {number}", 7)
    job = world.add()[1]
    job.priority.hset(7)
    job.enqueue_or_delay(queue_name="elsewhere", priority=7, delayed_until=LATER)
    assert world.places(job) == ["elsewhere/7 delayed"]
    assert world.hash(job)["_queue_key"] == world.queue_key("elsewhere", 7)


def test_a_job_that_names_a_place_where_it_is_not_is_found_anyway(redis_client: redis.Redis) -> None:
    world = World(redis_client)
    job = world.add()[1]
    for wrong in ("", "nonsense", "jobs:queue:77", "jobs:queue:1:hash", "limpyd_jobs.models"):
        redis_client.hset(f"{world.jobs}:1:hash", "_queue_key", wrong)
        job.enqueue_or_delay(queue_name="q", priority=5)
        assert world.places(job) == ["q/5 waiting"]
        job.enqueue_or_delay(queue_name="q", priority=0)
        assert world.places(job) == ["q/0 waiting"]
