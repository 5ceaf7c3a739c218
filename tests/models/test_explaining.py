"""Why a job does not run: each reason there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis

from limpyd_jobs import Error, Job, Queue, Retry, Worker, WorkerPresence, transitions
from limpyd_jobs.dates import utcnow
from limpyd_jobs.query import explain_job
from limpyd_jobs.records import presences

pytestmark = pytest.mark.usefixtures("redis_client")

QUEUE = "jobs:queue:1"


def add(identifier: str = "a", **options: Any) -> Job:
    return Job.add_job(identifier, "mails", **options)


def codes(job: Job) -> list[str]:
    assert job.explain().ident == job.ident
    return [reason.code for reason in explain_job(job.ident).reasons]


def text(job: Job, code: str) -> str:
    return next(reason.text for reason in explain_job(job.ident).reasons if reason.code == code)


def run(callback: Any) -> None:
    Worker("mails", callback=callback, max_loops=1, logger_level=60).run()


def test_one_that_waits_is_the_next_or_has_others_before() -> None:
    first, second = add("a"), add("b")
    assert codes(first) == ["next", "no_worker"]
    assert text(second, "jobs_before") == "1 job waits before it in the queue mails."
    for number in range(3):
        add(f"high {number}", priority=5)
    assert text(first, "jobs_before") == "3 jobs wait before it in the queue mails, 3 of them of a higher priority."
    assert "is a worker started for it?" in text(first, "no_worker")


def test_idle_workers_are_of_other_queues(redis_client: redis.Redis) -> None:
    job = add()
    redis_client.zadd("jobs:queue:idle_workers", {"somebody": 5})
    assert "and 1 that are idle serve other queues: is a worker" in text(job, "no_worker")


def test_while_others_run_there_is_a_worker() -> None:
    first, second = add("a"), add("b")
    with first.claim("me"):
        assert codes(second) == ["next"]


@contextmanager
def a_worker(*queues: str, status: str = "idle", queue_model: str = "jobs:queue") -> Iterator[None]:
    """Let somebody say that it is a worker."""
    details = {"queues": queues, "status": status, "queue_model": queue_model}
    fields = {"kind": "worker", "name": "a", "host": "h", "pid": "1", "details": json.dumps(details)}
    pk = f"{status} {queues} {queue_model}"
    client = WorkerPresence.get_connection()
    presences.keep(WorkerPresence, pk, fields, 60, client, takes_orders="1")
    yield
    presences.leave(client, WorkerPresence, pk)


def test_it_is_known_which_queues_workers_serve() -> None:
    job = add()
    with a_worker("news"), a_worker("mails", queue_model="others:queue"):
        assert codes(job) == ["next", "no_worker"]
        assert text(job, "no_worker").startswith("The one worker that is there serves other queues: is one started")
        with a_worker("news", "blog"):
            assert text(job, "no_worker").startswith("All 2 workers that are there serve other queues")
        with a_worker("news", "mails", status="quiet"):
            assert codes(job) == ["next", "workers_quiet"]
            with a_worker("mails", status="stopping"):
                assert "begins jobs (1 quiet, 1 stopping): limpyd-jobs workers resume " in text(job, "workers_quiet")
            with a_worker("mails", status="busy"):
                assert codes(job) == ["next", "workers_busy"]
                assert text(job, "workers_busy") == "No worker of the queue mails is free (1 busy, 1 quiet)."
                with a_worker("mails", status="starting"):
                    assert codes(job) == ["next"]


def test_a_job_of_a_dead_worker_is_no_sign_of_workers(redis_client: redis.Redis) -> None:
    dead, job = add("dead"), add("waits")
    dead.claim("web1:17", lease=100)
    assert codes(job) == ["next"]
    redis_client.zadd(f"{QUEUE}:_running", {dead.ident: 5})
    assert codes(job) == ["next", "no_worker"]
    assert codes(dead) == ["running", "lease_lapsed", "no_worker"]
    assert text(dead, "running").startswith("It is recorded as running, since ")
    assert text(dead, "lease_lapsed").endswith("of the queue mails has to put the job back, but none is there.")
    with a_worker("mails"):
        assert codes(job) == ["next"]
        assert codes(dead) == ["running", "lease_lapsed"]
        assert text(dead, "lease_lapsed").endswith("A worker of the queue mails will put the job back.")


def test_that_nothing_can_be_known_of_workers_changes_nothing(redis_client: redis.Redis) -> None:
    job = add()
    redis_client.set("jobs:workerpresence:leases", "x")
    assert codes(job) == ["next", "no_worker"]


def test_the_queue_may_be_paused() -> None:
    jobs = [add("a"), add("b", delayed_for=60)]
    Queue.pause("mails")
    assert [codes(job) for job in jobs] == [["next", "paused"], ["delayed", "paused"]]
    assert text(jobs[0], "paused") == "The queue mails is paused: limpyd-jobs resume mails"


def test_one_may_be_delayed_or_due(redis_client: redis.Redis) -> None:
    job = add(delayed_for=8000)
    assert text(job, "delayed").startswith(f"It is delayed until {job.delayed_until.hget()} (UTC), for 2 h more.")
    redis_client.zadd(f"{QUEUE}:delayed", {job.ident: 5})
    assert codes(job) == ["due", "no_worker"]
    redis_client.delete(f"{QUEUE}:delayed")
    assert codes(job) == ["not_listed"]


def test_a_retry_is_told() -> None:
    job = add()
    Worker("mails", callback=lambda job, queue: 1 / 0, requeue_times=1, requeue_delay_delta=60, max_loops=1).run()
    assert codes(job) == ["delayed", "retry"]
    assert text(job, "retry") == "Try 1 failed: ZeroDivisionError: division by zero."
    Error.collection().instances()[0].delete()
    assert codes(job) == ["delayed"]


def test_how_many_tries_there_are_is_told_if_the_job_says_so() -> None:
    job = add(retry_policy=Retry(times=4, delay=60))
    Worker("mails", callback=lambda job, queue: 1 / 0, max_loops=1).run()
    assert text(job, "retry") == "Try 1 of 5 failed: ZeroDivisionError: division by zero."
    assert text(job, "delayed").startswith("It is delayed until ")


def test_a_try_that_failed_is_told_of_one_that_waits_already() -> None:
    job = add()
    Worker("mails", callback=lambda job, queue: 1 / 0, requeue_times=1, requeue_delay_delta=0, max_loops=1).run()
    assert codes(job) == ["next", "no_worker", "retry"]


def test_one_that_was_delayed_by_its_code_did_not_fail() -> None:
    job = add()
    until = utcnow() + timedelta(minutes=1)
    run(lambda job, queue: job.enqueue_or_delay("mails", delayed_until=until))
    assert job.tries.hget() == "1"
    assert codes(job) == ["delayed"]


def test_one_may_be_in_no_list(redis_client: redis.Redis) -> None:
    job = add()
    redis_client.delete(f"{QUEUE}:waiting")
    assert codes(job) == ["not_listed"]
    assert "A worker puts such jobs back within 6 minutes, if one lives" in text(job, "not_listed")
    job.queue_key.delete()
    assert codes(job) == ["no_queue"]


def test_its_class_may_be_unknown_to_workers(redis_client: redis.Redis) -> None:
    job = add()
    redis_client.hset(f"{QUEUE}:_deferrals", job.ident, 3)
    assert codes(job)[0] == "deferred"
    assert "could not import its class, 3 times" in text(job, "deferred")
    redis_client.hset(f"{QUEUE}:_deferrals", job.ident, 1)
    assert "could not import its class, once" in text(job, "deferred")


def test_a_deferred_one_is_not_tried_again_without_a_worker(redis_client: redis.Redis) -> None:
    job = add()
    transitions.defer_unresolved(Queue, f"{QUEUE}:waiting", job.ident)
    assert codes(job) == ["deferred", "no_worker"]
    assert text(job, "deferred") == "Workers could not import its class, once: see --pythonpath and --job-modules."
    redis_client.zadd(f"{QUEUE}:_running", {"another": 4_000_000_000})
    assert codes(job) == ["deferred"]
    assert ", once, and try again in " in text(job, "deferred")


def test_it_may_be_in_the_quarantine(redis_client: redis.Redis) -> None:
    job = add()
    redis_client.lpop(f"{QUEUE}:waiting")
    redis_client.rpush(f"{QUEUE}:_quarantine", job.ident)
    for status in "wd":
        job.status.hset(status)
        assert codes(job) == ["quarantined"]
        assert text(job, "quarantined").endswith(f" is mended, limpyd-jobs quarantine retry {job.ident}")


def test_one_that_runs_tells_who_runs_it(redis_client: redis.Redis) -> None:
    job = add()
    claim = job.claim("web1:17", lease=100)
    assert codes(job) == ["running"]
    assert text(job, "running").endswith("by web1:17.")
    redis_client.zadd(f"{QUEUE}:_running", {job.ident: 5})
    assert codes(job) == ["running", "lease_lapsed", "no_worker"]
    assert "The lease of web1:17 ended" in text(job, "lease_lapsed")
    redis_client.delete(f"{QUEUE}:_running")
    assert codes(job) == ["running", "no_lease"]
    job.cancel()
    assert codes(job) == ["running", "cancel_asked", "no_lease"]
    assert claim.owner == "web1:17"


@pytest.mark.parametrize("token", [None, "check:abc"])
def test_one_that_is_not_claimed_is_only_presumed_to_run(redis_client: redis.Redis, token: str | None) -> None:
    job = add()
    job.claim("web1:17", lease=86400)
    redis_client.hdel("jobs:job:1:hash", "_claim_token")
    if token:
        redis_client.hset("jobs:job:1:hash", "_claim_token", token)
    assert codes(job) == ["running", "presumed"]
    assert text(job, "running").startswith("It is recorded as running, since ")
    assert "limpyd-jobs check --repair --lease=0 puts all" in text(job, "presumed")
    assert explain_job(job.ident).reasons[1].command == f"limpyd-jobs jobs release --force {job.ident}"


def test_one_that_ended_tells_how() -> None:
    done, failed, canceled = add("a"), add("b"), add("c")
    canceled.cancel()
    run(lambda job, queue: None)
    run(lambda job, queue: {}["x"])
    assert codes(done) == ["success"]
    assert codes(canceled) == ["canceled"]
    assert codes(failed) == ["error", "not_requeued"]
    assert text(failed, "error").endswith("in try 1: KeyError: 'x'")
    Error.collection().instances()[0].delete()
    assert text(failed, "error").endswith("in try 1. No error of it is found: the log of its worker may tell more")


def test_keys_of_a_wrong_type_are_no_obstacle(redis_client: redis.Redis) -> None:
    job = add()
    for key in ("waiting", "_running", "_deferrals", "_quarantine", "delayed"):
        redis_client.delete(f"{QUEUE}:{key}")
        redis_client.hset(f"{QUEUE}:{key}", "foreign", "x") if key != "_deferrals" else redis_client.set(
            f"{QUEUE}:{key}", "foreign"
        )
    redis_client.set("jobs:queue:paused", "foreign")
    assert codes(job) == ["not_listed"]


def test_what_is_no_job_is_refused() -> None:
    with pytest.raises(LookupError, match="There is no job"):
        explain_job("limpyd_jobs.models.Job:9")
    with pytest.raises(ValueError, match="is not the ident of a job"):
        explain_job("mails")
