"""deferred: a job whose class cannot be resolved here goes back to its queue for a while."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from worlds import Moment, World

from limpyd_jobs import Error, models, transitions
from limpyd_jobs.exceptions import ClassUnresolved
from limpyd_jobs.models.promoting import promote
from limpyd_jobs.redis.calls import finish

After = Callable[[float], Moment]

IDENT = "not_here.Job:7"


def defer_unresolved(world: World, ident: str = IDENT, **options: Any) -> tuple[str, str]:
    return transitions.defer_unresolved(world.queue_class, world.waiting_key(), ident, **options)


def test_it_leaves_the_list_for_the_delayed_set(any_world: World, after: After) -> None:
    other = any_world.job_that_is("waiting")
    any_world.client.lpush(any_world.waiting_key(), IDENT)
    defer_unresolved(any_world)
    assert any_world.waiting() == ["1"]
    assert any_world.places(other) == ["q/0 waiting"]
    assert any_world.client.zrange(f"{any_world.queue_key()}:delayed", 0, -1, withscores=True) == [(IDENT, after(60))]


def test_one_that_was_taken_from_the_list_by_other_means_is_deferred_too(any_world: World) -> None:
    defer_unresolved(any_world)
    assert any_world.places(IDENT) == ["q/0 delayed"]


def test_it_is_deferred_for_as_long_as_is_said(any_world: World, after: After) -> None:
    defer_unresolved(any_world, seconds=1000.5)
    assert any_world.client.zscore(f"{any_world.queue_key()}:delayed", IDENT) == after(1000.5)


@pytest.mark.leaves("I5", "I6")
def test_its_hash_is_not_touched(any_world: World) -> None:
    """Nothing is known of its class, so nothing of its indexes."""
    job = any_world.job_that_is("waiting")
    before = any_world.hash(job)
    defer_unresolved(any_world, job.ident)
    assert any_world.hash(job) == before
    assert any_world.places(job) == ["q/0 delayed"]


def test_it_is_woken_and_run_by_a_worker_that_knows_its_class(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    defer_unresolved(any_world, job.ident, seconds=-1)
    transitions.promote(any_world.queue_class, [any_world.queue_key()], {any_world.path: any_world.job_class})
    fetched = any_world.claim()
    assert fetched is not None
    assert (fetched.outcome, fetched.ident) == ("claimed", job.ident)


@pytest.mark.parametrize("ident", ["a b.C:1", "a.B:\n", "a.é:😀"])
def test_any_ident_is_deferred_as_it_is(any_world: World, ident: str) -> None:
    any_world.client.rpush(any_world.waiting_key(), ident, ident)
    defer_unresolved(any_world, ident)
    assert any_world.places(ident) == ["q/0 delayed", "q/0 waiting"]


class TestTooOften:
    def test_it_is_dead_lettered_after_so_many_times(self, any_world: World) -> None:
        for _ in range(3):
            assert defer_unresolved(any_world, max_deferrals=3) == ("deferred", "q")
            assert any_world.places(IDENT) == ["q/0 delayed"]
        any_world.client.lpush(any_world.waiting_key(), IDENT)
        assert defer_unresolved(any_world, max_deferrals=3) == ("dead lettered", "q")
        assert any_world.places(IDENT) == ["q/0 errors"]
        assert any_world.queue().deferrals.hlen() == 0

    def test_it_is_counted_by_job(self, any_world: World) -> None:
        defer_unresolved(any_world, max_deferrals=1)
        assert defer_unresolved(any_world, "not_here.Job:8", max_deferrals=1) == ("deferred", "q")
        assert any_world.queue().deferrals.hgetall() == {IDENT: "1", "not_here.Job:8": "1"}

    @pytest.mark.parametrize("is_custom", [True, False], ids=["taken by hand", "from its list"])
    def test_it_begins_anew_once_it_was_claimed(self, any_world: World, is_custom: bool) -> None:
        job = any_world.job_that_is("waiting")
        defer_unresolved(any_world, job.ident, seconds=-1)
        transitions.promote(any_world.queue_class, [any_world.queue_key()], {any_world.path: any_world.job_class})
        assert any_world.queue().deferrals.hlen() == 1
        if is_custom:
            any_world.client.lpop(any_world.waiting_key())
        any_world.claim(ident=job.ident if is_custom else "")
        assert any_world.state(job)["status"] == "r"
        assert any_world.queue().deferrals.hlen() == 0

    @pytest.mark.parametrize("is_due", [True, False])
    def test_it_is_forgotten_if_the_job_is_gone(self, any_world: World, is_due: bool) -> None:
        ident = f"{any_world.path}:99"
        any_world.queue()
        defer_unresolved(any_world, ident, seconds=-1)
        if is_due:
            transitions.promote(any_world.queue_class, [any_world.queue_key()], {any_world.path: any_world.job_class})
        else:
            any_world.claim(ident=ident)
            any_world.client.delete(f"{any_world.queue_key()}:delayed")
        assert any_world.queue().deferrals.hlen() == 0

    def test_counts_of_jobs_that_left_by_other_ways_do_not_stay_for_ever(self, any_world: World) -> None:
        key = f"{any_world.queue_key()}:_deferrals"
        defer_unresolved(any_world)
        assert 0 < any_world.client.ttl(key) <= 86400
        defer_unresolved(any_world, seconds=100_000)
        assert any_world.client.ttl(key) > 100_000

    @pytest.mark.leaves("I5")
    def test_the_hash_is_not_touched_so_that_a_worker_that_knows_the_class_can_run_it(self, any_world: World) -> None:
        job = any_world.job_that_is("waiting")
        before = any_world.hash(job)
        assert defer_unresolved(any_world, job.ident, max_deferrals=0) == ("dead lettered", "q")
        assert any_world.hash(job) == before
        assert any_world.places(job) == ["q/0 errors"]


class TestBrokenKeys:
    @pytest.mark.leaves("I10")
    @pytest.mark.parametrize(("key", "max_deferrals"), [("delayed", 1), ("errors", 0)])
    def test_it_is_set_aside_if_it_cannot_be_put_where_it_should(
        self, any_world: World, key: str, max_deferrals: int
    ) -> None:
        any_world.client.set(f"{any_world.queue_key()}:{key}", "of a wrong type")
        any_world.client.lpush(any_world.waiting_key(), IDENT)
        defer_unresolved(any_world, max_deferrals=max_deferrals)
        assert any_world.places(IDENT) == ["q/0 quarantine"]

    @pytest.mark.leaves("I10")
    def test_it_is_deferred_if_it_cannot_be_counted(self, any_world: World) -> None:
        any_world.client.set(f"{any_world.queue_key()}:_deferrals", "of a wrong type")
        assert defer_unresolved(any_world, max_deferrals=0) == ("deferred", "q")
        assert any_world.places(IDENT) == ["q/0 delayed"]

    def test_one_whose_count_is_no_number_is_deferred(self, any_world: World) -> None:
        any_world.queue().deferrals.hset(IDENT, "many")
        assert defer_unresolved(any_world, max_deferrals=0) == ("deferred", "q")

    @pytest.mark.leaves("I10")
    def test_a_job_is_claimed_even_if_the_counts_are_of_a_wrong_type(self, any_world: World) -> None:
        any_world.client.set(f"{any_world.queue_key()}:_deferrals", "of a wrong type")
        any_world.job_that_is("running")


class TestOfTheModels:
    """What a worker calls."""

    def test_the_failure_is_what_is_reported(self, any_world: World) -> None:
        error = ImportError("No module named 'not_here'")
        assert models.defer_unresolved(any_world.queue_class, any_world.waiting_key(), IDENT, error) is error
        assert Error.collection().instances() == []

    def test_the_last_time_is_recorded_as_an_error(self, any_world: World) -> None:
        any_world.queue().deferrals.hset(IDENT, transitions.MAX_DEFERRALS)
        error = ModuleNotFoundError("No module named 'not_here'")
        arguments = (any_world.queue_class, any_world.waiting_key(), IDENT, error, any_world.error_class)
        reported = models.defer_unresolved(*arguments)
        assert str(reported) == f"{IDENT} is dead-lettered, after 60 tries: No module named 'not_here'"
        assert isinstance(reported, ClassUnresolved)
        (record,) = any_world.error_class.collection().instances()
        stored = record.hmget("job_model_repr", "job_pk", "identifier", "queue_name", "type")
        assert stored == ["not_here.Job", "7", "", "q", "ModuleNotFoundError"]
        assert record.message.hget().startswith("No module named 'not_here' (Its class could not be resolved, 60 times")
        assert record.datetime is not None

    def test_no_error_is_recorded_if_none_is_wanted(self, any_world: World) -> None:
        any_world.queue().deferrals.hset(IDENT, transitions.MAX_DEFERRALS)
        reported = models.defer_unresolved(
            any_world.queue_class, any_world.waiting_key(), IDENT, ImportError("x"), None
        )
        assert isinstance(reported, ClassUnresolved)
        assert any_world.error_class.collection().instances() == []

    def test_a_delayed_one_that_is_due_is_dead_lettered_too(self, any_world: World) -> None:
        any_world.queue().deferrals.hset(IDENT, transitions.MAX_DEFERRALS)
        any_world.client.zadd(f"{any_world.queue_key()}:delayed", {IDENT: 1})
        defer = partial(models.defer_unresolved, any_world.queue_class, error_model=any_world.error_class)
        _, failures = finish(promote(any_world.queue_class, [any_world.queue_key()], defer))
        assert failures == [(IDENT, f"{IDENT} is dead-lettered, after 60 tries: No module named 'not_here'")]
        assert any_world.places(IDENT) == ["q/0 errors"]
        assert len(any_world.error_class.collection().instances()) == 1
