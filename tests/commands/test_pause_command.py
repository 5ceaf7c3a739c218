"""``limpyd-jobs pause`` and ``limpyd-jobs resume``, as a user runs them."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import preloaded
import pytest
import redis
from servers import RedisServer

from limpyd_jobs import Job, Queue
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.records.audit import last_entries

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

pytestmark = pytest.mark.usefixtures("redis_client")


class Album(Queue):
    namespace = "albums"


class Photo(Job):
    namespace = "albums"
    queue_model = Album
    queue_name = "my photos"


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
    assert rows == [{"queue": "mails", "model": "jobs:queue", "outcome": "would be resumed", "dry_run": True}]
    assert Queue.get_paused_names() == {"mails"}
    assert last_entries(BaseJobsModel.get_connection(), 9) == before


def test_who_paused_and_resumed_is_written_down_if_that_changed_something(redis_server: RedisServer) -> None:
    for name in ("mails", "pushes"):
        Queue.get_queue(name)
    for words in (["pause", "mails", "pushes"], ["queues", "pause", "mails"], ["resume", "mails"], ["resume", "mails"]):
        run(redis_server, *words)
    entries = last_entries(BaseJobsModel.get_connection(), 9)
    assert [(entry["verb"], entry["filter"], entry["done"]) for entry in entries] == [
        ("resume", "queue=mails", "1"),
        ("pause", "queue=pushes", "1"),
        ("pause", "queue=mails", "1"),
    ]


def test_a_name_that_no_queue_has_is_refused_and_nothing_is_written(redis_server: RedisServer) -> None:
    error = "limpyd-jobs pause: error: there is no queue mail"
    assert run(redis_server, "pause", "mail", "--dry-run")[1].startswith(
        f"{error}, nor any other that is known; --force pauses"
    )
    for name in ("mails", "e-mails", "pushes"):
        Queue.get_queue(name)
    status, told = run(redis_server, "pause", "pushes", "mail")
    hint = "; --force pauses the name all the same\n"
    assert (status, told) == (1, f"{error}, but there is: mails, e-mails{hint}")
    status, told = run(redis_server, "queues", "pause", "reports")
    assert (status, told.partition(": error: ")[2]) == (
        1,
        f"there is no queue reports; there are: e-mails, mails, pushes{hint}",
    )
    status, told = run(redis_server, "resume", "mail")
    assert (status, told.count("\n"), "--force" in told) == (1, 1, False)
    assert Queue.get_paused_names() == set()
    assert last_entries(BaseJobsModel.get_connection(), 9) == []


def test_a_name_that_no_queue_has_is_paused_by_force(redis_server: RedisServer) -> None:
    assert run(redis_server, "pause", "reports", "--force") == (0, "reports: paused\n")
    assert Queue.get_paused_names() == {"reports"}
    assert run(redis_server, "resume", "reports") == (0, "reports: resumed\n")


def test_queues_of_all_models_are_paused_and_resumed(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    """The models are known from the database: the command imports none."""
    Album.get_queue("photos")
    assert run(redis_server, "pause", "photos") == (0, "photos: paused\n")
    assert (Album.get_paused_names(), Queue.get_paused_names()) == ({"photos"}, set())
    assert run(redis_server, "pause", "--list") == (0, "photos: 0 waiting, 0 delayed\n")
    assert run(redis_server, "resume", "photos") == (0, "photos: resumed\n")
    Queue.get_queue("photos")
    told = "photos (albums:album): paused\nphotos (jobs:queue): paused\n"
    assert run(redis_server, "queues", "pause", "photos") == (0, told)
    ours = "--queue-model=limpyd_jobs.Queue"
    assert run(redis_server, "resume", "photos", ours) == (0, "photos: resumed\n")
    assert (Album.get_paused_names(), Queue.get_paused_names()) == ({"photos"}, set())


def test_the_command_that_explain_proposes_works_as_it_stands(redis_server: RedisServer) -> None:
    Photo.add_job("a")
    Album.pause("my photos")
    environment = {name: value for name, value in os.environ.items() if name != "LIMPYD_JOBS_DATABASE"}
    words = ["jobs", "explain", f"{__name__}.Photo:1", f"--database={redis_server.url}"]
    told = preloaded.run([COMMAND, *words], env=environment).stdout
    [proposed] = [line.partition(" is paused: ")[2] for line in told.splitlines() if " is paused: " in line]
    done = preloaded.run([COMMAND, *shlex.split(proposed)[1:]], env=environment)
    assert (done.returncode, done.stdout, Album.get_paused_names()) == (0, "my photos: resumed\n", set())


def test_what_is_paused_is_listed(redis_server: RedisServer) -> None:
    assert run(redis_server, "pause", "--list") == (0, "no queue is paused\n")
    for priority in (1, 2):
        Job.add_job(f"{priority}", "mails", priority=priority)
    Job.add_job("later", "mails", delayed_for=3600)
    for name in ("pushes", "mails"):
        Queue.pause(name)
    assert run(redis_server, "pause", "--list") == (0, "mails: 2 waiting, 1 delayed\npushes: no queue\n")
    assert json.loads(run(redis_server, "pause", "--list", "--json")[1]) == [
        {"queue": "mails", "model": "jobs:queue", "waiting": 2, "delayed": 1},
        {"queue": "pushes", "model": "jobs:queue", "waiting": None, "delayed": None},
    ]


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
