"""``limpyd-jobs shards`` shows what all shards have as if they were one database."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cases import each
from limpyd import fields
from reading import limpyd_jobs

from limpyd_jobs import Job, WorkerPresence
from limpyd_jobs.query import pause_queue
from limpyd_jobs.records import metrics, presences
from limpyd_jobs.schedules import Schedule
from limpyd_jobs.search.classes import connection_to
from limpyd_jobs.shards import Shards

DOWN = "unix:///nowhere/redis.sock?db=0"


class Letter(Job):
    namespace = "merged"
    queue_name = "letters"


@pytest.fixture
def urls(two_databases: str) -> str:
    """The names of two databases, with three jobs that wait in one, two in the other, of which one is in error."""
    shards = Shards.of_text(two_databases)
    shards.on(Letter, 0).add_jobs(["a", "b", "c"])
    shards.on(Letter, 1).add_jobs(["d", "e", "wrong"])[2].claim("a test").fail(ValueError("on purpose"))
    return two_databases


def shown(urls: str, *words: str) -> Any:
    status, out, error = limpyd_jobs("shards", f"--shards={urls}", *words, "--json")
    assert (status, error) == (0, "")
    return json.loads(out)


def test_queues_of_the_same_name_and_priority_are_one(urls: str) -> None:
    [queue] = shown(urls, "queues", "list")
    assert (queue["name"], queue["waiting"], queue["errors_list"]) == ("letters", 5, 1)
    assert len(shown(urls, "--each", "queues", "list")) == 2


def test_a_glance_adds_up(urls: str) -> None:
    found = shown(urls, "info")
    totals = found["totals"]
    assert (totals["jobs"], totals["waiting"], totals["error"], totals["running"]) == (6, 5, 1, 0)
    first, second = urls.split()
    assert found["database"] == f"2 shards, {first} … {second}"
    status, out, _ = limpyd_jobs("shards", f"--shards={urls}", "info")
    assert (status, out.splitlines()[2].split()[:2]) == (0, ["6", "5"])
    assert ", the fullest: " in out


def test_times_are_those_of_the_histograms_together(urls: str) -> None:
    for database, waited, number in zip(Shards.of_text(urls).databases, (0.02, 20), (99, 1), strict=True):
        them = metrics.Metrics()
        for _ in range(number):
            them.observe_start(waited)
            them.observe_end(waited, is_success=True)
        metrics.write(connection_to(database), {("letters", "merged.Letter"): them}, {})
    [row] = shown(urls, "stats")
    assert (row["queue"], row["started"], row["succeeded"]) == ("letters", 100, 100)
    assert {each["up_to"]: each["count"] for each in row["waited"]["buckets"] if each["count"]} == {0.03: 99, 30.0: 1}
    assert row["waited"]["mean"] == pytest.approx((99 * 0.02 + 20) / 100)
    out = limpyd_jobs("shards", f"--shards={urls}", "stats")[1]
    assert "  30.0 ms  " in out.splitlines()[1]  # 95 % of all of them


def test_a_backlog_is_that_of_all(urls: str) -> None:
    found = shown(urls, "backlog")
    assert (found["waiting"], found["queues"]["letters"]["waiting"]) == (5, 5)
    first, second = Shards.of_text(urls).databases
    pause_queue("jobs:queue", "letters", first)
    assert not shown(urls, "backlog")["queues"]["letters"]["is_paused"]
    pause_queue("jobs:queue", "letters", second)
    assert shown(urls, "backlog")["queues"]["letters"]["is_paused"]


def test_a_queue_that_is_paused_in_some_shards_only_is_named(urls: str) -> None:
    first, second = Shards.of_text(urls).databases
    told = "letters is paused in shard 1, but not in the others."
    pause_queue("jobs:queue", "letters", second)
    assert told in [each["text"] for each in shown(urls, "info")["attention"]]
    pause_queue("jobs:queue", "letters", first)
    assert not any("others" in each["text"] for each in shown(urls, "info")["attention"])


def test_jobs_are_listed_with_their_shard_the_newest_first(urls: str) -> None:
    found = shown(urls, "jobs", "list", "status=waiting")
    assert [each["added"] for each in found] == sorted((each["added"] for each in found), reverse=True)
    assert {each["identifier"]: each["shard"] for each in found} == {"a": 0, "b": 0, "c": 0, "d": 1, "e": 1}
    out = limpyd_jobs("shards", f"--shards={urls}", "jobs", "list", "--oldest-first")[1]
    heading, first, *_ = out.splitlines()
    assert (heading.split()[:2], first.split()[0], "  a  " in first) == (["shard", "ident"], "0", True)


def test_a_page_of_several_shards_ends_where_it_was_asked_to(urls: str) -> None:
    status, out, error = limpyd_jobs("shards", f"--shards={urls}", "jobs", "list", "--limit=2", "--json")
    assert (status, [each["identifier"] for each in json.loads(out)]) == (0, ["wrong", "e"])
    assert "there are more jobs: see --limit" in error
    status, _, error = limpyd_jobs("shards", f"--shards={urls}", "jobs", "list", "--after=x")
    assert (status, "--after goes on in one shard: name it with --database" in error) == (2, True)


def test_jobs_are_counted_in_all(urls: str) -> None:
    assert shown(urls, "jobs", "count") == {"count": 6}
    assert shown(urls, "jobs", "count", "--by=status") == [
        {"status": "waiting", "count": 5},
        {"status": "error", "count": 1},
    ]
    status, out, error = limpyd_jobs("shards", f"--shards={urls}", "jobs", "count", "--by=status", "--limit=1")
    assert (status, [line.split() for line in out.splitlines()[1:]]) == (0, [["5", "waiting"], ["1", "(others)"]])
    assert error == ""


def test_a_shard_without_the_class_has_none_of_its_jobs(urls: str) -> None:
    class Parcel(Letter):
        weight = fields.InstanceHashField(indexable=True)

    Shards.of_text(urls).on(Parcel, 1).add_job("heavy", weight=7)
    [found] = shown(urls, "jobs", "list", "weight=7")
    assert (found["identifier"], found["shard"]) == ("heavy", 1)
    status, _, error = limpyd_jobs("shards", f"--shards={urls}", "jobs", "list", "colour=red")
    assert (status, "colour" in error) == (2, True)


def test_says_what_no_shard_knows(urls: str) -> None:
    status, _, error = limpyd_jobs("shards", f"--shards={urls}", "jobs", "list", "queue=lettres")
    assert (status, "no queue is named lettres, but there is: letters" in error) == (0, True)
    Shards.of_text(urls).on(Letter, 1).add_job("f", "parcels").cancel()
    assert shown(urls, "jobs", "list", "queue=parcels", "status=waiting") == []  # one shard has such a queue


def test_errors_are_listed_with_their_shard(urls: str) -> None:
    [error] = shown(urls, "errors", "list")
    assert (error["shard"], error["message"], error["identifier"]) == (1, "on purpose", "wrong")


def test_errors_of_a_cause_are_counted_together(urls: str) -> None:
    def fail(number: int, name: str, text: str) -> None:
        claim = Shards.of_text(urls).on(Letter, number).add_job(name).claim("a test")
        try:
            raise OSError(text)
        except OSError as error:
            claim.fail(error)

    for number in range(3):
        fail(0, f"bad:{number}", "disk full")
    fail(1, "bad:3", "disk full")
    fail(1, "worse", "no disk")
    first, second = shown(urls, "errors")
    assert (first["type"], first["count"], sum(first["trend"])) == ("OSError", 5, 5)
    assert [(each["message"], each["count"]) for each in first["messages"]] == [("disk full", 4), ("no disk", 1)]
    assert (first["message_count"], first["queues"]) == (2, {"letters": 5})
    assert first["first_seen"] < first["last_seen"]
    assert (second["type"], second["count"]) == ("ValueError", 1)
    status, out, _ = limpyd_jobs("shards", f"--shards={urls}", "errors", "groups", "--limit=1")
    assert (status, [line.split() for line in out.splitlines() if "(others)" in line]) == (0, [["(others)", "1"]])


def test_schedules_are_listed_by_name_with_their_shard(urls: str) -> None:
    shards = Shards.of_text(urls)
    for number, name in ((0, "weekly"), (1, "daily")):
        shards.on(Schedule, number).add(name, shards.on(Letter, number), interval=3600)
    assert [(each["shard"], each["name"]) for each in shown(urls, "schedules")] == [(1, "daily"), (0, "weekly")]
    heading, *rows = limpyd_jobs("shards", f"--shards={urls}", "schedules", "list")[1].splitlines()
    assert (heading.split()[:2], [row.split()[1] for row in rows[:2]]) == (["shard", "name"], ["daily", "weekly"])


def test_workers_are_listed_with_their_shard(urls: str) -> None:
    shards = Shards.of_text(urls)
    details = {"queues": ["letters"], "queue_model": "jobs:queue", "lease": 60, "status": "idle"}
    for number, name in enumerate(("web1:1", "web2:2")):
        fields = {"kind": "worker", "name": name, "host": "h", "pid": "1", "details": json.dumps(details)}
        presences.keep(shards.on(WorkerPresence, number), f"worker-{number}", fields, 60, takes_orders="1")
    both = [(0, "web1:1"), (1, "web2:2")]
    assert [(each["shard"], each["name"]) for each in shown(urls, "workers")] == both
    assert [(each["shard"], each["name"]) for each in shown(urls, "info")["workers"]] == both
    assert [each["shard"] for each in shown(urls, "workers", "list", "web2:2")] == [1]
    out = limpyd_jobs("shards", f"--shards={urls}", "info")[1]
    assert [line.split()[:2] for line in out.splitlines() if "web" in line] == [["0", "web1:1"], ["1", "web2:2"]]


@each("command", ["info", "stats", "backlog", "queues", "jobs", "errors", "errors list", "schedules", "workers"])
def test_a_shard_that_is_down_is_named(urls: str, command: str) -> None:
    status, out, error = limpyd_jobs("shards", f"--shards={urls} {DOWN}", *command.split())
    assert (status, "letters" in out) == (3, command not in ("stats", "errors", "schedules", "workers"))
    assert f"NOT SEEN, so in none of the above: shard 2, {DOWN}: " in error
    assert error.count("NOT SEEN") == 1


def test_a_shard_that_is_down_is_named_also_if_no_other_one_knows_what_is_asked_for(urls: str) -> None:
    status, _, error = limpyd_jobs("shards", f"--shards={urls} {DOWN}", "jobs", "list", "colour=red")
    assert (status, "colour" in error, "NOT SEEN" in error) == (2, True, True)


def test_says_so_if_no_shard_can_be_used() -> None:
    status, out, error = limpyd_jobs("shards", f"--shards={DOWN} {DOWN.replace('0', '1')}", "info")
    assert (status, out, error.count("NOT SEEN")) == (3, "", 2)


def test_a_queue_model_is_that_of_each_shard(urls: str) -> None:
    assert [each["waiting"] for each in shown(urls, "queues", "list", "--queue-model=jobs:queue")] == [5]


def test_shards_with_jobs_and_without_a_worker_at_home_are_named(urls: str) -> None:
    shards = Shards.of_text(urls)
    details = {"queues": ["letters"], "queue_model": "jobs:queue", "lease": 60, "status": "idle"}
    fields = {"kind": "worker", "name": "web1:1", "host": "h", "pid": "1", "details": json.dumps(details)}
    for number, without in ((None, "shards 0, 1"), (0, "shard 1"), (1, None)):
        if number is not None:
            presences.keep(shards.on(WorkerPresence, number), f"worker-{number}", fields, 60, takes_orders="1")
        found = [each["text"] for each in shown(urls, "info")["attention"] if each["code"] == "no_home"]
        what = "delayed jobs, schedules and jobs of dead workers wait there"
        assert found == ([f"No worker of letters is at home in {without}: {what}."] if without else [])
