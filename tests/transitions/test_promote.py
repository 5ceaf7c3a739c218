"""promote: the delayed jobs that are due wait again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from worlds import LATER, Moment, Order, Probe, Till, World, pk_of, until

from limpyd_jobs import Job, transitions
from limpyd_jobs.dates import datetime_to_score, utcnow

After = Callable[[float], Moment]

PAST = datetime(2001, 2, 3, 4, 5, 6)
NO_CLASSES: dict[str, Any] = {}


def due(world: World, identifier: str = "a", queue: str = "q", priority: int = 0, when: datetime = PAST) -> Job:
    """A delayed job that is due."""
    job = world.add(identifier, queue, priority, delay=until(LATER))[1]
    job.delayed_until.hset(str(when))
    world.client.zadd(f"{world.queue_key(queue, priority)}:delayed", {job.ident: datetime_to_score(when)})
    return job


def promote(world: World, *keys: str, limit: int = 1000, classes: Any = None) -> tuple[bool, list[Any], list[Any]]:
    known = {world.path: world.job_class} if classes is None else classes
    return transitions.promote(world.queue_class, keys or [world.queue_key()], known, limit)[:3]


def test_the_whole_effect(world: World, after: After) -> None:
    job, later = due(world, "job:1"), world.add("b", delay=until(LATER))[1]
    assert promote(world) == (False, [], [])
    assert world.contents() == {
        "jobs:job:max_pk": "2",
        "jobs:job:collection": {"1", "2"},
        "jobs:job:1:hash": {
            "identifier": "job:1",
            "status": "w",
            "priority": "0",
            "added": after(0),
            "_queue_key": "jobs:queue:1",
            "delayed_until": str(PAST),
            "queued": "1",
        },
        "jobs:job:2:hash": {
            "identifier": "b",
            "status": "d",
            "priority": "0",
            "added": after(0),
            "_queue_key": "jobs:queue:1",
            "delayed_until": str(LATER),
            "queued": "1",
        },
        "jobs:job:identifier:job:1": {"1"},
        "jobs:job:identifier:b": {"2"},
        "jobs:job:status:w": {"1"},
        "jobs:job:status:d": {"2"},
        "jobs:job:priority:0": {"1", "2"},
        "jobs:job:queued:1": {"1", "2"},
        "jobs:queue:max_pk": "1",
        "jobs:queue:collection": {"1"},
        "jobs:queue:1:hash": {"name": "q", "priority": "0"},
        "jobs:queue:name:q": {"1"},
        "jobs:queue:priority:0": {"1"},
        "jobs:queue:1:waiting": [job.ident],
        "jobs:queue:1:delayed": {later.ident: datetime_to_score(LATER)},
    }


def test_the_one_that_was_due_first_comes_first_after_those_that_wait(any_world: World) -> None:
    late = due(any_world, "a", when=PAST + timedelta(seconds=1))
    soon = due(any_world, "b", when=PAST)
    waits = any_world.add("c")[1]
    promote(any_world)
    assert any_world.waiting() == [pk_of(waits), pk_of(soon), pk_of(late)]


def test_all_queues_are_woken_in_one_call(any_world: World) -> None:
    places = [("q", 0), ("q", 5), ("p", 0)]
    jobs = [due(any_world, str(number), *place) for number, place in enumerate(places)]
    promote(any_world, *(any_world.queue_key(*place) for place in places))
    assert [any_world.places(job) for job in jobs] == [[f"{name}/{priority} waiting"] for name, priority in places]


def test_a_job_of_this_very_moment_is_due(any_world: World) -> None:
    job = due(any_world, when=utcnow())
    promote(any_world)
    assert any_world.places(job) == ["q/0 waiting"]


def test_nothing_changes_if_nothing_is_due(any_world: World) -> None:
    any_world.job_that_is("delayed")
    any_world.job_that_is("waiting", "b")
    with any_world.unchanged():
        assert promote(any_world, any_world.queue_key(), "no:such") == (False, [], [])


class TestTheLimit:
    def test_bounds_one_call_and_tells_that_more_are_due(self, any_world: World) -> None:
        for number in range(5):
            due(any_world, str(number))
        counts = []
        for _ in range(4):
            more, _failures, _unknown = promote(any_world, limit=2)
            counts.append((more, len(any_world.waiting())))
        assert [count for _more, count in counts] == [2, 4, 5, 5]
        assert [more for more, _count in counts] == [True, True, False, False]

    def test_bounds_all_queues_together(self, any_world: World) -> None:
        for number in range(4):
            due(any_world, str(number), "q", number % 2)
        keys = [any_world.queue_key("q", priority) for priority in (1, 0)]
        assert promote(any_world, *keys, limit=3)[0] is True
        assert (len(any_world.waiting("q", 1)), len(any_world.waiting("q", 0))) == (2, 1)
        assert promote(any_world, *keys, limit=3)[0] is False
        assert len(any_world.waiting("q", 0)) == 2

    def test_is_no_limit_of_the_documented_method(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(1003):
            world.add(str(number), delay=until(LATER))
        key = f"{world.queue_key()}:delayed"
        idents = world.client.zrange(key, 0, -1)
        world.client.zadd(key, dict.fromkeys(idents, datetime_to_score(PAST)))
        assert world.queue().requeue_delayed_jobs() == []
        assert len(world.waiting()) == 1003

    def test_is_no_limit_even_if_most_are_garbage(self, world: World) -> None:
        job = due(world)
        world.client.zadd(f"{world.queue_key()}:delayed", {f"garbage {number}": 1 for number in range(1003)})
        assert len(world.queue().requeue_delayed_jobs()) == 1003
        assert world.places(job) == ["q/0 waiting"]


class TestAJobThatIsNoLongerDelayed:
    @pytest.mark.parametrize("status", ["c", "w", "s", "e", "r", "z"])
    @pytest.mark.leaves("I3", "I7", "I8")
    def test_is_moved_as_it_is(self, any_world: World, status: str) -> None:
        job = due(any_world)
        job.status.hset(status)
        before = any_world.hash(job)
        promote(any_world)
        assert any_world.places(job) == ["q/0 waiting"]
        assert any_world.hash(job) == before

    def test_is_skipped_by_the_next_worker_if_it_was_canceled(self, any_world: World) -> None:
        job = due(any_world)
        job.status.hset("c")
        promote(any_world)
        fetched = any_world.claim()
        assert fetched is not None
        assert (fetched.outcome, fetched.status) == ("found", "c")
        assert transitions.skip(job, any_world.queue(), 60)
        assert any_world.state(job) == {"status": "c", "priority": "0", "delayed_until": str(PAST)}

    def test_is_not_run_a_second_time_while_it_runs(self, any_world: World) -> None:
        """Version 2 leaves the entry of a delayed job that is moved."""
        job = any_world.job_that_is("running")
        any_world.queue().delay_job(job, PAST)
        promote(any_world)
        fetched = any_world.claim(token="second")
        assert fetched is not None
        assert (fetched.outcome, fetched.status) == ("found", "r")
        assert transitions.skip(job, any_world.queue(), 60) is False


class TestTheLockOfVersion2:
    def test_leaves_its_queue_alone_as_long_as_it_exists(self, any_world: World) -> None:
        job = due(any_world)
        lock = f"{any_world.queue_key()}:requeue_all_delayed_ready_jobs"
        any_world.client.set(lock, 1)
        with any_world.unchanged():
            assert promote(any_world) == (False, [], [])
        any_world.client.delete(lock)
        promote(any_world)
        assert any_world.places(job) == ["q/0 waiting"]

    def test_is_no_hindrance_for_other_queues(self, any_world: World) -> None:
        locked, free = due(any_world, "a", "q", 1), due(any_world, "b", "q", 0)
        any_world.client.set(f"{any_world.queue_key('q', 1)}:requeue_all_delayed_ready_jobs", 1)
        promote(any_world, any_world.queue_key("q", 1), any_world.queue_key("q", 0))
        assert (any_world.places(locked), any_world.places(free)) == (["q/1 delayed"], ["q/0 waiting"])


class TestWhatCannotBeMoved:
    @pytest.mark.parametrize("ident", ["garbage", "", ":", "a:1", "a.b:1:2", "\0", "😀"])
    def test_is_set_aside_if_it_is_no_ident(self, any_world: World, ident: str) -> None:
        job = due(any_world)
        any_world.client.zadd(f"{any_world.queue_key()}:delayed", {ident: 1})
        more, failures, unknown = promote(any_world)
        assert (more, [failed for failed, _reason in failures], unknown) == (False, [ident], [])
        assert any_world.queue().quarantine.lmembers() == [ident]
        assert any_world.places(job) == ["q/0 waiting"]

    def test_is_dropped_if_it_was_deleted(self, any_world: World) -> None:
        job, gone = due(any_world, "a"), due(any_world, "b")
        any_world.job_class(pk_of(gone)).delete()
        ident = f"{any_world.path}:2"
        assert promote(any_world) == (False, [(ident, "the job does not exist")], [])
        assert any_world.places(ident) == []
        assert any_world.places(job) == ["q/0 waiting"]

    def test_stays_if_the_caller_does_not_know_its_class(self, any_world: World) -> None:
        job = due(any_world)
        with any_world.unchanged():
            assert promote(any_world, classes=NO_CLASSES) == (False, [], [(any_world.queue_key(), job.ident)])

    def test_is_deferred_if_its_class_cannot_be_had(self, any_world: World, after: After) -> None:
        job, unknown = due(any_world), "no_such_module.Job:1"
        key = f"{any_world.queue_key()}:delayed"
        any_world.client.zadd(key, {unknown: 1})
        failures = any_world.queue().requeue_delayed_jobs()
        assert [failed for failed, _reason in failures] == [unknown]
        assert any_world.client.zscore(key, unknown) == after(60)
        assert any_world.places(job) == ["q/0 waiting"]

    @pytest.mark.leaves("I1", "I2", "I5", "I10")
    def test_is_set_aside_if_its_hash_is_none(self, any_world: World) -> None:
        broken, job = due(any_world, "a"), due(any_world, "b")
        key = f"{any_world.jobs}:1:hash"
        any_world.client.delete(key)
        any_world.client.set(key, "of a wrong type")
        more, failures, unknown = promote(any_world)
        assert (more, [ident for ident, _reason in failures], unknown) == (False, [broken.ident], [])
        assert any_world.places(broken) == ["q/0 quarantine"]
        assert any_world.places(job) == ["q/0 waiting"]

    @pytest.mark.leaves("I10")
    def test_does_not_hide_the_next_queue_if_the_set_is_none(self, any_world: World) -> None:
        job = due(any_world)
        wrong = any_world.queue_key("p")
        any_world.client.set(f"{wrong}:delayed", "of a wrong type")
        promote(any_world, wrong, any_world.queue_key())
        assert any_world.places(job) == ["q/0 waiting"]

    @pytest.mark.leaves("I6", "I10")
    def test_does_not_hide_the_next_queue_if_the_list_is_none(self, any_world: World) -> None:
        stuck = [due(any_world, identifier, "p") for identifier in "ab"]
        job = due(any_world, "c")
        wrong = any_world.queue_key("p")
        any_world.client.set(f"{wrong}:waiting", "of a wrong type")
        for _ in range(3):
            promote(any_world, wrong, any_world.queue_key(), limit=2)
        assert any_world.places(job) == ["q/0 waiting"]
        any_world.client.delete(f"{wrong}:waiting")
        assert [any_world.places(each) for each in stuck] == 2 * [["p/0 delayed"]]


def test_jobs_of_several_classes_in_one_queue_are_woken_together(redis_client: redis.Redis) -> None:
    worlds = [World(redis_client, job_class, Till) for job_class in (Job, Order, Probe)]
    jobs = [due(world) for world in worlds]
    classes = {world.path: world.job_class for world in worlds}
    promote(worlds[0], classes=classes)
    assert [world.state(job)["status"] for world, job in zip(worlds, jobs, strict=True)] == ["w", "w", "w"]
    assert redis_client.llen("shop:till:1:waiting") == 3


def test_a_woken_job_is_found_by_its_indexes_through_limpyd(any_world: World) -> None:
    job = due(any_world)
    promote(any_world)
    assert list(any_world.job_class.collection(status="w")) == [pk_of(job)]
    assert list(any_world.job_class.collection(status="d")) == []


@pytest.mark.leaves("I6", "I7")
def test_a_job_that_runs_is_claimed_by_no_other_process_though_its_code_delayed_it(world: World) -> None:
    """Its ident was left in the delayed set."""
    job = world.job_that_is("running set to delayed")
    world.client.zadd(f"{world.queue_key()}:delayed", {job.ident: 1})
    transitions.promote(world.queue_class, [world.queue_key()], {world.path: world.job_class})
    fetched = world.claim(token="another")
    assert fetched is not None
    assert (fetched.outcome, fetched.status) == ("found", "d")
    assert world.hash(job)["_claim_token"] == "mine"
