"""The job store of APScheduler: what is promised beyond the tests of APScheduler itself."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from threading import Event
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import redis
from servers import RedisServer, wait_until

pytest.importorskip("apscheduler")

from apscheduler.events import EVENT_JOB_REMOVED
from apscheduler.executors.debug import DebugExecutor
from apscheduler.jobstores.base import ConflictingIdError, JobLookupError
from apscheduler.jobstores.redis import RedisJobStore as TheirStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import STATE_PAUSED, STATE_RUNNING, STATE_STOPPED, BaseScheduler
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from limpyd_jobs import Error, Queue
from limpyd_jobs import check as checking
from limpyd_jobs.contrib.apscheduler import LimpydExecutor, LimpydJobStore, RedisJobStore, ScheduledJob
from limpyd_jobs.models import job_classes
from limpyd_jobs.records.timed import due_key
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.schedules.common_times import AndTrigger
from limpyd_jobs.schedules.triggers import describe_trigger

pytestmark = pytest.mark.usefixtures("redis_client")

NOW = datetime.now(timezone.utc)
PARIS = ZoneInfo("Europe/Paris")
PAST, FUTURE = NOW - timedelta(minutes=1), NOW + timedelta(hours=1)
ran: list[Any] = []


def note(*args: Any, **kwargs: Any) -> None:
    ran.append((args, kwargs))


def other_note() -> None:
    ran.append("other")


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@pytest.fixture
def scheduler() -> Iterator[Callable[..., BackgroundScheduler]]:
    """Make a scheduler with a store of ours, whose rounds are made by the test."""
    made: list[BackgroundScheduler] = []

    def make(store: Any = None, **options: Any) -> BackgroundScheduler:
        found = BackgroundScheduler(timezone="UTC", job_defaults={"misfire_grace_time": None, **options})
        found.add_jobstore(store or LimpydJobStore(allowed=[__name__]))
        found.add_executor(DebugExecutor())
        found.state, found._event = STATE_RUNNING, Event()  # without the thread
        for each in found._jobstores.values():
            each.start(found, "default")
        for each in found._executors.values():
            each.start(found, "default")
        made.append(found)
        return found

    yield make
    for each in made:
        for store in each._jobstores.values():
            store.shutdown()


def round_of(scheduler: BackgroundScheduler) -> float | None:
    """Let a scheduler look once; return in how many seconds it would look again."""
    return scheduler._process_jobs()


def store_of(scheduler: BackgroundScheduler) -> LimpydJobStore:
    return scheduler._jobstores["default"]


def stored(job_id: str) -> dict[str, str]:
    found: dict[str, str] = ScheduledJob.get_connection().hgetall(f"apscheduler:scheduledjob:{job_id}:hash")
    return found


class TestTheJobs:
    def test_are_a_collection_of_limpyd(self, scheduler: Any) -> None:
        made = scheduler()
        made.add_job(note, "interval", hours=1, id="a", name="hourly")
        made.add_job(other_note, "date", run_date=FUTURE + timedelta(days=1), id="b")
        store = store_of(made)
        assert sorted(store.jobs) == ["a", "b"]
        assert list(store.jobs.filter(name="hourly")) == ["a"]
        assert list(store.model.collection(next_run_time__lt=time.time() + 7200)) == ["a"]
        assert stored("a")["func"] == f"{__name__}:note"

    def test_come_back_as_they_were(self, scheduler: Any) -> None:
        made = scheduler()
        options = {"args": [1, "x", b"\xff"], "kwargs": {"deep": {"a": [1.5, None, True]}}, "max_instances": 3}
        made.add_job(note, "cron", hour=3, timezone="Europe/Paris", id="é:1", coalesce=True, **options)
        job = scheduler().get_job("é:1")
        assert job.args == (1, "x", b"\xff")
        assert job.kwargs == options["kwargs"]
        assert (job.max_instances, job.coalesce, job.misfire_grace_time) == (3, True, None)
        assert job.next_run_time == made.get_job("é:1").next_run_time
        assert str(job.trigger) == "cron[hour='3']"

    def test_of_one_time_come_in_the_order_they_were_added(self, scheduler: Any) -> None:
        made = scheduler()
        names = [str(number) for number in (9, 10, 1, 11)]
        for name in names:
            made.add_job(note, "date", run_date=FUTURE, id=name)
        assert [job.id for job in made.get_jobs()] == names

    def test_can_be_added_once(self, scheduler: Any) -> None:
        scheduler().add_job(note, "date", run_date=FUTURE, id="a")
        with pytest.raises(ConflictingIdError):
            scheduler().add_job(note, "date", run_date=FUTURE, id="a")

    def test_are_checked(self, scheduler: Any) -> None:
        made = scheduler()
        made.add_job(note, "interval", hours=1, id="7")
        made.add_job(note, "date", run_date=PAST, id="b")
        round_of(made)
        assert checking.check(pause=0, queue_models=[Queue], error_models=[Error]).findings == []


class TestSeveralSchedulers:
    def test_run_a_job_that_is_due_once(self, scheduler: Any) -> None:
        first, second = scheduler(), scheduler()
        first.add_job(note, "date", run_date=PAST, args=[1], id="a")
        due = store_of(first).get_due_jobs(NOW)
        assert [job.id for job in due] == ["a"]
        assert store_of(second).get_due_jobs(NOW) == []
        assert [job.id for job in store_of(first).get_due_jobs(NOW)] == ["a"]
        round_of(first)
        round_of(second)
        assert ran == [((1,), {})]

    def test_look_again_when_a_lease_ends_instead_of_at_once(self, scheduler: Any) -> None:
        first, second = scheduler(LimpydJobStore(allowed=[__name__], lease=20)), scheduler()
        first.add_job(note, "date", run_date=PAST, id="a")
        store_of(first).get_due_jobs(NOW)
        assert 15 < (round_of(second) or 0) <= 20

    def test_take_over_from_one_that_died(self, scheduler: Any) -> None:
        first, second = scheduler(LimpydJobStore(allowed=[__name__], lease=0.001)), scheduler()
        first.add_job(note, "date", run_date=PAST, id="a")
        store_of(first).get_due_jobs(NOW)
        wait_until(lambda: round_of(second) and ran)
        assert len(ran) == 1

    def test_give_back_what_they_did_not_run(self, scheduler: Any) -> None:
        first, second = scheduler(), scheduler()
        first.add_job(note, "date", run_date=PAST, id="a")
        store_of(first).get_due_jobs(NOW)
        assert store_of(first).get_next_run_time() == PAST
        assert [job.id for job in store_of(second).get_due_jobs(NOW)] == ["a"]
        store_of(second).shutdown()
        assert [job.id for job in store_of(first).get_due_jobs(NOW)] == ["a"]

    def test_are_handed_out_some_jobs_at_once_and_the_others_after_these(
        self, scheduler: Any, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(LimpydJobStore, "most", 2)
        first, second = scheduler(), scheduler()
        for number in range(3):
            first.add_job(note, "date", run_date=PAST, id=str(number))
        assert len(store_of(first).get_due_jobs(NOW)) == 2
        assert len(store_of(second).get_due_jobs(NOW)) == 1
        store_of(second).get_next_run_time()
        assert round_of(first) == 0
        assert len(ran) == 2
        round_of(first)
        assert len(ran) == 3

    def test_run_no_more_once_half_of_the_lease_is_gone(self, scheduler: Any) -> None:
        first, second = scheduler(LimpydJobStore(allowed=[__name__], lease=0.2)), scheduler()
        for number in range(3):
            first.add_job(note, "date", run_date=PAST, args=[number])

        class Slow(DebugExecutor):
            def submit_job(self, job: Any, run_times: Any) -> None:
                super().submit_job(job, run_times)
                wait_until(lambda: time.monotonic() > store_of(first).round._halfway)

        first._executors["default"] = slow = Slow()
        slow.start(first, "default")
        assert round_of(first) == 0
        assert len(ran) == 1
        round_of(second)
        assert sorted(args for args, _ in ran) == [(0,), (1,), (2,)]

    def test_hand_out_nothing_while_they_are_paused(self, scheduler: Any) -> None:
        made = scheduler()
        made.add_job(note, "date", run_date=PAST, id="a")
        made.state = STATE_PAUSED
        assert store_of(made).get_due_jobs(NOW) == []


CHANGES: dict[str, Callable[[BackgroundScheduler], Any]] = {
    "paused": lambda other: other.pause_job("a"),
    "removed": lambda other: other.remove_job("a"),
    "rescheduled": lambda other: other.reschedule_job("a", trigger="date", run_date=FUTURE),
    "modified": lambda other: other.modify_job("a", args=[2], name="new"),
    "replaced": lambda other: other.add_job(note, "date", run_date=FUTURE, id="a", args=[3], replace_existing=True),
}


class TestAChangeOfSomebodyElse:
    """Between the moment when a job is handed out, and that when the scheduler records that it ran."""

    @pytest.mark.parametrize("change", CHANGES)
    @pytest.mark.parametrize("trigger", ["interval", "date"])
    def test_wins(self, scheduler: Any, change: str, trigger: str) -> None:
        first, second = scheduler(), scheduler()
        options = {"start_date": PAST, "hours": 1} if trigger == "interval" else {"run_date": PAST}
        first.add_job(note, trigger, id="a", args=[1], next_run_time=PAST, **options)

        class Executor(DebugExecutor):
            def submit_job(self, job: Any, run_times: Any) -> None:
                CHANGES[change](second)
                super().submit_job(job, run_times)

        first._executors["default"] = executor = Executor()
        executor.start(first, "default")
        round_of(first)
        assert ran == [((1,), {})]
        job = second.get_job("a")
        if change == "removed" or (change == "modified" and trigger == "date"):
            assert job is None
        elif change == "paused":
            assert job.next_run_time is None
        elif change == "modified":
            assert (job.args, job.name) == ((2,), "new")
            assert job.next_run_time == PAST + timedelta(hours=1)
        else:
            assert job.next_run_time == FUTURE
        assert not stored("a").get("leased_by")

    def test_is_not_undone_by_a_change_of_something_else(self, scheduler: Any) -> None:
        first, second = scheduler(), scheduler()
        first.add_job(note, "interval", hours=1, id="a", args=[1])
        job = first.get_job("a")
        second.modify_job("a", args=[2])
        job._modify(name="new")
        store_of(first).update_job(job)
        found = second.get_job("a")
        assert (found.args, found.name) == ((2,), "new")

    def test_stays_if_nothing_was_changed_since_it_was_read(self, scheduler: Any) -> None:
        first, second = scheduler(), scheduler()
        first.add_job(note, "interval", hours=1, id="a", args=[1])
        job = first.get_job("a")
        second.modify_job("a", args=[2])
        before = stored("a")
        store_of(first).update_job(job)
        assert stored("a") == before

    def test_may_be_one_of_the_time_zone_alone(self, scheduler: Any) -> None:
        first, second = scheduler(), scheduler()
        first.add_job(note, "cron", hour=3, id="a", next_run_time=PAST)
        (job,) = store_of(first).get_due_jobs(NOW)
        other = second.get_job("a")
        other._modify(trigger=CronTrigger(hour=3, timezone="Europe/Paris"))
        store_of(second).update_job(other)
        job._modify(next_run_time=FUTURE)
        store_of(first).update_job(job)
        found = second.get_job("a")
        assert str(found.trigger.timezone) == "Europe/Paris"
        assert NOW < found.next_run_time == CronTrigger(hour=3, timezone="Europe/Paris").get_next_fire_time(PAST, NOW)

    @pytest.mark.parametrize("before", [IntervalTrigger(hours=1), DateTrigger(PAST)])
    @pytest.mark.parametrize(
        ("after", "following"),
        [
            (IntervalTrigger(hours=2), PAST + timedelta(hours=2)),
            (IntervalTrigger(seconds=50), PAST + timedelta(seconds=100)),
            (DateTrigger(FUTURE), None),
        ],
    )
    def test_of_the_trigger_says_when_it_runs_next_and_it_does_not_run_twice(
        self, scheduler: Any, before: Any, after: Any, following: datetime | None
    ) -> None:
        first, second = scheduler(), scheduler()
        first.add_job(note, before, id="a", next_run_time=PAST)
        (job,) = store_of(first).get_due_jobs(NOW)
        second.modify_job("a", trigger=after)
        if isinstance(before, DateTrigger):
            store_of(first).remove_job("a")
        else:
            job._modify(next_run_time=FUTURE)
            store_of(first).update_job(job)
        found = second.get_job("a")
        assert (found and found.next_run_time) == following
        assert not stored("a").get("leased_by")

    def test_to_what_is_gone_is_told(self, scheduler: Any) -> None:
        made = scheduler()
        for call in (made.remove_job, made.pause_job, made.resume_job):
            with pytest.raises(JobLookupError):
                call("a")


class TestAJobThatCannotBeRestored:
    @pytest.fixture(autouse=True)
    def _one_is_broken(self, scheduler: Any) -> None:
        self.old = scheduler()
        self.old.add_job(other_note, "date", run_date=PAST, id="a")
        ScheduledJob.change("a", {"func": f"{__name__}:gone"})

    def test_is_parked_with_the_reason_and_the_others_run(self, scheduler: Any, caplog: Any) -> None:
        self.old.add_job(note, "date", run_date=PAST, id="b")
        assert 25 < (round_of(self.old) or 0) <= 30
        assert 25 < (round_of(self.old) or 0) <= 30
        assert len(ran) == 1
        found = stored("a")
        assert found["parked"] == "1"
        assert "gone" in found["reason"]
        assert "next_run_time" not in found
        assert list(ScheduledJob.collection(parked="1")) == ["a"]
        assert [record.levelname for record in caplog.records].count("ERROR") == 1
        assert self.old.get_jobs() == []
        assert self.old.get_job("a") is None

    def test_is_not_parked_by_who_only_looks(self, caplog: Any) -> None:
        before = stored("a")
        assert self.old.get_jobs() == []
        assert self.old.get_job("a") is None
        assert stored("a") == before
        assert [record.levelname for record in caplog.records] == 2 * ["WARNING"]
        round_of(self.old)
        assert stored("a")["parked"] == "1"

    def test_is_told_of_once(self, caplog: Any) -> None:
        store = store_of(self.old)
        for _ in range(3):
            store.reader._looked = -1e9
            round_of(self.old)
        assert [record.levelname for record in caplog.records].count("ERROR") == 1

    def test_is_run_by_a_scheduler_that_can_restore_it(self, scheduler: Any, monkeypatch: Any) -> None:
        round_of(self.old)
        monkeypatch.setitem(globals(), "gone", other_note)
        new = scheduler()
        round_of(new)
        assert ran == ["other"]
        assert stored("a") == {}

    def test_is_unparked_by_a_change(self, scheduler: Any) -> None:
        round_of(self.old)
        scheduler().add_job(note, "date", run_date=PAST, id="a", replace_existing=True)
        assert not {"parked", "reason", "parked_run_time"} & stored("a").keys()
        store_of(self.old).reader._looked = -1e9
        round_of(self.old)
        assert len(ran) == 1

    def test_keeps_its_run_time_if_a_process_changes_it_who_read_it_before(
        self, scheduler: Any, monkeypatch: Any
    ) -> None:
        monkeypatch.setitem(globals(), "gone", other_note)
        new = scheduler()
        job = new.get_job("a")
        monkeypatch.delitem(globals(), "gone")
        round_of(self.old)
        assert stored("a")["parked"] == "1"
        job._modify(name="new")
        store_of(new).update_job(job)
        assert "parked" not in stored("a")
        assert stored("a")["next_run_time"] == f"{PAST.timestamp():.6f}"
        assert ScheduledJob.collection(name="new", next_run_time__lt=NOW.timestamp()).instances()

    def test_can_be_paused_by_who_can_restore_it(self, scheduler: Any, monkeypatch: Any) -> None:
        round_of(self.old)
        monkeypatch.setitem(globals(), "gone", other_note)
        scheduler().pause_job("a")
        assert not {"parked", "parked_run_time", "next_run_time"} & stored("a").keys()

    def test_can_be_removed(self) -> None:
        round_of(self.old)
        self.old.remove_job("a")
        assert stored("a") == {}

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("trigger", "{"),
            ("trigger", '{"cron":{"hour":"99"}}'),
            ("timezone", "Nowhere"),
            ("state", "[]"),
            ("state", "{}"),
            ("state", "gASVCQAAAAAAAACMBWhlbGxvlC4="),
            ("next_run_time", "soon"),
            ("next_run_time", "1e30"),
            ("next_run_time", "nan"),
            ("next_run_time", "-inf"),
            pytest.param("state", "[" * 200_000, id="too deep"),
            ("func", "no colon"),
            pytest.param("func", b"\x00\xff:\xfe", id="no text"),
            ("func", None),
            ("executor", None),
        ],
    )
    def test_may_be_broken_in_any_way(self, field: str, value: Any) -> None:
        ScheduledJob.change("a", {"func": f"{__name__}:note"})
        broken = getattr(ScheduledJob.get("a"), field)  # written as by limpyd alone, which refuses nothing
        broken.delete() if value is None else broken.hset(value)
        made = BackgroundScheduler()
        store = LimpydJobStore(allowed=[__name__])
        store.start(None, "x")
        for _ in range(2):
            assert store.get_due_jobs(NOW) == []
            assert store.get_next_run_time() is None or store.get_next_run_time() > NOW
        assert store.get_all_jobs() == []
        assert made.state == 0

    def test_may_have_a_place_that_is_none(self, scheduler: Any) -> None:
        made = scheduler()
        for name in "xy":
            made.add_job(note, "date", run_date=PAST, id=name)
        ScheduledJob.get("x").position.hset("9" * 5000)
        round_of(made)
        assert len(ran) == 2

    def test_leaves_no_job_that_is_never_due_in_the_way(self, scheduler: Any) -> None:
        made = scheduler()
        made.add_job(note, "interval", hours=1, id="x")
        key = due_key(ScheduledJob)
        ScheduledJob.get_connection().hdel("apscheduler:scheduledjob:x:hash", "next_run_time")
        for score in (5, "-inf", "inf"):
            ScheduledJob.get_connection().zadd(key, {"x": score})
            assert (round_of(made) or 0) > 1


class TestAJobWhoseExecutorIsElsewhere:
    def test_is_left_to_a_scheduler_that_has_it(self, scheduler: Any, caplog: Any) -> None:
        here, there = scheduler(), scheduler()
        there.add_executor(DebugExecutor(), "other")
        there.add_job(note, "date", run_date=PAST, id="a", executor="other")
        for _ in range(2):
            assert 25 < (round_of(here) or 0) <= 30
        assert [record.levelname for record in caplog.records].count("ERROR") == 1
        round_of(there)
        assert ran == [((), {})]
        assert stored("a") == {}

    @pytest.fixture
    def here(self, scheduler: Any) -> BackgroundScheduler:
        """A scheduler that has left a job to others."""
        made = scheduler()
        made.add_job(note, "date", run_date=PAST, id="a", executor="other")
        round_of(made)
        assert ran == []
        return made

    def test_is_run_here_once_the_executor_is_here(self, here: Any) -> None:
        here.add_executor(DebugExecutor(), "other")
        round_of(here)
        assert len(ran) == 1

    def test_is_run_here_once_it_has_an_executor_of_here(self, here: Any, scheduler: Any) -> None:
        scheduler().modify_job("a", executor="default")
        assert store_of(here).events.is_early({"a"})
        round_of(here)
        assert len(ran) == 1

    def test_is_told_of_once(self, here: Any, caplog: Any) -> None:
        caplog.clear()
        store_of(here).reader._looked = -1e9
        assert 25 < (round_of(here) or 0) <= 30
        assert caplog.records == []

    def test_is_left_to_others_as_well_if_the_executor_is_removed_in_the_midst_of_a_round(self, scheduler: Any) -> None:
        made = scheduler()
        made.add_executor(DebugExecutor(), "other")
        TO_DO.append(lambda: made.remove_executor("other"))
        made.add_job(meanwhile, "date", run_date=PAST - timedelta(seconds=1))
        made.add_job(note, "date", run_date=PAST, id="a", executor="other")
        round_of(made)
        assert (ran, made.get_job("a").id, stored("a").get("leased_by")) == ([], "a", None)


class TestAShutdownInTheMidstOfARound:
    """What was given to an executor is recorded, and the rest is given back."""

    @pytest.mark.parametrize("options", [{"trigger": "date"}, {"trigger": "interval", "hours": 1}])
    def test_of_one_thread_by_itself(self, scheduler: Any, options: Any) -> None:
        first, second = scheduler(), scheduler()
        TO_DO.append(lambda: BaseScheduler.shutdown(first, wait=False))
        first.add_job(meanwhile, id="a", next_run_time=PAST - timedelta(seconds=1), **options)
        for name in "bc":
            first.add_job(note, id=name, next_run_time=PAST, args=[name], **options)
        with suppress(JobLookupError):  # APScheduler finds no job any more
            round_of(first)
        assert TO_DO == ran == []
        round_of(second)
        assert ran == [(("b",), {}), (("c",), {})]
        assert stored("a").get("leased_by") is stored("b").get("leased_by") is None
        assert (stored("a") == {}) == (options["trigger"] == "date")

    def test_by_another_thread(self, scheduler: Any) -> None:
        first, second = scheduler(), scheduler()
        for name in "ab":
            first.add_job(note, "date", run_date=PAST, id=name, args=[name])
        job = next(iter(store_of(first).get_due_jobs(NOW)))
        first._executors["default"].submit_job(job, [PAST])
        first.state = STATE_STOPPED
        with pytest.raises(JobLookupError):
            first.remove_job("a")
        store_of(first).shutdown()
        round_of(second)
        assert ran == [(("a",), {}), (("b",), {})]


class TestAJobThatIsRemovedWhileItRuns:
    def test_may_be_added_anew_and_changed_or_removed(self, scheduler: Any) -> None:
        made = scheduler()
        made.add_job(note, "date", run_date=PAST, id="a")

        def add_again(_: Any) -> None:
            if not ran[1:]:
                ran.append("again")
                made.add_job(note, "interval", hours=1, next_run_time=PAST, id="a")
                made.pause_job("a")

        made.add_listener(add_again, EVENT_JOB_REMOVED)
        round_of(made)
        assert made.get_job("a").next_run_time is None
        round_of(made)
        assert ran == [((), {}), "again"]

    def test_ends_no_scheduler_if_it_removes_itself(self, scheduler: Any) -> None:
        made = scheduler()
        for name, trigger in (("a", "date"), ("b", "interval")):
            TO_DO.append(partial(made.remove_job, name))
            made.add_job(meanwhile, trigger, id=name, next_run_time=PAST)
            round_of(made)
        assert stored("a") == stored("b") == {}


class TestATriggerThatFails:
    @pytest.fixture
    def made(self, scheduler: Any, redis_client: redis.Redis) -> BackgroundScheduler:
        """A scheduler with a job whose second run would be in a year after 9999."""
        made = scheduler()
        made.add_job(note, "interval", hours=1, next_run_time=PAST, id="a")
        trigger = '{"interval":{"days":4000000,"start_date":"0.000000"}}'
        redis_client.hset("apscheduler:scheduledjob:a:hash", "trigger", trigger)
        return made

    def test_is_parked_and_ends_no_scheduler(self, made: BackgroundScheduler) -> None:
        round_of(made)
        assert (ran, stored("a")["parked"]) == ([], "1")
        assert "out of range" in stored("a")["reason"]

    @pytest.mark.parametrize("other", [{"cron": {"second": "1"}}, {"or": [{"cron": {"second": "1"}}]}])
    def test_is_parked_if_its_next_time_would_be_searched_for_ever(
        self, made: BackgroundScheduler, redis_client: redis.Redis, monkeypatch: Any, other: dict[str, Any]
    ) -> None:
        monkeypatch.setattr(AndTrigger, "max_attempts", 100)
        trigger = {"or": [{"date": "2020-01-01"}, {"and": [{"cron": {"second": "0"}}, other]}]}
        redis_client.hset("apscheduler:scheduledjob:a:hash", "trigger", json.dumps(trigger))
        assert describe_trigger(made.get_job("a").trigger).keys() == {"or"}
        round_of(made)
        assert (ran, stored("a")["parked"]) == ([], "1")
        assert "have no time in common" in stored("a")["reason"]

    def test_ends_no_scheduler_if_it_cannot_be_parked(
        self, made: BackgroundScheduler, redis_client: redis.Redis
    ) -> None:
        redis_client.set("apscheduler:scheduledjob:parked:1", "foreign")
        made.add_job(note, "date", run_date=PAST, id="b")
        round_of(made)
        assert len(ran) == 1


class TestAJobThatMissedVeryManyTimes:
    @pytest.mark.parametrize("seconds", [1, 1e-06])
    def test_is_run_once_for_the_last_one(self, scheduler: Any, redis_client: redis.Redis, seconds: float) -> None:
        made = scheduler()
        first = NOW - timedelta(days=400)
        made.add_job(note, "interval", seconds=1, start_date=first, next_run_time=first, id="a", coalesce=True)
        trigger = json.dumps({"interval": {"seconds": seconds, "start_date": "0.000000"}})
        redis_client.hset("apscheduler:scheduledjob:a:hash", "trigger", trigger)
        round_of(made)
        assert len(ran) == 1
        assert time.time() - 60 < float(stored("a")["next_run_time"]) <= time.time() + 1

    def test_is_in_phase_after_that(self, scheduler: Any) -> None:
        made = scheduler()
        first = NOW - timedelta(days=40, seconds=0.25)
        made.add_job(note, "interval", seconds=7, start_date=NOW - timedelta(days=99), next_run_time=first, id="a")
        round_of(made)
        phase = (float(stored("a")["next_run_time"]) - first.timestamp()) % 7
        assert min(phase, 7 - phase) < 0.001


def test_a_job_may_be_removed_though_its_run_is_not_recorded_yet(scheduler: Any, redis_client: redis.Redis) -> None:
    made = scheduler()
    made.add_job(meanwhile, "interval", hours=1, next_run_time=PAST, id="a")
    due = "apscheduler:scheduledjob:next_run_time:number-range"
    TO_DO.append(lambda: (redis_client.rename(due, "elsewhere"), redis_client.set(due, "foreign")))
    round_of(made)
    redis_client.rename("elsewhere", due)
    made.remove_job("a")
    round_of(made)
    assert made.get_jobs() == []


def test_each_round_runs_a_job_though_restoring_takes_long(scheduler: Any, monkeypatch: Any) -> None:
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 18)  # more than half of the lease has passed
    monkeypatch.setattr("limpyd_jobs.contrib.apscheduler.rounds.time", clock)
    made = scheduler()
    for name in "abc":
        made.add_job(note, "date", run_date=PAST, id=name)
    for number in (1, 2, 3):
        assert store_of(made).round.most == 1_000 // 2 ** (number - 1)
        round_of(made)
        assert len(ran) == number


class TestForeignData:
    def test_far_leases_end_no_scheduler(self, scheduler: Any, redis_client: redis.Redis) -> None:
        for score in (1e15, float("inf")):
            redis_client.zadd("apscheduler:scheduledjob:leases", {"x": score})
            assert 25 < (round_of(scheduler()) or 0) <= 30

    def test_a_moment_that_is_not_utf_8_keeps_no_other_job_waiting(
        self, scheduler: Any, redis_client: redis.Redis
    ) -> None:
        made = scheduler()
        for name in "ab":
            made.add_job(note, "date", run_date=PAST, id=name)
        redis_client.hset("apscheduler:scheduledjob:a:hash", "next_run_time", b"\xff")
        round_of(made)
        assert len(ran) == 1
        assert (stored("a")["parked"], stored("a")["parked_run_time"]) == ("1", "\\udcff")

    @pytest.mark.parametrize("moment", ["", "253402300000.000000"])
    def test_a_job_that_has_no_time_now_is_not_asked_for_again_and_again(
        self, scheduler: Any, redis_client: redis.Redis, moment: str
    ) -> None:
        made = scheduler()
        made.add_job(note, "date", run_date=PAST, id="a")
        redis_client.hset("apscheduler:scheduledjob:a:hash", "next_run_time", moment)
        round_of(made)
        assert 25 < (round_of(made) or 0) <= 30
        assert ran == []

    def test_that_prevent_the_record_of_a_run_let_it_run_once(self, scheduler: Any, redis_client: redis.Redis) -> None:
        made = scheduler()
        made.add_job(note, "date", run_date=PAST, id="a", name="n")
        redis_client.rename("apscheduler:scheduledjob:name:n", "elsewhere")
        redis_client.set("apscheduler:scheduledjob:name:n", "foreign")
        for _ in range(3):
            round_of(made)
        assert len(ran) == 1
        redis_client.rename("elsewhere", "apscheduler:scheduledjob:name:n")
        round_of(made)
        assert (len(ran), stored("a")) == (1, {})

    def test_in_the_place_of_their_jobs_keep_no_job_waiting(
        self, scheduler: Any, redis_client: redis.Redis, redis_server: RedisServer
    ) -> None:
        redis_client.set("apscheduler.jobs", "foreign")
        made = scheduler(RedisJobStore(unix_socket_path=redis_server.socket))
        made.add_job(note, "date", run_date=PAST)
        round_of(made)
        assert len(ran) == 1


def test_a_store_serves_one_scheduler(scheduler: Any) -> None:
    store = store_of(scheduler())
    with pytest.raises(ValueError, match="give each one a store of its own"):
        scheduler(store)
    store.shutdown()
    scheduler(store)


class TestWhatCanBeStored:
    @pytest.mark.parametrize(
        ("options", "wrong"),
        [
            ({"args": [1, object()]}, "argument 1 of the job 'a'"),
            ({"args": [(1, 2)]}, "argument 0 of the job 'a'"),
            ({"kwargs": {"when": NOW}}, "argument 'when' of the job 'a'"),
            ({"kwargs": {"what": {1: 2}}}, "argument 'what' of the job 'a'"),
        ],
    )
    def test_as_json_is_what_comes_back_the_same(self, scheduler: Any, options: Any, wrong: str) -> None:
        with pytest.raises(TypeError, match=wrong):
            scheduler().add_job(note, "date", run_date=FUTURE, id="a", **options)
        assert stored("a") == {}

    @pytest.mark.parametrize(
        ("options", "wrong"),
        [
            ({"args": [1, "\ud800"]}, "argument 1 of the job 'a' has half of a character"),
            ({"kwargs": {"what": {"deep": ["\udfff"]}}}, "argument 'what' of the job 'a' has half of a character"),
        ],
    )
    def test_has_whole_characters(self, scheduler: Any, options: Any, wrong: str) -> None:
        with pytest.raises(ValueError, match=wrong):
            scheduler().add_job(note, "date", run_date=FUTURE, id="a", **options)
        assert stored("a") == {}

    @pytest.mark.parametrize(
        "trigger",
        [
            IntervalTrigger(hours=2, start_date=PAST, end_date=FUTURE, timezone="UTC"),
            IntervalTrigger(seconds=0.5, start_date=datetime(1960, 1, 1, 0, 0, 0, 5, timezone.utc), timezone="UTC"),
            IntervalTrigger(days=1, start_date=PAST.astimezone(PARIS), end_date=FUTURE, timezone="Europe/Paris"),
            IntervalTrigger(days=1, start_date=datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=PARIS), timezone=PARIS),
            IntervalTrigger(days=1, start_date=PAST.astimezone(PARIS), timezone="UTC"),
            IntervalTrigger(days=1, start_date=PAST, timezone=timezone(timedelta(hours=-5))),
            CronTrigger(hour=3, start_date=PAST, timezone="UTC"),
            CronTrigger(hour="*/2", jitter=5, end_date=FUTURE, timezone="Europe/Paris"),
            CalendarIntervalTrigger(months=1, start_date=FUTURE.date(), timezone="UTC"),
            DateTrigger(FUTURE, timezone="UTC"),
            OrTrigger([IntervalTrigger(hours=2, start_date=PAST, timezone="Europe/Paris"), DateTrigger(FUTURE)]),
        ],
    )
    def test_of_a_trigger_is_all(self, scheduler: Any, trigger: Any) -> None:
        scheduler().add_job(note, trigger, id="a")
        assert describe_trigger(scheduler().get_job("a").trigger) == describe_trigger(trigger)

    @pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
    def test_takes_little_room(self, scheduler: Any, redis_client: redis.Redis, zone: str) -> None:
        start = PAST.astimezone(ZoneInfo(zone))
        scheduler().add_job(note, "interval", hours=1, start_date=start, timezone=zone, args=[1, "text"], id="a")
        assert redis_client.object("encoding", "apscheduler:scheduledjob:a:hash") in ("listpack", "ziplist")

    def test_was_stored_at_greater_length_before(self, scheduler: Any) -> None:
        made = scheduler()
        made.add_job(note, "interval", hours=1, start_date=PAST, next_run_time=PAST, id="a")
        trigger = {"interval": {"start_date": PAST.isoformat(), "timezone": "Europe/Paris", "seconds": 3600.0}}
        ScheduledJob.change(
            "a", {"trigger": json.dumps(trigger), "state": '{"misfire_grace_time":null,"args":["old"],"kwargs":{}}'}
        )
        assert describe_trigger(made.get_job("a").trigger) == trigger
        assert (round_of(made) or 0) > 20
        assert ran == [(("old",), {})]

    def test_as_a_pickle_is_more(self, scheduler: Any) -> None:
        made = scheduler(LimpydJobStore(serializer="pickle"))
        made.add_job(note, "date", run_date=PAST, id="a", args=[(1, 2), NOW])
        round_of(made)
        assert ran == [(((1, 2), NOW), {})]

    @pytest.mark.parametrize(
        ("args", "is_json"),
        [([1, "text", None], True), ([1.5, [True]], True), ([(1,)], False), (["\ud800"], False), ([{1: 2}], False)],
    )
    def test_as_a_pickle_only_if_json_cannot_hold_it(self, scheduler: Any, args: list[Any], is_json: bool) -> None:
        made = scheduler(LimpydJobStore(serializer="pickle"))
        made.add_job(note, "date", run_date=PAST, id="a", args=args, misfire_grace_time=3600, max_instances=3)
        assert stored("a")["state"].startswith("{") is is_json
        assert stored("a")["trigger"].startswith("{")
        found = made.get_job("a")
        assert (found.args, found.misfire_grace_time, found.max_instances) == (tuple(args), 3600, 3)
        round_of(made)
        assert ran == [(tuple(args), {})]

    def test_a_pickle_is_not_read_by_who_reads_json(self, scheduler: Any, redis_client: redis.Redis) -> None:
        made = scheduler(LimpydJobStore(serializer="pickle"))
        for name in "ab":
            made.add_job(note, "date", run_date=PAST, id=name, args=[Bomb()])
        redis_client.hset("apscheduler:scheduledjob:b:hash", "state", "[]")
        assert store_of(scheduler()).get_due_jobs(NOW) == []
        assert "it is stored as a pickle" in stored("a")["reason"]
        assert "it is neither a JSON object nor a pickle: []" in stored("b")["reason"]
        assert ran == []

    def test_no_function_is_called_that_is_not_allowed(self, scheduler: Any) -> None:
        with pytest.raises(ValueError, match="no module is allowed: name its module in `allowed` of the job"):
            scheduler(LimpydJobStore()).add_job(note, "date", run_date=PAST, id="a")
        scheduler().add_job(note, "date", run_date=PAST, id="a", args=["true"])
        ScheduledJob.get("a").func.hset("os:system")
        assert store_of(scheduler(LimpydJobStore())).get_due_jobs(NOW) == []
        assert "name its module in `allowed` of the job store, or with --job-modules" in stored("a")["reason"]

    def test_functions_of_the_modules_of_jobs_are_allowed(self, scheduler: Any) -> None:
        job_classes.allow(__name__)
        try:
            made = scheduler(LimpydJobStore())
            made.add_job(note, "date", run_date=PAST, id="a")
            round_of(made)
        finally:
            job_classes.allow(None)
        assert ran == [((), {})]

    def test_functions_may_be_limited_to_some_modules(self, scheduler: Any) -> None:
        with pytest.raises(ValueError, match="none of the modules that are allowed"):
            scheduler(LimpydJobStore(allowed=["shop"])).add_job(note, "date", run_date=PAST, id="a")
        scheduler().add_job(note, "date", run_date=PAST, id="a")
        assert store_of(scheduler(LimpydJobStore(allowed=["shop"]))).get_due_jobs(NOW) == []
        assert "none of the modules" in stored("a")["reason"]
        assert scheduler(LimpydJobStore(allowed=[__name__])).get_job("a").id == "a"

    @pytest.mark.parametrize("func", ["os:system", "posix:system", f"{__name__}:os.system", f"{__name__}:wait_until"])
    def test_what_an_allowed_module_imports_is_not_allowed(
        self, scheduler: Any, redis_client: redis.Redis, func: str
    ) -> None:
        made = scheduler(LimpydJobStore(allowed=[__name__]))
        with pytest.raises(ValueError, match="none of the modules that are allowed"):
            made.add_job(func, "date", run_date=PAST, id="a", args=["true"])
        made.add_job(note, "date", run_date=PAST, id="b", args=["true"])
        ScheduledJob.get("b").func.hset(func)
        round_of(made)
        assert "none of the modules" in stored("b")["reason"]


class Bomb:
    def __reduce__(self) -> Any:
        return note, ("boom",)


class TestBadArguments:
    @pytest.mark.parametrize(
        "arguments",
        [
            {"db": None},
            {"jobs_key": ""},
            {"run_times_key": ""},
            {"lease": 0},
            {"lease": -1},
            {"lease": float("nan")},
            {"look_again": 0},
        ],
    )
    def test_of_the_store_that_takes_over_are_refused(self, arguments: Any) -> None:
        with pytest.raises(ValueError, match="must"):
            RedisJobStore(**arguments)

    @pytest.mark.parametrize(
        "arguments", [{"lease": True}, {"lease": "x"}, {"namespace": ""}, {"serializer": "yaml"}, {"lease": None}]
    )
    def test_are_refused(self, arguments: Any) -> None:
        with pytest.raises(ValueError, match="must"):
            LimpydJobStore(**arguments)

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({"nonsense": 5}, "'nonsense' is neither an argument of this class nor of redis.Redis"),
            ({"allowed": 5}, r"allowed must be a list of modules, as \['myapp.jobs'\], not 5"),
            ({"allowed": [3]}, r"allowed must be a list of modules, as \['myapp.jobs'\], not \[3\]"),
            ({"url": 5}, "url must be a text"),
            ({"url": "redis://x", "client": redis.Redis()}, "Say once where Redis is: give url or client"),
            ({"client": redis.Redis(), "port": 5}, "'port' is a setting of the client: give one of them"),
            ({"pickle_protocol": "x"}, "pickle_protocol must be from 0 to"),
            ({"pickle_protocol": 99}, "pickle_protocol must be from 0 to"),
        ],
    )
    @pytest.mark.parametrize("store_class", [LimpydJobStore, RedisJobStore])
    def test_are_named_if_they_are_wrong(self, store_class: Any, arguments: Any, told: str) -> None:
        with pytest.raises((TypeError, ValueError), match=told):
            store_class(**arguments)

    @pytest.mark.parametrize("db", [None, "x", -1, True, 1.5, ""])
    @pytest.mark.parametrize("host_class", [LimpydJobStore, LimpydExecutor, RedisJobStore])
    def test_a_database_is_a_number(self, host_class: Any, db: Any) -> None:
        with pytest.raises(ValueError, match=r"^(The \"db\" parameter|db) must"):
            host_class(db=db)

    def test_a_database_may_be_text_as_in_a_file_of_settings(self, redis_server: RedisServer) -> None:
        store = LimpydJobStore(unix_socket_path=redis_server.socket, db="3")
        assert [*store.jobs] == []
        assert store.model.get_connection().connection_pool.connection_kwargs["db"] in (3, "3")

    def test_a_namespace_is_that_of_another_store(self) -> None:
        with pytest.raises(TypeError, match="has no namespace: its jobs_key"):
            RedisJobStore(namespace="x")

    def test_another_serializer_is_that_of_another_store(self) -> None:
        with pytest.raises(TypeError, match=r"take LimpydJobStore, and its import_jobs\(\)"):
            RedisJobStore(serializer="json")

    def test_one_module_for_a_list_of_them_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"as \['shop'\]"):
            LimpydJobStore(allowed="shop")

    def test_seconds_may_be_text_as_in_a_file_of_settings(self) -> None:
        store = LimpydJobStore(lease="2.5", look_again="60")
        assert (store.lease, store.look_again) == (2.5, 60)


class TestWhereItIs:
    def test_is_for_the_user_to_say(self, redis_server: RedisServer) -> None:
        socket = redis_server.socket
        stores = [
            LimpydJobStore(f"unix://{socket}?db=7"),
            LimpydJobStore(unix_socket_path=socket, db=7),
            LimpydJobStore(client=redis.Redis(unix_socket_path=socket, db=7)),
            LimpydJobStore(database=JobsDatabase(unix_socket_path=socket, db=7)),
        ]
        assert all(store.model.database.connection_settings["db"] == 7 for store in stores)
        assert LimpydJobStore().model is ScheduledJob

    def test_is_the_one_of_a_url_a_client_or_a_pool_also_in_the_place_of_theirs(
        self, redis_server: RedisServer
    ) -> None:
        where = {"unix_socket_path": redis_server.socket, "db": 7}
        stores = [
            RedisJobStore(url=f"unix://{redis_server.socket}?db=7"),
            RedisJobStore(client=redis.Redis(**where)),
            RedisJobStore(database=JobsDatabase(**where)),
            RedisJobStore(connection_pool=redis.Redis(**where).connection_pool),
            RedisJobStore(db=7, url=f"unix://{redis_server.socket}?db=5"),
        ]
        assert [store.model.database.connection_settings["db"] for store in stores] == [7] * 5
        assert stores[3].get_all_jobs() == []
        assert RedisJobStore().model.database.connection_settings["db"] == 0

    def test_may_be_named_by_its_entry_point(self, redis_server: RedisServer) -> None:
        made = BackgroundScheduler(timezone="UTC")
        made.add_jobstore("limpyd", url=f"unix://{redis_server.socket}", namespace="shop")
        assert made._jobstores["default"].model._name == "shop:scheduledjob"


class TestTheirJobs:
    def test_are_taken_over(self, scheduler: Any, redis_server: RedisServer, redis_client: redis.Redis) -> None:
        where = {"unix_socket_path": redis_server.socket, "db": 0}
        theirs = scheduler(TheirStore(**where))
        theirs.add_job(note, "interval", hours=1, id="a", args=[(1, NOW)])
        theirs.add_job(note, "date", run_date=FUTURE, id="b")
        redis_client.hset("apscheduler.jobs", "c", pickle.dumps({"version": 9}))
        ours = scheduler(RedisJobStore(**where))
        assert sorted(job.id for job in ours.get_jobs()) == ["a", "b"]
        assert ours.get_job("a").args == ((1, NOW),)
        assert redis_client.hkeys("apscheduler.jobs") == ["c"]
        assert redis_client.zcard("apscheduler.run_times") == 0

    def test_are_not_added_again_once_another_process_took_them_over_and_ran_them(
        self, scheduler: Any, redis_server: RedisServer, redis_client: redis.Redis
    ) -> None:
        where = {"unix_socket_path": redis_server.socket, "db": 0}
        theirs = scheduler(TheirStore(**where))
        for name in "ab":
            theirs.add_job(note, "date", run_date=PAST, id=name, args=[Meanwhile()])
        TO_DO.append(lambda: round_of(scheduler(RedisJobStore(**where))))
        ours = scheduler(RedisJobStore(**where))
        assert len(ran) == 2
        assert ours.get_jobs() == []


TO_DO: list[Callable[[], Any]] = []


class Meanwhile:
    """Does something when it is read from a pickle, once."""

    def __reduce__(self) -> Any:
        return meanwhile, ()


def meanwhile() -> None:
    if TO_DO:
        TO_DO.pop()()


class TestWhenRedisFails:
    def test_the_scheduler_begins_and_works_later(self, scheduler: Any, redis_binary: str) -> None:
        with RedisServer(redis_binary) as server:
            server.stop()
            made = scheduler(LimpydJobStore(server.url, allowed=[__name__], look_again=1e6))
            assert round_of(made) is not None
            server.start()
            made.add_job(note, "date", run_date=PAST, id="a")
            round_of(made)
            assert len(ran) == 1

    def test_the_scheduler_goes_on_and_records_later_what_it_did(self, scheduler: Any, redis_binary: str) -> None:
        with RedisServer(redis_binary, "--appendonly", "yes") as server:
            made = scheduler(LimpydJobStore(server.url, allowed=[__name__], look_again=1e6))
            made.add_job(note, "date", run_date=PAST, id="a")
            made.add_job(note, "interval", hours=1, next_run_time=PAST, id="b")

            class Executor(DebugExecutor):
                def submit_job(self, job: Any, run_times: Any) -> None:
                    super().submit_job(job, run_times)
                    server.stop()

            made._executors["default"] = Executor()
            made._executors["default"].start(made, "default")
            assert round_of(made) is not None
            assert round_of(made) is not None
            server.start()
            assert (round_of(made) or 0) > 3000
            assert len(ran) == 2
            assert [job.id for job in made.get_jobs()] == ["b"]

    def test_the_scheduler_goes_on_beside_a_foreign_key(self, scheduler: Any, redis_client: redis.Redis) -> None:
        made = scheduler()
        for name in "ab":
            made.add_job(note, "interval", hours=1, next_run_time=PAST, id=name)
        store = store_of(made)
        (first, second) = store.get_due_jobs(NOW)
        redis_client.delete("apscheduler:scheduledjob:a:hash")
        redis_client.set("apscheduler:scheduledjob:a:hash", "foreign")
        for job in (first, second):
            job._modify(next_run_time=FUTURE)
            store.update_job(job)
        for _ in range(2):
            assert store.get_due_jobs(NOW) == []
            store.get_next_run_time()
        assert [job.id for job in store.get_all_jobs()] == ["b"]

    def test_the_jobs_of_the_other_store_are_taken_over_later(self, scheduler: Any, redis_binary: str) -> None:
        with RedisServer(redis_binary) as server:
            theirs = BackgroundScheduler(timezone="UTC")
            theirs.add_jobstore(TheirStore(unix_socket_path=server.socket))
            theirs.add_job(note, "date", run_date=FUTURE, id="a")
            theirs.start(paused=True)
            theirs.shutdown()
            server.client().save()
            server.stop()
            made = scheduler(RedisJobStore(unix_socket_path=server.socket))
            server.start()
            round_of(made)
            assert [job.id for job in made.get_jobs()] == ["a"]


def test_a_scheduler_that_started_while_redis_was_down_hears_of_changes_later(
    scheduler: Any, redis_binary: str
) -> None:
    with RedisServer(redis_binary) as server:
        server.stop()
        made = scheduler(LimpydJobStore(server.url, allowed=[__name__], look_again=0.01))
        server.start()
        wait_until(lambda: round_of(made) is not None and store_of(made).events._changes is not None)
        made._event.clear()
        scheduler(LimpydJobStore(server.url, allowed=[__name__])).add_job(note, "date", run_date=PAST, id="a")
        wait_until(made._event.is_set)


def test_a_job_may_remove_itself_and_the_scheduler_goes_on(scheduler: Any) -> None:
    made = scheduler()
    for trigger in ({"trigger": "interval", "hours": 1, "next_run_time": PAST}, {"trigger": "date", "run_date": PAST}):
        made.add_job(lambda_of(made, "a"), id="a", **trigger)
        made.add_job(note, "interval", hours=1, next_run_time=PAST, id="b")
        assert (round_of(made) or 0) > 20
        assert [job.id for job in made.get_jobs()] == ["b"]
        made.remove_job("b")
    assert len(ran) == 2
    with pytest.raises(JobLookupError):
        made.remove_job("a")


def lambda_of(scheduler: BackgroundScheduler, job_id: str) -> Any:
    TO_REMOVE[:] = [(scheduler, job_id)]
    return remove_itself


TO_REMOVE: list[tuple[BackgroundScheduler, str]] = []


def remove_itself() -> None:
    scheduler, job_id = TO_REMOVE[0]
    scheduler.remove_job(job_id)


def test_a_forked_process_that_ends_keeps_the_leases_of_its_parent(scheduler: Any) -> None:
    made = scheduler()
    made.add_job(note, "date", run_date=PAST, id="a")
    store = store_of(made)
    assert len(store.get_due_jobs(NOW)) == 1
    pid = os.fork()
    if pid == 0:
        store.shutdown()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert scheduler() is not None
    assert LimpydJobStore(allowed=[__name__]).get_due_jobs(NOW) == []


def test_a_forked_process_holds_no_leases(scheduler: Any) -> None:
    made = scheduler()
    made.add_job(note, "date", run_date=PAST, id="a")
    store = store_of(made)
    assert len(store.get_due_jobs(NOW)) == 1
    pid = os.fork()
    if pid == 0:
        os._exit(len(store.get_due_jobs(NOW)))
    assert os.waitpid(pid, 0)[1] == 0


def test_changes_are_not_looked_at_during_a_round_which_looks_itself_at_its_end(scheduler: Any) -> None:
    made = scheduler()
    store = store_of(made)
    store.get_due_jobs(NOW)
    scheduler().add_job(note, "date", run_date=PAST, id="a")
    assert not store.events.is_early({"a"})
    assert store.get_next_run_time() == PAST
    assert not store.events.is_early({"a"})  # as it is planned
    scheduler().add_job(note, "date", run_date=PAST - timedelta(seconds=1), id="b")
    assert store.events.is_early({"b"})


@pytest.mark.parametrize("call", ["get_next_run_time", "update_job", "remove_job"])
def test_a_forked_process_does_not_end_the_round_of_its_parent(scheduler: Any, call: str) -> None:
    made = scheduler()
    made.add_job(note, "interval", hours=1, next_run_time=PAST, id="a")
    made.add_job(note, "interval", hours=1, next_run_time=PAST, id="b")
    store = store_of(made)
    job, _ = store.get_due_jobs(NOW)
    pid = os.fork()
    if pid == 0:
        arguments = {"get_next_run_time": [], "update_job": [job], "remove_job": ["a"]}[call]
        job._modify(name="new")
        getattr(store, call)(*arguments)
        os._exit(len(store.round._jobs))
    assert os.waitpid(pid, 0)[1] == 0
    assert [*store.round._jobs] == ["a", "b"]
    assert stored("b")["leased_by"] == store.owner
    assert stored("a").get("leased_by") == (None if call == "remove_job" else store.owner)
    if call == "update_job":
        assert stored("a")["name"] == "new"


class TestAJobOfAnotherProcess:
    @pytest.fixture
    def running(self) -> Iterator[BackgroundScheduler]:
        """A scheduler that plans to look again in ten seconds at the earliest."""
        store = LimpydJobStore(allowed=[__name__])
        made = BackgroundScheduler(timezone="UTC", job_defaults={"misfire_grace_time": None})
        made.add_jobstore(store)
        made.add_executor(DebugExecutor())
        made.start()
        wait_until(lambda: store.events.planned)
        yield made
        made.shutdown()

    def test_is_run_as_soon_as_its_executor_is_added_here(self, running: Any, scheduler: Any) -> None:
        scheduler().add_job(note, "date", run_date=PAST, id="a", executor="other")
        wait_until(lambda: store_of(running).reader.left_to_others == ["a"] and store_of(running).events.planned)
        assert ran == []
        running.add_executor(DebugExecutor(), "other")
        wait_until(lambda: len(ran) == 1)

    def test_that_is_added_or_brought_forward_is_run_in_time(self, running: Any, scheduler: Any) -> None:
        other = scheduler()
        other.add_job(note, "date", run_date=FUTURE, id="later")
        other.add_job(note, "date", run_date=PAST, id="now", args=["now"])
        wait_until(lambda: ran == [(("now",), {})])
        other.modify_job("later", next_run_time=PAST, args=["later"])
        wait_until(lambda: len(ran) == 2)
        assert other.get_jobs() == []
