"""What was done to many jobs is in the audit, even if the verb was killed in its midst."""

from __future__ import annotations

import os
import pwd
import signal
import sys
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from servers import RedisServer

from limpyd_jobs import Job
from limpyd_jobs.query import JobFilter
from limpyd_jobs.records import audit
from limpyd_jobs.search import walk
from limpyd_jobs.transitions import many

COMMAND = str(Path(sys.executable).parent / "limpyd-jobs")

VERB = """
import os
from limpyd_jobs.query import JobFilter
from limpyd_jobs.search import walk

walk.CHANGES_PER_STEP = 2
def die(looked, most):
    if looked == 4:
        os.kill(os.getpid(), {signal})

JobFilter().delete_all(progress=die)
"""


@pytest.fixture(autouse=True)
def _empty(redis_client: redis.Redis) -> None:
    pass


def killed(server: RedisServer, signal_number: int) -> None:
    for number in range(6):
        Job.add_job(f"{number}", "letters")
    code = VERB.format(signal=signal_number)
    done = preloaded.run([sys.executable, "-c", code], env={**os.environ, "LIMPYD_JOBS_DATABASE": server.url})
    assert done.returncode == -signal_number, done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_verb_that_is_killed_is_in_the_audit_with_what_it_did(
    redis_server: RedisServer, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    killed(redis_server, number)
    (entry,) = audit.last_entries(redis_client, 5)
    assert (entry["verb"], entry["done"], entry["outcome"]) == ("delete", "4", "running")
    assert JobFilter().count().number == 2
    monkeypatch.setattr(audit, "SILENCE", -2)
    (entry,) = audit.last_entries(redis_client, 5)
    assert entry["outcome"] == f"killed or interrupted after 4, last step at {entry['last']}"


def test_what_the_last_step_did_is_in_the_audit_if_the_reply_is_not_read(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-C."""
    for number in range(6):
        Job.add_job(f"{number}", "letters")
    monkeypatch.setattr(walk, "CHANGES_PER_STEP", 2)
    read = many.Changed.of

    def interrupt(reply: Any) -> Any:
        if not Job.collection(identifier="3"):
            raise KeyboardInterrupt
        return read(reply)

    monkeypatch.setattr(many.Changed, "of", interrupt)
    with pytest.raises(KeyboardInterrupt):
        JobFilter().delete_all()
    (entry,) = audit.last_entries(redis_client, 5)
    assert (entry["done"], entry["outcome"]) == ("4", "interrupted by KeyboardInterrupt")
    assert JobFilter().count().number == 2


def test_who_it_was_is_told_beside_who_it_claims_to_be(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    environment = {**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url, "LOGNAME": "mallory", "SUDO_USER": ""}
    preloaded.run([COMMAND, "pause", "letters", "--force"], env=environment, check=True)
    (entry,) = audit.last_entries(redis_client, 5)
    assert entry["who"].split("@")[0] == pwd.getpwuid(os.getuid()).pw_name
    assert entry["claimed"] == "mallory"
    shown = preloaded.run([COMMAND, "audit"], env=environment, check=True).stdout
    assert f"{entry['who']} (as mallory)" in shown


def test_entries_of_before_are_shown(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    redis_client.xadd(audit.KEY, {"who": "ann@web1:1", "verb": "cancel", "filter": "queue=mails", "done": 3})
    done = preloaded.run([COMMAND, "audit"], env={**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url}, check=True)
    assert done.stdout.splitlines()[1].split()[2:] == ["ann@web1:1", "cancel", "queue=mails", "3"]


def test_what_is_not_audited_is_said_and_how_to_do_it_all_the_same(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    redis_client.set(audit.KEY, "x")
    Job.add_job("1", "letters")
    environment = {**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url}
    command = [COMMAND, "jobs", "delete", "--all", "--yes"]
    done = preloaded.run(command, env=environment)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("wrong kind of value. To do it all the same, give --unaudited\n")
    assert done.stderr.startswith("limpyd-jobs jobs: error: not done, because it cannot be written to the audit: ")
    assert preloaded.run([*command, "--unaudited"], env=environment).stdout == "jobs\n1     deleted\n"
