"""What can be claimed, and what cannot."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
import redis
from cases import each
from postings import Homeless, Posting, board, lapse
from running import delayed_and_due, work
from servers import RedisServer

from limpyd_jobs import (
    STATUSES,
    AlreadyClaimed,
    Claim,
    JobGone,
    LimpydJobsException,
    NotClaimable,
    Queue,
)
from limpyd_jobs.dates import datetime_to_score
from limpyd_jobs.redis.database import JobsDatabase

pytestmark = pytest.mark.usefixtures("redis_client", "consistent")


class TestWhatCannotBeClaimed:
    def test_what_a_process_holds(self) -> None:
        job = Posting.add_job("a")
        claim = job.claim("an owner/1", lease=100)
        with pytest.raises(AlreadyClaimed, match="claimed already, by an owner/1, until") as info:
            Posting.get(job.pk.get()).claim()
        assert info.value.owner == job.claim_owner() == "an owner/1"
        assert info.value.until is not None
        assert datetime_to_score(info.value.until) == board().running.zscore(job.ident)
        claim.succeed()
        assert job.claim_owner() is None

    def test_what_a_worker_runs(self) -> None:
        owners = []

        def run(job: Posting, queue: Queue) -> None:
            with pytest.raises(AlreadyClaimed) as info:
                Posting.get(job.pk.get()).claim()
            owners.append((info.value.owner, job.claim_owner()))

        job = Posting.add_job("a")
        work("board", callback=run)
        assert job.status.hget() == STATUSES.SUCCESS
        ((owner, same),) = owners
        assert owner == same
        assert f":{os.getpid()}:" in str(owner)

    @pytest.mark.parametrize("end", ["succeed", "cancel"])
    def test_what_is_finished(self, end: str) -> None:
        job = Posting.add_job("a")
        getattr(job.claim(), end)()
        with pytest.raises(NotClaimable, match=STATUSES.by_value(job.status.hget())) as info:
            job.claim()
        assert info.value.status == job.status.hget()

    def test_what_is_delayed_until_later(self) -> None:
        job = Posting.add_job("a", delayed_for=1000)
        with pytest.raises(NotClaimable, match=f"DELAYED, until {job.delayed_until.hget()}"):
            job.claim()
        job.enqueue_or_delay()
        job.claim().succeed()

    def test_what_was_deleted(self) -> None:
        job = Posting.add_job("a")
        copy = Posting.get(job.pk.get())
        job.cancel()
        job.delete()
        with pytest.raises(JobGone):
            copy.claim()

    def test_what_stands_in_no_queue_and_has_none(self) -> None:
        with pytest.raises(LimpydJobsException, match="name not defined"):
            Homeless(identifier="a").claim()
        job = Homeless.add_job("b", "board")
        job.claim().fail(ValueError())
        job.requeue()
        assert Queue.get_queue("board").waiting.lmembers() == [job.ident]
        job.claim().succeed()

    @each("lease", [0, -1, float("nan"), float("inf"), 1e12, 10**400, True, "60", None, timedelta(1)])
    def test_for_no_time(self, lease: Any) -> None:
        job = Posting.add_job("a")
        with pytest.raises(ValueError, match="lease must be a number of seconds"):
            job.claim(lease=lease)
        claim = job.claim()
        with pytest.raises(ValueError, match="lease must be a number of seconds"):
            claim.renew(lease or 0)
        claim.succeed()

    @pytest.mark.parametrize(
        ("owner", "kind"), [(7, TypeError), (b"me", TypeError), ("", ValueError), ("x" * 1025, ValueError)]
    )
    def test_by_no_process(self, owner: Any, kind: type[Exception]) -> None:
        job = Posting.add_job("a")
        with pytest.raises(kind):
            job.claim(owner)
        assert job.status.hget() == STATUSES.WAITING


class TestWhatCanBeClaimed:
    def test_what_is_paused(self) -> None:
        Queue.pause("board")
        with Posting.add_job("a").claim() as claim:
            pass
        assert claim.status == STATUSES.SUCCESS
        Queue.resume("board")

    def test_what_is_delayed_and_due(self) -> None:
        delayed_and_due(Posting, "a").claim().succeed()
        assert board().delayed.zmembers() == []

    def test_what_was_made_as_a_record(self) -> None:
        job = Posting(identifier="a")
        with job.claim() as claim:
            assert claim.queue.name.hget() == "board"
        assert board().success.lmembers() == [job.ident]

    def test_what_was_added_to_the_queue_of_another_model(self) -> None:
        class Elsewhere(Queue):
            namespace = "claiming-elsewhere"

        job = Posting.add_job("a", queue_model=Elsewhere)
        with pytest.raises(LimpydJobsException, match="queue_model"):
            job.claim()
        claim = job.claim(queue_model=Elsewhere)
        assert isinstance(claim.queue, Elsewhere)
        claim.succeed()
        assert claim.queue.success.lmembers() == [job.ident]
        Elsewhere.get_connection().delete(*Elsewhere.get_connection().keys("claiming-elsewhere:*"))

    def test_what_waits_under_the_old_path_of_a_class_that_was_moved(self, monkeypatch: pytest.MonkeyPatch) -> None:
        old_home = ModuleType("old_home")
        vars(old_home)["Posting"] = Posting
        monkeypatch.setitem(sys.modules, "old_home", old_home)
        job = Posting.add_job("a")
        board().waiting.delete()
        board().waiting.rpush(f"old_home.Posting:{job.pk.get()}")
        with job.claim():
            work("board")
            assert job.status.hget() == STATUSES.RUNNING
        assert job.status.hget() == STATUSES.SUCCESS
        assert (board().waiting.lmembers(), board().success.lmembers()) == ([], [job.ident])

    def test_what_a_process_let_lapse(self) -> None:
        job = Posting.add_job("a")
        job.claim("first")
        lapse()
        with job.claim("second"):
            assert job.hmget("tries", "_rescues") == ["2", "1"]
            assert job.claim_owner() == "second"

    def test_after_a_call_whose_reply_was_lost(self, jobs_database: JobsDatabase, redis_server: RedisServer) -> None:
        job = Posting.add_job("a")
        jobs_database.connect(unix_socket_path="/no/such/socket")
        with pytest.raises(redis.ConnectionError):
            job.claim("me")
        jobs_database.connect(unix_socket_path=redis_server.socket)
        job.claim("me").succeed()


class TestInAQueueThatIsDeleted:
    @pytest.mark.parametrize(
        ("end", "status"),
        [
            (lambda claim: claim.succeed(), STATUSES.SUCCESS),
            (lambda claim: claim.fail(ValueError("no")), STATUSES.ERROR),
            (lambda claim: claim.cancel(), STATUSES.CANCELED),
        ],
        ids=["succeed", "fail", "cancel"],
    )
    def test_the_claim_is_ended_all_the_same(
        self, redis_client: redis.Redis, end: Callable[[Claim[Any]], None], status: str
    ) -> None:
        job = Posting.add_job("a")
        claim = job.claim()
        lists = claim.queue.success.key, claim.queue.errors.key
        claim.queue.delete()
        end(claim)
        assert claim.status == job.status.hget() == status
        redis_client.delete(*lists)  # which belong to no queue now
