"""Adding a job while another one of its identifier runs: it begins once that has ended, however it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
import redis
from cases import each
from invariants import violations
from running import work, worker_of, working
from servers import wait_until

from limpyd_jobs import Argument, Claim, Error, Job, Queue, Retry
from limpyd_jobs.check import check
from limpyd_jobs.query import release_job

LATER = datetime(2099, 1, 1)


class Saved(Job):
    namespace = "follow"
    queue_name = "queue"
    text = Argument(str)

    def run(self, queue: Queue) -> None:
        ran.append(self.arguments.text)


ran: list[str] = []


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    """All invariants hold after each test."""
    ran.clear()
    yield
    assert violations(redis_client, Saved, Queue, Error) == []


def save(text: str, **options: Any) -> Saved:
    return Saved.add_job("a", text=text, on_duplicate="replace_or_follow", **options)


def claimed(text: str = "first", **options: Any) -> Claim[Saved]:
    return save(text, **options).claim(owner="me", lease=1000)


def set_lease(job: Saved, until: float) -> None:
    Queue.get_queue("queue").running.zadd({job.ident: until})


def let_be_due(job: Saved) -> None:
    Queue.get_queue("queue").delayed.zadd({job.ident: 1})
    job.delayed_until.hset("2020-01-01 00:00:00")


def test_the_last_of_the_calls_that_come_while_it_runs_begins_once_it_has_ended() -> None:
    claim = claimed()
    second, third = save("second"), save("third")
    assert (second.add_outcome, third.add_outcome, third == second) == ("added", "replaced", True)
    assert next(reason.code for reason in third.explain().reasons) == "follows"
    assert check(pause=0).findings == []
    assert Saved.add_job("a", text="fourth").add_outcome == "existing"
    claim.succeed()
    work(callback=None)
    assert (ran, third.status.hget()) == (["third"], "s")


def test_a_queued_job_is_replaced_as_ever() -> None:
    first = save("first")
    second = save("second")
    assert (second.add_outcome, second) == ("replaced", first)


ENDS: dict[str, tuple[Callable[[Claim[Saved]], Any], str]] = {
    "a success": (lambda claim: claim.succeed(), "s"),
    "an error that would be tried again": (lambda claim: claim.fail(ValueError("no")), "e"),
    "a cancel": (lambda claim: claim.cancel(), "c"),
    "a release": (lambda claim: claim.release(), "c"),
    "a release for later": (lambda claim: claim.release(delayed_for=100), "c"),
    "a release by command": (lambda claim: release_job(claim.job.ident, force=True), "c"),
    "a delay by its code": (lambda claim: (claim.job.enqueue_or_delay("queue", 0, LATER), claim.release()), "c"),
}


@each("name", ENDS)
def test_it_is_not_put_back_if_another_one_follows_it(name: str, redis_client: redis.Redis) -> None:
    redis_client.flushdb()
    end, status = ENDS[name]
    claim = claimed(retry_policy=Retry(times=3, delay=0))
    second = save("second")
    end(claim)
    assert claim.job.hmget("status", "queued", "_claim_token", "_followed_by") == [status, None, None, None]
    assert second.hmget("status", "_follows") == ["w", None]


def test_why_it_was_not_put_back_is_said() -> None:
    claim = claimed()
    second = save("second")
    claim.release()
    assert f"job {second.pk.get()}, added while it ran, begins instead" in str(claim.job.explain())


def test_it_is_tried_again_if_the_one_that_was_to_follow_was_canceled_or_deleted() -> None:
    claim = claimed(retry_policy=Retry(times=3, delay=0))
    save("second").cancel()
    third = save("third")
    assert third.add_outcome == "added"
    third.delete()
    claim.fail(ValueError("no"))
    assert claim.job.status.hget() == "w"
    assert save("fourth") == claim.job


def test_the_own_delay_of_the_one_that_follows_is_kept() -> None:
    claim = claimed()
    second = save("second", delayed_until=LATER)
    claim.succeed()
    assert second.hmget("status", "delayed_until") == ["d", str(LATER)]


def test_one_whose_worker_died_is_canceled_and_the_other_begins() -> None:
    claim = claimed()
    second = save("second")
    set_lease(claim.job, 1)
    work(callback=None)
    assert (ran, second.status.hget()) == (["second"], "s")
    assert claim.job.hmget("status", "queued", "_claim_token") == ["c", None, None]


def test_it_begins_not_before_the_lease_of_the_other_has_ended_and_then_alone() -> None:
    claim = claimed()
    second = save("second")
    let_be_due(second)
    work(timeout=0.1, burst=True, callback=None)
    assert (ran, second.status.hget()) == ([], "d")
    set_lease(claim.job, 1)
    let_be_due(second)
    with second.claim(owner="other"):
        assert claim.job.hmget("status", "queued", "_claim_token") == ["c", None, None]


def test_nothing_follows_a_job_that_version_2_runs(redis_client: redis.Redis) -> None:
    found = save("first")
    redis_client.lrem("jobs:queue:1:waiting", 0, found.ident)
    found.status.hset("r")
    assert save("second").add_outcome == "running"
    found.status.hset("c")
    found.queued.delete()


def test_many_are_added_in_one_step() -> None:
    claim = claimed()
    jobs = Saved.add_jobs([{"identifier": each, "text": each} for each in "aba"], on_duplicate="replace_or_follow")
    assert [job.add_outcome for job in jobs] == ["added", "added", "replaced"]
    claim.succeed()


def test_whatever_is_saved_last_runs_last(redis_client: redis.Redis) -> None:
    worker = worker_of(callback=None, max_loops=10_000)
    with working(worker):
        outcomes = {save(str(number)).add_outcome for number in range(150)}
        wait_until(lambda: redis_client.scard("follow:saved:queued:1") == 0, "the end of all jobs")
        worker.end_forced = True
    assert outcomes <= {"added", "replaced"}
    assert (ran[-1], ran) == ("149", sorted(ran, key=int))
