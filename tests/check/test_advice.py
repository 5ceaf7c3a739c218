"""What the check warns of, although nothing is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from running import fail, succeed, work

from limpyd_jobs import Job, Limit, Queue, WorkerPresence
from limpyd_jobs.check import advice, check
from limpyd_jobs.commands.check import Check
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.records import presences

pytestmark = pytest.mark.usefixtures("redis_client")


class TidyQueue(Queue):
    namespace = "tidy"
    keep_success = keep_errors = 1


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "MANY", 3)


@pytest.mark.parametrize(
    ("callback", "told"),
    [
        (succeed, "keeps 3 jobs that succeeded, and more and more, unless its workers have --keep-success: its class"),
        (fail, "keeps 3 jobs that failed, and more and more, unless its workers have --keep-errors: its class sets no"),
    ],
)
def test_a_list_of_finished_jobs_that_grows_is_warned_of(callback: Any, told: str) -> None:
    for model, number in ((Queue, 3), (TidyQueue, 3), (Queue, 2)):
        name = f"queue of {number}"
        Job.add_jobs(map(str, range(number)), name, queue_model=model)
        work(name, queue_model=model, callback=callback, max_loops=number)
    report = check(database=BaseJobsModel.database, pause=0)
    (warning,) = report.warnings
    assert warning.startswith(f"The queue 'queue of 3' (jobs:queue:1) {told}")
    assert not report.left
    assert " ".join(report.as_table().split()).startswith(f"Warning: {warning} N")
    assert all(len(line) < 80 for line in report.as_table().splitlines()[:-1])


def test_a_warning_changes_the_exit_status_only_if_asked_for(
    jobs_database: Any, capsys: pytest.CaptureFixture[str], redis_client: redis.Redis
) -> None:
    Job.add_jobs([*"abc"], "mails")
    work("mails", max_loops=3)
    socket = redis_client.connection_pool.connection_kwargs["path"]
    for options, status in (([], 0), (["--strict"], 1)):
        assert Check("check", ["--pause=0", f"--database=unix://{socket}", *options]).execute() == status
        assert "Warning: The queue 'mails'" in capsys.readouterr().out


class Limited(Job):
    namespace = "advice"
    queue_name = "q"
    limits = [Limit(concurrency=1)]


def worker_that_says(name: str, **details: Any) -> None:
    told = {"queues": ["q"], "queue_model": "jobs:queue", **details}
    fields = {"kind": "worker", "name": name, "host": "web1", "pid": "12", "details": json.dumps(told)}
    presences.keep(WorkerPresence, name, fields, 60)


def test_workers_that_ignore_the_limits_of_a_class_are_named() -> None:
    worker_that_says("web1:12")
    worker_that_says("web1:13", heeds=["limits"])
    Limited.add_job("a")
    exceeded = f"more jobs may run than the limits of {Limited.get_model_repr()} allow"
    (warning,) = _of_limits()
    assert warning == (
        f"The worker web1:12 ignores limits, as a version from before them. Until you stop it, {exceeded}."
    )
    worker_that_says("web2:7", heeds="x")
    (warning,) = _of_limits()
    assert warning.startswith("2 workers ignore limits, as a version from before them: web1:12, web2:7. Until you")


def test_jobs_with_limits_that_version_2_runs_are_warned_of(redis_client: redis.Redis) -> None:
    job = Limited.add_job("a")
    redis_client.lrem("jobs:queue:1:waiting", 0, job.ident)
    job.status.hset("r")
    (warning,) = _of_limits()
    assert warning.startswith(f"1 job of {Limited.get_model_repr()} runs without a claim, as in version 2. Its workers")


def _of_limits() -> list[str]:
    return [each for each in check(database=BaseJobsModel.database, pause=0).warnings if "limits" in each]


def test_what_is_stored_of_a_class_and_cannot_be_read_is_told(redis_client: redis.Redis) -> None:
    redis_client.hset("limpyd-jobs:classes", "gone.Away", "[")
    (warning,) = check(database=BaseJobsModel.database, pause=0).warnings
    assert warning == "limpyd-jobs:classes has a field that cannot be read, so it is not used: gone.Away"
