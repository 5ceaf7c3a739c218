"""The check looks at schedules: where they stand, and whether they can be enqueued."""

from __future__ import annotations

import pytest
import redis
from invariants import contents, violations
from looking import check
from parts import run_task

from limpyd_jobs import Error, Job, Queue, Schedule, Worker

HASH = "jobs:schedule:1:hash"
DUE = "jobs:schedule:due"
# By what is wrong: its kind, and the commands that make it so. 1 is active, 2 is paused.
BROKEN = {
    "one that is due does not exist": ("no such schedule", f"ZADD {DUE} 4070908800 77"),
    "an active one is not among those due": ("not among those due", f"ZREM {DUE} 1"),
    "none is among those due": ("not among those due", f"DEL {DUE}"),
    "a paused one is due": ("due but not active", f"ZADD {DUE} 4070908800 2"),
    "one that is over is due": ("due but not active", f"HDEL {HASH} next_run"),
    "one is due at another time": ("wrong due time", f"ZADD {DUE} 4070908801 1"),
    "the place of those due is none": ("due set of a wrong type", f"DEL {DUE}", f"SET {DUE} x"),
    "its hash is gone": ("no hash", f"DEL {HASH}"),
    "it is not in the collection": ("not in the collection", "SREM jobs:schedule:collection 1"),
    "its name is not indexed": ("not indexed", "DEL jobs:schedule:name:a"),
    "an index has it that should not": ("stale entry", "SADD jobs:schedule:paused:1 1"),
    "its priority is no number": ("no integer", f"HSET {HASH} priority high"),
}
SLOW = '{"calendar":{"years":9000,"start_date":"2026-01-01"}}'
OBSTACLES = {
    "job_model_repr": ("not.Here", "not.Here cannot be imported: ModuleNotFoundError"),
    "trigger": ('{"cron":"61 * * * *"}', "cron"),
    "timezone": ("Mars", "Mars"),
    "queue_name": ("a,b", "comma"),
    "job_fields": ('{"unknown":"x"}', "unknown"),
    "next_run": ("soon", "its next_run is not a date: 'soon'"),
}


class Task(Job):
    namespace = "scheduled-check"
    queue_name = "q"


@pytest.fixture(autouse=True)
def schedules(redis_client: redis.Redis) -> list[Schedule]:
    return [Schedule.add("a", Task, date="2099-01-01T00:00:00"), Schedule.add("b", Task, interval=60, paused=True)]


def test_nothing_is_wrong_with_sound_ones() -> None:
    report = check(pause=0)
    assert report.findings == []
    assert report.records["limpyd_jobs.schedules.model.Schedule"] == 2


@pytest.mark.matrix(4)
@pytest.mark.parametrize(("kind", "commands"), [(row[0], row[1:]) for row in BROKEN.values()], ids=BROKEN)
def test_it_finds_and_repairs_that(redis_client: redis.Redis, kind: str, commands: tuple[str, ...]) -> None:
    for command in commands:
        redis_client.execute_command(*command.split())
    before = contents(redis_client)
    findings = check(pause=0).findings
    assert kind in {finding.kind for finding in findings}
    assert contents(redis_client) == before
    report = check(repair=True, pause=0)
    assert [finding.kind for finding in report.findings if not finding.repaired] == []
    assert check(pause=0).findings == []
    assert violations(redis_client, Task, Queue, Error, Schedule) == []


def test_a_repaired_one_is_due_at_its_time(redis_client: redis.Redis) -> None:
    for command in (f"DEL {DUE}", f"SET {DUE} x"):
        redis_client.execute_command(*command.split())
    check(repair=True, pause=0)
    assert redis_client.zrange(DUE, 0, -1, withscores=True) == [("1", 4070908800.0)]


def test_a_place_of_a_wrong_type_is_found_without_any_schedule(redis_client: redis.Redis) -> None:
    redis_client.flushall()
    redis_client.set(DUE, "x")
    assert [finding.subject for finding in check(repair=True, pause=0).findings] == [DUE]
    assert not redis_client.exists(DUE)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [*((field, *row) for field, row in OBSTACLES.items()), ("trigger", SLOW, "give it a simpler one")],
)
def test_it_tells_of_one_that_cannot_be_fired_and_leaves_it_alone(
    redis_client: redis.Redis, field: str, value: str, reason: str
) -> None:
    Schedule.get(1).get_field(field).hset(value)
    if field == "next_run":
        redis_client.zadd(DUE, {"1": 1})
    before = contents(redis_client)
    (finding,) = check(repair=True, pause=0).findings
    of_class = field == "job_model_repr"
    assert (finding.subject, finding.repairable, finding.option) == (
        "1",
        False,
        "--job-modules=MODULE" if of_class else "",
    )
    assert finding.problem.startswith("cannot be enqueued ('a'): ")
    assert reason in finding.problem
    assert contents(redis_client) == before


def test_what_it_tells_of_is_what_a_worker_cannot_fire(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    Schedule.get(1).timezone.hset("Mars")
    redis_client.zadd(DUE, {"1": 1})
    run_task(Worker("q", terminate_gracefuly=False), "scheduler")
    assert "schedule cannot be enqueued" in caplog.text
