"""``limpyd-jobs schedules``, as a user runs it: in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import preloaded
import pytest
import redis
from cases import each
from parts import run_task
from running import worker_of
from scheduled import Report, make_due
from servers import RedisServer

from limpyd_jobs import Queue, Schedule, WorkerPresence
from limpyd_jobs.dates import utcnow
from limpyd_jobs.query.schedules import notes_of
from limpyd_jobs.records import audit, records
from limpyd_jobs.schedules.model import score_of

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

BAKERY = """
from limpyd import fields
from limpyd_jobs import Job


class Bread(Job):
    namespace = "bakery"
    queue_name = "oven"
    flour = fields.InstanceHashField()
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path) -> Run:
    """Run the command, on the server of the tests."""
    (tmp_path / "bakery.py").write_text(BAKERY)

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        return preloaded.run(
            [COMMAND, "schedules", *arguments, f"--pythonpath={tmp_path}"],
            cwd=tmp_path,
            env={**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url},
        )

    return start


def test_a_schedule_is_added_listed_paused_resumed_run_and_removed(run: Run, redis_client: redis.Redis) -> None:
    added = run(
        *("add", "nightly", "bakery.Bread", "--cron=0 3 * * *", "--timezone=Europe/Paris", "--priority=5"),
        *('--fields={"flour": "rye"}', "--misfire-policy=all", "--misfire-grace-time=90", "--queue=stone"),
        *("--identifier=bread", "--owner=mill", "--jitter=60"),
    )
    assert (added.returncode, added.stderr) == (0, "")
    schedule = Schedule.get_by_name("nightly")
    assert schedule.hmget("queue_name", "priority", "job_fields", "misfire_policy", "misfire_grace_time") == [
        *("stone", "5", '{"flour": "rye"}', "all", "90")
    ]

    head, row, note = run("list").stdout.splitlines()
    assert head.split()[:3] == ["name", "state", "next"]
    assert (row.split()[:2], note) == (["nightly", "active"], "nightly: no worker listens to stone")
    assert row[head.index("time zone") :].startswith("Europe/Paris ")
    assert (
        len(run("next", "nightly").stdout.splitlines())
        == len(json.loads(run("next", "nightly", "--json").stdout))
        == 10
    )
    [stored] = json.loads(run("list", "--json").stdout)
    assert stored == json.loads(run("list", "--jsonl").stdout)
    assert stored == {
        "name": "nightly",
        "state": "active",
        "next_run": schedule.next_run.hget(),
        "last_run": None,
        "job": "bakery.Bread",
        "queue": "stone",
        "priority": 5,
        "timezone": "Europe/Paris",
        "trigger": {"cron": "0 3 * * *"},
        "identifier": "bread",
        "misfire_policy": "all",
        "misfire_grace_time": "90",
        "job_fields": '{"flour": "rye"}',
        "jitter": 60,
        "owner": "mill",
        "notes": ["no worker listens to stone"],
    }
    assert row[head.index("owner") :] == "mill"
    assert json.loads(run("list", "--owner=mill", "--json").stdout) == [stored]
    assert json.loads(run("--owner=other", "--json").stdout) == []

    assert run("pause", "nightly").returncode == 0
    assert "it is paused" in run("next", "nightly").stderr
    assert run("list").stdout.splitlines()[1].split()[:2] == ["nightly", "paused"]
    assert run("resume", "nightly").returncode == 0
    assert schedule.next_run.hget()

    assert run("run-now", "nightly").stdout == "bakery.Bread:1\n"
    again = run("run-now", "nightly", "--json")
    assert json.loads(again.stdout) == {"ident": "bakery.Bread:1", "added": False}
    assert again.stderr == "limpyd-jobs schedules: a job of this identifier is queued already, so none was added\n"
    assert run("remove", "nightly").returncode == 0
    told = [(entry["verb"], entry["filter"], entry["done"]) for entry in audit.last_entries(redis_client, 9)]
    verbs = ("remove", "run-now", "run-now", "resume", "pause", "add")
    assert told == [(f"schedules {verb}", "nightly", "1") for verb in verbs]
    assert len(run("list").stdout.splitlines()) == 1


def notes() -> list[str]:
    [told] = notes_of([stored for _, stored in Schedule.read_many(Schedule.collection())])
    return told


@pytest.mark.usefixtures("redis_client")
def test_why_the_job_of_a_schedule_is_not_run_in_time_is_told() -> None:
    schedule = Schedule.add("often", Report, interval=3600)
    nobody = "no worker listens to reports"
    assert notes() == [nobody]
    make_due(schedule, hours=2)
    run_task(worker_of("others"), "scheduler")
    assert notes() == ["last job still waiting", nobody]
    due = utcnow() - timedelta(seconds=240)
    records.set_schedule(Schedule, schedule.pk.get(), score_of(str(due)), {"next_run": str(due)})
    Queue.pause("reports")
    told = {"queues": ["reports"], "status": "idle", "lease": 60}
    with WorkerPresence.register("another's", pk="2", queue_model="shop:queue", **told):
        assert notes() == ["late 4 min", "last job still waiting", "queue paused", nobody]
        with WorkerPresence.register("worker", pk="1", queue_model="jobs:queue", **told):
            assert notes() == ["late 4 min", "last job still waiting", "queue paused"]
        schedule.job_model_repr.hset("elsewhere.Report")
        assert notes() == ["late 4 min", "queue paused", nobody]
        schedule.trigger.hset('{"calendar": {"years": 9000, "start_date": "2026-01-01"}}')
        slow = "cannot be enqueued: its trigger finds no time in 50,000 steps: give it a simpler one"
        assert notes() == [slow, "late 4 min", "queue paused", nobody]
    schedule.pause()
    assert notes() == []


@each(
    ("arguments", "told"),
    [
        (["enqueue_due"], "'enqueue_due' is not one of list"),
        (["list", "x"], "list needs nothing"),
        (["add", "x"], "add needs NAME JOB_CLASS"),
        (["pause", "x"], "No schedule is named 'x'"),
        (["add", "x", "bakery.Bread", "--cron=61 * * * *"], "Invalid cron '61 * * * *'"),
        (["add", "x", "bakery.Bread"], "exactly one of cron, interval, date and trigger"),
        (["add", "x", "bakery.Cake", "--cron=@daily"], "Cake is neither the name of a subclass of Job"),
        (["add", "x", "os.system", "--cron=@daily"], "not a subclass of Job"),
        (["add", "x", "bakery.Bread", "--cron=@daily", "--fields=x"], "option --fields"),
        (["add", "x", "bakery.Bread", "--cron=@daily", '--fields={"sugar": 1}'], "sugar"),
        (["add", "x", "bakery.Bread", '--trigger={"pickle": "x"}'], "no trigger of the kind 'pickle'"),
        (["add", "x", "bakery.Bread", "--cron=@daily", "--timezone=Mars"], "no time zone 'Mars'"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(arguments: list[str], told: str, run: Run, redis_client: redis.Redis) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert told in done.stderr.splitlines()[-1]
    assert {*redis_client.keys()} <= {audit.KEY}  # what Redis or APScheduler refused
    entries = [(entry["done"], entry["refused"], entry["outcome"]) for entry in audit.last_entries(redis_client, 9)]
    assert [("0", "1", entry[2]) for entry in entries if entry[2].startswith("refused: ")] == entries


def test_without_room_it_is_not_proposed_to_do_it_unaudited(run: Run, redis_client: redis.Redis) -> None:
    redis_client.config_set("maxmemory", 1)
    try:
        done = run("add", "x", "bakery.Bread", "--cron=@daily")
    finally:
        redis_client.config_set("maxmemory", 0)
    assert done.returncode == 3
    assert done.stderr.endswith("Make room in Redis first: there is none for this step either\n")


@pytest.mark.matrix(4)
@pytest.mark.parametrize(
    "broken", ["DEL {}", "SET {} x", "HDEL {} trigger", "HDEL {} timezone", f"HSET {{}} trigger {'[' * 5000}"]
)
@pytest.mark.parametrize("verb", ["next", "resume", "run-now"])
def test_a_schedule_that_is_broken_is_refused_in_a_line(
    run: Run, redis_client: redis.Redis, verb: str, broken: str
) -> None:
    for name in ("x", "y"):
        assert run("add", name, "bakery.Bread", "--cron=@daily", "--paused").returncode == 0
    redis_client.execute_command(*broken.format("jobs:schedule:1:hash").split())
    redis_client.sadd("jobs:schedule:collection", "", "z")
    done = run(verb, "x")
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr
    assert ("jobs:schedule:1:hash is a string: limpyd-jobs check --repair" in done.stderr) == broken.startswith("SET")
    listed = run("list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "y  " in listed.stdout


def test_a_schedule_is_edited_with_options_of_add(run: Run) -> None:
    run("add", "nightly", "bakery.Bread", "--cron=0 3 * * *", "--timezone=Europe/Paris", '--fields={"flour": "rye"}')
    edited = run("edit", "nightly", "--cron=30 4 * * *", "--priority=5", "--json")
    assert " 04:30" in edited.stdout.replace("T", " "), edited.stderr
    [found] = json.loads(run("list", "--json").stdout)
    assert (found["trigger"], found["timezone"], found["priority"]) == ({"cron": "30 4 * * *"}, "Europe/Paris", 5)
    assert "say what to change" in run("edit", "nightly").stderr
    assert "No schedule is named 'gone'" in run("edit", "gone", "--priority=1").stderr
