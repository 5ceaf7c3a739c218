"""force_release: a job is released in place of its worker, whose claim is fenced."""

from __future__ import annotations

import pytest
import redis
from worlds import TOKEN, World

from limpyd_jobs import transitions
from limpyd_jobs.exceptions import ClaimLost
from limpyd_jobs.records import audit


def force_release(world: World, ident: str, token: str = TOKEN, queue_key: str | None = None) -> str:
    told = audit.entry_request(verb="release", filter=ident)
    return transitions.force_release(world.job_class, ident, token, queue_key or world.queue_key(), told)


def test_it_is_at_the_front_as_if_it_had_not_been_claimed(world: World) -> None:
    job = world.job_that_is("running")
    world.add("b")
    assert force_release(world, job.ident) == "done"
    assert world.waiting() == ["1", "2"]
    assert (job.status.hget(), job.tries.hget(), job.start.hget()) == ("w", None, None)
    (entry,) = audit.last_entries(world.client, 5)
    assert (entry["verb"], entry["filter"]) == ("release", job.ident)


def test_what_the_worker_reports_is_refused(world: World) -> None:
    job = world.job_that_is("running")
    force_release(world, job.ident)
    with pytest.raises(ClaimLost):
        transitions.release(world.job_class, job.ident, TOKEN, world.queue_key())
    assert job.status.hget() == "w"


def test_another_claim_or_a_job_that_does_not_run_is_left_alone(world: World) -> None:
    job = world.job_that_is("running")
    assert force_release(world, job.ident, "another") == "refused"
    assert force_release(world, f"{job.ident}9") == "gone"
    world.add("b")
    assert force_release(world, world.job("2").ident, transitions.UNCLAIMED) == "not running"
    assert audit.last_entries(world.client, 5) == []


def test_a_job_is_put_in_no_list_that_is_not_of_a_queue(world: World) -> None:
    job = world.job_that_is("running")
    with world.unchanged():
        assert force_release(world, job.ident, queue_key="x") == "no queue"
    assert audit.last_entries(world.client, 5) == []


@pytest.mark.leaves("I2", "I4")
def test_nothing_is_written_to_the_audit_if_it_cannot_be_done(world: World) -> None:
    job = world.job_that_is("running")
    world.client.set(f"{world.jobs}:status:w", "x")
    with world.unchanged(), pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        force_release(world, job.ident)
