"""Only the holder of a claim ends it, and what was asked once may be asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from limpyd.exceptions import DoesNotExist
from worlds import CLAIMED, TOKEN, UNCLAIMED, World, pk_of

from limpyd_jobs import Job, transitions
from limpyd_jobs.exceptions import ClaimLost

Verb = Callable[..., Any]


def requeue_by_failing(world: World, job: Job, token: str = TOKEN) -> Any:
    return world.fail(job, token, times=5)


def delay_by_failing(world: World, job: Job, token: str = TOKEN) -> Any:
    return world.fail(job, token, times=5, delay="+500000000")


def release(world: World, job: Job, token: str = TOKEN) -> None:
    transitions.release(world.job_class, job.ident, token, world.queue_key())


VERBS = {
    "succeed": World.succeed,
    "finish_canceled": World.finish_canceled,
    "delay": World.delay,
    "fail": World.fail,
    "fail and requeue": requeue_by_failing,
    "fail and delay": delay_by_failing,
    "release": release,
}
every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
CLAIMING = [World.succeed, World.finish_canceled, World.delay, World.fail]
# The status that its code gave the job while it ran is answered to a success before its claim is looked at.
CLAIMED_AS_RUNNING = ["running", "held"]


@pytest.fixture
def any_world(any_world: World) -> World:
    """One that has its queues already: a call that is refused may make them."""
    for priority in (0, -1):
        any_world.queue("q", priority)
    return any_world


WRONG = ["other", "MINE", "mine ", "\0"]


@every_verb
class TestAWrongToken:
    @pytest.mark.parametrize("state", CLAIMED_AS_RUNNING)
    @pytest.mark.leaves("I3", "I7", "I8")
    def test_is_refused_and_nothing_changes(self, any_world: World, verb: Verb, state: str) -> None:
        job = any_world.job_that_is(state)
        if state == "held":
            assert any_world.hash(job)["_claim_token"] == TOKEN
        for token in WRONG:
            with any_world.unchanged(), pytest.raises(ClaimLost, match="lost"):
                verb(any_world, job, token)

    @pytest.mark.parametrize("state", ["running set to canceled", "running set to delayed"])
    @pytest.mark.leaves("I3", "I6", "I7", "I8")
    def test_never_ends_the_claim_of_a_job_whose_status_was_set(self, any_world: World, verb: Verb, state: str) -> None:
        job = any_world.job_that_is(state)
        for token in WRONG:
            with any_world.unchanged():
                if verb is World.succeed:
                    assert verb(any_world, job, token).outcome in ("canceled", "delayed")
                else:
                    with pytest.raises(ClaimLost):
                        verb(any_world, job, token)


@pytest.mark.parametrize("verb", CLAIMING)
def test_a_wrong_token_claims_no_other_job(any_world: World, verb: Verb) -> None:
    job = any_world.job_that_is("running")
    any_world.add("b")
    for token in WRONG:
        with any_world.unchanged(), pytest.raises(ClaimLost):
            verb(any_world, job, token, next_claim=any_world.request(token="next"))


@pytest.mark.parametrize("state", [state for state in UNCLAIMED if state not in ("delayed", "canceled")])
def test_a_token_is_refused_on_a_job_that_is_not_claimed(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    for verb in VERBS.values():
        with any_world.unchanged(), pytest.raises(ClaimLost):
            verb(any_world, job, "never used")


def test_a_job_that_was_deleted_does_not_exist(any_world: World) -> None:
    job = any_world.job_that_is("deleted")
    with any_world.unchanged():
        for verb in VERBS.values():
            if verb is release:
                verb(any_world, job)
            else:
                with pytest.raises(DoesNotExist, match=f"{job.ident} does not exist"):
                    verb(any_world, job)


def test_a_claim_that_was_taken_over_is_lost(any_world: World) -> None:
    job = any_world.job_that_is("running")
    release(any_world, job)
    any_world.claim(token="second")
    for verb in VERBS.values():
        with any_world.unchanged(), pytest.raises(ClaimLost):
            verb(any_world, job)
    assert any_world.succeed(job, "second").outcome == "done"


@every_verb
def test_the_same_call_again_answers_that_it_was_done(any_world: World, verb: Verb) -> None:
    """The reply to the first may have been lost on its way."""
    job = any_world.job_that_is("running")
    first = verb(any_world, job)
    with any_world.unchanged():
        assert verb(any_world, job) == first


@pytest.mark.parametrize("verb", CLAIMING)
def test_the_same_call_again_answers_with_the_same_next_job(any_world: World, verb: Verb) -> None:
    job = any_world.job_that_is("running")
    for identifier in "bc":
        any_world.add(identifier)
    request = any_world.request(token="next")
    first = verb(any_world, job, next_claim=request)
    with any_world.unchanged():
        assert verb(any_world, job, next_claim=request) == first


@pytest.mark.parametrize("verb", CLAIMING)
class TestTheNextJob:
    def test_is_claimed_in_the_same_step(self, any_world: World, verb: Verb) -> None:
        job = any_world.job_that_is("running")
        other = any_world.add("b")[1]
        next_claim = verb(any_world, job, next_claim=any_world.request(token="next")).prefetched
        assert (next_claim.outcome, next_claim.ident, next_claim.identifier) == ("claimed", other.ident, "b")
        assert (next_claim.token, next_claim.tries) == ("next", "1")
        assert any_world.state(other)["_claim_token"] == "next"

    def test_is_none_if_the_lists_are_empty(self, any_world: World, verb: Verb) -> None:
        job = any_world.job_that_is("running")
        assert verb(any_world, job, next_claim=any_world.request(token="next")).prefetched is None

    def test_is_none_if_it_was_not_asked_for(self, any_world: World, verb: Verb) -> None:
        job = any_world.job_that_is("running")
        other = any_world.add("b")[1]
        assert verb(any_world, job).prefetched is None
        assert any_world.places(other) == ["q/0 waiting"]

    def test_may_be_one_that_does_not_wait(self, any_world: World, verb: Verb) -> None:
        job, other = any_world.job_that_is("running"), any_world.add("b")[1]
        other.set_fields(status="c")
        other.queued.delete()
        next_claim = verb(any_world, job, next_claim=any_world.request(token="next")).prefetched
        assert (next_claim.outcome, next_claim.ident, next_claim.status) == ("found", other.ident, "c")

    def test_may_be_of_a_class_the_caller_does_not_know(self, any_world: World, verb: Verb) -> None:
        job, other = any_world.job_that_is("running"), any_world.add("b")[1]
        next_claim = verb(any_world, job, next_claim=any_world.request(token="next", classes={})).prefetched
        assert (next_claim.outcome, next_claim.ident) == ("unknown", other.ident)
        assert any_world.places(other) == ["q/0 waiting"]

    def test_may_be_garbage(self, any_world: World, verb: Verb) -> None:
        job = any_world.job_that_is("running")
        any_world.client.rpush(any_world.waiting_key(), "garbage")
        next_claim = verb(any_world, job, next_claim=any_world.request(token="next")).prefetched
        assert (next_claim.outcome, next_claim.ident) == ("garbage", "garbage")


@pytest.mark.parametrize("state", [*UNCLAIMED, *CLAIMED])
def test_each_state_of_these_tests_is_what_it_says(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    token = any_world.hash(job).get("_claim_token")
    assert token == (TOKEN if state in CLAIMED else None)
    assert pk_of(job) == "1"
    if state.startswith(("running set", "held")):
        release(any_world, job)
        any_world.client.delete(any_world.waiting_key())
        job.set_fields(status="c")
        job.queued.delete()
