"""The dashboard answers programs with the documents that the commands print with ``--json``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asking import PROGRAM, Dashboard
from reading import limpyd_jobs

from limpyd_jobs import Job, Queue, Schedule, WorkerPresence
from limpyd_jobs.query import pause_queue
from limpyd_jobs.records import presences

pytestmark = pytest.mark.usefixtures("redis_client")


class Parcel(Job):
    namespace = "documents"
    queue_name = "parcels"

    def run(self, queue: Queue) -> None: ...


@pytest.fixture
def failed() -> Job:
    """One job that failed, one that runs, one that is delayed, in a queue that is paused."""
    job = Parcel.add_job("one")
    job.claim(owner="web1:12").fail(KeyError("customer"))
    running = Parcel.add_job("two")
    running.claim(owner="web1:12", lease=60)
    Parcel.add_job("three", delayed_for=600)
    pause_queue(Queue._name, "parcels")
    Schedule.add("nightly", Parcel, cron="0 3 * * *")
    details = {
        "queues": ["parcels"],
        "queue_model": Queue._name,
        "lease": 60,
        "status": "busy",
        "done": 3,
        "running": [[running.ident, "two", "2026-01-01 00:00:00"]],
    }
    fields = {"kind": "worker", "name": "web1:12", "host": "web1", "pid": "12", "details": json.dumps(details)}
    presences.keep(WorkerPresence, "12", fields, 60)
    return job


def printed(*words: str) -> Any:
    status, out, error = limpyd_jobs(*words, "--json")
    assert (status, error) == (0, "")
    return json.loads(out)


def steady(found: Any) -> Any:
    """Return a document without what changes from one moment to the next."""
    if isinstance(found, list):
        return [*map(steady, found)]
    if not isinstance(found, dict):
        return found
    passing = ("lease_left", "silent_for", "latency", "trend", "memory", "max_memory")
    return {name: steady(value) for name, value in found.items() if name not in passing}


@pytest.mark.parametrize(
    ("words", "address", "name"),
    [
        (("queues", "list"), "/queues", "queues"),
        (("workers", "list"), "/workers", "workers"),
        (("schedules", "list"), "/schedules", "schedules"),
        (("jobs", "list"), "/jobs", "jobs"),
        (("errors", "groups"), "/errors", "groups"),
        (("audit",), "/audit", "entries"),
    ],
)
def test_lists_have_the_same_rows(failed: Job, words: tuple[str, ...], address: str, name: str) -> None:
    rows = printed(*words)
    assert rows
    assert steady(Dashboard().read(address)[name]) == steady(rows)


def test_a_job_is_the_same_document(failed: Job) -> None:
    found = Dashboard().read(f"/jobs/{failed.ident}")
    assert [found["job"]] == printed("jobs", "show", failed.ident)
    assert found["reasons"] == printed("jobs", "explain", failed.ident)["reasons"]


def test_a_database_is_described_in_the_same_words(failed: Job) -> None:
    found, glance = Dashboard().read("/"), printed("info")
    for name in ("database", "totals", "queues", "attention"):
        assert steady(found[name]) == steady(glance[name])


def test_what_would_be_done_is_the_same_document(failed: Job) -> None:
    form = {"all": "1", "q": "status=error", "spread": "600"}
    counted = Dashboard().post("/jobs/requeue", form, PROGRAM).json
    would = printed("jobs", "requeue", "status=error", "--spread=600", "--dry-run")
    assert {**counted["outcome"], "dry_run": True, "until": ""} == {**would, "until": ""}
    assert counted["outcome"]["until"][:10] == would["until"][:10]
