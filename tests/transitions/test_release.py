"""release: a claimed job is given back unharmed, as if it had not been claimed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from worlds import TOKEN, Moment, World, pk_of

from limpyd_jobs import Job, transitions
from limpyd_jobs.exceptions import ClaimLost
from limpyd_jobs.transitions import Delivery

After = Callable[[float], Moment]


def release(world: World, job: Job, token: str = TOKEN, delay: str = "") -> None:
    transitions.release(world.job_class, job.ident, token, world.queue_key(), delay)


def test_the_database_is_as_before_the_claim(any_world: World) -> None:
    for identifier in "ab":
        any_world.add(identifier)
    before = any_world.contents()
    any_world.claim()
    assert any_world.contents() != before
    release(any_world, any_world.job("1"))
    released = any_world.contents()
    assert released[f"{any_world.jobs}:1:hash"].pop("_last_claim") == TOKEN
    assert released == before


def test_it_goes_to_the_front_of_its_list(any_world: World) -> None:
    job = any_world.job_that_is("running")
    any_world.add("b")
    release(any_world, job)
    assert any_world.waiting() == ["1", "2"]


@pytest.mark.parametrize(("tries", "left"), [("3", "2"), ("1", None), ("0", None), ("many", None)])
def test_the_try_is_not_counted(any_world: World, tries: str, left: str | None) -> None:
    job = any_world.job_that_is("running")
    job.tries.hset(tries)
    release(any_world, job)
    assert job.tries.hget() == left
    assert job.start.hget() is None


def test_its_identifier_stays_queued(any_world: World) -> None:
    job = any_world.job_that_is("running")
    release(any_world, job)
    outcome, found = any_world.add("a")
    assert (outcome, pk_of(found)) == ("existing", pk_of(job))


def test_with_a_delay_it_is_delayed(any_world: World, after: After) -> None:
    job = any_world.job_that_is("running")
    release(any_world, job, delay="+60000000")
    assert any_world.places(job) == ["q/0 delayed"]
    assert any_world.state(job) == {"status": "d", "priority": "0", "queued": "1", "delayed_until": after(60)}


@pytest.mark.parametrize("state", ["running set to canceled", "running set to delayed"])
@pytest.mark.leaves("I3", "I6", "I8")
def test_one_that_was_canceled_or_delayed_is_for_the_next_worker_to_see_to(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    release(any_world, job)
    assert any_world.places(job) == ["q/0 waiting"]
    fetched = any_world.claim(token="second")
    assert fetched is not None
    assert (fetched.outcome, fetched.status) == ("found", "c" if "canceled" in state else "d")
    assert "_claim_token" not in any_world.hash(job)


@pytest.mark.parametrize("state", ["running set to canceled", "running set to delayed"])
@pytest.mark.leaves("I3", "I6", "I7", "I8")
def test_one_that_was_canceled_or_delayed_is_left_to_a_caller_who_heeds_that(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        reply = transitions.release(any_world.job_class, job.ident, TOKEN, any_world.queue_key(), heeds_status=True)
    assert reply["outcome"] == state.split()[-1]


@pytest.mark.parametrize(("delay", "status"), [("", "w"), ("+60000000", "d")])
def test_a_repeat_of_the_call_is_told_the_same_status(any_world: World, delay: str, status: str) -> None:
    job = any_world.job_that_is("running")
    for _ in range(2):
        reply = transitions.release(any_world.job_class, job.ident, TOKEN, any_world.queue_key(), delay)
        assert (reply["outcome"], reply["status"]) == ("done", status)


def test_the_next_worker_may_claim_it_at_once(any_world: World) -> None:
    job = any_world.job_that_is("running")
    release(any_world, job)
    fetched = any_world.claim(token="second")
    assert fetched is not None
    assert (fetched.outcome, fetched.ident, fetched.tries) == ("claimed", job.ident, "1")


class TestAll:
    """Several jobs, in one round trip."""

    def claimed(self, world: World) -> list[Delivery]:
        for identifier in "abcd":
            world.add(identifier)
        return transitions.succeed_many(world.client, [], world.request(), 3)[1]

    def release_all(self, world: World, claims: list[Delivery]) -> list[Exception]:
        return transitions.release_all([(world.job_class, claim) for claim in claims])

    def test_are_in_the_order_of_before(self, any_world: World) -> None:
        assert self.release_all(any_world, self.claimed(any_world)) == []
        assert any_world.waiting() == ["1", "2", "3", "4"]

    def test_one_that_fails_does_not_keep_the_others(self, any_world: World) -> None:
        claims = self.claimed(any_world)
        release(any_world, any_world.job(claims[1].pk), claims[1].token, "+1000000000")
        claims[1] = replace(claims[1], token="other")
        assert [type(failure) for failure in self.release_all(any_world, claims)] == [ClaimLost]
        assert any_world.waiting() == ["1", "3", "4"]
