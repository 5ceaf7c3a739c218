"""``limpyd-jobs jobs follow`` and ``jobs list --watch``: what becomes of jobs is seen as it happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from reading import limpyd_jobs
from running import worker_of, working
from servers import RedisServer

from limpyd_jobs import Job, Queue
from limpyd_jobs.commands.shared import watching

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

pytestmark = pytest.mark.usefixtures("redis_client")


def test_a_job_is_followed_until_its_end(redis_server: RedisServer) -> None:
    goes_on = threading.Event()

    def run(job: Job, queue: Queue) -> None:
        job.log("opened the file")
        job.progress(0.5, "half of it")
        job.emit("a chunk")
        assert goes_on.wait(30)
        job.log("closed the file")

    job = Job.add_job("one", "queue")
    environ = {**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url}
    command = [COMMAND, "jobs", "follow", job.ident]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting in queue\n"
        with working(worker_of(callback=run, max_loops=1)):
            shown = [process.stdout.readline() for _ in range(4)]
            goes_on.set()
            shown += process.stdout
        assert process.wait(30) == 0
    text = "".join(shown)
    assert text.index("opened the file") < text.index("closed the file") < text.index("success\n")
    assert "running, try 1 by " in text
    assert " 50% half of it\n" in text
    assert text.index('> "a chunk"\n') < text.index("closed the file")


def test_its_output_is_shown_as_it_comes() -> None:
    job = Job.add_job("one", "queue")
    claim = job.claim("ann")
    job.emit({"delta": "Hel"}, "\x1b[31m")
    claim.fail(ValueError("failed"))
    job.requeue()
    claim = job.claim("bob")
    job.emit(*range(250))
    claim.succeed()
    status, out, _ = limpyd_jobs("jobs", "follow", job.ident)
    lines = out.splitlines()
    assert (status, lines[-1]) == (0, "success")
    assert lines[:3] == ['> {"delta":"Hel"}', '> "\\u001b[31m"', "run 2 of the job:"]
    assert lines[3:-1] == [f"> {number}" for number in range(250)]


def test_a_script_gets_its_output_alone_and_goes_on_after_a_chunk() -> None:
    job = Job.add_job("one", "queue")
    claim = job.claim("ann")
    job.progress(0.5)
    job.emit("a", {"b": 1})
    claim.fail(ValueError("failed"))
    status, out, _ = limpyd_jobs("jobs", "follow", job.ident, "--jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (status, [(each["value"], each["run"]) for each in rows]) == (1, [("a", 1), ({"b": 1}, 1)])
    assert limpyd_jobs("jobs", "follow", job.ident, "--jsonl", f"--after={rows[0]['id']}")[1] == out.splitlines(True)[1]
    status, _, error = limpyd_jobs("jobs", "follow", job.ident, "--after=rubbish")
    assert (status, "'rubbish'" in error, "Traceback" in error) == (2, True, False)


def test_the_exit_status_says_how_a_job_ended() -> None:
    jobs = {status: Job.add_job(status, "queue") for status in "sec"}
    for status, job in jobs.items():
        job.status.hset(status)
    assert [limpyd_jobs("jobs", "follow", job.ident)[0] for job in jobs.values()] == [0, 1, 4]
    status, _, error = limpyd_jobs("jobs", "follow", "limpyd_jobs.models.Job:77")
    assert (status, "limpyd_jobs.models.Job:77" in error) == (2, True)


def test_a_list_is_shown_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([None, True])
    Job.add_job("one", "queue")
    monkeypatch.setattr(watching.look_again, "__defaults__", (lambda seconds: next(waits),))
    status, out, _ = limpyd_jobs("jobs", "list", "--watch")
    assert (status, out.count("limpyd_jobs.models.Job:1  one")) == (0, 2)
    assert "--every needs --watch" in limpyd_jobs("jobs", "list", "--every=1")[2]
