"""``limpyd-jobs shards`` runs a command for each shard."""

from __future__ import annotations

import json

import pytest
import redis
from cases import each
from reading import limpyd_jobs

from limpyd_jobs import Job
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.shards import Shards


@pytest.fixture
def urls(two_databases: str) -> str:
    """The names of two databases, with five jobs in each."""
    shards = Shards.of_text(two_databases)
    for number in (0, 1):  # each with jobs of its own, whatever their identifiers say
        shards.on(Job, number).add_jobs([f"{number}:{each}" for each in range(5)], "mails")
    return two_databases


def test_prints_what_each_has(urls: str) -> None:
    status, out, error = limpyd_jobs("shards", f"--shards={urls}", "--each", "queues", "list")
    assert (status, error) == (0, "")
    assert [line.split(",")[0] for line in out.splitlines() if line.startswith("===")] == [
        *("=== shard 0 of 2", "=== shard 1 of 2")
    ]
    assert out.count("mails") == 2


def test_prints_json_with_the_number_of_the_shard(urls: str) -> None:
    found = json.loads(limpyd_jobs("shards", f"--shards={urls}", "--each", "queues", "list", "--json")[1])
    assert [(each["shard"], each["answer"][0]["waiting"]) for each in found] == [(0, 5), (1, 5)]
    lines = limpyd_jobs("shards", f"--shards={urls}", "--each", "jobs", "list", "--jsonl")[1].splitlines()
    assert [json.loads(line)["shard"] for line in lines] == [0] * 5 + [1] * 5


def test_changes_all(urls: str) -> None:
    status, _, error = limpyd_jobs("shards", f"--shards={urls}", "jobs", "cancel", "queue=mails", "--yes")
    assert (status, error) == (0, "")
    assert Shards.of_text(urls).filter(status="canceled").count().value == (10, True)


def test_says_which_it_did_not_see(urls: str) -> None:
    first, second = urls.split()
    path = "unix:///nowhere/redis.sock?db=0"
    BaseJobsModel.database.reset(**JobsDatabase(url=second).connection_settings)
    BaseJobsModel.get_connection().set("limpyd-jobs:shard", "2 of 3")
    BaseJobsModel.database.reset(**JobsDatabase(url=first).connection_settings)
    BaseJobsModel.get_connection().set("limpyd-jobs:shard", "0 of 3")
    status, out, error = limpyd_jobs("shards", f"--shards={first} {path} {second}", "--each", "jobs", "count")
    assert (status, out.count("=== shard")) == (3, 2)
    told = "NOT SEEN, so in none of the above: shard 1 of 3, unix:///nowhere/redis.sock?db=0: cannot use Redis: "
    assert told in error


@each(
    ("words", "told"),
    [
        ([], "a command is needed, one of: audit, "),
        (["web"], "no such command for shards: 'web'"),
        (["--shards=redis://a redis://b", "--each", "top"], "--each does not go with top"),
        (["--shards=redis://a redis://b", "--each", "info", "--watch"], "--each does not go with --watch"),
        (["--shards=redis://a redis://b", "--each", "backlog", "--port=0"], "--each does not go with --port"),
        (["infos"], "is info meant?"),
        (["info"], "name the databases with --shards"),
        (["--shards=redis://localhost", "info"], "option --shards: There must be 2 to 1,000 shards, not 1"),
        (["--shards=http://a b", "info"], "option --shards: "),
        (["--shards=redis://a redis://b", "info", "--database=redis://c"], "leave --database out"),
    ],
)
def test_refuses_what_is_wrong_in_one_line(words: list[str], told: str) -> None:
    status, out, error = limpyd_jobs("shards", *words)
    assert (status, out) == (2, "")
    assert told in error


def test_a_hint_names_the_shard(urls: str) -> None:
    out = limpyd_jobs("shards", f"--shards={urls}", "jobs", "explain", "limpyd_jobs.models.Job:1")[1]
    assert "--database" not in out
    limpyd_jobs("shards", f"--shards={urls}", "pause", "mails")
    out = limpyd_jobs("shards", f"--shards={urls}", "jobs", "explain", "limpyd_jobs.models.Job:1")[1]
    for url in urls.split():
        assert f"--database='{url}'" in out or f"'--database={url}'" in out


def test_the_database_is_that_of_the_shard_whatever_the_application_says(
    urls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Command, "_configure", lambda _: BaseJobsModel.database.reset(unix_socket_path="/nowhere"))
    status, out, _ = limpyd_jobs("shards", f"--shards={urls}", "--each", "queues", "list")
    assert (status, out.count("mails")) == (0, 2)
    status, out, _ = limpyd_jobs("shards", f"--shards={urls}", "queues", "list")
    assert (status, out.splitlines()[1].split()[:3]) == (0, ["mails", "0", "10"])


def test_a_look_makes_no_database_a_shard(redis_client: redis.Redis, urls: str) -> None:
    path = redis_client.connection_pool.connection_kwargs["path"]
    assert limpyd_jobs("shards", f"--shards={urls}", "info")[0] == 0
    for number in (4, 5):
        with redis.Redis(unix_socket_path=path, db=number) as client:
            assert not client.exists("limpyd-jobs:shard")


def test_refuses_another_order(urls: str) -> None:
    Shards.of_text(urls).add_jobs(Job, map(str, range(20)), "mails")
    status, _, error = limpyd_jobs("shards", f"--shards={' '.join(reversed(urls.split()))}", "info")
    assert (status, "is given as shard 0 of 2, but it is shard 1 of 2" in error) == (2, True)


def test_finds_what_one_shard_has(urls: str) -> None:
    shards = f"--shards={urls}"
    status, out, error = limpyd_jobs("shards", shards, "jobs", "show", "identifier=1:3", "--json")
    [found] = json.loads(out)
    assert (status, error, found["shard"], found["answer"][0]["fields"]["identifier"]) == (0, "", 1, "1:3")
    out = limpyd_jobs("shards", shards, "jobs", "show", "identifier=1:3")[1]
    assert out.splitlines()[1] == "there is no job with identifier=1:3"
    status, _, error = limpyd_jobs("shards", shards, "jobs", "show", "identifier=2:3")
    assert (status, error.count("there is no job with identifier=2:3")) == (2, 1)
