"""abandon: a worker lets go of a job whose state its own hooks took care of."""

from __future__ import annotations

import pytest
from worlds import STATES, TOKEN, UNCLAIMED, World, pk_of

from limpyd_jobs import Job, transitions


def abandon(world: World, job: Job, token: str = TOKEN) -> bool:
    return transitions.abandon(world.job_class, f"{world.path}:{pk_of(job)}", token, world.queue_key())


@pytest.mark.parametrize("status", ["w", "r"])
@pytest.mark.leaves("I5", "I7")
def test_a_job_that_its_hooks_left_alive_stays_as_it_is_but_for_the_claim(any_world: World, status: str) -> None:
    job = any_world.job_that_is("running")
    job.status.hset(status)
    before = any_world.hash(job)
    assert abandon(any_world, job) is True
    del before["_claim_token"]
    assert any_world.hash(job) == before
    assert any_world.places(job) == []


@pytest.mark.leaves("I6", "I7")
def test_a_job_that_its_hooks_delayed_still_has_to_be_put_in_its_place(any_world: World) -> None:
    job = any_world.job_that_is("running set to delayed")
    with any_world.unchanged():
        assert abandon(any_world, job) is False


@pytest.mark.parametrize("status", ["s", "e", "c"])
def test_a_job_that_its_hooks_ended_is_no_longer_queued(any_world: World, status: str) -> None:
    job = any_world.job_that_is("running")
    job.status.hset(status)
    before = any_world.hash(job)
    abandon(any_world, job)
    del before["_claim_token"], before["queued"]
    assert any_world.hash(job) == before
    assert any_world.places(job) == []


@pytest.mark.parametrize("state", ["running set to canceled", "held"])
def test_a_job_in_a_final_status_has_a_free_identifier_again(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    abandon(any_world, job)
    assert any_world.add("a")[0] == "added"


def test_the_rescues_are_forgotten(any_world: World) -> None:
    job = any_world.job_that_is("held")
    any_world.client.hset(f"{any_world.jobs}:1:hash", "_rescues", 2)
    abandon(any_world, job)
    assert "_rescues" not in any_world.hash(job)


@pytest.mark.parametrize("state", [state for state, status in STATES.items() if status and state in UNCLAIMED])
def test_a_job_that_is_not_claimed_is_left_alone(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        abandon(any_world, job)


def test_the_claim_of_another_process_is_left_alone(any_world: World) -> None:
    job = any_world.job_that_is("running")
    with any_world.unchanged():
        abandon(any_world, job, "other")


def test_the_lease_of_a_job_that_was_deleted_ends(any_world: World) -> None:
    job = any_world.job_that_is("running")
    any_world.job_class("1").delete()
    abandon(any_world, job)
    assert any_world.client.zcard(f"{any_world.queue_key()}:_running") == 0


def test_it_may_be_done_again(any_world: World) -> None:
    job = any_world.job_that_is("held")
    abandon(any_world, job)
    with any_world.unchanged():
        abandon(any_world, job)
