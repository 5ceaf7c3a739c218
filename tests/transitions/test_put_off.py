"""put off: a job whose class cannot be resolved here goes back to its queue for a while."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from worlds import Moment, World

from limpyd_jobs import transitions

After = Callable[[float], Moment]

IDENT = "not_here.Job:7"


def put_off(world: World, ident: str = IDENT, **options: float) -> None:
    transitions.put_off(world.queue_class, world.waiting_key(), ident, **options)


def test_it_leaves_the_list_for_the_delayed_set(any_world: World, after: After) -> None:
    other = any_world.job_that_is("waiting")
    any_world.client.lpush(any_world.waiting_key(), IDENT)
    put_off(any_world)
    assert any_world.waiting() == ["1"]
    assert any_world.places(other) == ["q/0 waiting"]
    assert any_world.client.zrange(f"{any_world.queue_key()}:delayed", 0, -1, withscores=True) == [(IDENT, after(60))]


def test_one_that_was_taken_from_the_list_by_other_means_is_put_off_too(any_world: World) -> None:
    put_off(any_world)
    assert any_world.places(IDENT) == ["q/0 delayed"]


def test_it_is_put_off_for_as_long_as_is_said(any_world: World, after: After) -> None:
    put_off(any_world, seconds=1000.5)
    assert any_world.client.zscore(f"{any_world.queue_key()}:delayed", IDENT) == after(1000.5)


@pytest.mark.leaves("I5", "I6")
def test_its_hash_is_not_touched(any_world: World) -> None:
    """Nothing is known of its class, so nothing of its indexes."""
    job = any_world.job_that_is("waiting")
    before = any_world.hash(job)
    put_off(any_world, job.ident)
    assert any_world.hash(job) == before
    assert any_world.places(job) == ["q/0 delayed"]


def test_it_is_woken_and_run_by_a_worker_that_knows_its_class(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    put_off(any_world, job.ident, seconds=-1)
    transitions.wake(any_world.queue_class, [any_world.queue_key()], {any_world.path: any_world.job_class})
    fetched = any_world.claim()
    assert fetched is not None
    assert (fetched.outcome, fetched.ident) == ("claimed", job.ident)


@pytest.mark.parametrize("ident", ["a b.C:1", "a.B:\n", "a.é:😀"])
def test_any_ident_is_put_off_as_it_is(any_world: World, ident: str) -> None:
    any_world.client.rpush(any_world.waiting_key(), ident, ident)
    put_off(any_world, ident)
    assert any_world.places(ident) == ["q/0 delayed", "q/0 waiting"]
