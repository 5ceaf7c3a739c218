"""renew many: the leases of several claims are extended in one step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from worlds import TOKEN, Moment, World, pk_of

from limpyd_jobs import Job, transitions
from limpyd_jobs.transitions import Delivery, Renewal

After = Callable[[float], Moment]


def renew_all(world: World, *jobs: Job, token: str = TOKEN) -> list[str]:
    claims = [
        Renewal(world.job_class, Delivery("claimed", world.waiting_key(), f"{world.path}:{pk_of(job)}", token=token))
        for job in jobs
    ]
    return transitions.renew_all(world.client, claims, 5000)


@pytest.mark.leaves("I3", "I6", "I7", "I8")
def test_are_renewed_or_not_whatever_becomes_of_the_others(any_world: World, after: After) -> None:
    states = {
        "running": "done",
        "deleted": "gone",
        "running set to canceled": "canceled",
        "success": "done",
        "waiting": "refused",
    }
    jobs = {state: any_world.job_that_is(state, state) for state in states}
    assert renew_all(any_world, *jobs.values()) == list(states.values())
    running = any_world.client.zrange(f"{any_world.queue_key()}:_running", 0, -1, withscores=True)
    assert {ident for ident, score in running if score == after(5000)} == {
        jobs["running"].ident,
        jobs["running set to canceled"].ident,
    }


def test_one_that_fails_does_not_keep_the_others(world: World) -> None:
    jobs = [world.job_that_is("running", identifier) for identifier in "ab"]
    key = f"jobs:job:{pk_of(jobs[0])}:hash"
    stored = world.client.hgetall(key)
    world.client.delete(key)
    world.client.set(key, "none")
    assert renew_all(world, *jobs) == ["failed", "done"]
    world.client.delete(key)
    world.client.hset(key, mapping=stored)


def test_of_a_server_that_knows_no_script(any_world: World) -> None:
    jobs = [any_world.job_that_is("running", identifier) for identifier in "ab"]
    any_world.client.script_flush()
    assert renew_all(any_world, *jobs) == ["done", "done"]
