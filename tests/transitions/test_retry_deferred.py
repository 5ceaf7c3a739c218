"""retry deferred: jobs of a class that nobody could resolve so far are tried at once, as somebody can."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from worlds import Moment, World

from limpyd_jobs import transitions
from limpyd_jobs.records.lazy_fields import pk_of

After = Callable[[float], Moment]


def deferred(world: World, identifier: str = "a", state: str = "waiting") -> str:
    """Return the ident of a job that is deferred by a minute."""
    job = world.job_that_is(state, identifier)
    transitions.defer_unresolved(world.queue_class, world.waiting_key(), job.ident)
    return job.ident


def retry_deferred(world: World, *idents: str) -> int:
    return transitions.retry_deferred(world.queue_class, world.queue_key(), world.job_class, idents)


def score(world: World, ident: str) -> float | None:
    found: float | None = world.client.zscore(f"{world.queue_key()}:delayed", ident)
    return found


@pytest.mark.leaves("I5", "I6")
def test_jobs_that_were_deferred_are_due_at_once(any_world: World, after: After) -> None:
    idents = [deferred(any_world, identifier) for identifier in "ab"]
    assert retry_deferred(any_world, *idents) == 2
    assert [score(any_world, ident) for ident in idents] == [after(0)] * 2


def test_they_are_run_with_all_that_they_were(any_world: World) -> None:
    ident = deferred(any_world)
    retry_deferred(any_world, ident)
    transitions.promote(any_world.queue_class, [any_world.queue_key()], {any_world.path: any_world.job_class})
    fetched = any_world.claim()
    assert fetched is not None
    assert (fetched.outcome, fetched.ident) == ("claimed", ident)
    assert any_world.queue().deferrals.hlen() == 0


@pytest.mark.leaves("I5", "I6")
def test_one_that_was_delayed_and_due_when_it_was_deferred_is_due_again(world: World, after: After) -> None:
    job = world.job_that_is("delayed")
    world.client.hset(f"{world.jobs}:{pk_of(job)}:hash", "delayed_until", "2020-01-01 00:00:00")
    transitions.defer_unresolved(world.queue_class, world.waiting_key(), job.ident)
    assert retry_deferred(world, job.ident) == 1
    assert score(world, job.ident) == after(0)


def test_one_that_was_delayed_since_stays_so(any_world: World) -> None:
    job = any_world.job_that_is("delayed")
    before = score(any_world, job.ident)
    assert retry_deferred(any_world, job.ident) == 0
    assert score(any_world, job.ident) == before


def test_one_that_is_delayed_no_more_is_left_alone(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    assert retry_deferred(any_world, job.ident) == 0
    assert any_world.places(job) == ["q/0 waiting"]


@pytest.mark.leaves("I5", "I6")
def test_one_that_is_due_keeps_its_turn(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    transitions.defer_unresolved(any_world.queue_class, any_world.waiting_key(), job.ident, seconds=-10)
    before = score(any_world, job.ident)
    assert retry_deferred(any_world, job.ident) == 0
    assert score(any_world, job.ident) == before


@pytest.mark.leaves("I10")
def test_a_queue_with_a_delayed_set_of_a_wrong_type_is_left_alone(any_world: World) -> None:
    any_world.client.set(f"{any_world.queue_key()}:delayed", "of a wrong type")
    assert retry_deferred(any_world, f"{any_world.path}:1") == 0
