"""skip: a finished job that was found in a waiting list is no longer queued."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from worlds import LEASE, Moment, World, pk_of

from limpyd_jobs import Job, transitions
from limpyd_jobs.transitions import UNCLAIMED_LEASE


def skip(world: World, job: Job) -> bool:
    return transitions.skip(job, world.queue(), LEASE)


@pytest.mark.parametrize("status", ["s", "e", "c", "z"])
def test_a_job_that_ended_but_is_marked_as_queued_is_so_no_longer(any_world: World, status: str) -> None:
    """As version 2 leaves one that was canceled while it waited."""
    job = any_world.job_that_is("waiting")
    job.status.hset(status)
    assert any_world.claim() is not None
    before = any_world.hash(job)
    assert skip(any_world, job) is True
    del before["queued"]
    assert any_world.hash(job) == before
    assert any_world.add("a")[0] == "added"


def test_a_job_without_a_status_is_skipped(any_world: World) -> None:
    job = any_world.job_that_is("custom")
    job.queued.hset("1")
    assert skip(any_world, job) is True
    assert any_world.state(job).get("queued") is None


@pytest.mark.parametrize("state", ["waiting", "delayed", "running", "running set to delayed"])
@pytest.mark.leaves("I6", "I7")
def test_a_live_job_is_left_alone(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        assert skip(any_world, job) is False


@pytest.mark.parametrize("state", ["running set to canceled", "held"])
@pytest.mark.leaves("I3", "I7", "I8")
def test_a_job_whose_end_is_being_recorded_is_left_alone(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        assert skip(any_world, job) is False


@pytest.mark.parametrize("state", ["success", "error", "canceled"])
def test_a_job_that_is_not_queued_stays_as_it_is(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        assert skip(any_world, job) is True


def test_a_job_that_was_deleted_is_not_made_again(any_world: World) -> None:
    job = any_world.job_that_is("deleted")
    with any_world.unchanged():
        skip(any_world, job)


@pytest.mark.leaves("I7")
class TestAJobThatRunsWithoutAClaim:
    """Its status was set by hand, or a worker of version 2 runs it: nobody may have to wait for ever for its end."""

    def found(self, world: World, **fields: str) -> Job:
        job = world.job_that_is("waiting")
        job.set_fields(status="r", **fields)
        fetched = world.claim()
        assert fetched is not None
        assert (fetched.outcome, fetched.status) == ("found", "r")
        return job

    @pytest.mark.parametrize(
        ("fields", "seconds"), [({}, 10 * LEASE), ({"start": "2026-01-01 00:00:00"}, UNCLAIMED_LEASE)]
    )
    def test_gets_a_lease(
        self, any_world: World, after: Callable[[float], Moment], fields: dict[str, str], seconds: float
    ) -> None:
        job = self.found(any_world, **fields)
        assert skip(any_world, job) is False
        assert any_world.client.zscore(f"{any_world.queue_key()}:_running", job.ident) == after(seconds)
        assert any_world.state(job)["queued"] == "1"

    def test_keeps_the_one_it_has(self, any_world: World) -> None:
        job = self.found(any_world)
        skip(any_world, job)
        with any_world.unchanged():
            skip(any_world, job)

    def test_is_rescued_once_that_is_over(self, any_world: World) -> None:
        job = self.found(any_world)
        skip(any_world, job)
        any_world.client.zadd(f"{any_world.queue_key()}:_running", {job.ident: 1})
        transitions.rescue(any_world.queue_class, [any_world.queue_key()], 3, any_world.request(token="rescuer"))
        assert any_world.state(job)["status"] == "w"
        assert any_world.waiting() == [pk_of(job)]
