"""skip: a finished job that was found in a waiting list is no longer queued."""

from __future__ import annotations

import pytest
from worlds import World

from limpyd_jobs import transitions


@pytest.mark.parametrize("status", ["s", "e", "c", "z"])
def test_a_job_that_ended_but_is_marked_as_queued_is_so_no_longer(any_world: World, status: str) -> None:
    """As version 2 leaves one that was canceled while it waited."""
    job = any_world.job_that_is("waiting")
    job.status.hset(status)
    assert any_world.claim() is not None
    before = any_world.hash(job)
    assert transitions.skip(job) is True
    del before["queued"]
    assert any_world.hash(job) == before
    assert any_world.add("a")[0] == "added"


def test_a_job_without_a_status_is_skipped(any_world: World) -> None:
    job = any_world.job_that_is("bare")
    job.queued.hset("1")
    assert transitions.skip(job) is True
    assert any_world.state(job).get("queued") is None


@pytest.mark.parametrize("state", ["waiting", "delayed", "running", "running set to delayed"])
@pytest.mark.leaves("I6", "I7")
def test_a_live_job_is_left_alone(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        assert transitions.skip(job) is False


@pytest.mark.parametrize("state", ["running set to canceled", "held"])
@pytest.mark.leaves("I3", "I7", "I8")
def test_a_job_whose_end_is_being_recorded_is_left_alone(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        assert transitions.skip(job) is False


@pytest.mark.parametrize("state", ["success", "error", "canceled"])
def test_a_job_that_is_not_queued_stays_as_it_is(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        assert transitions.skip(job) is True


def test_a_job_that_was_deleted_is_not_made_again(any_world: World) -> None:
    job = any_world.job_that_is("deleted")
    with any_world.unchanged():
        transitions.skip(job)
