"""A job in the hand of a worker whose application may put it elsewhere: out of its list, with a lease, otherwise as it
was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import LATER, World, until

from limpyd_jobs import Job, transitions
from limpyd_jobs.transitions import ONLY_TAKEN

HAND = f"{ONLY_TAKEN}mine"
MINUTE = "+60000000"


def taken(world: World, identifier: str = "a") -> Job:
    """Add a job, and take it out of its list."""
    job = world.add(identifier)[1]
    fetched = world.claim(token=HAND)
    assert fetched is not None
    assert (fetched.outcome, fetched.token, fetched.pk) == ("claimed", HAND, job.pk.get())
    return job


def leave(world: World, job: Job, *keys: str) -> bool:
    return transitions.abandon(
        world.job_class, job.ident, HAND, world.queue_key(), MINUTE, keys or [world.waiting_key()]
    )


@pytest.mark.leaves("I5", "I7")
def test_it_is_as_it_was_but_out_of_its_list_and_with_a_lease(any_world: World) -> None:
    job = taken(any_world)
    assert job.hmget("status", "queued", "start", "tries") == ["w", "1", None, None]
    assert any_world.places(job) == ["q/0 running"]


def test_it_can_be_claimed_to_be_run(any_world: World) -> None:
    job = taken(any_world)
    fetched = any_world.claim(any_world.waiting_key(), ident=job.ident)
    assert fetched is not None
    assert fetched.outcome == "claimed"
    assert job.hmget("status", "tries") == ["r", "1"]


@pytest.mark.leaves("I5", "I7")
def test_a_claim_whose_reply_was_lost_is_found_again(any_world: World) -> None:
    job = taken(any_world)
    request = any_world.request(token=HAND)
    again = transitions.claim(any_world.queue_class, replace(request, is_again=True))[0]
    assert again is not None
    assert (again.outcome, again.ident, again.token) == ("claimed", job.ident, HAND)


@pytest.mark.parametrize("delay", ["", until(LATER)])
def test_it_can_be_moved_at_once(any_world: World, delay: str) -> None:
    job = taken(any_world)
    placed = transitions.move(job, any_world.queue_class, "p", "5", delay=delay)
    assert placed.status == ("d" if delay else "w")
    assert any_world.places(job) == ["p/5 delayed" if delay else "p/5 waiting"]
    assert any_world.hash(job).keys().isdisjoint({"_claim_token", "start", "tries"})
    assert leave(any_world, job) is True
    assert len(any_world.places(job)) == 1


def test_it_goes_back_to_the_front_of_its_list_when_its_worker_ends(any_world: World) -> None:
    job = taken(any_world)
    job.tries.hset(3)
    any_world.add("b")
    transitions.release(any_world.job_class, job.ident, HAND, any_world.queue_key())
    assert any_world.waiting() == ["1", "2"]
    assert job.tries.hget() == "3"


def test_it_goes_back_to_the_front_of_its_list_when_its_worker_dies(any_world: World) -> None:
    job = taken(any_world)
    any_world.add("b")
    any_world.client.zadd(f"{any_world.queue_key()}:_running", {job.ident: 1})
    request = any_world.request(token="rescuer")
    transitions.rescue(any_world.queue_class, [any_world.queue_key()], 0, request)
    assert any_world.waiting() == ["1", "2"]
    assert job.hmget("status", "tries", "_claim_token") == ["w", None, None]


def test_one_that_no_process_put_anywhere_is_delayed(any_world: World) -> None:
    job = taken(any_world)
    assert leave(any_world, job) is True
    assert job.hmget("status", "tries") == ["d", None]
    assert any_world.places(job) == ["q/0 delayed"]


@pytest.mark.parametrize("prepend", [True, False])
def test_one_that_was_pushed_in_a_list_stays_there(any_world: World, prepend: bool) -> None:
    job = taken(any_world)
    other = any_world.queue("p", 5)
    push = other.waiting.lpush if prepend else other.waiting.rpush
    push(job.ident)
    assert leave(any_world, job, any_world.waiting_key(), other.waiting.key) is True
    assert job.hmget("status", "_claim_token") == ["w", None]
    assert any_world.places(job) == ["p/5 waiting"]


@pytest.mark.leaves("I5", "I6")
def test_one_that_was_put_in_a_delayed_set_stays_there(any_world: World) -> None:
    job = taken(any_world)
    any_world.queue().delayed.zadd({job.ident: 4102444800})
    assert leave(any_world, job) is True
    assert job.hmget("status", "_claim_token") == ["w", None]
    assert any_world.places(job) == ["q/0 delayed"]


@pytest.mark.leaves("I6", "I7")
def test_one_whose_status_is_delayed_is_for_the_worker_to_delay(any_world: World) -> None:
    job = taken(any_world)
    job.status.hset("d")
    assert leave(any_world, job) is False


def test_one_that_another_process_claimed_meanwhile_is_left_alone(any_world: World) -> None:
    job = taken(any_world)
    any_world.queue().waiting.rpush(job.ident)
    assert any_world.claim() is not None
    with any_world.unchanged():
        assert leave(any_world, job) is True
