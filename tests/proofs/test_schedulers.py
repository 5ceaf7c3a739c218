"""Schedulers of APScheduler in processes of their own, with our job store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from servers import RedisServer, wait_until

pytest.importorskip("apscheduler")

from limpyd_jobs.contrib.apscheduler import LimpydJobStore

PROGRAM = Path(__file__).with_name("schedulers.py")

OLD = """
from apscheduler.schedulers.blocking import BlockingScheduler
from limpyd_jobs.contrib.apscheduler import LimpydJobStore, ScheduledJob


def note(what):
    ScheduledJob.get_connection().rpush("noted", what)


def main():
    scheduler = BlockingScheduler(timezone="UTC")
    scheduler.add_jobstore(LimpydJobStore(look_again=0.2, allowed=["shop"]))
    scheduler.add_job(note, "date", args=["ready"])
    scheduler.start()
"""
NEW = OLD + "\n\ndef greet():\n    note('greeted')\n"
ADD = """
from apscheduler.schedulers.background import BackgroundScheduler
from limpyd_jobs.contrib.apscheduler import LimpydJobStore

scheduler = BackgroundScheduler(timezone="UTC")
scheduler.add_jobstore(LimpydJobStore(allowed=["shop"]))
scheduler.start(paused=True)
scheduler.add_job("shop:greet", "date", id="greet", misfire_grace_time=None)
"""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.mark.long
@pytest.mark.parametrize("kill_every", [0, 0.5])
def test_each_time_of_a_job_is_seen_to_once_whatever_scheduler_is_killed(redis_binary: str, kill_every: float) -> None:
    options = ["--minutes", "0.2", "--kill-every", str(kill_every), "--redis-server", redis_binary]
    done = subprocess.run([sys.executable, str(PROGRAM), *options], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.fixture
def start(redis_server: RedisServer, tmp_path: Path) -> Iterator[Start]:
    """Start a program of one version of an application, which ends with the test."""
    for version, text in {"old": OLD, "new": NEW}.items():
        (tmp_path / version).mkdir()
        (tmp_path / version / "shop.py").write_text(text)
    with ExitStack() as stack:

        def run(version: str, program: str = "import shop; shop.main()") -> subprocess.Popen[bytes]:
            environment = {
                "PYTHONPATH": os.pathsep.join([str(tmp_path / version), *sys.path]),
                "LIMPYD_JOBS_DATABASE": redis_server.url,
            }
            process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, **environment})
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield run


def wait_for(client: redis.Redis, what: str) -> None:
    """Wait until a job has noted something."""
    assert client.blpop(["noted"], timeout=60) == ("noted", what)


def test_a_job_that_old_code_cannot_run_is_parked_and_run_by_a_new_process(
    redis_client: redis.Redis, start: Start
) -> None:
    start("old")
    wait_for(redis_client, "ready")
    assert start("new", ADD).wait() == 0
    store = LimpydJobStore()
    wait_until(lambda: [*store.jobs.filter(parked="1")] == ["greet"])
    (job,) = store.jobs.instances()
    assert "greet" in job.reason.hget()
    start("new")
    assert {redis_client.blpop(["noted"], timeout=60)[1] for _ in range(2)} == {"ready", "greeted"}
    wait_until(lambda: len(store.jobs) == 0)


def test_a_job_that_old_code_cannot_run_is_run_by_new_code_that_runs_already(
    redis_client: redis.Redis, start: Start
) -> None:
    for version in ("old", "new"):
        start(version)
        wait_for(redis_client, "ready")
    assert start("new", ADD).wait() == 0
    wait_for(redis_client, "greeted")
    wait_until(lambda: len(LimpydJobStore().jobs) == 0)


def test_a_job_that_another_process_adds_is_noticed(redis_client: redis.Redis, start: Start) -> None:
    start("new")
    wait_for(redis_client, "ready")  # and now the scheduler has nothing to wait for
    assert start("new", ADD).wait() == 0
    wait_for(redis_client, "greeted")
