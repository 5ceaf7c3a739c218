"""A worker that was killed is called silent, everywhere, until its lease ends."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import redis
from reading import limpyd_jobs

from limpyd_jobs import Job, Presence, WorkerPresence
from limpyd_jobs.models import AliveWorker
from limpyd_jobs.models.explaining.silence import silences
from limpyd_jobs.query import explain_job, job_details, overview, release_job
from limpyd_jobs.records import presences

LEASES = "jobs:workerpresence:leases"
DEAD, ALIVE = "web1:17:aaaaaaaaaaaa", "web1:18:bbbbbbbbbbbb"
SILENT = "silent for 25 s; another worker takes over in 35 s"


def keep(client: redis.Redis, name: str, left: float = 60, queues: Any = ("mails",), **details: Any) -> None:
    """Let a worker be there, whose lease ends in so many seconds."""
    details = {"queues": queues, "queue_model": "jobs:queue", "lease": 60, "status": "busy", **details}
    fields = {"kind": "worker", "name": name, "host": "web1", "pid": "17", "details": json.dumps(details)}
    presences.keep(WorkerPresence, name, fields, 60, client, takes_orders="1")
    end_in(client, LEASES, name, left)


def end_in(client: redis.Redis, key: str, member: str, seconds: float) -> None:
    now: Any = client.time()
    client.zadd(key, {member: now[0] + now[1] / 1e6 + seconds})


@pytest.fixture
def job(redis_client: redis.Redis) -> Job:
    """A job of a worker that was killed 25 seconds ago."""
    job = Job.add_job("slow", "mails")
    job.claim(DEAD, lease=60)
    end_in(redis_client, "jobs:queue:1:_running", job.ident, 35)
    keep(redis_client, DEAD, 35, running=[[job.ident, "slow", "2026-01-01 00:00:00"]])
    return job


def at_first(text: str) -> str:
    """What was said if no time had passed since."""
    text = re.sub(r"silent for (2[5-9]|[34]\d) s", "silent for 25 s", text)
    return re.sub(r"in (3[0-5]|[12]\d) s", "in 35 s", text)


def reasons(job: Job) -> dict[str, str]:
    return {reason.code: at_first(reason.text) for reason in explain_job(job.ident).reasons}


def worker(name: str = DEAD) -> AliveWorker:
    return next(each for each in WorkerPresence.alive() if each.name == name)


def test_it_runs_no_job_that_was_released_or_ended(job: Job, redis_client: redis.Redis) -> None:
    assert [each.ident for each in worker().running] == [job.ident]
    release_job(job.ident)
    assert worker().running == []
    keep(redis_client, DEAD, 35, running=[["elsewhere.Unknown:1", "a", "2026-01-01 00:00:00"]])
    assert len(worker().running) == 1


def test_who_asks_is_told_so(job: Job, redis_client: redis.Redis) -> None:
    keep(redis_client, ALIVE, status="idle")
    assert [each.status for each in overview().workers] == ["silent", "idle"]
    assert at_first(silences(WorkerPresence.alive())[DEAD]) == SILENT
    assert ALIVE not in silences(WorkerPresence.alive())
    assert at_first(job_details(job.ident).silence) == SILENT
    told = reasons(job)
    assert told["running"].startswith("It is recorded as running, since ")
    assert told["worker_silent"] == f"{DEAD} has been {SILENT}."


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["workers", "list"], f"{DEAD}: {SILENT}"),
        (["workers", "list", DEAD], f"{DEAD}: {SILENT}"),
        (["workers", "show", DEAD], f"status {SILENT}"),
        (["info"], f"The worker {DEAD} has been {SILENT}."),
        (["jobs", "explain", "limpyd_jobs.models.Job:1"], f"{DEAD} has been {SILENT}."),
        (["jobs", "show", "limpyd_jobs.models.Job:1"], f"claimed by {DEAD}, {SILENT}"),
    ],
)
@pytest.mark.usefixtures("job")
def test_each_command_says_so(redis_client: redis.Redis, command: list[str], line: str) -> None:
    keep(redis_client, ALIVE, status="idle")
    status, out, error = limpyd_jobs(*command)
    assert (status, error) == (0, "")
    assert line in [" ".join(each.split()) for each in at_first(out).splitlines()]
    assert "busy" not in out


@pytest.mark.usefixtures("job")
def test_programs_are_told_so() -> None:
    (told,) = json.loads(limpyd_jobs("workers", "list", "--json")[1])
    assert (told["status"], round(told["silent_for"] + told["lease_left"])) == ("silent", 60)
    assert len(told["running"]) == 1


@pytest.mark.parametrize(
    ("name", "changes"),
    [("nobody", {}), (ALIVE, {"queues": ["news"]}), (ALIVE, {"left": 35}), (ALIVE, {"status": "stopping"})],
)
def test_no_process_is_said_to_take_over_who_does_not(
    job: Job, redis_client: redis.Redis, name: str, changes: dict[str, Any]
) -> None:
    if name != "nobody":
        keep(redis_client, name, **changes)
    alone = "silent for 25 s; its lease ends in 35 s, and no other worker of its queues is there"
    assert at_first(silences(WorkerPresence.alive())[DEAD]) == alone
    assert at_first(job_details(job.ident).silence) == alone


@pytest.mark.parametrize(
    ("status", "then"),
    [
        ("busy", "another worker takes over once it has ended its own job"),
        ("quiet", "a quiet worker puts its jobs back, to wait for another one"),
    ],
)
def test_one_that_cannot_take_over_at_once_is_not_said_to(
    job: Job, redis_client: redis.Redis, status: str, then: str
) -> None:
    keep(redis_client, ALIVE, status=status)
    told = f"silent for 25 s; its lease ends in 35 s, and {then}"
    assert at_first(silences(WorkerPresence.alive())[DEAD]) == told
    assert at_first(job_details(job.ident).silence) == told


def test_a_job_whose_lease_ended_is_not_shown_as_running(job: Job, redis_client: redis.Redis) -> None:
    end_in(redis_client, "jobs:queue:1:_running", job.ident, -5)
    end_in(redis_client, LEASES, DEAD, -5)
    told = "Of 1 job recorded as running in mails, the lease of 1 ended."
    assert f"{told} No worker is there to put such jobs back." in " ".join(limpyd_jobs("info")[1].split())
    keep(redis_client, ALIVE)
    assert f"{told} A worker puts such jobs back between two others." in " ".join(limpyd_jobs("info")[1].split())
    assert f"lease ended of what is shown as running: {job.ident}\n" in limpyd_jobs("jobs", "list")[2]
    seen = overview(most_running=5)
    assert (seen.queues[0].lapsed, seen.lapsed) == (1, {job.ident})
    assert "will put the job back, once it has ended its own." in reasons(job)["lease_lapsed"]


def test_other_jobs_of_the_queue_are_told_so(job: Job, redis_client: redis.Redis) -> None:
    waiting = Job.add_job("waits", "mails")
    assert reasons(waiting)["workers_silent"].startswith(
        f"No worker of the queue mails gives a sign of life: {DEAD} has been"
    )
    keep(redis_client, ALIVE)
    assert reasons(waiting)["workers_busy"] == "No worker of the queue mails is free (1 busy, 1 silent)."
    assert "worker_silent" in reasons(job)


def test_a_job_that_it_began_after_its_last_sign_of_life_is_told_so(job: Job, redis_client: redis.Redis) -> None:
    job.start.hset("2026-01-01 00:00:00")
    presences.leave(redis_client, WorkerPresence, DEAD)
    keep(redis_client, ALIVE, status="idle")
    told = reasons(job)["worker_silent"]
    assert told == f"{DEAD} is not among the workers that are there; if it died, another worker takes over in 35 s."
    job.start.hset("2999-01-01 00:00:00")  # it has just begun, and registers within a second or two
    assert "worker_silent" not in reasons(job)


def test_who_holds_a_claim_of_an_integration_is_told_so(redis_client: redis.Redis) -> None:
    posting = Job.add_job("posting", "board")
    posting.claim("conductor 1", lease=60)
    with Presence.register("conductor", "conductor 1", lease=60):
        assert "worker_silent" not in reasons(posting)
        end_in(redis_client, "jobs:presence:leases", "1", 20)
        told = reasons(posting)["worker_silent"]
    assert told.startswith("conductor 1 has been silent for 25 s; its claim ends in ")


def test_a_job_of_one_that_is_silent_is_released_without_force(job: Job) -> None:
    release_job(job.ident)
    assert job.status.hget() == "w"


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("verb", ["stop", "quiet", "dump"])
def test_who_orders_something_of_it_is_told_so(redis_client: redis.Redis, verb: str) -> None:
    keep(redis_client, ALIVE, status="idle")
    status, out, error = limpyd_jobs("workers", verb, DEAD, ALIVE)
    assert (status, out) == (0, f"{DEAD}: asked\n{ALIVE}: asked\n")
    forgotten = f"limpyd-jobs workers: {DEAD} may not obey: in 60 s the order is forgotten"
    assert at_first(error) == f"limpyd-jobs workers: {DEAD}: {SILENT}\n{forgotten}\n"


def test_workers_of_several_queue_models_are_told_apart(redis_client: redis.Redis) -> None:
    keep(redis_client, DEAD)
    keep(redis_client, ALIVE, queue_model="shop:queue")
    head, *rows = limpyd_jobs("workers", "list")[1].splitlines()
    assert [line.split()[-1] for line in (head, *rows)] == ["model", "jobs:queue", "shop:queue"]
    status, told, error = limpyd_jobs("info", "--queue-model=jobs:queue")  # as the column shows it
    assert (status, error) == (0, "")
    assert DEAD in told
    assert ALIVE not in told
