"""prune: finished jobs beyond what is to be kept are deleted, with all that belongs to them, and nothing else is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
import redis
from cases import each
from limpyd import fields
from limpyd.exceptions import DoesNotExist
from limpyd_extensions.related import FKInstanceHashField
from worlds import Bench, Complaint, Mishap, Order, Probe, World, pk_of, without_counters

from limpyd_jobs import ConfigurationException, Error, Job, LimpydJobsException, Queue, transitions
from limpyd_jobs.dates import utcnow
from limpyd_jobs.models import job_classes
from limpyd_jobs.models.pruning import prune as steps_of
from limpyd_jobs.redis.calls import finish, send

LISTS = {"success": "success", "error": "errors"}
ended = pytest.mark.parametrize("state", LISTS)

ALL_FIELDS: dict[type[Job], dict[str, Any]] = {
    Job: {"cancel_on_error": "1"},
    Order: {
        "customer": "ann",
        "label": "fragile",
        "lines": ["x", "y"],
        "tags": {"red", "blue"},
        "ranks": {"first": 1},
    },
    Probe: {"serial": "S1", "slot": "3", "weight": 7},
}
ERROR_FIELDS: dict[Any, dict[str, Any]] = {Complaint: {"words": ["oh", "no"]}}


class Failure(Exception):
    code = 7


def finished(world: World, state: str, identifier: str = "a", errors: int = 1, **options: Any) -> Job:
    """A job with all fields and some errors, that ended."""
    job = world.add(identifier, **options)[1]
    if isinstance(job, Order):
        job.options.hset("wrap", "yes")
    assert world.claim() is not None
    for number in range(errors):
        given = {"case": f"{pk_of(job)}.{number}"} if world.error_class is Mishap else {}
        world.error_class.add_error("q", job, Failure("no"), **ERROR_FIELDS.get(world.error_class, {}), **given)
    assert (world.succeed(job) if state == "success" else world.fail(job)).outcome in ("done", "error")
    return job


def ended_ago(job: Job, **ago: float) -> Job:
    job.end.hset(str(utcnow() - timedelta(**ago)))
    return job


def fail_again(world: World, job: Job) -> None:
    job.requeue("q", queue_model=world.queue_class)
    assert world.claim() is not None
    world.fail(job)


def prune(world: World, state: str, keep: Any, queue: str = "q", priority: int = 0) -> int:
    """Prune a list of a queue."""
    return world.queue(queue, priority).prune(**{f"keep_{LISTS[state]}": keep}, error_model=world.error_class)


def idents(world: World, state: str, queue: str = "q") -> list[str]:
    return world.client.lrange(f"{world.queue_key(queue)}:{LISTS[state]}", 0, -1)


@ended
def test_nothing_remains_of_a_job_and_nothing_of_others_is_touched(any_world: World, state: str) -> None:
    any_world.add("other", "p")
    any_world.queue("q")
    job = any_world.job_that_is("error", "another of its identifier")
    any_world.error_class.add_error("q", job, Failure("stays"))
    any_world.client.delete(f"{any_world.queue_key()}:errors")
    before = any_world.contents()
    finished(any_world, state, errors=2, fields=ALL_FIELDS[any_world.job_class])
    assert prune(any_world, state, 0) == 1
    assert without_counters(any_world.contents()) == without_counters(before)


@ended
def test_errors_of_other_jobs_of_the_same_identifier_stay(any_world: World, state: str) -> None:
    finished(any_world, state, "same")
    kept = finished(any_world, "error" if state == "success" else "success", "same")
    assert prune(any_world, state, 0) == 1
    errors = any_world.error_class.collection(identifier="same").instances()
    assert [error.job_pk.hget() for error in errors] == [pk_of(kept)]


def test_what_was_unique_is_free_again(redis_client: redis.Redis) -> None:
    world = World(redis_client, Probe, Bench, Mishap)
    finished(world, "success", fields=ALL_FIELDS[Probe])
    prune(world, "success", 0)
    assert finished(world, "success", fields=ALL_FIELDS[Probe])


class TestHowMany:
    @ended
    @pytest.mark.parametrize("keep", [0, 1, 3, 4, 5, 10**30])
    def test_the_last_ones_are_kept(self, any_world: World, state: str, keep: int) -> None:
        jobs = [finished(any_world, state, str(number)).ident for number in range(4)]
        assert prune(any_world, state, keep) == max(4 - keep, 0)
        assert idents(any_world, state) == jobs[max(4 - keep, 0) :]
        assert any_world.client.scard(f"{any_world.jobs}:collection") == min(keep, 4)

    def test_each_list_of_each_queue_on_its_own(self, world: World) -> None:
        finished(world, "success")
        failed = finished(world, "error", "b")
        before = world.contents()
        assert (prune(world, "success", 0, "p"), prune(world, "success", 0, priority=5)) == (0, 0)
        assert world.contents().keys() >= before.keys()
        assert prune(world, "success", 0) == 1
        assert world.places(failed) == ["q/0 errors"]

    def test_more_than_one_step_takes(self, world: World) -> None:
        for number in range(transitions.PRUNE_LIMIT * 2 + 5):
            finished(world, "success", str(number), errors=0)
        assert prune(world, "success", 3) == transitions.PRUNE_LIMIT * 2 + 2
        assert len(idents(world, "success")) == 3

    def test_a_job_that_failed_again_counts_by_its_last_failure(self, any_world: World) -> None:
        job, other = finished(any_world, "error"), finished(any_world, "error", "b")
        fail_again(any_world, job)
        assert prune(any_world, "error", 2) == 0
        assert idents(any_world, "error") == [other.ident, job.ident]
        assert prune(any_world, "error", 1) == 1
        assert idents(any_world, "error") == [job.ident]
        assert prune(any_world, "error", 0) == 1

    def test_a_job_that_failed_twice_long_ago_goes_with_both_entries(self, any_world: World) -> None:
        job = finished(any_world, "error")
        fail_again(any_world, job)
        other = finished(any_world, "error", "b")
        assert prune(any_world, "error", 1) == 1
        assert idents(any_world, "error") == [other.ident]

    def test_a_job_that_failed_again_in_another_queue_is_of_that_one(self, any_world: World) -> None:
        job = finished(any_world, "error")
        job.requeue("p", queue_model=any_world.queue_class)
        assert any_world.claim(any_world.waiting_key("p")) is not None
        transitions.fail(job, any_world.queue("p"), "mine")
        assert prune(any_world, "error", 0) == 0
        assert any_world.places(job) == ["p/0 errors"]
        assert prune(any_world, "error", 0, "p") == 1

    def test_a_job_that_version_2_moved_and_ran_elsewhere_is_deleted_all_the_same(self, world: World) -> None:
        """It leaves `queue_key` as it was."""
        job = finished(world, "success")
        world.client.hset(f"{world.jobs}:{pk_of(job)}:hash", "_queue_key", world.queue_key("p"))
        assert prune(world, "success", 0) == 1


class TestHowLong:
    @ended
    def test_older_ones_go(self, any_world: World, state: str) -> None:
        ages = [("old", 48), ("older than that", 25), ("not a day old", 23), ("new", 0)]
        jobs = [ended_ago(finished(any_world, state, name), hours=age).ident for name, age in ages]
        assert prune(any_world, state, timedelta(days=1)) == 2
        assert idents(any_world, state) == jobs[2:]

    @ended
    def test_no_time_at_all_is_nothing(self, any_world: World, state: str) -> None:
        finished(any_world, state)
        assert prune(any_world, state, timedelta(0)) == 1

    @ended
    def test_ages_are_kept(self, any_world: World, state: str) -> None:
        ended_ago(finished(any_world, state), days=3650)
        with any_world.unchanged():
            assert prune(any_world, state, timedelta.max) == 0

    def test_a_job_that_failed_again_keeps_no_older_one(self, any_world: World) -> None:
        job = finished(any_world, "error")
        ended_ago(finished(any_world, "error", "b"), hours=25)
        fail_again(any_world, job)
        assert prune(any_world, "error", timedelta(days=1)) == 1
        assert idents(any_world, "error") == [job.ident]

    @pytest.mark.parametrize("end", [None, "garbage"])
    def test_without_an_end_it_is_as_old_as_when_it_was_added(self, world: World, end: str | None) -> None:
        job = finished(world, "success")
        job.end.hset(end) if end else job.end.delete()
        assert prune(world, "success", timedelta(hours=1)) == 0
        job.added.hset("2001-01-01 00:00:00")
        assert prune(world, "success", timedelta(hours=1)) == 1


@pytest.mark.parametrize("state", ["waiting", "delayed", "running", "running set to delayed", "canceled", "success"])
@pytest.mark.parametrize("keep", [0, timedelta(0)])
@pytest.mark.leaves("I3", "I6", "I7", "I8")
def test_of_jobs_that_are_live_again_or_ended_otherwise_only_the_old_entry_goes(
    any_world: World, state: str, keep: Any
) -> None:
    job = any_world.job_that_is(state)
    before = any_world.contents()
    any_world.queue().errors.rpush(job.ident)
    assert prune(any_world, "error", keep) == 0
    assert any_world.contents() == before


def test_of_a_job_that_was_requeued_only_the_old_entry_goes(any_world: World) -> None:
    job = finished(any_world, "error")
    job.requeue("q", queue_model=any_world.queue_class)
    before = any_world.contents()
    assert prune(any_world, "error", 0) == 0
    del before[f"{any_world.queue_key()}:errors"]
    assert any_world.contents() == before


@pytest.mark.leaves("I3", "I7", "I8")
def test_a_job_whose_end_is_being_recorded_stays_with_its_entry(any_world: World) -> None:
    any_world.job_that_is("held")
    with any_world.unchanged():
        assert prune(any_world, "error", 0) == 0


@pytest.mark.leaves("I3")
def test_one_that_counts_as_queued_stays_with_its_entry(any_world: World) -> None:
    """As while version 2 puts it back."""
    any_world.job_that_is("error").queued.hset("1")
    with any_world.unchanged():
        assert prune(any_world, "error", 0) == 0


def test_of_a_job_that_the_application_deleted_the_entry_goes_and_its_errors_stay(any_world: World) -> None:
    any_world.job_class(pk_of(finished(any_world, "error"))).delete()
    before = any_world.contents()
    prune(any_world, "error", 0)
    del before[f"{any_world.queue_key()}:errors"]
    assert any_world.contents() == before


class TestWhatCannotBeDeleted:
    def test_jobs_of_unknown_classes_stay_and_keep_no_other_process(self, world: World) -> None:
        strange = [f"no.such.Job{number}:{number}" for number in range(transitions.PRUNE_LIMIT + 5)]
        world.queue().success.rpush(*strange)
        finished(world, "success")
        world.queue().success.rpush("no.such.Job:last")
        finished(world, "success", "b")
        assert prune(world, "success", 0) == 2
        assert idents(world, "success") == [*strange, "no.such.Job:last"]

    def test_classes_that_were_not_met_yet_are_looked_up(
        self, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_classes, "_resolved", {"limpyd_jobs.models.Job": Job})
        world = World(redis_client, Order, Queue, Error)
        world.error_class = Error
        job = world.add("a")[1]
        world.claim()
        world.succeed(job)
        assert prune(world, "success", 0) == 1

    @pytest.mark.leaves("I1", "I2", "I10")
    def test_a_hash_of_a_wrong_type_is_set_aside(self, any_world: World) -> None:
        broken = finished(any_world, "success")
        finished(any_world, "success", "b")
        key = f"{any_world.jobs}:{pk_of(broken)}:hash"
        any_world.client.delete(key)
        any_world.client.set(key, "of a wrong type")
        assert prune(any_world, "success", 0) == 1
        assert any_world.places(f"{any_world.path}:{pk_of(broken)}") == ["q/0 quarantine"]

    @pytest.mark.parametrize("ident", ["garbage", "", "😀", "a:b"])
    def test_garbage_is_set_aside(self, any_world: World, ident: str) -> None:
        any_world.queue().success.rpush(ident)
        finished(any_world, "success")
        assert prune(any_world, "success", 0) == 1
        assert any_world.places(ident) == ["q/0 quarantine"]

    @pytest.mark.leaves("I2", "I10")
    def test_an_index_of_a_wrong_type_leaves_the_job_as_it_is(self, world: World) -> None:
        job = finished(world, "success", errors=0)
        finished(world, "success", "b")
        world.client.set("jobs:job:identifier:a2", "of a wrong type")
        world.client.hset(f"{world.jobs}:{pk_of(job)}:hash", "identifier", "a2")
        before = world.hash(job)
        pruned = finish(steps_of(Queue, Error, {f"{world.queue_key()}:success": 0}, job_classes))
        assert (pruned.deleted, [*pruned.failures]) == (1, [job.ident])
        assert world.hash(job) == before

    @pytest.mark.leaves("I10")
    def test_a_list_of_a_wrong_type_is_left_alone(self, world: World) -> None:
        world.client.set(f"{world.queue_key()}:success", "of a wrong type")
        with world.unchanged():
            assert prune(world, "success", 0) == 0


class Guarded(Job):
    """Deletes a file of its own with each job."""

    namespace = "prune"
    path = fields.InstanceHashField()

    def delete(self) -> None:
        os.remove(self.path.hget())
        super().delete()


class Leaf(Job):
    namespace = "prune"
    root = FKInstanceHashField("Root", related_name="leaves")


class Root(Job):
    namespace = "prune"


class TestTheApplicationsOwn:
    def test_delete_is_called(self, redis_client: redis.Redis, tmp_path: Any) -> None:
        world = World(redis_client, Guarded)
        (tmp_path / "file").touch()
        finished(world, "success", fields={"path": str(tmp_path / "file")})
        assert prune(world, "success", 0) == 1
        assert [*tmp_path.iterdir()] == []
        assert [key for key in redis_client.keys("prune:*") if not key.endswith(":max_pk")] == []

    def test_delete_that_fails_leaves_the_job_and_keeps_no_other_process(
        self, redis_client: redis.Redis, tmp_path: Any
    ) -> None:
        world = World(redis_client, Guarded)
        for name in ("missing", "there"):
            finished(world, "success", name, fields={"path": str(tmp_path / name)})
        (tmp_path / "there").touch()
        prune(world, "success", 0)
        assert idents(world, "success") == [f"{__name__}.Guarded:1"]
        (tmp_path / "missing").touch()
        prune(world, "success", 0)
        assert idents(world, "success") == []

    def test_fields_that_point_to_a_job_no_longer_do(self, redis_client: redis.Redis) -> None:
        root = finished(World(redis_client, Root), "success")
        leaf = Leaf.add_job("leaf", "p", root=pk_of(root))
        assert prune(World(redis_client, Root), "success", 0) == 1
        assert leaf.root.hget() is None
        assert list(Leaf.collection(root=pk_of(root))) == []


class Died(BaseException):
    """What ends a process at once."""


@contextmanager
def dying_before_command(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], bool]]:
    """The process dies before it sends its command of that number; yields whether it did."""
    sent = 0
    real = redis.Connection.send_packed_command

    def send(self: Any, command: Any, *args: Any, **options: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent == number:
            raise Died
        return real(self, command, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(redis.connection.AbstractConnection, "send_packed_command", send)
        with suppress(Died):
            yield lambda: sent >= number


@pytest.mark.matrix(2)
@ended
def test_whatever_a_worker_that_dies_leaves_is_finished_by_another_and_cannot_run(
    any_world: World, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_world.queue("q")
    before = any_world.contents()
    number, died = 0, True
    while died:
        number += 1
        job = finished(any_world, state, fields=ALL_FIELDS[any_world.job_class])
        with dying_before_command(number, monkeypatch) as has_died:
            prune(any_world, state, 0)
        died = has_died()
        if died and state == "error" and not still_exists(any_world, job):
            with pytest.raises((LimpydJobsException, DoesNotExist)):
                job.requeue("q", queue_model=any_world.queue_class)
        prune(any_world, state, 0)
        assert without_counters(any_world.contents()) == without_counters(before), number
    assert number > 1


def test_what_was_begun_is_finished_even_if_the_application_deletes_the_job_in_between(any_world: World) -> None:
    any_world.queue("q")
    before = any_world.contents()
    job = finished(any_world, "error", errors=2)
    key = f"{any_world.queue_key()}:errors"
    steps = steps_of(any_world.queue_class, any_world.error_class, {key: 0}, job_classes)
    begun = send(next(steps))
    while not begun.deleted:  # before, a step may resolve the class
        begun = send(steps.send(begun))
    assert (begun.deleted, begun.more) == (1, True)
    job.delete()
    assert prune(any_world, "error", 0) == 0
    assert without_counters(any_world.contents()) == without_counters(before)


@ended
def test_room_is_made_when_redis_is_full(world: World, state: str) -> None:
    finished(world, state)
    world.client.config_set("maxmemory", 1)
    try:
        assert prune(world, state, 0) == 1
    finally:
        world.client.config_set("maxmemory", 0)
    assert idents(world, state) == []
    assert len(Error.collection()) == 0


def still_exists(world: World, job: Job) -> bool:
    """Whether the job still exists."""
    return bool(world.client.sismember(f"{world.jobs}:collection", pk_of(job)))


@pytest.mark.leaves("I1")
def test_a_job_that_is_being_deleted_cannot_be_run_again(any_world: World) -> None:
    job = finished(any_world, "error")
    any_world.client.srem(f"{any_world.jobs}:collection", pk_of(job))
    with any_world.unchanged():
        with pytest.raises(DoesNotExist):
            job.requeue("q", queue_model=any_world.queue_class)
        with pytest.raises(DoesNotExist):
            job.enqueue_or_delay("q", queue_model=any_world.queue_class)
    prune(any_world, "error", 0)
    assert any_world.hash(job) == {}


class TestAtTheSameTime:
    def test_several_delete_each_job_once(self, any_world: World) -> None:
        for number in range(20):
            finished(any_world, "error", str(number))
        together(4, lambda: prune(any_world, "error", 5))
        assert len(idents(any_world, "error")) == 5
        assert any_world.client.scard(f"{any_world.jobs}:collection") == 5
        assert len(any_world.error_class.collection()) == 5

    def test_a_job_is_either_deleted_or_put_back(self, any_world: World) -> None:
        jobs = [finished(any_world, "error", str(number)) for number in range(20)]
        put_back = []

        def requeue() -> None:
            for job in jobs:
                try:
                    job.requeue("q", queue_model=any_world.queue_class)
                except (LimpydJobsException, DoesNotExist):
                    continue
                put_back.append(job.ident)

        together(1, requeue, lambda: prune(any_world, "error", 0))
        stored = any_world.client.lrange(any_world.waiting_key(), 0, -1)
        assert stored == put_back
        assert any_world.client.scard(f"{any_world.jobs}:collection") == len(put_back)

    def test_the_application_deletes_jobs_meanwhile(self, world: World) -> None:
        jobs = [finished(world, "success", str(number)) for number in range(20)]
        together(1, lambda: [job.delete() for job in jobs], lambda: prune(world, "success", 0))
        assert idents(world, "success") == []
        assert world.client.keys("jobs:job:*") == ["jobs:job:max_pk"]


def together(times: int, *actions: Callable[[], Any]) -> None:
    """Run each action so many times, all at once; none may raise."""
    failures: list[BaseException] = []
    barrier = threading.Barrier(times * len(actions))

    def run(action: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            action()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions * times]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


class TestWhatIsToBeKept:
    class Tidy(Queue):
        namespace = "prune"
        keep_success = 1
        keep_errors = timedelta(0)

    def test_is_everything_if_no_process_says_otherwise(self, world: World) -> None:
        finished(world, "success")
        finished(world, "error", "b")
        with world.unchanged():
            assert world.queue().prune() == 0

    def test_is_what_the_queue_model_says(self, redis_client: redis.Redis) -> None:
        world = World(redis_client, Job, self.Tidy)
        for number in range(3):
            finished(world, "success", f"success {number}")
            finished(world, "error", f"error {number}")
        assert world.queue().prune() == 2 + 3
        assert (len(idents(world, "success")), len(idents(world, "error"))) == (1, 0)

    @each("keep", [True, -1, 1.5, float("nan"), "7x", "7", timedelta(-1), [1]])
    def test_is_refused_if_it_is_neither_a_number_nor_a_duration(self, world: World, keep: Any) -> None:
        with pytest.raises(ConfigurationException, match="keep_success"):
            world.queue().prune(keep_success=keep)
        with pytest.raises(ConfigurationException, match="keep_errors"):
            world.queue().prune(keep_errors=keep)

    def test_needs_errors_that_can_be_found(self, world: World) -> None:
        class Lost(Error):
            namespace = "prune"
            job_pk = fields.InstanceHashField()

        with pytest.raises(ConfigurationException, match="'job_pk' of Lost"):
            world.queue().prune(0, 0, Lost)
