"""The job store of APScheduler: what is promised beyond the tests of APScheduler itself."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from servers import RedisServer, wait_until

pytest.importorskip("apscheduler")

from appointments import (
    FUTURE,
    NOW,
    PAST,
    TO_DO,
    meanwhile,
    note,
    other_note,
    ran,
    round_of,
    store_of,
    stored,
)
from apscheduler.events import EVENT_JOB_REMOVED
from apscheduler.executors.debug import DebugExecutor
from apscheduler.jobstores.base import ConflictingIdError, JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import STATE_PAUSED, STATE_STOPPED, BaseScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from limpyd_jobs import Error, Queue
from limpyd_jobs import check as checking
from limpyd_jobs.contrib.apscheduler import LimpydJobStore, RedisJobStore, ScheduledJob
from limpyd_jobs.models.timed import due_key
from limpyd_jobs.schedules.triggers import describe_trigger

pytestmark = pytest.mark.usefixtures("redis_client")


class TestTheJobs:
    def test_are_a_collection_of_limpyd(self, scheduler: Any) -> None:
        made = scheduler()
        made.add_job(note, "interval", hours=1, id="a", name="hourly")
        made.add_job(other_note, "date", run_date=FUTURE + timedelta(days=1), id="b")
        store = store_of(made)
        assert sorted(store.jobs) == ["a", "b"]
        assert list(store.jobs.filter(name="hourly")) == ["a"]
        assert list(store.model.collection(next_run_time__lt=time.time() + 7200)) == ["a"]
        assert stored("a")["func"] == "appointments:note"

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
        first, second = scheduler(LimpydJobStore(allowed=[__name__, "appointments"], lease=20)), scheduler()
        first.add_job(note, "date", run_date=PAST, id="a")
        store_of(first).get_due_jobs(NOW)
        assert 15 < (round_of(second) or 0) <= 20

    def test_take_over_from_one_that_died(self, scheduler: Any) -> None:
        first, second = scheduler(LimpydJobStore(allowed=[__name__, "appointments"], lease=0.001)), scheduler()
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
        first, second = scheduler(LimpydJobStore(allowed=[__name__, "appointments"], lease=0.2)), scheduler()
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
        ScheduledJob.change("a", {"func": "appointments:note"})
        broken = getattr(ScheduledJob.get("a"), field)  # written as by limpyd alone, which refuses nothing
        broken.delete() if value is None else broken.hset(value)
        made = BackgroundScheduler()
        store = LimpydJobStore(allowed=[__name__, "appointments"])
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
        assert store_of(here)._is_early({"a"})
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
        assert re.search("out of range|must be in 1..9999", stored("a")["reason"])

    @pytest.mark.matrix(1)
    @pytest.mark.parametrize(
        ("coalesce", "endless"),
        [
            (True, {"and": [{"cron": {"second": "0"}}, {"or": [{"cron": {"second": "1"}}]}]}),
            (True, {"calendar": {"years": 9000, "start_date": "2019-01-01"}}),
            (False, {"cron": {"week": 1, "month": "2-11", "year": "2020-2300"}}),  # an end, but far away
        ],
    )
    def test_is_parked_if_its_next_time_would_be_searched_for_long(
        self, made: BackgroundScheduler, redis_client: redis.Redis, endless: dict[str, Any], coalesce: bool
    ) -> None:
        made.modify_job("a", coalesce=coalesce)
        trigger = {"or": [{"date": "2020-01-01"}, endless]}
        redis_client.hset("apscheduler:scheduledjob:a:hash", "trigger", json.dumps(trigger))
        assert describe_trigger(made.get_job("a").trigger).keys() == {"or"}
        round_of(made)
        assert (ran, stored("a")["parked"]) == ([], "1")
        assert "no time in 50,000 steps" in stored("a")["reason"]

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

    @pytest.mark.parametrize(
        ("field", "text", "parked"),
        [
            ("next_run_time", b"\xff", "\\udcff"),
            ("next_run_time", b"x" * 70_000, "x" * 100),
            ("func", b"x" * 70_000, f"{PAST.timestamp():.6f}"),
        ],
        ids=["a moment that is not UTF-8", "a long moment", "a long function"],
    )
    def test_is_parked_and_keeps_no_other_job_waiting(
        self, scheduler: Any, redis_client: redis.Redis, field: str, text: bytes, parked: str
    ) -> None:
        made = scheduler()
        for name in "ab":
            made.add_job(note, "date", run_date=PAST, id=name)
        redis_client.hset("apscheduler:scheduledjob:a:hash", field, text)
        round_of(made)
        assert len(ran) == 1
        assert (stored("a")["parked"], stored("a")["parked_run_time"]) == ("1", parked)

    def test_a_long_name_is_cut_before_it_is_logged(self, scheduler: Any, redis_client: redis.Redis) -> None:
        made = scheduler()
        made.add_job(note, "date", run_date=PAST, id="a")
        redis_client.hset("apscheduler:scheduledjob:a:hash", "name", "x\n" * 50_000)
        assert made.get_job("a").name == "x\\n" * 500 + "… (100,000 characters)"

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
