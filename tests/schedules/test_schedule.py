"""`Schedule`: made, read, changed, paused and deleted, as an application does."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from apscheduler.triggers.cron import CronTrigger
from cases import each
from invariants import violations
from limpyd import fields
from limpyd.exceptions import DoesNotExist, UniquenessError
from scheduled import Report, identifiers, make_due

from limpyd_jobs import ConfigurationException, Job, LimpydJobsException, Queue, Schedule

KEY = "jobs:schedule:due"


@pytest.fixture(autouse=True)
def _everything_is_sound(redis_client: redis.Redis) -> Any:
    yield
    assert violations(redis_client, Schedule, Report, Queue) == []


def due(client: redis.Redis) -> list[tuple[str, float]]:
    return client.zrange(KEY, 0, -1, withscores=True)


def test_a_schedule_can_be_read_and_found(redis_client: redis.Redis) -> None:
    schedule = Schedule.add("nightly", Report, cron="0 3 * * *", timezone="Europe/Paris", priority=5, to="ann")
    assert schedule.job_model_repr.hget() == "scheduled.Report"
    assert schedule.hmget("name", "queue_name", "priority", "timezone") == ["nightly", "reports", "5", "Europe/Paris"]
    assert schedule.job_fields.hget() == '{"to": "ann"}'
    assert Schedule.get_by_name("nightly").pk.get() == schedule.pk.get()
    assert list(Schedule.collection(queue_name="reports")) == [schedule.pk.get()]
    next_run = datetime.fromisoformat(schedule.next_run.hget())
    assert due(redis_client) == [(schedule.pk.get(), (next_run - datetime(1970, 1, 1)).total_seconds())]


def test_the_class_may_be_named_by_its_path(redis_client: redis.Redis) -> None:
    assert Schedule.add("a", "scheduled.Report", interval=60).job_model_repr.hget() == "scheduled.Report"


def test_the_next_times_are_told_in_its_time_zone(redis_client: redis.Redis) -> None:
    schedule = Schedule.add("a", Report, cron="0 3 * * *", timezone="Europe/Paris")
    times = schedule.next_times()
    assert len(times) == len(schedule.next_times(10)) == 10
    assert {time.hour for time in times} == {3}
    assert {str(time.tzinfo) for time in times} == {"Europe/Paris"}
    assert times[0].timestamp() == due(redis_client)[0][1]
    assert Schedule.add("b", Report, date="2990-01-01T00:00:00").next_times()[0].year == 2990


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "{name}"),
        ({"misfire_policy": "none"}, "{name}"),
        ({"misfire_policy": "all"}, "{name}:{time}"),
        ({"misfire_policy": "all", "identifier": "x"}, "x"),
    ],
)
def test_the_identifier_is_by_default_such_that_jobs_do_not_pile_up_unless_all_are_wanted(
    options: Any, expected: str, redis_client: redis.Redis
) -> None:
    assert Schedule.add("a", Report, interval=60, **options).identifier.hget() == expected


class ByHand(Report):
    namespace = "by-hand"

    def enqueue_or_delay(self, *args: Any, **options: Any) -> None:
        super().enqueue_or_delay(*args, **options)


class Nameless(Job):
    namespace = "nameless"
    note = fields.InstanceHashField()


@each(
    ("options", "error"),
    [
        ({"cron": "61 * * * *"}, ValueError),
        ({"cron": "0 0 30 2 *"}, ValueError),
        ({"date": "2001-01-01T00:00:00"}, ValueError),
        ({}, ValueError),
        ({"cron": "@daily", "interval": 5}, ValueError),
        ({"interval": 0.1}, ValueError),
        ({"interval": 60, "timezone": "Mars/Olympus"}, ValueError),
        ({"interval": 60, "misfire_policy": "some"}, ValueError),
        ({"interval": 60, "misfire_grace_time": -1}, ValueError),
        ({"interval": 60, "misfire_grace_time": "1"}, TypeError),
        ({"interval": 60, "priority": "high"}, ValueError),
        ({"interval": 60, "queue_name": "a,b"}, ValueError),
        ({"interval": 60, "identifier": 5.5j}, TypeError),
        ({"interval": 60, "unknown": 1}, AttributeError),
        ({"interval": 60, "fields": {"unknown": 1}}, AttributeError),
        ({"interval": 60, "fields": {"to": "ann"}, "to": "ann"}, TypeError),
        ({"interval": 60, "fields": "to"}, TypeError),
        ({"interval": 60, "owner": ""}, ValueError),
        ({"interval": 60, "owner": 5}, TypeError),
        ({"interval": 60, "jitter": -1}, ValueError),
        ({"interval": 60, "jitter": "5"}, TypeError),
        ({"interval": 60, "jitter": 60}, ValueError),
        ({"interval": {"minutes": 1}, "jitter": timedelta(minutes=1)}, ValueError),
        ({"interval": 60, "status": "w"}, ValueError),
        ({"interval": 60, "to": object()}, TypeError),
        ({"interval": 60, "name": ""}, ValueError),
        ({"interval": 60, "name": None}, TypeError),
        ({"interval": 60, "job_class": Queue}, TypeError),
        ({"interval": 60, "job_class": "nothing.Here"}, ImportError),
        ({"interval": 60, "job_class": ByHand}, ConfigurationException),
        ({"interval": 60, "job_class": Nameless}, LimpydJobsException),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(
    options: Any, error: type[Exception], redis_client: redis.Redis
) -> None:
    name, job_class = options.pop("name", "a"), options.pop("job_class", Report)
    with pytest.raises(error):
        Schedule.add(name, job_class, **options)
    assert redis_client.keys() == []


def test_a_name_is_given_once(redis_client: redis.Redis) -> None:
    Schedule.add("a", Report, interval=60)
    with pytest.raises(UniquenessError, match="There is a schedule named 'a' already"):
        Schedule.add("a", Report, interval=60)


class TestReplacing:
    def test_makes_it_once_and_then_changes_it_to_what_is_given(self, redis_client: redis.Redis) -> None:
        Schedule.add("a", Report, cron="@daily", priority=5, misfire_grace_time=9, to="ann", replace=True)
        schedule = Schedule.add("a", Report, cron="@hourly", queue_name="others", replace=True)
        assert len(Schedule.collection()) == 1
        assert schedule.hmget("trigger", "queue_name", "priority", "misfire_grace_time", "job_fields") == [
            *('{"cron": "@hourly"}', "others", "0", None, "{}")
        ]
        assert due(redis_client)[0][1] == schedule.next_times(1)[0].timestamp()
        assert [queue.name.hget() for queue in Queue.get_all("others")] == ["others"]

    @pytest.mark.parametrize("times", [{"interval": 3600}, {"cron": "@hourly"}])
    def test_at_each_start_of_an_application_leaves_the_next_time_as_it_is(
        self, times: Any, redis_client: redis.Redis
    ) -> None:
        make_due(Schedule.add("a", Report, replace=True, **times), hours=5)
        before = due(redis_client)
        Schedule.add("a", Report, replace=True, to="ann", **times)
        assert due(redis_client) == before

    def test_leaves_a_date_that_is_over(self, redis_client: redis.Redis) -> None:
        schedule = Schedule.add("a", Report, date="2990-01-01T00:00:00")
        over = '{"date": "2001-01-01T00:00:00"}'
        redis_client.hset(f"jobs:schedule:{schedule.pk.get()}:hash", "trigger", over)
        Schedule.add("a", Report, date="2001-01-01T00:00:00", replace=True)
        assert schedule.trigger.hget() == over

    def test_leaves_a_pause(self, redis_client: redis.Redis) -> None:
        schedule = Schedule.add("a", Report, cron="@hourly", paused=True, replace=True)
        Schedule.add("a", Report, cron="@daily", replace=True)
        assert schedule.hmget("paused", "trigger") == ["1", '{"cron": "@daily"}']
        assert due(redis_client) == []

    def test_needs_a_trigger_as_adding_does(self, redis_client: redis.Redis) -> None:
        Schedule.add("a", Report, cron="@hourly")
        with pytest.raises(ValueError, match="exactly one of"):
            Schedule.add("a", Report, replace=True)

    def test_by_several_at_once_makes_one_whose_next_time_is_that_of_its_trigger(
        self, redis_client: redis.Redis
    ) -> None:
        def replace(number: int) -> None:
            Schedule.add("a", Report, cron=f"{number} 3 * * *", replace=True)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(replace, [number % 2 for number in range(80)]))
        (schedule,) = Schedule.collection().instances()
        minute = json.loads(schedule.trigger.hget())["cron"].split()[0]
        assert f"03:0{minute}" in schedule.next_run.hget()

    def test_and_adding_can_be_awaited(self, redis_client: redis.Redis) -> None:
        schedule = asyncio.run(Schedule.aadd("a", Report, cron="@hourly", replace=True))
        assert schedule.name.hget() == "a"


def test_a_paused_schedule_is_not_due_until_it_is_resumed(redis_client: redis.Redis) -> None:
    schedule = Schedule.add("a", Report, cron="@hourly")
    make_due(schedule, hours=5)
    schedule.pause()
    assert due(redis_client) == []
    assert list(Schedule.collection(paused="1")) == [schedule.pk.get()]
    assert len(schedule.next_times(3)) == 3
    schedule.resume()
    assert due(redis_client)[0][1] == schedule.next_times(1)[0].timestamp() > redis_client.time()[0]


def test_to_resume_one_that_is_not_paused_changes_nothing(redis_client: redis.Redis) -> None:
    schedule = Schedule.add("a", Report, cron="@hourly")
    make_due(schedule, hours=5)
    before = due(redis_client)
    schedule.resume()
    assert due(redis_client) == before


def test_it_may_be_paused_from_the_first(redis_client: redis.Redis) -> None:
    schedule = Schedule.add("a", Report, cron="@hourly", paused=True)
    assert due(redis_client) == []
    schedule.edit(cron="@daily")
    assert due(redis_client) == []


def test_another_trigger_counts_anew_and_what_is_not_given_stays(redis_client: redis.Redis) -> None:
    schedule = Schedule.add("a", Report, cron="@hourly", priority=3, to="ann")
    make_due(schedule, hours=5)
    schedule.edit(trigger=CronTrigger(hour=4, timezone="UTC"))
    assert schedule.next_times(1)[0].hour == 4
    assert due(redis_client)[0][1] == schedule.next_times(1)[0].timestamp()
    assert schedule.hmget("priority", "job_fields") == ["3", '{"to": "ann"}']


def test_other_changes_leave_its_next_time(redis_client: redis.Redis) -> None:
    schedule = Schedule.add("a", Report, cron="@hourly")
    make_due(schedule, hours=5)
    before = due(redis_client)
    schedule.edit(priority=3, misfire_grace_time=timedelta(minutes=5), misfire_policy="all", job_fields={"to": "bob"})
    assert due(redis_client) == before
    assert schedule.hmget("priority", "misfire_grace_time", "misfire_policy") == ["3", "300.0", "all"]


@pytest.mark.parametrize(
    "changes", [{"cron": "61 * * * *"}, {"unknown": 1}, {"misfire_policy": "x"}, {"timezone": "x"}]
)
def test_a_wrong_change_changes_nothing(changes: Any, redis_client: redis.Redis) -> None:
    schedule = Schedule.add("a", Report, cron="@hourly")
    before = schedule.hgetall()
    with pytest.raises((ValueError, AttributeError)):
        schedule.edit(**changes)
    assert schedule.hgetall() == before


def test_a_deleted_schedule_leaves_nothing_but_its_jobs(redis_client: redis.Redis) -> None:
    schedule = Schedule.add("a", Report, cron="@hourly", to="ann")
    job = schedule.run_now()
    schedule.delete()
    assert job.to.hget() == "ann"
    assert redis_client.keys("jobs:schedule:*") == ["jobs:schedule:max_pk"]
    with pytest.raises(DoesNotExist):
        Schedule.get_by_name("a")


def test_its_job_can_be_added_beside_its_times_even_if_it_is_paused(redis_client: redis.Redis) -> None:
    schedule = Schedule.add("a", Report, cron="@hourly", paused=True, priority=4)
    job = schedule.run_now()
    assert job.hmget("identifier", "priority") == ["a", "4"]
    assert schedule.run_now().pk.get() == job.pk.get()
    assert identifiers() == ["a"]
