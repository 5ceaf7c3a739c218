"""``limpyd-jobs queues`` and ``limpyd-jobs quarantine``, as a user runs them."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import preloaded
import pytest
from cases import each
from servers import RedisServer

from limpyd_jobs import Job, Queue
from limpyd_jobs.dates import parse_datetime, utcnow
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.query import JobFilter
from limpyd_jobs.records.audit import last_entries
from limpyd_jobs.records.known_classes import KEY, KnownClass

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

pytestmark = pytest.mark.usefixtures("redis_client")


class Bill(Job):
    namespace = "queues-command"
    queue_name = "bills"

    def run(self, queue: Any) -> None: ...


@pytest.fixture(autouse=True)
def _jobs() -> None:
    for number in range(3):
        Bill.add_job(f"bill {number}")
    Bill.add_job("urgent", priority=5)
    Bill.add_job("later", delayed_for=timedelta(hours=1))


class Ledger(Queue):
    namespace = "ledgers"


IMPORTABLE = [f"--job-modules={__name__}", f"--pythonpath={Path(__file__).parent}:{Path(__file__).parents[1]}"]


def run(server: RedisServer, *arguments: str) -> tuple[int, str, str]:
    done = preloaded.run([COMMAND, *arguments], env={**os.environ, "LIMPYD_JOBS_DATABASE": server.url})
    return done.returncode, done.stdout, done.stderr


def output(server: RedisServer, *arguments: str) -> str:
    status, out, err = run(server, *arguments)
    assert (status, err) == (0, "")
    return out


@pytest.mark.parametrize("command", ["queues", "quarantine", "workers", "jobs", "errors", "schedules"])
def test_a_command_without_a_word_shows_what_there_is(redis_server: RedisServer, command: str) -> None:
    first = "groups" if command == "errors" else "list"
    (heading, *_), (other, *_) = (output(redis_server, command, *words).splitlines() for words in ([], [first]))
    assert heading == other
    assert run(redis_server, command, "shw")[2].startswith(
        f"limpyd-jobs {command}: error: 'shw' is not one of {first}, "
    )


@pytest.mark.parametrize("command", ["audit", "errors", "jobs", "quarantine", "queues", "schedules", "workers"])
def test_a_list_is_printed_as_a_table_as_json_and_as_an_object_in_a_line(
    redis_server: RedisServer, command: str
) -> None:
    JobFilter(queue="bills").cancel_all()
    table, array, lines = (output(redis_server, command, *options) for options in ([], ["--json"], ["--jsonl"]))
    found = json.loads(array)
    assert [json.loads(line) for line in lines.splitlines()] == found
    assert len(table.splitlines()) == 1 + len(found)
    assert bool(found) == (command in ("audit", "jobs", "queues"))


def test_queues_are_listed(redis_server: RedisServer) -> None:
    rows = json.loads(output(redis_server, "queues", "list", "--json"))
    assert [(row["name"], row["priority"], row["waiting"], row["delayed"]) for row in rows] == [
        ("bills", 5, 1, 0),
        ("bills", 0, 3, 1),
    ]
    assert rows[0].keys() == {
        *("pk", "name", "priority", "paused", "waiting", "delayed", "running", "success_list", "errors_list"),
        *("quarantine", "latency", "next_due", "model", "unknown_classes", "lapsed", "deferred", "parked"),
    }
    assert rows[0]["next_due"] is None
    assert parse_datetime(rows[1]["next_due"]) > utcnow()
    lines = output(redis_server, "queues", "list", "bills").splitlines()
    numbers = ["waiting", "latency", "delayed", "running", "success list", "errors list", "quarantine"]
    assert re.split("  +", lines[0]) == ["queue", "priority", *numbers, "state"]
    assert lines[1].split()[:3] == ["bills", "5", "1"]


def test_a_queue_is_shown_with_its_classes(redis_server: RedisServer) -> None:
    shown = json.loads(output(redis_server, "queues", "show", "bills", "--json"))
    path = Bill.get_model_repr()
    assert (shown["waiting"], shown["delayed"]) == ({"bills": {path: 4}}, {"bills": {path: 1}})
    assert [row["priority"] for row in shown["queues"]] == [5, 0]
    assert f"bills  waiting  4     {path}" in output(redis_server, "queues", "show", "bills")


def test_queues_are_paused_and_resumed(redis_server: RedisServer) -> None:
    assert output(redis_server, "queues", "pause", "bills") == "bills: paused\n"
    assert output(redis_server, "queues", "list").count("paused") == 2
    assert output(redis_server, "queues", "resume", "bills") == "bills: resumed\n"
    done = output(redis_server, "queues", f"--database={redis_server.url}", "pause", "bills", "--jsonl")
    assert json.loads(done) == {"queue": "bills", "model": "jobs:queue", "outcome": "paused"}
    status, out, err = run(redis_server, "queues", "pause")
    assert (status, out, err) == (2, "", "limpyd-jobs queues: error: the name of a queue is needed\n")


def test_a_queue_is_cleared(redis_server: RedisServer) -> None:
    clear = ("queues", "clear", "bills", *IMPORTABLE)
    assert output(redis_server, *clear, "--dry-run") == "jobs\n5     would be deleted\n"
    assert JobFilter().count().number == 5
    status, out, err = run(redis_server, *clear)
    assert (status, out) == (2, "")
    assert "delete 5 jobs? Give --yes to do so" in err
    name, path = Bill._name, Bill.get_model_repr()
    gone = KnownClass.of(Bill).as_json().replace(name, "gone:bill").replace(path, "gone.Bill")
    redis_server.client().hset(KEY, "gone.Bill", gone)
    for key in ("gone:bill:collection", "gone:bill:status:w"):
        redis_server.client().sadd(key, 1)
    assert output(redis_server, *clear, "--yes") == "jobs\n5     deleted\n"
    redis_server.client().delete("gone:bill:collection")
    assert JobFilter().count().number == 0
    assert Queue.count_jobs("bills") == (0, 0)


def test_only_empty_queues_are_deleted(redis_server: RedisServer) -> None:
    status, out, err = run(redis_server, "queues", "delete", "bills", "--yes")
    assert (status, err) == (1, "")
    assert "bills, priority 0: is not empty: 3 waiting, 1 delayed, 0 running" in out
    JobFilter().delete_all()
    would = json.loads(output(redis_server, "queues", "delete", "bills", "--dry-run", "--json"))
    told = {"queue": "bills", "outcome": "would be deleted", "dry_run": True}
    assert would == [{**told, "priority": priority} for priority in (5, 0)]
    assert output(redis_server, "queues", "delete", "bills", "--yes").count("deleted") == 2
    assert output(redis_server, "queues", "list", "--json") == "[]\n"
    told = [(entry["verb"], entry["filter"]) for entry in last_entries(BaseJobsModel.get_connection(), 2)]
    assert {*told} == {("delete queue", f"queue=bills priority={priority}") for priority in (0, 5)}


@each(
    ("words", "told"),
    [
        (["queues", "empty"], "'empty' is not one of list, show"),
        (["queues", "show"], "show needs the name of a queue"),
        (["queues", "clear"], "clear needs the name of a queue"),
        (["quarantine", "drop"], "say what to drop: give entries as list shows them, or --all"),
        (["quarantine", "retry", "x.Y:1"], "x.Y:1 is not in quarantine"),
        (["quarantine", "list", "bills"], "unexpected argument: 'bills'; --queue names a queue"),
    ],
)
def test_what_is_wrong_is_said(redis_server: RedisServer, words: list[str], told: str) -> None:
    status, out, err = run(redis_server, *words)
    assert (status, out) == (2, "")
    assert told in err


@each("verb", ["list", "show", "resume --yes", "clear --yes", "delete --yes"])
def test_an_unknown_queue_is_refused(redis_server: RedisServer, verb: str) -> None:
    told = "limpyd-jobs queues: error: there is no queue bill, but there is: bills\n"
    assert run(redis_server, "queues", *verb.split(), "bill") == (1, "", told)


def test_the_queues_of_all_models_are_shown_unless_one_is_named(redis_server: RedisServer) -> None:
    """The command imports none of them."""
    Ledger.get_queue("bills", 3)
    entry = Ledger.get_queue("books").pk.get()
    redis_server.client().rpush(f"ledgers:ledger:{entry}:_quarantine", "x\ny")
    lines = output(redis_server, "queues", "list").splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["queue", "model", "priority"],
        ["bills", "jobs:queue", "5"],
        ["bills", "ledgers:ledger", "3"],
        ["bills", "jobs:queue", "0"],
        ["books", "ledgers:ledger", "0"],
    ]
    for command, model in (
        ("queues", f"{__name__}.Ledger"),
        ("info", f"{__name__}.Ledger"),
        ("info", "ledgers:ledger"),
    ):
        told = output(redis_server, command, "--json", f"--queue-model={model}", IMPORTABLE[1])
        rows = json.loads(told) if command == "queues" else json.loads(told)["queues"]
        assert [row["name"] for row in rows] == ["bills", "books"]
    assert "books  ledgers:ledger" in output(redis_server, "info")
    assert output(redis_server, "pause", "books", "--queue-model=ledgers:ledger").startswith("books: paused")
    assert (
        "--queue-model: ledgers:leger is not known: is ledgers:ledger meant?"
        in run(redis_server, "info", "--queue-model=ledgers:leger")[2]
    )
    assert output(redis_server, "quarantine", "drop", r"x\ny", "--yes").endswith("1        dropped\n")
    status, _, err = run(redis_server, "queues", "delete", "books", "--yes")
    assert (
        status,
        f"{__name__}.Ledger, the model of that queue, is not imported: name it with --queue-model" in err,
    ) == (2, True)
    model = f"--queue-model={__name__}.Ledger"
    assert output(redis_server, "queues", "delete", "books", "--yes", model, *IMPORTABLE).endswith("deleted\n")
    status, _, err = run(redis_server, "queues", "clear", "bills", "--yes", model, *IMPORTABLE)
    assert (status, "leave out --queue-model" in err) == (2, True)
    assert JobFilter(queue="bills", status="waiting").count().number == 4


def test_entries_leave_quarantine(redis_server: RedisServer) -> None:
    queue = Queue.get_queue("bills")
    queue.quarantine.rpush("rubbish", "x.Y:1")
    rows = json.loads(output(redis_server, "quarantine", "list", "--json"))
    assert [row["entry"] for row in rows] == ["rubbish", "x.Y:1"]
    assert json.loads(output(redis_server, "quarantine", "retry", "x.Y:1", "--yes", "--json")) == {"done": 1}
    assert queue.waiting.lrange(-1, -1) == ["x.Y:1"]
    assert output(redis_server, "quarantine", "drop", "--all", "--queue=bills", "--dry-run").endswith(
        "would be dropped\n"
    )
    assert output(redis_server, "quarantine", "drop", "--all", "--yes").splitlines()[1].split() == ["1", "dropped"]
    assert json.loads(output(redis_server, "quarantine", "list", "--json")) == []
