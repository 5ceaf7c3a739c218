"""rescue: a job whose lease lapsed waits again, at the front; after too many rescues somebody has to fail it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis
from worlds import LEASE, TOKEN, Bench, Moment, Till, World, pk_of

from limpyd_jobs import Job, Queue, transitions
from limpyd_jobs.exceptions import ClaimLost
from limpyd_jobs.transitions import Delivery, Rescue, Room
from limpyd_jobs.transitions.recovering import RESCUE_LIMIT

After = Callable[[float], Moment]


def lapse(world: World, job: Job, queue: str = "q") -> Job:
    """The worker of a job is silent for longer than its lease."""
    world.client.zadd(f"{world.queue_key(queue)}:_running", {f"{world.path}:{pk_of(job)}": 1})
    return job


@pytest.fixture(autouse=True)
def _no_process_has_to_reconcile(redis_client: redis.Redis) -> None:
    for model in (Queue, Till, Bench):
        redis_client.set(f"{model._name}:reconcile_lock", 1, ex=300)


def rescue(world: World, *keys: str, max_rescues: int = 3, classes: Any = None) -> Rescue:
    request = world.request(token="rescuer", classes=classes)
    found = transitions.rescue(world.queue_class, keys or [world.queue_key()], max_rescues, request)
    return found._replace(next_lapse=Rescue._field_defaults["next_lapse"])


def test_the_whole_effect(world: World, after: After) -> None:
    job = lapse(world, world.job_that_is("running", "job:1"))
    other = world.add("b")[1]
    key = world.waiting_key()
    rescued = [Delivery("rescued", key, job.ident, "w", "job:1", "q", "0", rescues=1)]
    assert rescue(world) == Rescue(rescued, [], None, False, lost=(("mine", "q"),))
    stored = world.contents()
    assert stored["jobs:job:1:hash"] == {
        "identifier": "job:1",
        "status": "w",
        "priority": "0",
        "added": after(0),
        "_queue_key": "jobs:queue:1",
        "tries": "1",
        "queued": "1",
        "_rescues": "1",
    }
    assert stored["jobs:queue:1:waiting"] == [job.ident, other.ident]
    assert "jobs:queue:1:_running" not in stored
    assert stored["jobs:job:status:w"] == {"1", "2"}


def test_a_job_whose_lease_holds_is_left_alone(any_world: World) -> None:
    any_world.job_that_is("running")
    with any_world.unchanged():
        assert rescue(any_world) == Rescue([], [], None, False)


def test_a_job_that_stands_in_its_list_as_well_waits_once(any_world: World) -> None:
    job = lapse(any_world, any_world.job_that_is("running"))
    any_world.client.rpush(any_world.waiting_key(), job.ident)
    rescue(any_world)
    assert any_world.places(job) == ["q/0 waiting"]


def test_a_lease_that_lapsed_in_another_queue_than_its_own_means_nothing(any_world: World) -> None:
    job = any_world.job_that_is("running")
    any_world.queue("another")
    lapse(any_world, job, "another")
    before = any_world.hash(job)
    assert rescue(any_world, any_world.queue_key("another")) == Rescue([], [], None, False)
    assert (any_world.hash(job), any_world.places(job)) == (before, ["q/0 running"])


def test_what_the_silent_worker_reports_afterwards_is_refused(any_world: World) -> None:
    job = lapse(any_world, any_world.job_that_is("running"))
    rescue(any_world)
    any_world.claim(token="second")
    with any_world.unchanged(), pytest.raises(ClaimLost):
        any_world.succeed(job, TOKEN)
    assert any_world.succeed(job, "second").outcome == "done"


def test_a_held_job_is_run_again_too(any_world: World) -> None:
    job = lapse(any_world, any_world.job_that_is("held"))
    rescue(any_world)
    assert any_world.places(job) == ["q/0 errors", "q/0 waiting"]
    assert any_world.state(job) == {"status": "w", "priority": "0", "queued": "1", "tries": "1", "_rescues": "1"}


@pytest.mark.leaves("I6")
def test_a_job_that_was_delayed_is_for_the_next_worker_to_see_to(any_world: World) -> None:
    job = lapse(any_world, any_world.job_that_is("running set to delayed"))
    assert [fetched.ident for fetched in rescue(any_world).rescued] == [job.ident]
    assert any_world.places(job) == ["q/0 waiting"]
    fetched = any_world.claim(token="second")
    assert fetched is not None
    assert fetched.outcome == "found"
    assert "_claim_token" not in any_world.hash(job)


def test_after_too_many_rescues_it_is_claimed_by_the_rescuer_to_fail_it(any_world: World, after: After) -> None:
    job = any_world.add("a")[1]
    for number in range(3):
        any_world.claim(token=str(number))
        lapse(any_world, job)
        found = rescue(any_world, max_rescues=2)
        if number < 2:
            assert [fetched.rescues for fetched in found.rescued] == [number + 1]
    assert found.rescued == []
    assert found.exhausted is not None
    assert (found.exhausted.outcome, found.exhausted.ident, found.exhausted.token) == ("claimed", job.ident, "rescuer")
    assert (found.exhausted.queue_key, found.exhausted.queue_name) == (any_world.queue_key(), "q")
    assert any_world.client.zscore(f"{any_world.queue_key()}:_running", job.ident) == after(LEASE)
    assert any_world.fail(job, "rescuer").outcome == "error"
    assert "_rescues" not in any_world.hash(job)


def test_never_to_be_rescued_is_to_be_failed_at_once(any_world: World) -> None:
    job = lapse(any_world, any_world.job_that_is("running"))
    found = rescue(any_world, max_rescues=0)
    assert found.exhausted is not None
    assert found.exhausted.ident == job.ident


@pytest.mark.parametrize("queue", ["q", "p"])
def test_all_given_queues_are_looked_at(any_world: World, queue: str) -> None:
    job = any_world.add("a", queue)[1]
    any_world.claim(any_world.waiting_key(queue))
    lapse(any_world, job, queue)
    rescue(any_world, any_world.queue_key("q"), any_world.queue_key("p"))
    assert any_world.places(job) == [f"{queue}/0 waiting"]


def test_a_job_of_an_unknown_class_stays_for_those_who_know_it(any_world: World) -> None:
    job = lapse(any_world, any_world.job_that_is("running"))
    with any_world.unchanged():
        assert rescue(any_world, classes={}) == Rescue([], [job.ident], None, False)


def test_jobs_of_unknown_classes_let_others_come_first_at_the_next_look(
    any_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limpyd_jobs.transitions.recovering.RESCUE_LIMIT", 2)
    running = f"{any_world.queue_key()}:_running"
    job = lapse(any_world, any_world.job_that_is("running"))
    any_world.client.zadd(running, {"gone.Job:1": -3, "gone.Job:2": -2, "gone.Job:3": -1})
    assert rescue(any_world) == Rescue([], ["gone.Job:1", "gone.Job:2"], None, False)
    found = rescue(any_world)
    assert ([fetched.ident for fetched in found.rescued], found.unknown) == ([job.ident], ["gone.Job:3"])
    assert rescue(any_world).unknown == ["gone.Job:1", "gone.Job:2"]
    assert any_world.client.zcard(running) == 3


@pytest.mark.parametrize("state", ["waiting", "delayed", "success", "error", "canceled", "deleted"])
def test_a_lease_of_a_job_that_is_not_claimed_just_ends(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    before = any_world.contents()
    lapse(any_world, job)
    assert rescue(any_world) == Rescue([], [], None, False)
    assert any_world.contents() == before


@pytest.mark.parametrize("ident", ["garbage", "", "😀"])
def test_a_lease_of_no_job_just_ends(any_world: World, ident: str) -> None:
    any_world.client.zadd(f"{any_world.queue_key()}:_running", {ident: 1})
    assert rescue(any_world) == Rescue([], [], None, False)
    assert any_world.places(ident) in ([], ["q/0 quarantine"])


class TestKeysOfAWrongType:
    @pytest.mark.leaves("I1", "I2", "I10")
    def test_of_one_job_do_not_keep_the_others_from_being_rescued(self, any_world: World) -> None:
        any_world.job_that_is("running", "a")
        job = lapse(any_world, any_world.job_that_is("running", "b"))
        lapse(any_world, any_world.job("1"))
        key = f"{any_world.jobs}:1:hash"
        any_world.client.delete(key)
        any_world.client.set(key, "of a wrong type")
        found = rescue(any_world)
        assert any_world.places(job) == ["q/0 waiting"]
        ident = f"{any_world.path}:1"
        assert [broken for broken, _ in found.broken] == [ident]
        assert any_world.places(ident) == ["q/0 quarantine"]
        assert rescue(any_world).broken == ()

    @pytest.mark.leaves("I1", "I2", "I7", "I10")
    def test_of_many_jobs_do_not_keep_the_others_from_being_rescued(self, any_world: World) -> None:
        for number in range(RESCUE_LIMIT + 1):
            any_world.client.set(f"{any_world.jobs}:x{number}:hash", "of a wrong type")
            any_world.client.zadd(f"{any_world.queue_key()}:_running", {f"{any_world.path}:x{number}": 0})
        job = lapse(any_world, any_world.job_that_is("running"))
        rescue(any_world)
        rescue(any_world)
        assert any_world.places(job) == ["q/0 waiting"]

    @pytest.mark.leaves("I2", "I7", "I10")
    def test_that_may_be_mended_are_looked_at_again_in_a_minute(self, any_world: World, after: After) -> None:
        job = lapse(any_world, any_world.job_that_is("running"))
        key = any_world.waiting_key()
        any_world.client.set(key, "of a wrong type")
        assert rescue(any_world) == Rescue([], [], None, False)
        assert any_world.client.zscore(f"{any_world.queue_key()}:_running", job.ident) == after(60)

    @pytest.mark.parametrize("place", ["running", "waiting"])
    @pytest.mark.leaves("I7", "I10")
    def test_of_one_queue_do_not_keep_the_others_from_being_rescued(self, any_world: World, place: str) -> None:
        stuck = any_world.add("a", "p")[1]
        any_world.claim(any_world.waiting_key("p"))
        lapse(any_world, stuck, "p")
        job = lapse(any_world, any_world.job_that_is("running", "b"))
        wrong = f"{any_world.queue_key('p')}:{place}"
        any_world.client.delete(wrong)
        any_world.client.set(wrong, "of a wrong type")
        rescue(any_world, any_world.queue_key("p"), any_world.queue_key("q"))
        assert any_world.places(job) == ["q/0 waiting"]


class TestOneOfSeveralThatWereClaimedAtOnce:
    """It is not known which of them killed the worker."""

    @pytest.fixture
    def job(self, any_world: World) -> Job:
        job = any_world.add("a")[1]
        any_world.add("b")
        _, claimed = transitions.succeed_many(any_world.client, [], any_world.request(token="lost"), 2)
        assert [fetched.token for fetched in claimed] == ["lost/1", "lost/2"]
        return lapse(any_world, job)

    @pytest.mark.parametrize("max_rescues", [0, 3])
    def test_waits_again_and_neither_the_rescue_nor_the_try_counts(
        self, any_world: World, job: Job, max_rescues: int
    ) -> None:
        found = rescue(any_world, max_rescues=max_rescues)
        assert [(fetched.ident, fetched.rescues) for fetched in found.rescued] == [(job.ident, 0)]
        stored = any_world.state(job)
        assert (stored["status"], stored["_rescues"], stored.get("tries")) == ("w", "once with others", None)

    def test_keeps_the_tries_and_rescues_from_before(self, any_world: World, job: Job) -> None:
        any_world.job(pk_of(job)).tries.hset(3)
        any_world.client.hset(f"{any_world.jobs}:{pk_of(job)}:hash", "_rescues", 2)
        rescue(any_world)
        stored = any_world.state(job)
        assert (stored["_rescues"], stored["tries"]) == ("2", "2")

    @pytest.mark.parametrize("max_rescues", [0, 3])
    def test_comes_alone_once_that_happened_twice_and_then_it_counts(
        self, any_world: World, job: Job, max_rescues: int
    ) -> None:
        tokens = []
        for number in range(2):
            assert [fetched.rescues for fetched in rescue(any_world, max_rescues=max_rescues).rescued] == [0]
            request = any_world.request(token=f"next {number}")
            tokens.append(transitions.succeed_many(any_world.client, [], request, 2)[1][0].token)
            lapse(any_world, job)
        assert tokens == ["next 0/1", "next 1"]
        found = rescue(any_world, max_rescues=max_rescues)
        assert [fetched.rescues for fetched in found.rescued] == [1] * (max_rescues > 0)
        assert bool(found.exhausted) == (max_rescues == 0)
        assert any_world.state(job)["tries"] == "1"

    def test_has_begun_in_time_for_good(self, any_world: World, job: Job) -> None:
        any_world.client.hset(any_world.job(pk_of(job)).key, "_start_within", 1)
        any_world.job(pk_of(job)).added.hset("2020-01-01 00:00:00")
        rescue(any_world)
        claimed = any_world.claim()
        assert claimed is not None
        assert (claimed.outcome, claimed.ident) == ("claimed", job.ident)

    def test_runs_among_half_as_many_each_time_it_is_lost_again(self, any_world: World) -> None:
        jobs = [any_world.add(str(number))[1] for number in range(9)]
        request = any_world.request(token="1@worker")
        seen = []
        for _ in range(5):
            claimed = transitions.succeed_many(any_world.client, [], replace(request, room=Room()), 9)[1]
            seen.append([(each.token.partition("/")[1], each.beside) for each in claimed])
            for each in claimed:
                any_world.client.zadd(f"{each.queue_key}:_running", {each.ident: 1})
            rescue(any_world, *{each.queue_key for each in claimed})
        assert seen == [[("/", 0)] * 9, [("/", 0)] * 9, [("/", 4)] * 4, [("/", 2)] * 2, [("", 0)]]
        assert (
            sorted(any_world.state(job)["_rescues"] for job in jobs)
            == ["0", "1", "among 2", "among 2"] + ["among 4"] * 5
        )

    def test_is_no_suspect_if_its_worker_said_that_it_ends(self, any_world: World) -> None:
        job = any_world.add("a")[1]
        request = replace(any_world.request(token="slot:1@worker"), room=Room())
        for rescues in ("once with others", "among 4", "1"):
            any_world.client.hset(f"{any_world.jobs}:{pk_of(job)}:hash", "_rescues", rescues)
            transitions.claim(any_world.queue_class, request)
            lapse(any_world, job)
            any_world.client.set(f"{any_world.queues}:_stopping:worker", 1)
            assert [each.rescues for each in rescue(any_world).rescued] == [0 if rescues != "1" else 1]
            stored = any_world.state(job)
            assert (stored["_rescues"], stored.get("tries")) == (rescues, None)

    def test_ends_if_it_was_canceled(self, any_world: World, job: Job) -> None:
        any_world.job(pk_of(job)).status.hset("c")
        assert rescue(any_world).rescued == []
        assert any_world.state(job)["status"] == "c"
        assert any_world.places(job) == []
