"""renew: the lease of a claimed job is extended."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from worlds import CLAIMED, TOKEN, UNCLAIMED, Moment, World, pk_of

from limpyd_jobs import ClaimLost, Job, JobGone, transitions

After = Callable[[float], Moment]


def renew(world: World, job: Job, token: str = TOKEN, lease: float = 5000) -> bool:
    ident = f"{world.path}:{pk_of(job)}"
    try:
        transitions.renew(world.client, world.job_class, ident, token, world.queue_key(), lease)
    except (ClaimLost, JobGone):
        return False
    return True


@pytest.mark.parametrize("state", CLAIMED)
@pytest.mark.leaves("I3", "I6", "I7", "I8")
def test_the_holder_of_the_claim_extends_it_and_nothing_else_changes(
    any_world: World, after: After, state: str
) -> None:
    job = any_world.job_that_is(state)
    expected = any_world.contents()
    expected[f"{any_world.queue_key()}:_running"] = {job.ident: after(5000)}
    assert renew(any_world, job) is True
    assert any_world.contents() == expected


def test_no_other_does(any_world: World) -> None:
    job = any_world.job_that_is("running")
    with any_world.unchanged():
        assert renew(any_world, job, "other") is False


@pytest.mark.parametrize("state", [*UNCLAIMED, "deleted"])
def test_a_job_that_is_not_claimed_gets_no_lease(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    any_world.queue()
    with any_world.unchanged():
        assert renew(any_world, job, "other") is False


@pytest.mark.parametrize("state", ["success", "error", "canceled"])
def test_whoever_ended_the_job_did_not_lose_its_claim(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        assert renew(any_world, job) is True


def test_a_lease_that_lapsed_is_extended_if_no_process_rescued_the_job(any_world: World, after: After) -> None:
    job = any_world.job_that_is("running")
    key = f"{any_world.queue_key()}:_running"
    any_world.client.zadd(key, {job.ident: 1})
    assert renew(any_world, job) is True
    assert any_world.client.zscore(key, job.ident) == after(5000)


def test_whether_the_job_was_canceled_makes_no_difference(any_world: World) -> None:
    job = any_world.job_that_is("running")
    assert transitions.cancel(job, any_world.queue_class)
    assert renew(any_world, job) is True
    assert any_world.finish_canceled(job).outcome == "done"
