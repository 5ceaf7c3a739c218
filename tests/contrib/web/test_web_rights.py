"""What users of Redis with few rights may do: the lines of the manual are enough for what it says."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from asking import Dashboard
from orders import Order
from running import work
from servers import RedisServer

from limpyd_jobs import STATUSES
from limpyd_jobs.check import check
from limpyd_jobs.classes import binding
from limpyd_jobs.redis.database import JobsDatabase

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "production.rst"
LINES = dict(re.findall(r"^    user (\S+) on (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))

# All that is not dangerous, as many hosters give it to an application.
LINES["hosted"] = ">secret ~jobs:* ~myapp:* ~limpyd-jobs:* +@all -@dangerous"

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

Run = Callable[..., str]
Turn = Callable[[str], Run]


@pytest.fixture(autouse=True)
def _classes_of_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know no models of other tests, and of integrations that these import: these users may not read their keys."""
    all_of = binding.concrete

    def concrete(base: type) -> Any:
        library, _, part = base.__module__.partition(".")
        is_known = base.__module__ == Order.__module__ or (library.startswith("limpyd") and part[:7] != "contrib")
        return all_of(base) if is_known else ()

    monkeypatch.setattr(binding, "concrete", concrete)


@pytest.fixture
def turn_to(redis_server: RedisServer, redis_client: redis.Redis, jobs_database: JobsDatabase) -> Iterator[Turn]:
    """Let all that follows be done by a user, and return a function that runs a command of ``limpyd-jobs``: in a
    process of its own, which knows no models of other tests."""

    def turn(name: str) -> Run:
        words = LINES[name].split()
        redis_client.execute_command("ACL", "SETUSER", name, "reset", "on", *words)
        password = next(word[1:] for word in words if word.startswith(">"))
        jobs_database.reset(unix_socket_path=redis_server.socket, username=name, password=password)
        url = redis_server.url.replace("://", f"://{name}:{password}@")
        environment = {**os.environ, "LIMPYD_JOBS_DATABASE": url, "PYTHONPATH": str(Path(__file__).parent)}

        def run(*words: str, status: int = 0) -> str:
            done = preloaded.run([COMMAND, *words], env=environment)
            assert (done.returncode, done.stderr) == (status, ""), words
            return done.stdout

        return run

    yield turn
    jobs_database.reset(unix_socket_path=redis_server.socket)
    redis_client.execute_command("ACL", "DELUSER", *LINES)


def look(run: Run) -> str:
    """Look at what is there, by the command and by the dashboard; return what the command says."""
    dashboard = Dashboard()
    for address in ("/", "/queues", "/jobs", "/workers", "/errors", "/schedules"):
        assert dashboard.get(address).status == 200, address
    for words in ("check --pause=0", "backlog --queues=orders", "stats", "jobs list"):
        run(*words.split())
    return run("info")


@pytest.mark.proof
def test_those_of_the_manual_are_enough(turn_to: Turn) -> None:
    assert {*LINES} == {"producer", "worker", "looker", "actor", "hosted"}
    turn_to("producer")
    job = Order.add_job("first")
    other = Order.add_job("second", priority=-1)
    turn_to("worker")
    work("orders", max_loops=1)
    assert job.status.hget() == STATUSES.SUCCESS
    assert "memory unknown" not in look(turn_to("looker"))
    with pytest.raises(redis.ResponseError):
        Order.add_job("third")
    run = turn_to("actor")
    look(run)
    run("jobs", "cancel", str(other.ident), "--yes")
    assert other.status.hget() == STATUSES.CANCELED


@pytest.mark.proof
def test_what_a_user_may_not_ask_is_unknown_and_the_rest_is_shown(turn_to: Turn, redis_client: redis.Redis) -> None:
    redis_client.set("apscheduler:other", "of another program")
    run = turn_to("hosted")
    job = Order.add_job("first")
    work("orders", max_loops=1)
    assert job.status.hget() == STATUSES.SUCCESS
    assert ", memory unknown\n" in look(run)
    told = " ".join(run("check", "--pause=0").split())
    assert "Not looked at: apscheduler:*, which this user of Redis may not read" in told


def test_a_strict_check_says_that_it_cannot_read_the_policy(turn_to: Turn) -> None:
    told = turn_to("hosted")("check", "--pause=0", "--strict", status=1)
    assert "Warning: Whether Redis deletes jobs when its memory is full cannot be read:" in told


def test_a_strict_check_warns_of_a_policy_that_deletes_jobs(redis_binary: str, jobs_database: JobsDatabase) -> None:
    with RedisServer(redis_binary, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru") as server:
        jobs_database.reset(unix_socket_path=server.socket)
        assert check(pause=0).warnings == []
        (warning,) = check(pause=0, strict=True).warnings
    assert warning.endswith("when its memory is full: set maxmemory-policy to noeviction, not allkeys-lru.")
