"""A claim is kept as long as its holder lives, and renews it."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from postings import Posting, board, lapse, names, take_over
from running import work
from servers import RedisServer, wait_until

from limpyd_jobs import (
    STATUSES,
    AlreadyClaimed,
    ClaimLost,
    Job,
)
from limpyd_jobs.dates import datetime_to_score, utcnow
from limpyd_jobs.redis.database import JobsDatabase

pytestmark = pytest.mark.usefixtures("redis_client", "consistent")


def in_a_copy(job: Posting) -> None:
    copy.copy(job).claim("me")


def in_a_pickle(job: Posting) -> None:
    pickle.loads(pickle.dumps(job)).claim("me")


def in_a_thread(job: Posting) -> None:
    thread = threading.Thread(target=lambda: job.claim("me"))
    thread.start()
    thread.join()


def in_a_fork(job: Posting) -> None:
    pid = os.fork()
    if not pid:
        try:
            job.claim("me")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


class TestOneObject:
    """Claimed more than once."""

    def test_of_two_claims_is_not_told_of_the_first(self) -> None:
        job = Posting.add_job("a")
        first = job.claim("first")
        lapse()
        second = job.claim("second")
        with pytest.raises(ClaimLost):
            first.succeed()
        assert (first.is_lost, second.is_lost, job.is_cancelled()) == (True, False, False)
        second.succeed()

    def test_is_not_canceled_by_its_own_end(self) -> None:
        job = Posting.add_job("a")
        job.claim().succeed()
        assert not job.is_cancelled()

    def test_remembers_no_call_that_was_refused(self) -> None:
        job = Posting.add_job("a")
        held = Posting.get(job.pk.get()).claim("other")
        for owner in ("me", "you"):
            with pytest.raises(AlreadyClaimed):
                job.claim(owner)
        assert "_unsure_claim" not in vars(job)
        held.succeed()

    @pytest.mark.parametrize("claim_elsewhere", [in_a_copy, in_a_pickle, in_a_thread, in_a_fork])
    def test_shares_a_call_without_an_answer_with_no_process(
        self, claim_elsewhere: Callable[[Posting], None], jobs_database: JobsDatabase, redis_server: RedisServer
    ) -> None:
        job = Posting.add_job("a")
        jobs_database.connect(unix_socket_path="/no/such/socket")
        with pytest.raises(redis.ConnectionError):
            job.claim("me")
        jobs_database.connect(unix_socket_path=redis_server.socket)
        claim_elsewhere(job)
        with pytest.raises(AlreadyClaimed, match="by me"):
            job.claim("me")
        lapse()
        job.claim("me").succeed()


class TestTheHeartbeat:
    def test_renews_the_lease_inside_of_the_block(self) -> None:
        job = Posting.add_job("a")
        with job.claim(lease=0.2) as claim:
            until = board().running.zscore(job.ident)
            wait_until(lambda: board().running.zscore(job.ident) > until + 1)
            wait_until(lambda: not claim.is_lost)  # at once, unless this process was stopped for long

    def test_follows_a_shorter_lease(self) -> None:
        job = Posting.add_job("a")
        with job.claim(lease=3600) as claim:
            claim.renew(0.2)
            until = board().running.zscore(job.ident)
            wait_until(lambda: board().running.zscore(job.ident) > until + 1)
            wait_until(lambda: not claim.is_lost)
            assert claim.lease == 0.2

    def test_follows_a_longer_lease(self, commands: Any) -> None:
        job = Posting.add_job("a")
        with job.claim(lease=0.04) as claim:
            claim.renew(3600)
            with commands() as sent:
                threading.Event().wait(0.1)
            assert len(names(sent)) <= 1  # one that was under way
            assert board().running.zscore(job.ident) > datetime_to_score(utcnow()) + 3000

    def test_begins_at_once_in_a_block_that_is_entered_late(self) -> None:
        job = Posting.add_job("a")
        claim = job.claim(lease=3600)
        lapse()
        claim._holds_until -= 1000
        with claim:
            assert board().running.zscore(job.ident) > datetime_to_score(utcnow()) + 3000
            assert not claim.is_lost

    def test_keeps_a_claim_that_is_entered_too_late_from_its_block(self) -> None:
        job = Posting.add_job("a")
        claim = job.claim(lease=1e-6)
        lapse()
        job.claim("other").succeed()
        with pytest.raises(ClaimLost), claim:
            pytest.fail("it is entered")

    def test_is_not_too_fast(self, commands: Any) -> None:
        began = time.monotonic()
        with Posting.add_job("a").claim(lease=1e-6), commands() as sent:
            threading.Event().wait(0.05)
        assert len(names(sent)) < 20 + 400 * (time.monotonic() - began)

    def test_stops_with_the_block(self) -> None:
        before = set(threading.enumerate())
        with Posting.add_job("a").claim(lease=0.04):
            (thread,) = set(threading.enumerate()) - before
            assert thread.daemon
        thread.join(10)
        assert not thread.is_alive()

    def test_stops_with_a_verb(self) -> None:
        before = set(threading.enumerate())
        with Posting.add_job("a").claim(lease=0.04) as claim:
            (thread,) = set(threading.enumerate()) - before
            claim.release()
            thread.join(10)
            assert not thread.is_alive()

    @pytest.mark.proof
    def test_lets_a_program_end_that_holds_a_claim(self, redis_server: RedisServer) -> None:
        program = """
import sys

from limpyd_jobs import Job
from limpyd_jobs.models import BaseJobsModel

BaseJobsModel.database.connect(unix_socket_path=sys.argv[1])
job = Job.get(identifier="a")
job.claim(lease=0.04).__enter__()
until = job.database.connection.zscore("jobs:queue:1:_running", job.ident)
while job.database.connection.zscore("jobs:queue:1:_running", job.ident) == until:
    pass
"""
        Job.add_job("a", "board")
        command = [sys.executable, "-c", program, redis_server.socket]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, "")

    def test_notices_that_another_process_has_the_job(self, caplog: pytest.LogCaptureFixture) -> None:
        job = Posting.add_job("a")
        with job.claim(lease=0.2) as claim:
            other = take_over(Posting.get(job.pk.get()), lapse)
            wait_until(lambda: caplog.records)
            assert (claim.is_lost, job.is_cancelled()) == (True, True)
            with pytest.raises(ClaimLost):
                claim.succeed()
        other.succeed()
        assert job.status.hget() == STATUSES.SUCCESS
        assert [record.levelname for record in caplog.records] == ["ERROR"]

    def test_goes_on_once_redis_answers_again(
        self, jobs_database: JobsDatabase, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        job = Posting.add_job("a")
        with job.claim(lease=0.2) as claim:
            jobs_database.connect(unix_socket_path="/no/such/socket")
            wait_until(lambda: claim.is_lost)
            jobs_database.connect(unix_socket_path=redis_server.socket)
            wait_until(lambda: not claim.is_lost)
        assert "lease not renewed" in caplog.text
        assert claim.status == STATUSES.SUCCESS

    @pytest.mark.proof
    @pytest.mark.skipif(sys.version_info[:2] != (3, 12), reason="Python starts threads until its very end")
    def test_that_cannot_begin_as_python_shuts_down_leaves_no_process_with_the_job(
        self, redis_server: RedisServer
    ) -> None:
        program = """
import atexit, sys

from limpyd_jobs import Job
from limpyd_jobs.models import BaseJobsModel

BaseJobsModel.database.connect(unix_socket_path=sys.argv[1])

@atexit.register
def run_late():
    with Job.get(identifier="a").claim():
        print("the code of the block")
"""
        job = Job.add_job("a", "board")
        command = [sys.executable, "-c", program, redis_server.socket]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.stdout == ""
        assert f"LimpydJobsException: No thread can renew the lease of {job.ident}: " in ended.stderr
        assert job.hmget("status", "tries") == [STATUSES.WAITING, None]
        assert job.claim_owner() is None


DYING = """
import os, signal, sys
from limpyd_jobs.models import BaseJobsModel
from postings import Posting

BaseJobsModel.database.connect(unix_socket_path=sys.argv[1])
with Posting.get(identifier="a").claim("somebody who dies"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.proof
def test_the_job_of_a_holder_who_was_killed_is_run_by_a_worker(redis_server: RedisServer) -> None:
    job = Posting.add_job("a")
    path = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parents[2])])
    command = [sys.executable, "-W", "ignore", "-c", DYING, redis_server.socket]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (job.status.hget(), job.claim_owner()) == (STATUSES.RUNNING, "somebody who dies")
    lapse()
    work("board")
    assert job.hmget("status", "tries") == [STATUSES.SUCCESS, "2"]


class TestTwoCallers:
    def test_a_call_that_was_refused_leaves_nothing_that_another_could_use(self) -> None:
        job = Posting.add_job("a")
        first = Posting.get(job.pk.get()).claim(owner="first")
        with pytest.raises(AlreadyClaimed):
            job.claim(owner="ann")
        first.release()
        copies = [pickle.loads(pickle.dumps(vars(job).get("_unsure_claim"))) for _ in "ab"]
        assert copies == [None, None]
        assert job.claim(owner="ann").owner == "ann"
        with pytest.raises(AlreadyClaimed, match="by ann"):
            Posting.get(job.pk.get()).claim(owner="ann")

    def test_copies_of_a_job_do_not_share_a_claim_whose_reply_was_lost(
        self, jobs_database: JobsDatabase, redis_server: RedisServer
    ) -> None:
        job = Posting.add_job("a")
        job._unsure_claim = ("ann", os.getpid(), id(job)), "lost@ann"
        other = copy.copy(job)
        claim = job.claim(owner="ann")
        assert job.claim_token.hget() == "lost@ann"
        with pytest.raises(AlreadyClaimed):
            other.claim(owner="ann")
        claim.succeed()

    def test_of_threads_with_one_object_and_one_name_one_is_served(self) -> None:
        for number in range(20):
            job = Posting.add_job(f"{number}")
            outcomes: list[str] = []
            start = threading.Barrier(3)

            def attempt(job: Posting = job, start: Any = start, outcomes: Any = outcomes) -> None:
                start.wait()
                try:
                    job.claim()
                except Exception as error:
                    outcomes.append(type(error).__name__)
                else:
                    outcomes.append("claimed")

            threads = [threading.Thread(target=attempt) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(outcomes) == ["AlreadyClaimed", "AlreadyClaimed", "claimed"]


class TestALease:
    def test_that_is_made_shorter_is_renewed_more_often(self) -> None:
        job = Posting.add_job("a")
        with job.claim(lease=3600) as claim:
            claim.renew(lease=0.4)
            first = board().running.zscore(job.ident)
            wait_until(lambda: board().running.zscore(job.ident) > first)

    def test_that_is_partly_over_is_renewed_as_the_block_begins(self) -> None:
        job = Posting.add_job("a")
        claim = job.claim(lease=60)
        claim._holds_until -= 30  # as if half of it had passed
        board().running.zadd({job.ident: 5})
        with claim:
            assert board().running.zscore(job.ident) > 5
