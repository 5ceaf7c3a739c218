"""``limpyd-jobs pause`` and ``limpyd-jobs resume``, as a user runs them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import preloaded
import pytest
import redis
from servers import RedisServer

from limpyd_jobs import Job, Queue
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.store.audit import last_entries

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

pytestmark = pytest.mark.usefixtures("redis_client")


def run(server: RedisServer, *arguments: str) -> tuple[int, str]:
    done = preloaded.run([COMMAND, *arguments], env={**os.environ, "LIMPYD_JOBS_DATABASE": server.url})
    return done.returncode, done.stdout + done.stderr


def test_names_are_paused_and_resumed(redis_server: RedisServer) -> None:
    for name in ("mails", "pushes"):
        Queue.get_queue(name)
    assert run(redis_server, "pause", "mails", "pushes") == (0, "mails: paused\npushes: paused\n")
    assert Queue.get_paused_names() == {"mails", "pushes"}
    assert run(redis_server, "pause", "mails") == (0, "mails: paused already\n")
    assert run(redis_server, "resume", "mails") == (0, "mails: resumed\n")
    assert run(redis_server, "resume", "mails") == (0, "mails: not paused\n")
    assert Queue.get_paused_names() == {"pushes"}


def test_what_would_be_paused_or_resumed_is_told(redis_server: RedisServer) -> None:
    for name in ("mails", "pushes"):
        Queue.get_queue(name)
    Queue.pause("mails")
    before = last_entries(BaseJobsModel.get_connection(), 9)
    told = "mails: paused already\npushes: would be paused\n"
    assert run(redis_server, "pause", "mails", "pushes", "--dry-run") == (0, told)
    told = "mails: would be resumed\npushes: not paused\n"
    assert run(redis_server, "resume", "mails", "pushes", "--dry-run") == (0, told)
    rows = json.loads(run(redis_server, "resume", "mails", "--dry-run", "--json")[1])
    assert rows == [{"queue": "mails", "outcome": "would be resumed", "dry_run": True}]
    assert Queue.get_paused_names() == {"mails"}
    assert last_entries(BaseJobsModel.get_connection(), 9) == before


def test_who_paused_and_resumed_is_written_down_if_that_changed_something(redis_server: RedisServer) -> None:
    for words in (["pause", "mails", "pushes"], ["queues", "pause", "mails"], ["resume", "mails"], ["resume", "mails"]):
        run(redis_server, *words)
    entries = last_entries(BaseJobsModel.get_connection(), 9)
    assert [(entry["verb"], entry["filter"], entry["done"]) for entry in entries] == [
        ("resume", "queue=mails", "1"),
        ("pause", "queue=pushes", "1"),
        ("pause", "queue=mails", "1"),
    ]


def test_a_name_near_a_paused_one_is_told_of(redis_server: RedisServer) -> None:
    run(redis_server, "pause", "e-mails", "reports")
    told = run(redis_server, "resume", "emails")[1]
    assert "limpyd-jobs resume: warning: emails is not paused, but there is: e-mails\n" in told


def test_a_name_that_no_queue_has_is_paused_with_a_warning(redis_server: RedisServer) -> None:
    for name in ("mails", "e-mails", "pushes"):
        Queue.get_queue(name)
    status, told = run(redis_server, "pause", "mail")
    warning = "limpyd-jobs pause: warning: no queue is named mail so far, but there is: mails, e-mails\n"
    assert (status, warning in told, "mail: paused\n" in told) == (0, True, True)
    assert Queue.get_paused_names() == {"mail"}
    assert "no queue is named reports so far\n" in run(redis_server, "pause", "reports")[1]


def test_what_is_paused_is_listed(redis_server: RedisServer) -> None:
    assert run(redis_server, "pause", "--list") == (0, "no queue is paused\n")
    for priority in (1, 2):
        Job.add_job(f"{priority}", "mails", priority=priority)
    Job.add_job("later", "mails", delayed_for=3600)
    for name in ("pushes", "mails"):
        Queue.pause(name)
    assert run(redis_server, "pause", "--list") == (0, "mails: 2 waiting, 1 delayed\npushes: no queue\n")
    assert json.loads(run(redis_server, "pause", "--list", "--json")[1]) == [
        {"queue": "mails", "waiting": 2, "delayed": 1},
        {"queue": "pushes", "waiting": None, "delayed": None},
    ]


def test_those_of_another_queue_model_are_named_by_it(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    run(redis_server, "pause", "mails", "--queue-model=limpyd_jobs.Queue")
    assert redis_client.smembers("jobs:queue:paused") == {"mails"}


def test_a_list_is_of_all_names(redis_server: RedisServer) -> None:
    assert run(redis_server, "pause", "--list", "mails")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [([], "the name of a queue is needed"), (["a,b"], "have a comma"), (["a", "--wrong"], "no such option")],
)
def test_a_wrong_command_line_is_refused_in_one_line(
    redis_server: RedisServer, arguments: list[str], reason: str
) -> None:
    status, told = run(redis_server, "resume", *arguments)
    assert status == 2
    assert reason in told
    assert told.count("\n") == 1
