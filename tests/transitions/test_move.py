"""move: a job goes to another queue, priority or place, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from limpyd.exceptions import DoesNotExist
from worlds import LATER, TOKEN, Moment, World, pk_of, until

from limpyd_jobs import LimpydJobsException, transitions
from limpyd_jobs.dates import datetime_to_score
from limpyd_jobs.transitions import Standing

After = Callable[[float], Moment]

SOONER = LATER - timedelta(days=1)


def move(world: World, job: Any, queue: str = "q", priority: str = "", **options: Any) -> Standing:
    return transitions.move(job, world.queue_class, queue, priority, **options)


def test_the_whole_effect_on_a_waiting_job(world: World, after: After) -> None:
    job = world.job_that_is("waiting")
    assert move(world, job, "p", "5", delay=until(LATER)) == Standing("d", "5", str(LATER))
    assert world.contents() == {
        "jobs:job:max_pk": "1",
        "jobs:job:collection": {"1"},
        "jobs:job:1:hash": {
            "identifier": "a",
            "status": "d",
            "priority": "5",
            "added": after(0),
            "_queue_key": "jobs:queue:2",
            "delayed_until": str(LATER),
            "queued": "1",
        },
        "jobs:job:identifier:a": {"1"},
        "jobs:job:status:d": {"1"},
        "jobs:job:priority:5": {"1"},
        "jobs:job:queued:1": {"1"},
        "jobs:queue:max_pk": "2",
        "jobs:queue:collection": {"1", "2"},
        "jobs:queue:1:hash": {"name": "q", "priority": "0"},
        "jobs:queue:2:hash": {"name": "p", "priority": "5"},
        "jobs:queue:name:q": {"1"},
        "jobs:queue:name:p": {"2"},
        "jobs:queue:priority:0": {"1"},
        "jobs:queue:priority:5": {"2"},
        "jobs:queue:2:delayed": {job.ident: datetime_to_score(LATER)},
    }


@pytest.mark.parametrize("state", ["waiting", "delayed", "held", "success", "error", "canceled", "custom"])
class TestAJobThatNobodyRuns:
    def test_waits_where_it_was_moved_to(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        ended = [place for place in any_world.places(job) if "success" in place or "errors" in place]
        before = any_world.state(job)
        assert move(any_world, job, "p", "3") == Standing("w", "3", "")
        assert any_world.places(job) == sorted([*ended, "p/3 waiting"])
        kept = {name: before[name] for name in ("start", "end", "tries") if name in before}
        assert any_world.state(job) == {"status": "w", "priority": "3", "queued": "1", **kept}

    def test_keeps_its_priority_unless_another_is_given(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        assert move(any_world, job) == Standing("w", "0", "")
        assert "q/0 waiting" in any_world.places(job)

    def test_is_delayed_if_asked_for(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        assert move(any_world, job, "p", "3", delay=until(SOONER)) == Standing("d", "3", str(SOONER))
        assert "p/3 delayed" in any_world.places(job)
        assert "p/3 waiting" not in any_world.places(job)

    def test_is_left_to_the_caller_if_it_asked_so(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        placed = move(any_world, job, "p", "3", delay=until(SOONER), place=False)
        assert placed == Standing("d", "3", str(SOONER))
        state_of_it = any_world.state(job)
        assert (state_of_it["status"], state_of_it["queued"], state_of_it["delayed_until"]) == ("d", "1", str(SOONER))
        assert not [place for place in any_world.places(job) if place.endswith(("waiting", "delayed", "running"))]
        any_world.queue("p", 3).delay_job(job, SOONER)

    def test_is_no_longer_claimed(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        move(any_world, job)
        assert "_claim_token" not in any_world.hash(job)
        fetched = any_world.claim(token="next")
        assert fetched is not None
        assert (fetched.outcome, fetched.ident) == ("claimed", job.ident)


@pytest.mark.parametrize("state", ["running", "running set to canceled", "running set to delayed"])
class TestAJobThatRuns:
    @pytest.mark.leaves("I6", "I7")
    def test_stays_where_it_is_and_is_only_marked_as_delayed(self, any_world: World, state: str, after: After) -> None:
        job = any_world.job_that_is(state)
        before = any_world.state(job)
        assert move(any_world, job, "p", "3", delay=until(SOONER)) == Standing("r", "3", str(SOONER))
        assert any_world.places(job) == ["q/0 running"]
        assert any_world.state(job) == {**before, "status": "d", "priority": "3", "delayed_until": str(SOONER)}

    def test_goes_there_when_its_worker_ends_it(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        move(any_world, job, "q", "3", delay=until(SOONER))
        assert any_world.succeed(job).outcome == "delayed"
        any_world.delay(job, delay=until(SOONER))
        assert any_world.places(job) == ["q/3 delayed"]

    @pytest.mark.leaves("I6", "I7")
    def test_that_is_not_delayed_waits_as_soon_as_it_ended(self, any_world: World, state: str, after: After) -> None:
        job = any_world.job_that_is(state)
        placed = move(any_world, job)
        assert placed == Standing("r", "0", after(0))


@pytest.mark.leaves("I6", "I7")
def test_a_job_that_version_2_runs_is_not_run_a_second_time(world: World) -> None:
    """Its worker made no claim."""
    job = world.job_that_is("waiting")
    world.client.delete(world.waiting_key())
    job.set_fields(status="r", start=str(datetime(2026, 1, 1)), tries=1)
    move(world, job)
    assert world.places(job) == []


def test_a_job_that_was_deleted_cannot_be_moved(any_world: World) -> None:
    job = any_world.job_that_is("deleted")
    with any_world.unchanged(), pytest.raises(DoesNotExist, match="does not exist"):
        move(any_world, job)


@pytest.mark.parametrize("state", ["success", "error", "canceled", "custom"])
def test_a_job_whose_identifier_is_queued_is_not_queued_too(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state, "a")
    other = any_world.job_that_is("waiting", "a")
    with any_world.unchanged(), pytest.raises(LimpydJobsException, match=f"{job.ident}.*job {pk_of(other)}"):
        move(any_world, job)


@pytest.mark.parametrize("state", ["waiting", "delayed"])
def test_moving_a_job_twice_is_moving_it_once(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    move(any_world, job, "p", "3", delay=until(SOONER))
    with any_world.unchanged():
        assert move(any_world, job, "p", "3", delay=until(SOONER)) == Standing("d", "3", str(SOONER))


def test_a_job_is_moved_to_the_front_or_to_the_end(any_world: World) -> None:
    first, second, third = (any_world.add(identifier)[1] for identifier in "abc")
    move(any_world, third, prepend=True)
    move(any_world, first)
    assert any_world.waiting() == [pk_of(third), pk_of(second), pk_of(first)]


@pytest.mark.parametrize("delay", [until(datetime(2001, 1, 1)), "+0", "+-1000000"])
def test_a_past_date_is_no_delay(any_world: World, delay: str) -> None:
    job = any_world.job_that_is("delayed")
    assert move(any_world, job, delay=delay) == Standing("w", "0", "")
    assert "delayed_until" not in any_world.hash(job)


@pytest.mark.parametrize("priority", ["-9223372036854775808", "9223372036854775807", "-1"])
def test_any_priority_is_kept_as_it_is(any_world: World, priority: str) -> None:
    job = any_world.job_that_is("waiting")
    move(any_world, job, "q", priority)
    assert any_world.hash(job)["priority"] == priority
    assert any_world.places(job) == [f"q/{priority} waiting"]


def test_a_job_in_a_queue_of_another_name_is_taken_from_there(any_world: World) -> None:
    job = any_world.add("a", "elsewhere", 2, delay=until(LATER))[1]
    move(any_world, job, "q")
    assert any_world.places(job) == ["q/2 waiting"]


def test_a_job_that_was_put_twice_in_a_list_is_moved_wholly(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    any_world.queue().enqueue_job(job)
    any_world.queue().delay_job(job, LATER)
    move(any_world, job, "p")
    assert any_world.places(job) == ["p/0 waiting"]


def test_the_rescues_of_a_job_that_is_put_back_by_hand_are_forgotten(any_world: World) -> None:
    job = any_world.job_that_is("error")
    any_world.client.hset(f"{any_world.jobs}:{pk_of(job)}:hash", "_rescues", 2)
    move(any_world, job)
    assert "_rescues" not in any_world.hash(job)


def test_what_was_claimed_before_the_move_is_refused(any_world: World) -> None:
    from limpyd_jobs.exceptions import ClaimLost

    job = any_world.job_that_is("held")
    move(any_world, job)
    with any_world.unchanged(), pytest.raises(ClaimLost):
        any_world.succeed(job, TOKEN)


def test_the_lease_of_a_held_job_ends_although_its_priority_was_changed_while_it_ran(any_world: World) -> None:
    """Else it lapses, and the job is rescued, while it runs again."""
    job = any_world.job_that_is("running")
    job.priority.hset(5)
    any_world.fail(job, times=1, hold=True)
    move(any_world, job)
    assert any_world.places(job) == ["q/0 errors", "q/5 waiting"]


@pytest.mark.parametrize("state", ["waiting", "delayed"])
def test_a_job_whose_priority_was_changed_by_hand_is_taken_from_where_it_stands(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    job.priority.hset(5)
    move(any_world, job)
    assert any_world.places(job) == ["q/5 waiting"]
