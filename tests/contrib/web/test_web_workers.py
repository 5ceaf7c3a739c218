"""Workers are looked at and steered in the dashboard, and what people did is in its audit."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from asking import Dashboard
from reading import limpyd_jobs

from limpyd_jobs import Job, WorkerPresence
from limpyd_jobs.records import presences
from limpyd_jobs.records.presences import ENDED

pytestmark = pytest.mark.usefixtures("redis_client")

NAME, OTHER = "web1:17:aaaaaaaaaaaa", "web1:18:bbbbbbbbbbbb"


class Mail(Job):
    namespace = "web-workers"
    queue_name = "mails"


def sign(client: redis.Redis, name: str = NAME, **details: Any) -> list[str]:
    """Let a worker give a sign of life; return what it is asked for."""
    details = {"queues": ["mails"], "queue_model": "jobs:queue", "lease": 60, "status": "idle", **details}
    fields = {"kind": "worker", "name": name, "host": "web1", "pid": "17", "details": json.dumps(details)}
    orders = presences.keep(WorkerPresence, name, fields, 60, client, takes_orders="1").orders
    return [json.loads(order)[0] for order in orders]


def test_workers_are_shown_with_what_they_run_and_for_how_long(redis_client: redis.Redis) -> None:
    job = Mail.add_job("one")
    job.claim(NAME, lease=60)
    sign(redis_client, running=[[job.ident, "one", "2026-01-01 00:00:00"]], status="busy")
    sign(redis_client, OTHER, queues=["others"])
    dashboard = Dashboard()
    shown = dashboard.read("/workers?queue=mails")
    [worker] = shown["workers"]
    assert (shown["number"], worker["name"], worker["status"], worker["silence"]) == (1, NAME, "busy", "")
    assert worker["running"][0]["ident"] == job.ident
    assert "</a> for " in dashboard.get("/workers").shown
    assert [each["name"] for each in dashboard.read("/workers?status=idle")["workers"]] == [OTHER]
    assert f'href="/jobs/{job.ident}"' in dashboard.get("/workers").text
    short = dashboard.get("/workers?limit=1").shown
    assert "The first 1 are shown." in short
    masked = Dashboard(masked=["identifier"]).read(f"/workers/{NAME}")["worker"]
    assert [each["identifier"] for each in masked["running"]] == ["(masked)"]


def test_a_silent_worker_is_named_so_with_what_comes_next(redis_client: redis.Redis) -> None:
    sign(redis_client)
    sign(redis_client, OTHER)
    seconds, _ = redis_client.time()  # type: ignore[misc]
    redis_client.zadd("jobs:workerpresence:leases", {NAME: seconds + 30})
    dashboard = Dashboard()
    silent = next(each for each in dashboard.read("/workers")["workers"] if each["name"] == NAME)
    assert silent["status"] == "silent"
    assert silent["silence"].startswith("silent for ")
    assert "another worker takes over in " in dashboard.get(f"/workers/{NAME}").shown


def test_all_pages_have_the_same_slots_without_those_of_silent_workers(redis_client: redis.Redis) -> None:
    Mail.add_job("one")
    sign(redis_client, options={"concurrency": 6}, running=[["a:1", "", ""]], status="busy")
    sign(redis_client, OTHER, options={"concurrency": 4}, running=[["a:2", "", ""]], status="busy")
    sign(redis_client, "odd", options={"concurrency": 0})
    seconds, _ = redis_client.time()  # type: ignore[misc]
    redis_client.zadd("jobs:workerpresence:leases", {OTHER: seconds + 30})
    dashboard = Dashboard()
    assert "<b>1 of 7</b> slots are busy" in dashboard.get("/workers").shown
    assert dashboard.read("/")["slots"] == 7
    assert "of 7 slots" in dashboard.get("/").shown


@pytest.mark.parametrize("verb", ["quiet", "resume", "dump", "stop"])
def test_workers_are_asked_for_something(verb: str, redis_client: redis.Redis) -> None:
    sign(redis_client)
    sign(redis_client, OTHER)
    dashboard = Dashboard()
    asked = {"worker": dashboard.read(f"/workers/{NAME}")["worker"]["name"]}
    assert dashboard.do(f"/workers/{verb}", asked)["outcome"].startswith("1 worker asked.")
    assert (sign(redis_client), sign(redis_client, OTHER)) == ([verb], [])
    dashboard.do(f"/workers/{verb}", {"all": "1"})
    assert (sign(redis_client), sign(redis_client, OTHER)) == ([verb], [verb])
    assert dashboard.post(f"/workers/{verb}", {"worker": "gone"}).status == 400
    entries = dashboard.read(f"/audit?q={verb}")["entries"]
    assert [(each["filter"], each["who"].partition(" by ")[0]) for each in entries[-1:]] == [
        (f"worker={NAME}", "local")
    ]


def test_to_stop_a_worker_is_confirmed_first(redis_client: redis.Redis) -> None:
    sign(redis_client)
    asked = Dashboard().post("/workers/stop", {"worker": NAME})
    assert "1 worker" in asked.shown
    assert sign(redis_client) == []


def test_the_last_dump_of_a_worker_is_shown(redis_client: redis.Redis) -> None:
    sign(redis_client)
    dashboard = Dashboard()
    assert dashboard.read(f"/workers/{NAME}")["dump"] is None
    presences.keep_dump(redis_client, WorkerPresence, NAME, "2026-01-01 00:00:00\ndump asked by ann: <b>\x1b[1m")
    shown = dashboard.get(f"/workers/{NAME}").text
    assert "dump asked by ann: &lt;b&gt;\\x1b[1m" in shown
    assert dashboard.get("/workers/gone").status == 404
    told = limpyd_jobs("workers", "show", NAME)[1]
    assert (
        "its answer to the last dump, as of 2026-01-01 00:00:00 by its clock:\n  dump asked by ann: <b>\\x1b[1m" in told
    )


def test_the_audit_shows_who_did_what(redis_client: redis.Redis) -> None:
    Mail.add_job("one")
    dashboard = Dashboard()
    dashboard.do("/queues/clear", {"queue": "mails"})
    dashboard.do("/queues/pause", {"queue": "mails"})
    last, *_ = dashboard.read("/audit?limit=1")["entries"]
    assert (last["verb"], last["done"], last["outcome"]) == ("pause", 1, "complete")
    page = dashboard.get("/audit?q=delete").shown
    assert page.count("status=") >= 1
    assert "local by " in page


def test_workers_that_cannot_be_read_are_not_shown_as_none(redis_client: redis.Redis) -> None:
    redis_client.set(ENDED, "of another program")
    assert f"{ENDED} is a string, not a stream" in Dashboard().get("/workers").shown
