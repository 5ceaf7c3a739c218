"""succeed: a job that ran is a success, unless it was canceled or delayed meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from worlds import TOKEN, Moment, World, pk_of

from limpyd_jobs import transitions
from limpyd_jobs.exceptions import NotRecorded
from limpyd_jobs.transitions import Ending

After = Callable[[float], Moment]


def test_the_whole_effect(world: World, after: After) -> None:
    job = world.job_that_is("running", "job:1")
    assert world.succeed(job) == Ending("done", after(0), "", None)
    assert world.contents() == {
        "jobs:job:max_pk": "1",
        "jobs:job:collection": {"1"},
        "jobs:job:1:hash": {
            "identifier": "job:1",
            "status": "s",
            "priority": "0",
            "added": after(0),
            "_queue_key": "jobs:queue:1",
            "start": after(0),
            "end": after(0),
            "tries": "1",
            "_last_claim": TOKEN,
        },
        "jobs:job:identifier:job:1": {"1"},
        "jobs:job:status:s": {"1"},
        "jobs:job:priority:0": {"1"},
        "jobs:queue:max_pk": "1",
        "jobs:queue:collection": {"1"},
        "jobs:queue:1:hash": {"name": "q", "priority": "0"},
        "jobs:queue:name:q": {"1"},
        "jobs:queue:priority:0": {"1"},
        "jobs:queue:1:success": [job.ident],
    }


def test_it_is_listed_after_those_that_succeeded_before(any_world: World) -> None:
    jobs = [any_world.add(identifier)[1] for identifier in "abc"]
    for _ in jobs:
        any_world.claim()
    for job in reversed(jobs):
        any_world.succeed(job)
    assert any_world.queue().success.lmembers() == [job.ident for job in reversed(jobs)]


def test_its_identifier_is_free_again(any_world: World) -> None:
    job = any_world.job_that_is("success")
    outcome, other = any_world.add("a")
    assert (outcome, pk_of(other) != pk_of(job)) == ("added", True)


@pytest.mark.parametrize(("state", "outcome"), [("canceled", "canceled"), ("delayed", "delayed")])
@pytest.mark.leaves("I3", "I6", "I7", "I8")
def test_a_status_that_was_set_while_it_ran_is_told_and_nothing_changes(
    any_world: World, state: str, outcome: str
) -> None:
    job = any_world.job_that_is(f"running set to {state}")
    other = any_world.add("b")[1]
    with any_world.unchanged():
        assert any_world.succeed(job, next_claim=any_world.request(token="next")) == Ending(outcome)
    assert any_world.places(other) == ["q/0 waiting"]


@pytest.mark.parametrize("status", ["s", "e", "w", "z", ""])
def test_any_other_status_that_was_set_while_it_ran_is_overwritten(world: World, status: str) -> None:
    job = world.job_that_is("running")
    world.client.hset("jobs:job:1:hash", "status", status)
    world.client.smove("jobs:job:status:r", f"jobs:job:status:{status}", "1")
    assert world.succeed(job).outcome == "done"
    assert world.places(job) == ["q/0 success"]


def test_a_held_job_may_be_a_success_after_all(any_world: World) -> None:
    job = any_world.job_that_is("held")
    assert any_world.succeed(job).outcome == "done"
    assert any_world.places(job) == ["q/0 errors", "q/0 success"]


@pytest.mark.parametrize("state", ["success", "error", "custom"])
def test_a_job_that_is_not_claimed_may_be_made_a_success_by_hand(any_world: World, after: After, state: str) -> None:
    job = any_world.job_that_is(state)
    assert any_world.succeed(job, transitions.UNCLAIMED).outcome == "done"
    stored = any_world.state(job)
    assert (stored["status"], stored["end"]) == ("s", after(0))
    assert "queued" not in stored
    assert "q/0 success" in any_world.places(job)


def test_a_job_that_version_2_claimed_may_be_made_a_success(any_world: World, after: After) -> None:
    """Its worker made no claim."""
    job = any_world.job_that_is("waiting")
    any_world.client.delete(any_world.waiting_key())
    job.set_fields(status="r", start="2026-11-21 09:44:00", tries=1)
    assert any_world.succeed(job, transitions.UNCLAIMED).outcome == "done"
    assert any_world.places(job) == ["q/0 success"]


def test_the_rescues_are_forgotten(any_world: World) -> None:
    job = any_world.job_that_is("running")
    any_world.client.hset(f"{any_world.jobs}:1:hash", "_rescues", 2)
    any_world.succeed(job)
    assert "_rescues" not in any_world.hash(job)


def test_it_is_found_by_its_indexes_through_limpyd(any_world: World) -> None:
    job = any_world.job_that_is("success", "job:1")
    assert list(any_world.job_class.collection(status="s", identifier="job:1")) == [pk_of(job)]
    assert list(any_world.job_class.collection(status="r")) == []
    assert list(any_world.job_class.collection(queued="1")) == []


def test_a_lease_that_lapsed_is_no_hindrance_as_long_as_no_process_rescued_the_job(any_world: World) -> None:
    job = any_world.job_that_is("running")
    any_world.client.zadd(f"{any_world.queue_key()}:_running", {job.ident: 1})
    assert any_world.succeed(job).outcome == "done"


@pytest.mark.parametrize("key", ["jobs:queue:1:success", "jobs:queue:1:_running", "jobs:job:status:s"])
@pytest.mark.leaves("I2", "I7", "I10")
def test_a_key_of_a_wrong_type_leaves_the_job_as_it_was(world: World, key: str) -> None:
    job = world.job_that_is("running")
    world.client.delete(key)
    world.client.set(key, "of a wrong type")
    with world.unchanged(), pytest.raises(NotRecorded):
        world.succeed(job, TOKEN)
