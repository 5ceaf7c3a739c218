"""Who only looks is answered while Redis refuses to write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from reading import limpyd_jobs
from test_silence import keep

from limpyd_jobs import Job, Worker, WorkerPresence
from limpyd_jobs.query import ErrorFilter
from limpyd_jobs.schedules import Schedule

IDENT = "limpyd_jobs.models.Job:1"
COMMANDS = [
    ["info"],
    ["info", "--json"],
    ["workers"],
    ["workers", "show", "--all"],
    ["jobs", "list"],
    ["jobs", "count", "identifier=waits", "status=waiting"],
    ["jobs", "count", "--by=status"],
    ["jobs", "show", IDENT],
    ["jobs", "explain", IDENT],
    ["jobs", "export", "--all"],
    ["jobs", "requeue", "status=error", "--dry-run"],
    ["errors", "list"],
    ["errors", "groups"],
    ["errors", "show"],
    ["queues", "list"],
    ["quarantine", "list"],
    ["schedules", "list"],
    ["stats"],
    ["audit"],
    ["check", "--pause=0"],
]


def of_a_full_redis(client: redis.Redis) -> Callable[[], object]:
    client.config_set("maxmemory", "1")
    return lambda: client.config_set("maxmemory", "0")


def of_a_replica(client: redis.Redis) -> Callable[[], object]:
    client.replicaof("127.0.0.1", 1)
    return lambda: client.replicaof("NO", "ONE")


def of_a_user(client: redis.Redis) -> Callable[[], object]:
    client.execute_command("ACL", "SETUSER", "looker", "on", ">x", "~*", "&*", "+@all", "-@write")
    client.execute_command("ACL", "SETUSER", "default", "-@write")
    return lambda: client.execute_command("ACL", "SETUSER", "default", "+@all")


@pytest.fixture(params=[of_a_full_redis, of_a_replica, of_a_user])
def _refused(request: pytest.FixtureRequest, redis_client: redis.Redis) -> Iterator[None]:
    Job.add_jobs([{"identifier": each, "queue_name": "mails"} for each in ("bad", "good", "waits")])
    Worker("mails", callback=_run, max_loops=2, logger_level=60).run()
    Schedule.add("nightly", Job, interval=3600, queue_name="mails")
    for name in ("web1:1:a", "web1:2:b"):
        keep(redis_client, name)
    redis_client.zadd("jobs:workerpresence:leases", {"web1:2:b": 1})  # it died: nobody who looks deletes it
    redis_client.script_flush()
    undo = request.param(redis_client)
    yield
    undo()


def _run(job: Any, queue: Any) -> None:
    if job.identifier.hget() == "bad":
        raise ValueError("on purpose")


@pytest.mark.matrix(1)
@pytest.mark.usefixtures("_refused")
def test_all_that_asks_is_answered() -> None:
    fingerprint = ErrorFilter().groups().groups[0].fingerprint
    commands = [[*each, fingerprint] if each == ["errors", "show"] else each for each in COMMANDS]
    answers = {" ".join(command): limpyd_jobs(*command) for command in commands}
    assert {command: error for command, (_, _, error) in answers.items() if error} == {}
    assert {command for command, (status, _, _) in answers.items() if status} <= {"check --pause=0"}
    assert [each.name for each in WorkerPresence.alive()] == ["web1:1:a"]
