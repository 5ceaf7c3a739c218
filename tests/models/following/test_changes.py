"""What changes in Redis is told to other processes, by models that say so; and a job can be waited for."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
import redis
from cases import each
from limpyd import fields
from limpyd.exceptions import DoesNotExist
from limpyd.indexes import NumberRangeIndex, TextRangeIndex
from running import work
from servers import RedisServer, wait_until

from limpyd_jobs import (
    STATUSES,
    ConfigurationException,
    Error,
    Job,
    LimpydJobsException,
    Queue,
    Requeue,
    Retry,
    Schedule,
    TimedRecord,
)
from limpyd_jobs.check import check
from limpyd_jobs.dates import utcnow
from limpyd_jobs.models import BaseJobsModel, Change, JobChange
from limpyd_jobs.records import records
from limpyd_jobs.redis.database import JobsDatabase

pytestmark = pytest.mark.usefixtures("redis_client")


class Photo(Job):
    namespace = "telling"
    queue_name = "photos"
    notify_changes = True
    colour = fields.InstanceHashField(indexable=True)


class Failing(Photo):
    def run(self, queue: Queue) -> None:
        raise ValueError("no")


class Silent(Job):
    queue_name = "photos"


class Reminder(TimedRecord):
    namespace = "telling"
    notify_changes = True
    due_field = "at"
    at = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
    text = fields.InstanceHashField()


class Note(BaseJobsModel):
    namespace = "telling"
    notify_changes = True
    text = fields.InstanceHashField(indexable=True)
    lines = fields.ListField()


@pytest.fixture
def told() -> Iterator[Callable[[], list[str]]]:
    """Return what was told of photos since the last time: the statuses before and after."""
    changes = Photo.changes(timeout=0)
    yield lambda: [f"{change.status_before or '-'}{change.status or '-'}" for change in changes]
    changes.close()


class TestEachChangeOfAStatusIsTold:
    def test_adding(self, told: Any) -> None:
        Photo.add_job("a")
        Photo.add_job("b", delayed_for=60)
        Photo.add_job("a", priority=3)
        assert told() == ["-w", "-d"]

    def test_adding_many(self, told: Any) -> None:
        Photo.add_jobs(["a", "b"])
        assert told() == ["-w", "-w"]

    @pytest.mark.parametrize("prefetch", [1, 10])
    def test_running(self, told: Any, prefetch: int) -> None:
        Photo.add_jobs(["a", "b"])
        work("photos", burst=True, max_loops=9, prefetch=prefetch)
        assert sorted(told()) == ["-w", "-w", "rs", "rs", "wr", "wr"]

    def test_failing_and_requeuing(self, told: Any) -> None:
        job = Failing.add_job("a")
        changes = Failing.changes(timeout=0)
        work("photos", callback=None)
        job.requeue()
        assert [(each.status_before, each.status) for each in changes] == [("w", "r"), ("r", "e"), ("e", "w")]

    def test_being_put_back_after_a_failure_or_by_the_job(self, told: Any) -> None:
        Photo.add_jobs(["a", "b"])
        raised: list[BaseException] = [ValueError("no"), Requeue(delayed_for=60)]

        def fail(job: Job, queue: Queue) -> None:
            raise raised.pop()

        work("photos", callback=fail, max_loops=2, requeue_times=1, requeue_delay_delta=60)
        assert told() == ["-w", "-w", "wr", "rd", "wr", "rd"]

    def test_claiming_and_releasing(self, told: Any) -> None:
        job = Photo.add_job("a")
        job.claim().release()
        job.claim().cancel()
        assert told() == ["-w", "wr", "rw", "wr", "rc"]

    def test_canceling(self, told: Any) -> None:
        Photo.add_job("a").cancel()
        assert told() == ["-w", "wc"]

    def test_delaying_and_promoting(self, told: Any) -> None:
        job = Photo.add_job("a", delayed_for=60)
        queue = Queue.get_queue("photos")
        queue.delayed.zadd({job.ident: 1})
        queue.requeue_delayed_jobs()
        assert told() == ["-d", "dw"]

    def test_being_rescued(self, told: Any) -> None:
        job = Photo.add_job("a")
        job.claim()
        Queue.get_queue("photos").running.zadd({job.ident: 1})
        work("photos")
        assert told() == ["-w", "wr", "rw", "wr", "rs"]

    def test_being_set_by_the_application(self, told: Any) -> None:
        job = Photo.add_job("a")
        job.status.hset(STATUSES.CANCELED)
        job.hmset(status=STATUSES.WAITING, colour="red")
        job.set_fields(status=STATUSES.CANCELED)
        job.colour.hset("blue")
        assert told() == ["-w", "wc", "cw", "wc"]

    def test_being_deleted(self, told: Any) -> None:
        Photo.add_job("a").delete()
        Photo.delete_many([Photo.add_job("b").pk.get()])
        assert told() == ["-w", "w-", "-w", "w-"]

    def test_being_pruned(self, told: Any) -> None:
        Photo.add_job("a")
        work("photos")
        Queue.get_queue("photos").prune(keep_success=timedelta(0))
        assert told() == ["-w", "wr", "rs", "s-"]

    def test_being_added_by_a_schedule(self, told: Any) -> None:
        pytest.importorskip("apscheduler")
        Schedule.add("nightly", Photo, interval=3600)
        records.set_schedule(Schedule, "1", "1577836800", {"next_run": "2020-01-01 00:00:00"})
        work("photos")
        assert told() == ["-w", "wr", "rs"]


def any_step(choose: random.Random) -> None:
    """Do something with one of some jobs, or with all of them, that may change their status or be refused."""
    job = Photo.get(choose.choice(sorted(Photo.collection()))) if Photo.collection() else Photo.add_job("first")
    queue = Queue.get_queue("photos")
    steps: list[Callable[[], object]] = [
        lambda: Photo.add_job(str(choose.randrange(5)), priority=choose.randrange(2)),
        lambda: Photo.add_jobs([str(choose.randrange(5)) for _ in range(3)], delayed_for=choose.choice([None, 60])),
        job.cancel,
        job.requeue,
        job.delete,
        lambda: job.enqueue_or_delay(delayed_until=choose.choice([None, utcnow() + timedelta(seconds=60)])),
        lambda: job.status.hset(choose.choice([*STATUSES.values()])),
        lambda: getattr(job.claim(), choose.choice(["succeed", "release", "cancel"]))(),
        lambda: job.claim().fail(ValueError("no"), retry_policy=choose.choice([None, Retry(times=9, delay=60)])),
        lambda: queue.running.zadd({job.ident: 1}) if job.claim() else None,
        lambda: (queue.delayed.zadd({job.ident: 1}), queue.requeue_delayed_jobs()),
        lambda: work("photos", max_loops=3, burst=True, prefetch=choose.choice([1, 5])),
        lambda: queue.prune(keep_success=1, keep_errors=1),
        lambda: check(pause=0, repair=True, queue_models=[Queue], error_models=[Error]),
    ]
    with suppress(LimpydJobsException, DoesNotExist):
        choose.choice(steps)()


@pytest.mark.matrix(1)
@pytest.mark.parametrize("seed", range(3))
def test_who_listens_knows_the_status_of_each_job_after_any_story(seed: int) -> None:
    choose, known = random.Random(seed), dict[str, str]()
    with Photo.changes(timeout=0) as changes:
        for _ in range(50):
            any_step(choose)
            for change in changes:
                assert change.status_before == known.get(change.pk, ""), change
                known[change.pk] = change.status
            stored = {pk: Photo.get(pk).status.hget() or "" for pk in Photo.collection()}
            assert {pk: status for pk, status in known.items() if status} == stored


class TestAChange:
    def test_of_a_job_says_which_and_where(self) -> None:
        changes = Photo.changes(timeout=0)
        job = Photo.add_job("a", priority=2)
        (change,) = changes
        queue_key = f"jobs:queue:{Queue.get_queue('photos', 2).pk.get()}"
        assert change == JobChange(change.id, Photo, job.pk.get(), "made", "w", "", queue_key)
        assert change.ident == job.ident

    def test_is_told_once_and_in_order(self) -> None:
        with Photo.changes(timeout=0) as changes:
            jobs = [Photo.add_job(str(number)) for number in range(1200)]
            assert [change.pk for change in changes] == [job.pk.get() for job in jobs]
            jobs[0].cancel()
            assert [change.status for change in changes] == ["c"]

    def test_before_is_told_to_who_asks_for_it(self) -> None:
        Photo.add_job("a")
        Photo.add_job("b")
        first, second = Photo.changes(timeout=0, since="0")
        assert [change.pk for change in Photo.changes(timeout=0, since=first.id)] == [second.pk]
        assert list(Photo.changes(timeout=0)) == []

    @pytest.mark.proof
    def test_is_kept_within_a_bound(self, redis_client: redis.Redis) -> None:
        for _ in range(60):
            Photo.add_jobs([{"identifier": str(number)} for number in range(250)])
            Photo.delete_many(Photo.collection())
        assert 10_000 <= redis_client.xlen("telling:photo:changes") <= 10_500

    def test_of_another_record_says_what_became_of_it(self) -> None:
        changes = Note.changes(timeout=0)
        note = Note(text="a")
        note.text.hset("b")
        note.text.hset("b")
        note.delete()
        told = list(changes)
        assert told[0] == Change(told[0].id, Note, "1", "made")
        assert [change.what for change in told] == ["made", "changed", "deleted"]

    def test_of_a_timed_record_is_none_of_its_lease(self) -> None:
        changes = Reminder.changes(timeout=0)
        Reminder.make("tea", {"at": 1.0, "text": "x"})
        Reminder.lease_due(owner="me")
        Reminder.next_due(owner="me", returned=["tea"])
        assert [change.what for change in changes] == ["made"]
        Reminder.lease_due(owner="me")
        Reminder.change("tea", {"at": time.time() + 60}, owner="me")
        Reminder.remove("tea")
        assert [change.what for change in changes] == ["changed", "deleted"]

    def test_is_heard_by_a_model_that_is_bound(self, redis_server: RedisServer) -> None:
        database = JobsDatabase(unix_socket_path=redis_server.socket, db=5)
        database.connection.flushdb()
        there = Photo.bound_to(database)
        changes, of_queues = there.changes(timeout=0), there.queue_model.changes("photos", timeout=0)
        job = there.add_job("a")
        assert [change.pk for change in changes] == [change.pk for change in of_queues] == [job.pk.get()]
        assert list(Photo.changes(timeout=0, since="0")) == []

    def test_that_cannot_be_told_changes_the_job_all_the_same(self, redis_client: redis.Redis) -> None:
        redis_client.set("telling:photo:changes", "no stream")
        job = Photo.add_job("a")
        assert job.cancel()


def add_in_spite_of_kills(identifier: str) -> None:
    with suppress(redis.ConnectionError):
        Photo.add_job(identifier)
        return
    Photo.add_job(identifier)


class TestWaiting:
    def test_ends_as_soon_as_something_comes(self) -> None:
        changes, found = Photo.changes(), []
        thread = Thread(target=lambda: found.append(next(changes)))
        thread.start()
        job = Photo.add_job("a")
        thread.join(20)
        assert [change.pk for change in found] == [job.pk.get()]
        changes.close()

    def test_ends_when_it_is_closed(self, redis_client: redis.Redis) -> None:
        changes = Photo.changes()
        thread = Thread(target=lambda: list(changes))
        thread.start()
        wait_until(lambda: any(client["cmd"].startswith("xread") for client in redis_client.client_list()))
        changes.close()
        changes.close()
        thread.join(20)
        assert not thread.is_alive()
        assert list(changes) == []

    def test_goes_on_where_it_was_after_the_connection_was_lost(self, redis_client: redis.Redis) -> None:
        changes = Photo.changes()
        found: list[str] = []

        def listen() -> None:
            for change in changes:
                found.append(change.pk)
                if len(found) == 20:
                    return

        thread = Thread(target=listen)
        thread.start()
        for number in range(20):
            redis_client.client_kill_filter(_type="normal", skipme=True)
            add_in_spite_of_kills(str(number))
        thread.join(60)
        assert found == [str(number) for number in range(1, 21)]
        changes.close()

    def test_may_be_left_to_a_thread(self) -> None:
        found: list[str] = []
        with Photo.changes() as changes:
            changes.follow(lambda change: found.append(change.pk), name="listener of photos")
            Photo.add_jobs(["a", "b", "c"])
            wait_until(lambda: found == ["1", "2", "3"])
            assert "listener of photos" in [thread.name for thread in enumerate_threads()]
        wait_until(lambda: "listener of photos" not in [thread.name for thread in enumerate_threads()])

    def test_of_a_thread_outlives_what_its_function_raises(self, caplog: pytest.LogCaptureFixture) -> None:
        found: list[str] = []
        failures = iter(
            [ValueError("mine"), redis.ConnectionError("gone"), redis.ResponseError("WRONGTYPE"), SystemExit(1)]
        )

        def hear(change: Any) -> None:
            found.append(change.pk)
            if error := next(failures, None):
                raise error

        with Photo.changes() as changes:
            changes.follow(hear)
            Photo.add_jobs(["a", "b", "c", "d", "e"])
            wait_until(lambda: found[-1:] == ["5"])
        assert found == ["1", "2", "2", "3", "4", "5"]  # once more if that was because Redis failed
        assert [word in caplog.text for word in ("mine", "gone", "WRONGTYPE")] == [True] * 3

    def test_that_come_together_are_told_together(self) -> None:
        found: list[list[str]] = []
        went_on = Event()

        def hear(changes: list[Any]) -> None:
            found.append([change.pk for change in changes])
            went_on.wait(30)

        with Photo.changes() as changes:
            changes.follow_many(hear, name="listener of photos")
            Photo.add_job("a")
            wait_until(lambda: found == [["1"]])
            Photo.add_jobs(["b", "c", "d"])
            went_on.set()
            wait_until(lambda: found == [["1"], ["2", "3", "4"]])
        wait_until(lambda: "listener of photos" not in [thread.name for thread in enumerate_threads()])

    def test_are_heard_by_one_function(self) -> None:
        changes = Photo.changes()
        none: Any = "x"
        for wrong in (lambda: changes.follow(none), lambda: changes.follow_many(print, pause=none)):
            with pytest.raises(TypeError, match="must be a"):
                wrong()
        changes.follow(print)
        with pytest.raises(LimpydJobsException, match="another thread follows them"):
            changes.follow(print)
        changes.close()
        with pytest.raises(LimpydJobsException, match="are closed"):
            changes.follow_many(print)

    def test_is_read_in_the_time_that_was_given_at_first(self) -> None:
        with Photo.changes(timeout=0.05) as changes:
            assert changes.read() == []

    def test_is_told_of_each_slice_of_a_short_socket_timeout(self, redis_server: RedisServer) -> None:
        there = Photo.bound_to(JobsDatabase(unix_socket_path=redis_server.socket, db=5, socket_timeout=0.1), "short")
        with there.changes(timeout=0.5) as changes:
            assert list(changes) == []

    def test_of_queues_hears_of_the_jobs_of_their_names(self) -> None:
        changes, of_all = Queue.changes(["photos", "b"], timeout=0), Queue.changes(timeout=0)
        Photo.add_job("a")
        Photo.add_job("b", queue_name="b", priority=3)
        Photo.add_job("c", queue_name="c")
        Failing.add_job("d")
        Silent.add_job("e")
        assert {(change.model, change.pk) for change in changes} == {(Photo, "1"), (Photo, "2"), (Failing, "1")}
        assert len(list(of_all)) == 4

    @each(
        ("arguments", "error"),
        [
            ({"timeout": -1}, ValueError),
            ({"timeout": float("nan")}, ValueError),
            ({"timeout": "1"}, TypeError),
            ({"timeout": True}, TypeError),
            ({"since": 1}, TypeError),
            ({"since": "yesterday"}, ValueError),
        ],
    )
    def test_refuses_what_is_no_time_or_no_id(self, arguments: Any, error: Any) -> None:
        with pytest.raises(error):
            Photo.changes(**arguments)


class TestTheEndOfAJob:
    @pytest.mark.parametrize("status", ["SUCCESS", "ERROR", "CANCELED"])
    def test_is_what_wait_waits_for(self, status: str) -> None:
        job, ended = Photo.add_job("a"), []
        thread = Thread(target=lambda: ended.append(job.wait()))
        thread.start()
        claim = Photo.get(job.pk.get()).claim()
        {"SUCCESS": claim.succeed, "CANCELED": claim.cancel, "ERROR": lambda: claim.fail(ValueError("no"))}[status]()
        thread.join(20)
        assert ended == [True]
        assert job.wait(0)

    def test_is_also_its_deletion(self) -> None:
        job, ended = Photo.add_job("a"), []
        thread = Thread(target=lambda: ended.append(job.wait()))
        thread.start()
        Photo.get(job.pk.get()).delete()
        thread.join(20)
        assert ended == [True]
        assert Photo.add_job("b").wait(0.01) is False

    def test_is_not_that_it_is_tried_again(self) -> None:
        job = Failing.add_job("a")
        work("photos", callback=None, requeue_times=1, requeue_delay_delta=60)
        assert job.wait(0) is False

    def test_cannot_be_waited_for_if_the_class_tells_nothing(self) -> None:
        job = Silent.add_job("a")
        with pytest.raises(
            ConfigurationException, match="Silent does not notify of its changes: set notify_changes = True"
        ):
            job.wait()
        with pytest.raises(ConfigurationException, match="notify_changes"):
            Silent.changes()


class TestAModelThatTellsNothing:
    def test_writes_nothing(self, redis_client: redis.Redis) -> None:
        Silent.add_job("a")
        Error.add_error("photos", Silent.add_job("b"), ValueError("no"))
        work("photos")
        assert not redis_client.keys("*:changes")


class Ranked(Job):
    namespace = "telling"
    notify_changes = True
    status = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex])


def test_a_status_that_only_limpyd_can_index_is_refused() -> None:
    with pytest.raises(ConfigurationException, match="Ranked cannot notify of its changes"):
        Ranked.add_job("a", queue_name="photos")
