"""Workers add the jobs of schedules that are due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from itertools import zip_longest
from random import Random
from typing import Any

import pytest
import redis
from parts import run_task
from running import messages, work, worker_of, working
from scheduled import Report, identifiers, make_due
from servers import wait_until

from limpyd_jobs import Job, Queue, Schedule, Worker, job, transitions
from limpyd_jobs.workers.maintenance import scheduler

pytestmark = pytest.mark.usefixtures("redis_client")


def hourly(name: str = "a", hours: int = 0, **options: Any) -> Schedule:
    schedule = Schedule.add(name, Report, cron="@hourly", **options)
    make_due(schedule, hours)
    return schedule


def test_a_worker_of_the_queue_fires_and_runs_what_is_due() -> None:
    hourly(to="ann")
    work("reports")
    (job,) = Report.collection().instances()
    assert job.hmget("identifier", "status", "to") == ["a", "s", "ann"]


def test_a_worker_of_any_queue_fires_even_if_that_does_not_exist() -> None:
    hourly()
    work("nobody", burst=True)
    assert identifiers() == ["a"]


def test_a_worker_that_waits_fires_when_the_time_comes() -> None:
    """Long before it looks again by itself."""
    Schedule.add("a", Report, interval=1)
    work("reports", timeout=30)
    assert identifiers() == ["a"]


SELDOM = {"fetch_delayed_delay": 3600, "timeout": 0, "max_duration": 60}


@contextmanager
def idle(client: redis.Redis, *workers: Worker) -> Iterator[None]:
    """Run workers in threads, from the moment on when all of them wait; wait for their end."""
    with ExitStack() as stack:
        for worker in workers:
            stack.enter_context(working(worker))
        wait_until(lambda: client.info("clients")["blocked_clients"] >= len(workers), "idle workers")
        yield


class TestASleepingWorker:
    """One that would not look by itself within an hour."""

    @pytest.fixture(autouse=True)
    def _queue(self) -> None:
        Queue.get_queue("reports")

    def test_fires_one_that_is_added(self, redis_client: redis.Redis) -> None:
        with idle(redis_client, worker_of("reports", **SELDOM)):
            Schedule.add("a", Report, interval=1)
        assert identifiers() == ["a"]

    def test_fires_one_that_is_earlier_than_others(self, redis_client: redis.Redis) -> None:
        Schedule.add("late", Report, interval=1800)
        with idle(redis_client, worker_of("reports", **SELDOM)):
            Schedule.add("early", Report, interval=2)
            Schedule.add("earlier", Report, interval=1)
        assert identifiers() == ["earlier"]

    def test_fires_one_that_is_edited_or_resumed(self, redis_client: redis.Redis) -> None:
        edited = Schedule.add("edited", Report, interval=1800)
        resumed = Schedule.add("resumed", Report, interval=1, paused=True)
        with idle(redis_client, worker_of("reports", max_loops=2, **SELDOM)):
            edited.edit(date=datetime.now(timezone.utc) + timedelta(seconds=0.5))
            wait_until(lambda: identifiers() == ["edited"])
            resumed.resume()
        assert identifiers() == ["edited", "resumed"]

    def test_fires_if_the_one_that_was_told_is_busy(self, redis_client: redis.Redis) -> None:
        def run(job: Job, queue: Queue) -> None:
            if job.identifier.hget() == "long":
                wait_until(lambda: "a" in identifiers())

        with idle(redis_client, *(worker_of("reports", callback=run, **SELDOM) for _ in range(2))):
            Schedule.add("a", Report, interval=2)
            Report.add_job("long")
        assert identifiers() == ["long", "a"]

    def test_does_not_spin_beside_one_that_cannot_be_fired(self, redis_client: redis.Redis, commands: Any) -> None:
        hourly().job_model_repr.hset("not.Here")
        with commands() as sent:
            work("reports", **{**SELDOM, "max_duration": 3})
        assert len([name for name in sent.names if name in ("EVALSHA", "BLPOP")]) < 30


def test_the_next_round_is_when_the_next_schedule_is_due() -> None:
    worker = worker_of("reports", fetch_delayed_delay=2000)
    assert run_task(worker, "scheduler") == 2000
    Schedule.add("a", Report, interval=1000)
    assert 900 < (run_task(worker, "scheduler") or 0) <= 1000


def test_without_schedules_a_round_is_one_command(commands: Any) -> None:
    worker = worker_of("reports")
    run_task(worker, "scheduler")
    with commands() as sent:
        run_task(worker, "scheduler")
    assert sent.names == ["EVALSHA"]


def test_what_was_missed_is_made_up_for_as_is_said() -> None:
    hourly("latest", hours=5)
    hourly("all", hours=5, misfire_policy="all")
    hourly("misfire_grace_time", hours=5, misfire_grace_time=timedelta(hours=3, minutes=1), misfire_policy="all")
    run_task(worker_of("reports"), "scheduler")
    found = [identifier.partition(":")[0] for identifier in identifiers()]
    assert found.count("latest") == 1
    assert found.count("all") == 6
    assert found.count("misfire_grace_time") in (3, 4)


def test_what_is_too_late_is_told(log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    hourly(misfire_grace_time=0)
    run_task(worker_of("reports"), "scheduler")
    assert identifiers() == []
    assert "[a] schedule missed its time" in messages(log)[0]


def test_a_job_that_is_queued_still_is_told(log: pytest.LogCaptureFixture) -> None:
    schedule = hourly()
    for _ in range(2):
        make_due(schedule)
        run_task(worker_of("reports"), "scheduler")
    assert identifiers() == ["a"]
    assert "but job 1 of that identifier is queued already" in messages(log)[-1]


def test_the_hooks_are_told(log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Report, "seen", ())
    schedule = hourly()
    due = make_due(schedule)
    run_task(worker_of("reports"), "scheduler")
    assert Report.seen == (("a", due),)
    assert messages(log) == [f"[a] due at {due}: job 1 added, a"]


def test_the_hook_of_a_worker_is_told_of_a_time_that_was_missed(log: pytest.LogCaptureFixture) -> None:
    class Telling(Worker):
        def schedule_missed_message(self, schedule: Schedule, time: datetime) -> str:
            return f"{super().schedule_missed_message(schedule, time)}, what a pity"

    schedule = hourly(misfire_grace_time=0, hours=1)
    due = make_due(schedule, hours=1)
    run_task(worker_of("reports", Telling), "scheduler")
    assert messages(log)[0] == f"[a] schedule missed its time, {due}, what a pity"


def test_a_hook_that_fails_for_a_missed_time_stops_no_other_schedule(log: pytest.LogCaptureFixture) -> None:
    class Offended(Worker):
        def schedule_missed(self, schedule: Schedule, time: datetime) -> None:
            raise RuntimeError("oops")

    hourly("a", misfire_grace_time=0)
    hourly("b")
    run_task(worker_of("reports", Offended), "scheduler")
    assert identifiers() == ["b"]
    assert "unexpected error: RuntimeError: oops" in messages(log)[0]


class Failing(Worker):
    def job_scheduled(self, *args: Any) -> None:
        raise RuntimeError("oops")


def test_a_hook_that_fails_stops_no_other_schedule(log: pytest.LogCaptureFixture) -> None:
    hourly("a")
    hourly("b")
    run_task(worker_of("reports", Failing), "scheduler")
    assert sorted(identifiers()) == ["a", "b"]
    assert "unexpected error: RuntimeError: oops" in messages(log)[0]


@pytest.mark.parametrize(
    "broken",
    [
        {"job_model_repr": "not.Here"},
        {"job_model_repr": "os.system"},
        {"trigger": "no JSON"},
        {"trigger": '{"pickle": "gASV"}'},
        {"timezone": "Mars"},
        {"next_run": "soon"},
        {"identifier": "x" * 70000},
        {"job_fields": '{"unknown": "x"}'},
        {"job_fields": "[]"},
        {"priority": "high"},
        {"queue_name": ""},
        {"trigger": '{"calendar":{"days":1,"start_date":"0001-01-01"}}'},
    ],
)
def test_what_cannot_be_fired_rests_and_stops_no_other(
    broken: dict[str, str], log: pytest.LogCaptureFixture, redis_client: redis.Redis
) -> None:
    schedule = hourly("bad")
    hourly("good")
    redis_client.hset(f"jobs:schedule:{schedule.pk.get()}:hash", mapping=broken)
    worker = worker_of("reports")
    seconds = [run_task(worker, "scheduler") or 0 for _ in range(3)]
    assert seconds[-1] > 1
    assert identifiers() == ["good"]
    errors = [message for message in messages(log) if "cannot be enqueued" in message]
    assert len(errors) == 1
    assert errors[0].startswith("[bad] schedule cannot be enqueued: ")


def test_what_is_deleted_or_of_a_wrong_type_stops_no_other(redis_client: redis.Redis) -> None:
    redis_client.delete(f"jobs:schedule:{hourly('gone').pk.get()}:hash")
    key = f"jobs:schedule:{hourly('wrong').pk.get()}:hash"
    redis_client.delete(key)
    redis_client.set(key, "x")
    hourly("good")
    run_task(worker_of("reports"), "scheduler")
    assert identifiers() == ["good"]


def test_more_than_are_read_at_once_are_fired_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "LIMIT", 2)
    monkeypatch.setattr(scheduler, "MAX_ENQUEUING", 60)
    for number in range(5):
        hourly(str(number))
    assert run_task(worker_of("reports"), "scheduler") > 1
    assert sorted(identifiers()) == ["0", "1", "2", "3", "4"]


def test_jobs_come_between_many_that_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "MAX_ENQUEUING", 0)
    for number in range(3):
        hourly(str(number))
    worker = worker_of("reports")
    assert [run_task(worker, "scheduler") for _ in range(3)] == [0, 0, 0]
    assert len(identifiers()) == 3


def test_workers_share_what_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "LIMIT", 2)
    monkeypatch.setattr(scheduler, "MAX_ENQUEUING", 60)
    parts = iter([0, 1, *range(2, 100)])  # the first of one worker, the last of the other
    monkeypatch.setattr(scheduler, "random", lambda: next(parts) % 2)
    for number in range(6):
        hourly(str(number))
    one, other = (worker_of("reports")._loop.scheduler.enqueue_due() for _ in range(2))
    fired = [next(each).name for _ in range(2) for each in (one, other)]
    assert fired == ["0", "4", "1", "5"]


def test_two_workers_read_little_more_than_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each schedule is read, and asked for, about once, however many workers look at once."""
    monkeypatch.setattr(scheduler, "LIMIT", 5)
    monkeypatch.setattr(scheduler, "MAX_ENQUEUING", 60)
    monkeypatch.setattr(scheduler, "random", Random(3).random)
    asked = Counter[str]()

    enqueue_due = transitions.enqueue_due

    def enqueue(*args: Any) -> tuple[str, str]:
        outcome, pk = enqueue_due(*args)
        asked[outcome] += 1
        return outcome, pk

    monkeypatch.setattr(transitions, "enqueue_due", enqueue)
    for schedule in Schedule.add_many([{"name": str(n), "job_class": Report, "cron": "@hourly"} for n in range(100)]):
        make_due(schedule)
    fired = [worker_of("reports")._loop.scheduler.enqueue_due() for _ in range(2)]
    by_turns = [each.name for both in zip_longest(*fired) for each in both if each]
    assert sorted(by_turns) == sorted(map(str, range(100)))
    assert asked["added"] == 100
    assert asked["not due"] < 34  # of 200, if each read what the other reads


@pytest.mark.parametrize("kind", ["added", "declared"])
def test_with_a_jitter_the_job_is_delayed_and_the_next_time_is_not(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "random", lambda: 0.5)
    if kind == "added":
        Schedule.add("a", Report, cron="@hourly", jitter=600)
    else:
        Schedule.declare("a", Report, {"cron": "@hourly", "jitter": timedelta(minutes=10)})
    schedule = Schedule.get_by_name("a")
    due = make_due(schedule)
    before = Schedule.get_connection().time()[0]
    run_task(worker_of("reports"), "scheduler")
    (job,) = Report.collection().instances()
    until = datetime.fromisoformat(job.delayed_until.hget()).replace(tzinfo=timezone.utc).timestamp()
    assert job.status.hget() == "d"
    assert before + 300 <= until <= Schedule.get_connection().time()[0] + 301
    assert schedule.hmget("last_run", "next_run") == [str(due), str(due + timedelta(hours=1))]


@pytest.mark.parametrize("stored", ["", "soon", "-5", "inf", "0"])
def test_what_another_program_stored_as_jitter_is_none(stored: str, redis_client: redis.Redis) -> None:
    schedule = hourly("a")
    redis_client.hset(f"jobs:schedule:{schedule.pk.get()}:hash", "jitter", stored)
    run_task(worker_of("reports"), "scheduler")
    assert [job.status.hget() for job in Report.collection().instances()] == ["w"]


def test_what_a_class_declares_is_made_once(monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(Report, "schedules", {"daily": {"cron": "@daily", "priority": 7, "to": "ann"}}, raising=False)
    for _ in range(2):
        run_task(worker_of("reports"), "scheduler")
    assert [message for message in messages(log) if "declared" in message] == ["[daily] schedule added, as declared"]
    assert Schedule.get_by_name("daily").hmget("priority", "job_fields") == ["7", '{"to": "ann"}']


def test_of_two_workers_that_declare_a_schedule_at_once_one_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Schedule._made

    def make_it_after_another_worker(*args: Any) -> Schedule:
        make(*args)
        return make(*args)

    monkeypatch.setattr(Schedule, "_made", make_it_after_another_worker)
    assert Schedule.declare("daily", Report, {"cron": "@daily"}) == "same"
    assert len(Schedule.collection(name="daily")) == 1


def test_a_declaration_that_changed_changes_the_schedule_and_one_that_did_not_keeps_what_was_edited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Report, "schedules", {"daily": {"cron": "@daily"}}, raising=False)
    run_task(worker_of("reports"), "scheduler")
    schedule = Schedule.get_by_name("daily")
    schedule.edit(priority=3)
    schedule.pause()
    run_task(worker_of("reports"), "scheduler")
    assert schedule.priority.hget() == "3"

    monkeypatch.setattr(Report, "schedules", {"daily": {"cron": "@hourly", "priority": 4}}, raising=False)
    run_task(worker_of("reports"), "scheduler")
    assert schedule.hmget("priority", "trigger", "paused") == ["4", '{"cron": "@hourly"}', "1"]


declared: dict[str, Any] = {}  # by a test


@job(queue="reports", schedules=declared)
def report(to: str) -> None: ...


class Abstract(Job):
    abstract = True


class Concrete(Abstract):
    namespace = "concrete"
    queue_name = "reports"


@job(base=Abstract)
def concrete() -> None: ...


def test_a_function_declares_schedules_as_a_class_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(declared, "weekly", {"cron": "0 8 * * 1", "to": "eve"})
    run_task(worker_of("reports"), "scheduler")
    schedule = Schedule.get_by_name("weekly")
    assert schedule.hmget("job_model_repr", "queue_name", "job_fields") == [
        *("test_enqueuing.report", "reports", '{"to": "eve"}')
    ]


def test_that_no_schedule_of_an_abstract_class_is_made_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Abstract, "schedules", {"never": {"cron": "@daily"}}, raising=False)
    run_task(worker_of("reports"), "scheduler")
    assert len(Schedule.collection(name="never")) == 0
    found = [message for message in messages(log) if "are not made" in message]
    assert len(found) == 1
    assert "[test_enqueuing.Abstract] its schedules are not made: the class is abstract" in found[0]
    assert "Declare them on test_enqueuing." in found[0]


def test_a_wrong_declaration_is_told_and_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    declared = {"bad": {"cron": "61 * * * *"}, "good": {"interval": 60}, "text": "0 3 * * *"}
    monkeypatch.setattr(Report, "schedules", declared, raising=False)
    run_task(worker_of("reports"), "scheduler")
    assert "[bad] schedule cannot be declared: Invalid cron '61 * * * *'" in messages(log)[0]
    assert (
        "[text] schedule cannot be declared: It must be a mapping, such as {'cron': '0 3 * * *'}, not '0 3"
        in messages(log)[2]
    )
    assert [schedule.name.hget() for schedule in Schedule.collection().instances()] == ["good"]


def test_schedules_of_another_database_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    hourly()
    worker = worker_of("reports")
    monkeypatch.setattr(scheduler, "is_here", lambda _: False)
    run_task(worker, "scheduler")
    assert identifiers() == []
    assert Queue.get_queue("reports").waiting.llen() == 0
