"""A job that is recorded as running is released from outside, unless its worker is alive."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from limpyd_jobs import STATUSES, ClaimLost, Job, LimpydJobsException, NotAudited, Queue
from limpyd_jobs.query import release_job
from limpyd_jobs.records import audit


class Letter(Job):
    namespace = "releasing"
    queue_name = "letters"


@pytest.fixture
def claim(redis_client: redis.Redis) -> Any:
    first, _ = Letter.add_jobs(["first", "second"])
    return first.claim("me", lease=60)


def lapse(client: redis.Redis, ident: str) -> None:
    client.zadd("jobs:queue:1:_running", {ident: 1})


def test_it_is_refused_while_its_worker_is_alive(claim: Any) -> None:
    with pytest.raises(LimpydJobsException, match=r"^me runs .*Letter:1, and seems to be alive\. If you are sure"):
        release_job(claim.job.ident)
    assert claim.job.status.hget() == STATUSES.RUNNING


def test_by_force_it_waits_at_the_front_and_the_claim_is_fenced(claim: Any, redis_client: redis.Redis) -> None:
    ident = claim.job.ident
    release_job(ident, force=True, dry_run=True)
    assert claim.job.status.hget() == STATUSES.RUNNING
    release_job(ident, force=True)
    assert Queue.get_queue("letters").waiting.lmembers() == [ident, "test_releasing.Letter:2"]
    with pytest.raises(ClaimLost):
        claim.succeed()
    (entry,) = audit.last_entries(redis_client, 5)
    assert (entry["verb"], entry["filter"], entry["how"]) == ("release", ident, "force")


def test_one_whose_lease_ended_needs_no_force(claim: Any, redis_client: redis.Redis) -> None:
    lapse(redis_client, claim.job.ident)
    release_job(claim.job.ident)
    assert claim.job.status.hget() == STATUSES.WAITING


def test_one_without_a_claim_may_be_run_by_version_2(claim: Any, redis_client: redis.Redis) -> None:
    redis_client.hdel("releasing:letter:1:hash", "_claim_token")
    with pytest.raises(LimpydJobsException, match="a worker of version 2 may run it"):
        release_job(claim.job.ident)
    release_job(claim.job.ident, force=True)
    assert claim.job.status.hget() == STATUSES.WAITING


def test_one_that_does_not_run_is_left_alone(claim: Any) -> None:
    for force in (False, True):
        with pytest.raises(LimpydJobsException, match="Letter:2 does not run: it is waiting"):
            release_job("test_releasing.Letter:2", force=force)
    with pytest.raises(LookupError, match="There is no job"):
        release_job("test_releasing.Letter:3")


@pytest.mark.parametrize("key", ["x", "jobs:queue:999", "limpyd-jobs:classes", "limpyd-jobs", "releasing:letter:2"])
def test_one_that_names_no_queue_is_left_alone(claim: Any, redis_client: redis.Redis, key: str) -> None:
    redis_client.hset("releasing:letter:1:hash", "_queue_key", key)
    redis_client.set("limpyd-jobs:hash", "of a wrong type")
    before = {each: redis_client.dump(each) for each in redis_client.scan_iter()}
    for dry_run in (True, False):
        with pytest.raises(
            LimpydJobsException, match=rf"Letter:1 names {key} as its queue, which is not a queue: .*--repair"
        ):
            release_job(claim.job.ident, force=True, dry_run=dry_run)
    assert {each: redis_client.dump(each) for each in redis_client.scan_iter()} == before


def test_without_an_entry_in_the_audit_nothing_is_done_unless_told_so(
    claim: Any, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    redis_client.set(audit.KEY, "x")
    with pytest.raises(NotAudited):
        release_job(claim.job.ident, force=True)
    assert claim.job.status.hget() == STATUSES.RUNNING
    release_job(claim.job.ident, force=True, unaudited=True)
    assert "Not written to the audit: who=" in caplog.text
