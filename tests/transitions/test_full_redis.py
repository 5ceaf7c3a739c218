"""While Redis is full, each step is done as at other times, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import redis
from several import stored
from worlds import TOKEN, Complaint, Order, Till, World

from limpyd_jobs import NotRecorded, transitions

STEPS: dict[str, tuple[str, Callable[[World, Any], object]]] = {
    "add": ("waiting", lambda world, job: world.add("b")),
    "claim": ("waiting", lambda world, job: world.claim()),
    "defer unresolved": (
        "waiting",
        lambda world, job: transitions.defer_unresolved(world.queue_class, world.waiting_key(), job.ident),
    ),
    "dead letter": (
        "waiting",
        lambda world, job: transitions.defer_unresolved(
            world.queue_class, world.waiting_key(), job.ident, max_deferrals=0
        ),
    ),
    "cancel": ("waiting", lambda world, job: transitions.cancel(job, world.queue_class, "q")),
    "move": ("waiting", lambda world, job: job.enqueue_or_delay("other", 5)),
    "edit": (
        "waiting",
        lambda world, job: transitions.edit(
            job, world.queue_class, {"cancel_on_error": "1"}, priority="5", default_name="q"
        ),
    ),
    "succeed": ("running", lambda world, job: world.succeed(job)),
    "fail": ("running", lambda world, job: world.fail(job)),
    "fail and retry": ("running", lambda world, job: world.fail(job, times=1)),
    "delay": ("running", lambda world, job: world.delay(job)),
    "release": (
        "running",
        lambda world, job: transitions.release(world.job_class, job.ident, TOKEN, world.queue_key()),
    ),
    "finish canceled": ("running set to canceled", lambda world, job: world.finish_canceled(job)),
    "promote": ("delayed", lambda world, job: promote(world)),
    "requeue": ("error", lambda world, job: job.requeue("q")),
}


def promote(world: World) -> object:
    classes = {world.path: world.job_class}
    return transitions.promote(world.queue_class, [world.queue_key()], classes)


@pytest.mark.leaves("I2", "I5", "I6", "I8")
@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_done_or_not(redis_client: redis.Redis, step: str) -> None:
    world = World(redis_client, Order, Till, Complaint)
    state, act = STEPS[step]
    outcomes = []
    for room in (1, 0):
        world.client.flushdb()
        job = world.job_that_is(state)
        if step == "promote":
            world.client.zadd(f"{world.queue_key()}:delayed", {job.ident: 1})
        before = stored(world)
        world.client.config_set("maxmemory", room)
        try:
            with suppress(redis.ResponseError, NotRecorded):
                act(world, job)
        finally:
            world.client.config_set("maxmemory", 0)
        outcomes.append(stored(world))
    assert outcomes[0] in (before, outcomes[1])
    assert outcomes[1] != before
