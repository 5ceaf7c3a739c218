"""requeue: a job in error goes back to a queue."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from limpyd.exceptions import DoesNotExist
from worlds import LATER, STATES, TOKEN, Moment, World, pk_of, until

from limpyd_jobs import LimpydJobsException, transitions
from limpyd_jobs.dates import datetime_to_score
from limpyd_jobs.exceptions import ClaimLost
from limpyd_jobs.transitions import Standing

After = Callable[[float], Moment]


def requeue(world: World, job: Any, queue: str = "q", priority: str = "", **options: Any) -> Standing:
    return transitions.requeue(job, world.queue_class, queue, priority, **options)


def test_the_whole_effect(world: World, after: After) -> None:
    job = world.job_that_is("error", "job:1")
    assert requeue(world, job, "p", "-1", delay=until(LATER)) == Standing("d", "-1", str(LATER))
    assert world.contents() == {
        "jobs:job:max_pk": "1",
        "jobs:job:collection": {"1"},
        "jobs:job:1:hash": {
            "identifier": "job:1",
            "status": "d",
            "priority": "-1",
            "added": after(0),
            "_queue_key": "jobs:queue:2",
            "tries": "1",
            "_uncounted_tries": "1",
            "_requeued_at": after(0),
            "delayed_until": str(LATER),
            "queued": "1",
        },
        "jobs:job:identifier:job:1": {"1"},
        "jobs:job:status:d": {"1"},
        "jobs:job:priority:-1": {"1"},
        "jobs:job:queued:1": {"1"},
        "jobs:queue:max_pk": "2",
        "jobs:queue:collection": {"1", "2"},
        "jobs:queue:1:hash": {"name": "q", "priority": "0"},
        "jobs:queue:2:hash": {"name": "p", "priority": "-1"},
        "jobs:queue:name:q": {"1"},
        "jobs:queue:name:p": {"2"},
        "jobs:queue:priority:0": {"1"},
        "jobs:queue:priority:-1": {"2"},
        "jobs:queue:1:errors": [job.ident],
        "jobs:queue:2:delayed": {job.ident: datetime_to_score(LATER)},
    }


@pytest.mark.parametrize("state", ["error", "held"])
class TestAJobInError:
    def test_waits_at_the_end_of_its_list_with_its_tries(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        other = any_world.add("b")[1]
        assert requeue(any_world, job) == Standing("w", "0", "")
        assert any_world.waiting() == [pk_of(other), pk_of(job)]
        assert any_world.state(job) == {"status": "w", "priority": "0", "queued": "1", "tries": "1"}
        assert any_world.places(job) == ["q/0 errors", "q/0 waiting"]

    @pytest.mark.parametrize("priority", ["3", "-9223372036854775808", "9223372036854775807"])
    def test_goes_to_another_queue_and_priority(self, any_world: World, state: str, priority: str) -> None:
        job = any_world.job_that_is(state)
        assert requeue(any_world, job, "p", priority) == Standing("w", priority, "")
        assert any_world.places(job) == sorted([f"p/{priority} waiting", "q/0 errors"])

    def test_is_delayed_if_asked_for(self, any_world: World, state: str, after: After) -> None:
        job = any_world.job_that_is(state)
        placed = requeue(any_world, job, delay="+60000000")
        assert placed == Standing("d", "0", after(60))
        assert any_world.places(job) == ["q/0 delayed", "q/0 errors"]

    @pytest.mark.parametrize("delay", ["+0", "+-5000000", until(datetime(2001, 1, 1))])
    def test_waits_if_the_date_has_passed(self, any_world: World, state: str, delay: str) -> None:
        job = any_world.job_that_is(state)
        assert requeue(any_world, job, delay=delay) == Standing("w", "0", "")
        assert "delayed_until" not in any_world.hash(job)

    def test_is_left_to_the_caller_if_it_asked_so(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        assert requeue(any_world, job, "p", "3", place=False) == Standing("w", "3", "")
        assert any_world.places(job) == ["q/0 errors"]
        any_world.queue("p", 3).enqueue_job(job)

    def test_is_requeued_once(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        requeue(any_world, job)
        with any_world.unchanged(), pytest.raises(LimpydJobsException, match=r"not in ERROR.*"):
            requeue(any_world, job)

    @pytest.mark.leaves("I3", "I4", "I7", "I8")
    def test_is_not_requeued_if_another_of_its_identifier_is_queued(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        if state == "held":
            any_world.job_class(identifier="a", status="z", queued="1")
        else:
            any_world.add("a")
        with any_world.unchanged(), pytest.raises(LimpydJobsException, match=f"{job.ident}.*job 2"):
            requeue(any_world, job)

    test_is_not_requeued_if_another_of_its_identifier_is_queued.pytestmark = [
        pytest.mark.leaves(*["I3", "I4", "I7", "I8"])
    ]

    def test_is_claimed_as_a_further_try(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        requeue(any_world, job)
        fetched = any_world.claim(token="second")
        assert fetched is not None
        assert (fetched.outcome, fetched.tries) == ("claimed", "2")


@pytest.mark.parametrize("state", [state for state in STATES if state not in ("error", "held", "deleted")])
@pytest.mark.leaves("I3", "I6", "I7", "I8")
def test_a_job_that_is_not_in_error_is_not_requeued(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    any_world.queue()
    with any_world.unchanged(), pytest.raises(LimpydJobsException, match=f"not in ERROR status.*{job.ident}"):
        requeue(any_world, job)


def test_a_job_that_was_deleted_cannot_be_requeued(any_world: World) -> None:
    job = any_world.job_that_is("deleted")
    with any_world.unchanged(), pytest.raises(DoesNotExist):
        requeue(any_world, job)


def test_an_index_entry_of_a_job_that_is_not_queued_is_no_hindrance(world: World) -> None:
    job = world.job_that_is("error")
    other = world.job_that_is("success")
    world.client.sadd("jobs:job:queued:1", pk_of(other))
    assert requeue(world, job) == Standing("w", "0", "")
    world.client.srem("jobs:job:queued:1", pk_of(other))


def test_a_job_without_a_priority_gets_that_of_most(any_world: World) -> None:
    job = any_world.job_that_is("error")
    job.priority.delete()
    assert requeue(any_world, job).priority == "0"


def test_a_job_without_an_identifier_is_requeued(any_world: World) -> None:
    job = any_world.job_that_is("error")
    job.identifier.delete()
    assert requeue(any_world, job).status == "w"


def test_the_worker_that_held_it_has_no_claim_any_more(any_world: World) -> None:
    job = any_world.job_that_is("held")
    requeue(any_world, job)
    with any_world.unchanged(), pytest.raises(ClaimLost):
        any_world.succeed(job)


def test_the_lease_of_a_held_job_ends_although_its_priority_was_changed_while_it_ran(any_world: World) -> None:
    """Else it lapses, and the job is rescued, while it runs again."""
    job = any_world.job_that_is("running")
    job.priority.hset(5)
    any_world.fail(job, times=1, hold=True)
    requeue(any_world, job)
    assert any_world.places(job) == ["q/0 errors", "q/5 waiting"]


class TestTheTriesOfTheRetryPolicy:
    def test_begin_anew_when_it_is_put_back_by_hand(self, any_world: World, after: After) -> None:
        job = any_world.job_that_is("error")
        job.tries.hset(5)
        requeue(any_world, job)
        stored = any_world.hash(job)
        assert (stored["tries"], stored["_uncounted_tries"]) == ("5", "5")
        assert stored["_requeued_at"] == after(0)

    def test_go_on_when_it_is_its_worker_that_puts_it_back(self, any_world: World) -> None:
        job = any_world.job_that_is("held")
        job.uncounted_tries.hset(3)
        requeue(any_world, job)
        stored = any_world.hash(job)
        assert stored["_uncounted_tries"] == "3"
        assert "_requeued_at" not in stored

    def test_are_none_of_a_job_without_tries(self, any_world: World) -> None:
        job = any_world.job_that_is("error")
        job.tries.delete()
        requeue(any_world, job)
        assert "_uncounted_tries" not in any_world.hash(job)


class TestThePriorityThatARetryPolicyChanged:
    @pytest.fixture
    def job(self, any_world: World) -> Any:
        """One that had the priority 0, then -1, then -2, and is in error now."""
        job = any_world.job_that_is("running")
        for priority in ("-1", "-2"):
            any_world.fail(job, times=None, priority=priority)
            assert any_world.claim(any_world.waiting_key("q", priority)) is not None
        transitions.fail(job, any_world.queue("q", -2), TOKEN)
        assert any_world.state(job)["status"] == "e"
        return job

    def test_is_the_first_one_again_when_it_is_put_back_by_hand(self, any_world: World, job: Any) -> None:
        assert requeue(any_world, job).priority == "0"
        assert "q/0 waiting" in any_world.places(job)
        assert "_first_priority" not in any_world.hash(job)

    def test_is_another_one_if_that_is_given(self, any_world: World, job: Any) -> None:
        assert requeue(any_world, job, priority="7").priority == "7"

    def test_stays_what_it_was_changed_to_by_another_process(self, any_world: World, job: Any) -> None:
        job.priority.hset(5)
        assert requeue(any_world, job).priority == "5"


@pytest.mark.leaves("I3")
def test_a_priority_that_is_lowered_step_by_step_is_noted(any_world: World) -> None:
    """As it is if hooks of the application see the job between its error and its return."""
    job = any_world.job_that_is("running")
    any_world.fail(job, times=None, hold=True)
    requeue(any_world, job, priority="-1")
    assert any_world.hash(job)["_first_priority"] == "0 -1"


@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize("hold", [False, True])
def test_a_priority_that_is_lowered_without_a_retry_policy_is_not_noted(
    any_world: World, times: int, hold: bool
) -> None:
    job = any_world.job_that_is("running")
    any_world.fail(job, times=times, hold=hold)
    if hold:
        requeue(any_world, job, priority="-1")
    assert "_first_priority" not in any_world.hash(job)
