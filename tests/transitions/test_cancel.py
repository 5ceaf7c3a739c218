"""cancel: a job is canceled by anybody: at once, unless it runs."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

import pytest
from limpyd.exceptions import DoesNotExist
from worlds import LATER, TOKEN, Moment, World, pk_of, until

from limpyd_jobs import transitions

After = Callable[[float], Moment]

ROUNDS = 50


def cancel(world: World, job: Any, queue: str = "q") -> bool:
    return transitions.cancel(job, world.queue_class, queue)


def test_the_whole_effect(world: World, after: After) -> None:
    job = world.job_that_is("waiting", "job:1")
    assert cancel(world, job) is True
    assert world.contents() == {
        "jobs:job:max_pk": "1",
        "jobs:job:collection": {"1"},
        "jobs:job:1:hash": {
            "identifier": "job:1",
            "status": "c",
            "priority": "0",
            "added": after(0),
            "_queue_key": "jobs:queue:1",
        },
        "jobs:job:identifier:job:1": {"1"},
        "jobs:job:status:c": {"1"},
        "jobs:job:priority:0": {"1"},
        "jobs:queue:max_pk": "1",
        "jobs:queue:collection": {"1"},
        "jobs:queue:1:hash": {"name": "q", "priority": "0"},
        "jobs:queue:name:q": {"1"},
        "jobs:queue:priority:0": {"1"},
    }


@pytest.mark.parametrize("state", ["waiting", "delayed", "canceled", "custom"])
class TestAJobThatNobodyRuns:
    def test_is_canceled_at_once(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        before = any_world.state(job)
        assert cancel(any_world, job) is True
        before.pop("queued", None)
        assert any_world.state(job) == {**before, "status": "c"}
        assert any_world.places(job) == []

    def test_leaves_its_identifier_to_another(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        cancel(any_world, job)
        outcome, other = any_world.add("a")
        assert (outcome, pk_of(other) != pk_of(job)) == ("added", True)

    def test_is_not_changed_by_being_canceled_again(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        cancel(any_world, job)
        with any_world.unchanged():
            assert cancel(any_world, job) is True

    def test_is_found_in_any_queue(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        if state != "custom":
            transitions.move(job, any_world.queue_class, "p", "7", delay=until(LATER) if state == "delayed" else "")
        assert cancel(any_world, job, "") is True
        assert any_world.places(job) == []


@pytest.mark.parametrize("state", ["waiting", "delayed"])
@pytest.mark.parametrize("queue", ["q", "p", "", "no such"])
def test_a_job_that_version_2_added_is_found_without_its_naming_a_queue(
    any_world: World, state: str, queue: str
) -> None:
    job = any_world.job_that_is(state)
    job.queue_key.delete()
    assert cancel(any_world, job, queue) is True
    assert any_world.places(job) == []


def test_a_worker_is_told_of_at_most_ten_thousand_jobs(world: World) -> None:
    job, key = world.job_that_is("running"), "jobs:queue:_canceled:me"
    world.client.hset(job.key, "_claim_token", "slot:1@me")
    world.client.rpush(key, *range(10_000))
    cancel(world, job)
    assert (world.client.llen(key), world.client.lindex(key, -1)) == (10_000, f"{job.ident} slot:1@me")
    world.client.delete(key)
    world.client.set(key, "of a wrong type")
    assert cancel(world, job) is True
    world.client.delete(key)
    world.finish_canceled(job, "slot:1@me")


@pytest.mark.parametrize("state", ["running", "running set to canceled", "running set to delayed", "held"])
class TestAClaimedJob:
    @pytest.mark.leaves("I3", "I7", "I8")
    def test_is_told_and_keeps_its_claim(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        before, places = any_world.state(job), any_world.places(job)
        assert cancel(any_world, job) is True
        assert any_world.state(job) == {**before, "status": "c"}
        assert any_world.hash(job)["cancel_on_error"] == "1"
        assert any_world.places(job) == places
        with any_world.unchanged():
            assert cancel(any_world, job) is True

    @pytest.mark.leaves("I3", "I7", "I8")
    def test_tells_its_worker_at_once_if_that_listens(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        key, base = f"{any_world.queues}:_canceled:host:1:a b", any_world.queue_key()
        any_world.client.hset(job.key, "_claim_token", "slot:7@host:1:a b/3")
        cancel(any_world, job)
        assert any_world.client.lrange(key, 0, -1) == [f"{job.ident} slot:7@host:1:a b/3"]
        assert 0 < any_world.client.pttl(key) <= 30_000
        for broken in ("", "without a colon", f"{base}:more"):
            any_world.client.hset(job.key, "_queue_key", broken)
            assert cancel(any_world, job) is True
        any_world.client.delete(key, f"{base}:_canceled:host:1:a b")
        any_world.client.hset(job.key, mapping={"_claim_token": TOKEN, "_queue_key": base})

    def test_ends_as_canceled(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        cancel(any_world, job)
        assert any_world.succeed(job).outcome == "canceled"
        assert any_world.finish_canceled(job).outcome == "done"
        assert any_world.state(job)["status"] == "c"

    @pytest.mark.parametrize("hold", [True, False])
    def test_is_in_error_if_it_fails_and_not_run_again(self, any_world: World, state: str, hold: bool) -> None:
        job = any_world.job_that_is(state)
        cancel(any_world, job)
        assert any_world.fail(job, times=5, hold=hold).outcome == "error"
        assert any_world.state(job)["status"] == "e"
        assert any_world.client.smembers(f"{any_world.jobs}:queued:1") == set()

    def test_whose_worker_died_is_canceled_nevertheless(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        cancel(any_world, job)
        any_world.client.zadd(f"{any_world.queue_key()}:_running", {job.ident: 1})
        request = any_world.request("no list", token="rescuer")
        transitions.rescue(any_world.queue_class, [any_world.queue_key()], 1, request)
        assert any_world.claim(token="another") is None
        assert any_world.state(job)["status"] == "c"


@pytest.mark.leaves("I3", "I7")
def test_a_job_that_version_2_runs_is_told(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    any_world.client.lpop(any_world.waiting_key())
    job.status.hset("r")
    assert cancel(any_world, job) is True
    assert any_world.state(job) == {"status": "c", "priority": "0", "queued": "1"}


@pytest.mark.parametrize("state", ["success", "error"])
def test_a_job_that_ended_stays_as_it_is(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        assert cancel(any_world, job) is False


def test_a_deleted_job_is_not_made_again(any_world: World) -> None:
    job = any_world.job_that_is("deleted")
    with any_world.unchanged(), pytest.raises(DoesNotExist):
        cancel(any_world, job)


def test_one_whose_status_was_set_to_canceled_by_hand_leaves_its_queue(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    job.status.hset("c")
    assert cancel(any_world, job) is True
    assert any_world.places(job) == []
    assert any_world.add("a")[0] == "added"


def test_an_entry_that_a_worker_holds_in_its_hand_is_dropped_by_it(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    any_world.client.lpop(any_world.waiting_key())
    assert cancel(any_world, job) is True
    fetched = any_world.claim(ident=job.ident)
    assert fetched is not None
    assert (fetched.outcome, fetched.status) == ("found", "c")


def test_an_entry_that_stands_twice_is_gone_with_the_other(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    any_world.client.rpush(any_world.waiting_key(), job.ident)
    cancel(any_world, job)
    assert any_world.places(job) == []


@pytest.mark.parametrize("status", ["w", "z"])
@pytest.mark.leaves("I1", "I2", "I5")
def test_a_broken_queue_keeps_no_job_from_being_canceled(any_world: World, status: str) -> None:
    """Some entry may remain, which is harmless."""
    job = any_world.job_that_is("waiting")
    job.status.hset(status)
    any_world.client.set(f"{any_world.queue_key()}:_running", "text")
    with pytest.raises(Exception, match="WRONGTYPE"):
        cancel(any_world, job)
    assert any_world.state(job)["status"] == "c"
    assert cancel(any_world, job) is True
    any_world.client.delete(f"{any_world.queue_key()}:_running")
    any_world.client.delete(any_world.waiting_key())


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    """Call functions in threads, at the same moment; return what they returned."""
    barrier, results = Barrier(len(actions)), [None] * len(actions)

    def call(number: int) -> None:
        barrier.wait()
        results[number] = actions[number]()

    threads = [Thread(target=call, args=[number]) for number in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class TestAgainstOthers:
    def test_a_job_is_either_never_run_or_its_worker_is_told(self, world: World) -> None:
        key = world.waiting_key()
        for number in range(ROUNDS):
            _, job = world.add(str(number))
            copy, token = world.job(pk_of(job)), f"{TOKEN} {number}"
            fetched, canceled = at_once(
                lambda token=token: world.claim(key, token=token), lambda copy=copy: cancel(world, copy)
            )
            assert canceled is True
            assert job.status.hget() == "c"
            if fetched:
                assert fetched.outcome == "claimed"
                assert world.finish_canceled(job, token).outcome == "done"
            assert world.places(job) == []
        assert world.client.smembers("jobs:job:queued:1") == set()

    def test_all_who_cancel_it_at_once_are_told_that_it_is(self, world: World) -> None:
        for number in range(ROUNDS):
            job = world.add(str(number))[1]
            copies = [world.job(pk_of(job)) for _ in range(4)]
            assert at_once(*(lambda copy=copy: cancel(world, copy) for copy in copies)) == [True] * 4
            assert world.places(job) == []

    def test_who_adds_it_meanwhile_gets_it_or_a_new_one_but_never_a_lost_one(self, world: World) -> None:
        for number in range(ROUNDS):
            _, old = world.add(str(number))
            copy = world.job(pk_of(old))
            (outcome, job), canceled = at_once(
                lambda number=number: world.add(str(number), priority=number % 2),
                lambda copy=copy: cancel(world, copy),
            )
            assert canceled is True
            assert old.status.hget() == "c"
            assert world.places(old) == []
            if outcome == "added":
                assert (pk_of(job) != pk_of(old), job.status.hget()) == (True, "w")
            else:
                assert pk_of(job) == pk_of(old)
