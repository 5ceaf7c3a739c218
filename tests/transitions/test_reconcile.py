"""reconcile: a live job that is not where its status says is put there, in the queue it names."""

from __future__ import annotations

import time
from typing import Any

import pytest
from worlds import LATER, LEASE, World, pk_of

from limpyd_jobs import Job, transitions
from limpyd_jobs.dates import datetime_to_score

NOTHING_TO_DO: tuple[list[Any], list[Any]] = ([], [])


def reconcile(world: World, *jobs: Any) -> tuple[list[tuple[str, str, str]], list[str]]:
    idents = [job if isinstance(job, str) else f"{world.path}:{pk_of(job)}" for job in jobs]
    return transitions.reconcile(world.queue_class, world.job_class, idents, LEASE)


def lost(world: World, job: Job) -> Job:
    """A job that stands nowhere any more."""
    for place in ("waiting", "delayed", "_running"):
        world.client.delete(f"{world.queue_key()}:{place}")
    return job


def by_version_2(world: World, job: Job) -> Job:
    """A job that names no queue."""
    world.client.hdel(f"{world.jobs}:{pk_of(job)}:hash", "_queue_key")
    return job


def test_a_waiting_job_goes_to_the_front_of_its_list(any_world: World) -> None:
    job = lost(any_world, any_world.job_that_is("waiting"))
    any_world.add("b")
    assert reconcile(any_world, job) == ([(f"{any_world.path}:1", "w", any_world.queue_key())], [])
    assert any_world.waiting() == ["1", "2"]


def test_a_delayed_job_goes_to_the_delayed_set_until_its_date(any_world: World) -> None:
    job = lost(any_world, any_world.job_that_is("delayed"))
    assert reconcile(any_world, job)[0] == [(f"{any_world.path}:1", "d", any_world.queue_key())]
    assert any_world.queue().first_delayed[1] == pytest.approx(datetime_to_score(LATER), abs=0.00001)


@pytest.mark.leaves("I6")
def test_a_delayed_job_without_a_date_is_due(any_world: World) -> None:
    job = lost(any_world, any_world.job_that_is("delayed"))
    any_world.job("1").delayed_until.hset("tomorrow")
    reconcile(any_world, job)
    assert any_world.queue().first_delayed[1] <= time.time()


def test_a_running_job_gets_a_lease(any_world: World) -> None:
    job = lost(any_world, any_world.job_that_is("running"))
    assert reconcile(any_world, job)[0] == [(f"{any_world.path}:1", "r", any_world.queue_key())]
    score = any_world.client.zscore(f"{any_world.queue_key()}:_running", f"{any_world.path}:1")
    assert time.time() < score <= time.time() + LEASE


@pytest.mark.leaves("I7")
def test_a_running_job_of_version_2_gets_a_long_lease_after_which_it_is_rescued(any_world: World) -> None:
    job = by_version_2(any_world, lost(any_world, any_world.job_that_is("running")))
    any_world.client.hdel(f"{any_world.jobs}:1:hash", "_claim_token")
    reconcile(any_world, job)
    running = f"{any_world.queue_key()}:_running"
    assert any_world.client.zscore(running, f"{any_world.path}:1") > time.time() + transitions.UNCLAIMED_LEASE - 100
    any_world.client.zadd(running, {f"{any_world.path}:1": 1})
    request = any_world.request(token="rescuer")
    found = transitions.rescue(any_world.queue_class, [any_world.queue_key()], 3, request)
    assert [fetched.ident for fetched in found.rescued] == [f"{any_world.path}:1"]
    assert any_world.waiting() == ["1"]


@pytest.mark.leaves("I7")
def test_one_that_never_began_gets_ten_leases(any_world: World) -> None:
    """Version 2 sets the start with the status: so it was not the one to set that."""
    job = by_version_2(any_world, lost(any_world, any_world.job_that_is("running")))
    any_world.client.hdel(f"{any_world.jobs}:1:hash", "_claim_token")
    any_world.job("1").start.delete()
    reconcile(any_world, job)
    score = any_world.client.zscore(f"{any_world.queue_key()}:_running", f"{any_world.path}:1")
    assert time.time() + 9 * LEASE < score <= time.time() + 10 * LEASE


@pytest.mark.parametrize("state", ["waiting", "delayed", "running", "success", "error", "canceled"])
def test_a_job_that_stands_where_it_should_is_left_alone(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        assert reconcile(any_world, job) == NOTHING_TO_DO


def test_a_job_in_the_hand_of_a_worker_is_left_alone(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    any_world.claim(token="hand:mine")
    with any_world.unchanged():
        assert reconcile(any_world, job) == NOTHING_TO_DO
    transitions.release(any_world.job_class, job.ident, "hand:mine", any_world.queue_key())


def test_a_job_that_is_gone_or_no_job_is_left_alone(any_world: World) -> None:
    with any_world.unchanged():
        for ident in (f"{any_world.path}:99", "garbage", ""):
            assert reconcile(any_world, ident) == NOTHING_TO_DO


def test_a_job_of_another_model_of_queues_is_left_alone(any_world: World) -> None:
    job = lost(any_world, any_world.job_that_is("waiting"))
    any_world.client.hset(f"{any_world.jobs}:1:hash", "_queue_key", "another:queue:1")
    with any_world.unchanged():
        assert reconcile(any_world, job) == NOTHING_TO_DO
    any_world.client.hdel(f"{any_world.jobs}:1:hash", "_queue_key")
    reconcile(any_world, job)


class TestAJobThatNamesNoQueue:
    def test_goes_to_the_only_one_of_its_priority(self, any_world: World) -> None:
        job = by_version_2(any_world, lost(any_world, any_world.job_that_is("waiting")))
        any_world.queue("another", 5)
        assert reconcile(any_world, job)[0] == [(f"{any_world.path}:1", "w", any_world.queue_key())]
        assert any_world.hash(job)["_queue_key"] == any_world.queue_key()

    @pytest.mark.leaves("I5")
    def test_is_homeless_if_there_are_several(self, any_world: World) -> None:
        job = by_version_2(any_world, lost(any_world, any_world.job_that_is("waiting")))
        any_world.queue("another", 0)
        with any_world.unchanged():
            assert reconcile(any_world, job) == ([], [f"{any_world.path}:1"])

    def test_goes_to_the_queue_of_its_class(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        job = by_version_2(world, lost(world, world.job_that_is("waiting")))
        monkeypatch.setattr(world.job_class, "queue_name", "another")
        world.queue("third", 0)
        reconcile(world, job)
        assert world.places(job) == ["another/0 waiting"]


def test_a_queue_that_is_gone_is_no_place(any_world: World) -> None:
    job = lost(any_world, any_world.job_that_is("waiting"))
    any_world.queue().delete()
    any_world.queue("another", 0)
    assert reconcile(any_world, job)[0] == [(f"{any_world.path}:1", "w", any_world.queue_key("another"))]


def test_a_broken_record_does_not_keep_the_others(any_world: World) -> None:
    broken, job = any_world.add("broken")[1], any_world.add("a")[1]
    lost(any_world, job)
    saved = any_world.hash(broken)
    any_world.client.delete(f"{any_world.jobs}:1:hash")
    any_world.client.set(f"{any_world.jobs}:1:hash", "no hash")
    assert [row[0] for row in reconcile(any_world, broken, job)[0]] == [f"{any_world.path}:2"]
    any_world.client.delete(f"{any_world.jobs}:1:hash")
    any_world.client.hset(f"{any_world.jobs}:1:hash", mapping=saved)
    reconcile(any_world, broken)


class TestAJobThatEndedButIsQueued:
    """The worker that would have skipped it died, or the reply of ``BLPOP`` was lost."""

    def test_is_queued_no_more(self, any_world: World) -> None:
        job = any_world.job_that_is("waiting")
        any_world.job(pk_of(job)).status.hset("c")  # as version 2 cancels
        assert any_world.client.lpop(any_world.waiting_key()) == job.ident
        assert any_world.add()[0] == "existing"
        assert reconcile(any_world, job) == NOTHING_TO_DO
        assert any_world.add()[0] == "added"

    @pytest.mark.leaves("I3", "I7", "I8")
    def test_is_left_alone_while_a_worker_holds_it(self, any_world: World) -> None:
        job = any_world.job_that_is("held")
        with any_world.unchanged():
            assert reconcile(any_world, job) == NOTHING_TO_DO
