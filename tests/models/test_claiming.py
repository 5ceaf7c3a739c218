"""What the documents say of `Job.claim` and the claim it returns."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis
from all_scripts import ALL_SCRIPTS
from invariants import violations
from limpyd import fields
from limpyd.indexes import NumberRangeIndex
from running import delayed_and_due, work
from servers import RedisServer, wait_until

from limpyd_jobs import (
    STATUSES,
    AlreadyClaimed,
    Argument,
    Cancel,
    Claim,
    ClaimLost,
    Error,
    Job,
    JobGone,
    LimpydJobsException,
    NotClaimable,
    Queue,
    Requeue,
    Retry,
    transitions,
)
from limpyd_jobs.dates import datetime_to_score, utcnow
from limpyd_jobs.exceptions import GracePeriodOver, JobTimeout, NotRecorded
from limpyd_jobs.models.job_claim import JobClaim
from limpyd_jobs.redis.database import JobsDatabase

pytestmark = pytest.mark.usefixtures("redis_client", "consistent")

SCRIPTS = {script.sha: script.name for script in ALL_SCRIPTS}


class Posting(Job):
    namespace = "claiming"
    queue_name = "board"

    def run(self, queue: Queue) -> str:
        return "done"


class Stubborn(Posting):
    namespace = "claiming"
    default_retry_policy = Retry(times=1, delay=1000, priority_delta=2)


class Homeless(Job):
    namespace = "claiming"


class Complaint(Error):
    namespace = "claiming"


@pytest.fixture
def consistent(redis_client: redis.Redis) -> Iterator[None]:
    """Check at the end that hashes, indexes, lists and sets agree."""
    yield
    assert violations(redis_client, Posting, Stubborn, Homeless, Queue, Error, Complaint) == []


def board(priority: int = 0) -> Queue:
    return Queue.get_queue("board", priority)


def lapse(priority: int = 0) -> None:
    """Let the leases in the queue lapse."""
    queue = board(priority)
    queue.running.zadd(dict.fromkeys(queue.running.zmembers(), 1))


def errors() -> list[Any]:
    return list(Error.collection().instances())


class TestTheBlock:
    def test_ends_in_success(self) -> None:
        job = Posting.add_job("a")
        with job.claim() as claim:
            assert claim.status is None
            assert job.hmget("status", "tries") == [STATUSES.RUNNING, "1"]
            assert board().running.zmembers() == [job.ident]
        assert claim.status == job.status.hget() == STATUSES.SUCCESS
        assert board().success.lmembers() == [job.ident]
        assert job.duration is not None

    def test_that_raises_ends_in_error(self) -> None:
        job = Posting.add_job("a")
        with pytest.raises(ZeroDivisionError), job.claim() as claim:
            1 / 0  # noqa: B018
        assert claim.status == job.status.hget() == STATUSES.ERROR
        assert board().errors.lmembers() == [job.ident]
        (error,) = errors()
        assert error.hmget("type", "identifier", "queue_name") == ["ZeroDivisionError", "a", "board"]
        assert "1 / 0" in error.traceback.hget()
        job.requeue()
        assert job.claim().job is job
        job.claim_token.hget()
        lapse()
        job.claim().succeed()

    @pytest.mark.parametrize("error", [JobTimeout("late"), SystemExit(1)])
    def test_that_raises_what_is_an_error_of_a_job_for_workers_too(self, error: BaseException) -> None:
        job = Posting.add_job("a")
        with pytest.raises(type(error)), job.claim() as claim:
            raise error
        assert claim.status == STATUSES.ERROR

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), GracePeriodOver()])
    def test_that_is_interrupted_releases_the_job(self, error: BaseException) -> None:
        job = Posting.add_job("a")
        with pytest.raises(type(error)), job.claim() as claim:
            raise error
        assert (claim.status, job.hmget("status", "tries")) == ("w", ["w", None])
        assert errors() == []

    def test_is_over_once_a_verb_was_called(self) -> None:
        job = Posting.add_job("a")

        def use(claim: Claim[Posting]) -> None:
            with claim:
                claim.succeed()
                assert job.status.hget() == STATUSES.SUCCESS
                raise ValueError("too late")

        with pytest.raises(ValueError, match="too late"):
            use(job.claim())
        assert job.status.hget() == STATUSES.SUCCESS
        assert errors() == []

    def test_in_which_a_verb_fails_calls_no_other(self, jobs_database: JobsDatabase, redis_server: RedisServer) -> None:
        job = Posting.add_job("a")
        claim = job.claim()

        def use() -> None:
            with claim:
                jobs_database.connect(unix_socket_path="/no/such/socket")
                claim.succeed()

        with pytest.raises(NotRecorded, match=job.ident):
            use()
        jobs_database.connect(unix_socket_path=redis_server.socket)
        assert job.status.hget() == STATUSES.RUNNING
        claim.succeed()
        assert job.status.hget() == STATUSES.SUCCESS

    def test_may_ask_to_be_put_back(self) -> None:
        job = Posting.add_job("a")
        with job.claim() as claim:
            raise Requeue(delayed_for=1000, priority=5)
        assert claim.status == job.status.hget() == STATUSES.DELAYED
        assert board(5).delayed.zmembers() == [job.ident]
        assert (job.uncounted_tries.hget(), errors()) == ("1", [])

    def test_may_ask_to_be_canceled(self) -> None:
        job = Posting.add_job("a")
        with job.claim() as claim:
            raise Cancel("not needed")
        assert claim.status == job.status.hget() == STATUSES.CANCELED

    def test_runs_the_code_of_the_job(self) -> None:
        with Posting.add_job("a").claim() as claim:
            assert claim.job.run(claim.queue) == "done"
            assert claim.queue.hmget("name", "priority") == ["board", "0"]

    def test_is_told_if_somebody_canceled_the_job(self) -> None:
        job = Posting.add_job("a")
        with job.claim() as claim:
            assert not job.is_cancelled()
            Posting.get(job.pk.get()).cancel()
            job._next_question = 0
            assert job.is_cancelled()
        assert claim.status == job.status.hget() == STATUSES.CANCELED

    def test_may_delay_the_job(self) -> None:
        job = Posting.add_job("a")
        with job.claim() as claim:
            job.enqueue_or_delay(delayed_until=datetime(2099, 1, 1))
        assert claim.status == job.status.hget() == STATUSES.DELAYED
        assert board().delayed.zmembers() == [job.ident]

    def test_of_a_job_that_was_deleted_says_so(self) -> None:
        job = Posting.add_job("a")
        with pytest.raises(JobGone, match=job.ident), job.claim():
            Posting.get(job.pk.get()).delete()
        board().running.delete()

    def test_of_a_job_that_it_deleted_says_so(self) -> None:
        job = Posting.add_job("a")
        with pytest.raises(JobGone, match=job.ident), job.claim():
            job.delete()
        board().running.delete()

    def test_hides_no_exception_behind_its_own(self, caplog: pytest.LogCaptureFixture) -> None:
        job = Posting.add_job("a")

        def use(claim: Claim[Posting]) -> None:
            with claim:
                lapse()
                job.claim("other").succeed()
                1 / 0  # noqa: B018

        with pytest.raises(ZeroDivisionError):
            use(job.claim())
        assert job.status.hget() == STATUSES.SUCCESS
        (record,) = caplog.records
        assert record.getMessage().startswith(
            f"[{job.ident}] its end is not recorded: The claim on {job.ident} is lost"
        )

    @pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # as there are threads
    def test_is_left_by_a_forked_child_without_an_end(self) -> None:
        job = Posting.add_job("a")
        with job.claim() as claim:
            pid = os.fork()
            if not pid:
                try:
                    claim.__exit__(SystemExit, SystemExit(1), None)
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            assert job.status.hget() == STATUSES.RUNNING
        assert job.status.hget() == STATUSES.SUCCESS

    def test_is_not_entered_once_the_claim_is_ended(self) -> None:
        claim = Posting.add_job("a").claim()
        claim.succeed()
        with pytest.raises(ClaimLost, match="ended before: its status is SUCCESS"), claim:
            pytest.fail("it is")


class TestTheVerbs:
    @pytest.fixture
    def job(self) -> Posting:
        return Posting.add_job("a")

    def test_succeed(self, job: Posting) -> None:
        job.claim().succeed()
        assert job.hmget("status", "queued") == [STATUSES.SUCCESS, None]

    def test_cancel(self, job: Posting) -> None:
        job.claim().cancel()
        assert job.hmget("status", "queued") == [STATUSES.CANCELED, None]

    def test_release_puts_it_at_the_front(self, job: Posting) -> None:
        other = Posting.add_job("b")
        claim = job.claim()
        claim.release()
        assert board().waiting.lmembers() == [job.ident, other.ident]
        assert (claim.status, job.hmget("status", "tries", "start")) == ("w", ["w", None, None])

    def test_release_for_later(self, job: Posting) -> None:
        claim = job.claim()
        claim.release(delayed_for=timedelta(hours=1))
        assert (claim.status, job.status.hget()) == ("d", "d")

    def test_fail_records_the_error_where_it_is_told_to(self, job: Posting) -> None:
        job.claim(error_model=Complaint).fail(ValueError("no"), trace="line 1")
        (error,) = Complaint.collection().instances()
        assert error.hmget("type", "message", "traceback", "job_pk") == ["ValueError", "no", "line 1", job.pk.get()]
        assert (errors(), job.hmget("status", "queued")) == ([], ["e", None])

    def test_fail_heeds_the_policy_of_the_class(self) -> None:
        job = Stubborn.add_job("a")
        claim = job.claim()
        claim.fail(ValueError())
        assert (claim.status, job.hmget("status", "priority")) == ("d", ["d", "2"])
        job.enqueue_or_delay()
        claim = job.claim()
        claim.fail(ValueError())
        assert (claim.status, job.status.hget()) == ("e", "e")

    def test_fail_heeds_the_policy_of_the_job(self) -> None:
        job = Stubborn.add_job("a", retry_policy=Retry(times=1, delay=0, only_on=OSError))
        claim = job.claim()
        claim.fail(OSError())
        assert (claim.status, board().waiting.lmembers()) == ("w", [job.ident])
        claim = job.claim()
        claim.fail(ValueError())
        assert claim.status == "e"

    def test_fail_takes_a_policy_for_a_job_that_has_none(self, job: Posting) -> None:
        claim = job.claim()
        claim.fail(ValueError(), retry_policy=Retry(times=3, delay=1000))
        assert claim.status == "d"

    def test_fail_puts_back_none_that_is_not_to_be_put_back(self) -> None:
        job = Stubborn.add_job("a", cancel_on_error="1")
        claim = job.claim()
        claim.fail(ValueError())
        assert claim.status == "e"

    def test_a_try_that_does_not_count_is_none_for_the_policy(self) -> None:
        job = Stubborn.add_job("a")
        with job.claim():
            raise Requeue
        claim = job.claim()
        claim.fail(ValueError())
        assert claim.status == "d"


class Undecided(Posting):
    """Its own code fails."""

    namespace = "claiming"
    default_retry_policy = Retry(times=1, delay=0)

    @property
    def must_be_cancelled_on_error(self) -> Any:
        raise RuntimeError("cannot decide")


class BrokenError(Error):
    namespace = "claiming"

    @classmethod
    def add_error(cls, *_: Any, **__: Any) -> Any:
        raise RuntimeError("cannot be recorded")


class TestFailing:
    @pytest.fixture
    def job(self) -> Posting:
        return Posting.add_job("a")

    def test_that_is_not_recorded_at_first_leaves_one_error(
        self, job: Posting, jobs_database: JobsDatabase, redis_server: RedisServer
    ) -> None:
        class Unreachable(Complaint):
            namespace = "claiming-unreachable"

            @classmethod
            def add_error(cls, *args: Any, **kwargs: Any) -> Any:
                Complaint.add_error(*args, **kwargs)
                jobs_database.connect(unix_socket_path="/no/such/socket")
                return Error.add_error(*args, **kwargs)

        claim = job.claim(error_model=Unreachable)
        with pytest.raises(NotRecorded, match=job.ident):
            claim.fail(ValueError("no"))
        assert claim.status == "e"
        jobs_database.connect(unix_socket_path=redis_server.socket)
        claim._error_model = Error
        claim.fail(ValueError("no"))
        assert len(errors()) == len(Complaint.collection()) == 1
        assert board().errors.lmembers() == [job.ident]
        with pytest.raises(ClaimLost, match="ended before"):
            claim.fail(ValueError("no"))
        assert len(errors()) == 1

    @pytest.mark.parametrize(
        ("first", "status"),
        [(transitions.succeed, STATUSES.SUCCESS), (transitions.finish_canceled, STATUSES.CANCELED)],
        ids=["succeed", "cancel"],
    )
    def test_after_another_verb_whose_reply_was_lost_tells_what_became_of_the_job(
        self, job: Posting, first: Any, status: str
    ) -> None:
        claim = job.claim()
        first(job, claim.queue, claim._claim.token)
        claim.fail(ValueError("no"))
        assert claim.status == job.status.hget() == status
        assert errors() == []

    def test_keeps_the_traceback_of_the_error(self, job: Posting) -> None:
        claim = job.claim()
        try:
            raise ValueError("no")
        except ValueError as error:
            claim.fail(error)
        (error,) = errors()
        assert "in test_keeps_the_traceback_of_the_error" in error.traceback.hget()

    def test_with_what_is_no_exception_is_refused(self, job: Posting) -> None:
        with job.claim() as claim, pytest.raises(TypeError, match="not with 'the van broke down'"):
            claim.fail("the van broke down")  # type: ignore[arg-type]
        assert claim.status == STATUSES.SUCCESS

    def test_whose_error_the_application_cannot_record_ends_all_the_same(
        self, job: Posting, caplog: pytest.LogCaptureFixture
    ) -> None:
        with pytest.raises(ZeroDivisionError), job.claim(error_model=BrokenError):
            1 / 0  # noqa: B018
        assert (job.status.hget(), board().errors.lmembers()) == ("e", [job.ident])
        assert "cannot be recorded" in caplog.text

    def test_of_which_the_application_cannot_decide_ends_all_the_same(self, caplog: pytest.LogCaptureFixture) -> None:
        job = Undecided.add_job("a")
        with pytest.raises(ZeroDivisionError), job.claim():
            1 / 0  # noqa: B018
        assert (job.status.hget(), len(errors())) == ("e", 1)
        assert "cannot decide" in caplog.text

    def test_in_a_pipeline_is_retried_all_the_same(self, job: Posting) -> None:
        claim = job.claim()
        with Posting.database.pipeline() as pipe:
            claim.fail(ValueError(), retry_policy=Retry(times=3, delay=1000))
            pipe.execute()  # what limpyd adds to the indexes of the error
        assert claim.status == job.status.hget() == "d"


class TestAWrongArgument:
    @pytest.mark.parametrize(
        ("verb", "kind"),
        [
            (lambda claim: claim.release(delayed_for="abc"), (TypeError, ValueError)),
            (lambda claim: claim.fail(ValueError(), retry_policy="5"), ValueError),
            (lambda claim: claim.fail(ValueError(), retry_policy=5), TypeError),
        ],
    )
    def test_decides_nothing(self, verb: Callable[[Claim[Any]], None], kind: Any) -> None:
        job = Posting.add_job("a")
        with job.claim() as claim:
            with pytest.raises(kind):
                verb(claim)
            assert (claim.status, errors()) == (None, [])
        assert claim.status == job.status.hget() == STATUSES.SUCCESS


class TestReleasing:
    @pytest.fixture
    def job(self) -> Posting:
        return Posting.add_job("a")

    @pytest.mark.parametrize("delay", [None, 1000])
    def test_cancels_a_job_that_was_canceled_meanwhile(self, job: Posting, delay: float | None) -> None:
        claim = job.claim()
        job.cancel()
        claim.release(delayed_for=delay)
        assert claim.status == job.status.hget() == STATUSES.CANCELED
        assert (board().waiting.lmembers(), board().delayed.zmembers(), job.queued.hget()) == ([], [], None)

    def test_delays_a_job_that_was_delayed_meanwhile(self, job: Posting) -> None:
        claim = job.claim()
        job.enqueue_or_delay(delayed_until=datetime(2099, 1, 1))
        with pytest.raises(KeyboardInterrupt), claim:
            raise KeyboardInterrupt
        assert claim.status == job.status.hget() == STATUSES.DELAYED
        assert job.delayed_until.hget() == "2099-01-01 00:00:00"
        assert (board().waiting.lmembers(), board().delayed.zmembers()) == ([], [job.ident])

    def test_in_a_pipeline_heeds_a_delay_all_the_same(self, job: Posting) -> None:
        claim = job.claim()
        job.enqueue_or_delay(delayed_until=datetime(2099, 1, 1))
        with Posting.database.pipeline():
            claim.release()
        assert claim.status == job.status.hget() == STATUSES.DELAYED


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
    def test_shares_a_call_without_an_answer_with_nobody(
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


VERBS: dict[str, Callable[[Claim[Any]], None]] = {
    "renew": lambda claim: claim.renew(),
    "succeed": lambda claim: claim.succeed(),
    "fail": lambda claim: claim.fail(ValueError("no")),
    "release": lambda claim: claim.release(),
    "cancel": lambda claim: claim.cancel(),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
class TestEachVerb:
    def test_is_refused_to_who_lost_the_claim(self, verb: Callable[[Claim[Any]], None]) -> None:
        job = Posting.add_job("a")
        lost = job.claim()
        lapse()
        held = Posting.get(job.pk.get()).claim("other")
        before = job.hgetall()
        with pytest.raises(ClaimLost, match=job.ident):
            verb(lost)
        assert job.hgetall() == before
        assert (lost.is_lost, held.is_lost, job.is_cancelled()) == (True, False, True)
        held.succeed()

    def test_is_refused_under_the_same_name(self, verb: Callable[[Claim[Any]], None]) -> None:
        job = Posting.add_job("a")
        lost = job.claim("me")
        lapse()
        held = job.claim("me")
        with pytest.raises(ClaimLost):
            verb(lost)
        held.succeed()

    def test_still_counts_after_the_lease_if_nobody_took_the_job(self, verb: Callable[[Claim[Any]], None]) -> None:
        job = Posting.add_job("a")
        claim = job.claim(lease=1e-6)
        wait_until(lambda: claim.is_lost)
        verb(claim)
        claim.renew(60) if verb is VERBS["renew"] else None
        assert not claim.is_lost
        if claim.status is None:
            claim.succeed()

    def test_is_refused_after_the_end(self, verb: Callable[[Claim[Any]], None]) -> None:
        job = Posting.add_job("a")
        claim = job.claim()
        claim.succeed()
        before = job.hgetall()
        with pytest.raises(ClaimLost, match="ended before"):
            verb(claim)
        assert job.hgetall() == before

    def test_says_that_the_job_was_deleted(self, verb: Callable[[Claim[Any]], None]) -> None:
        job = Posting.add_job("a")
        claim = job.claim()
        Posting.get(job.pk.get()).delete()
        with pytest.raises(JobGone, match=job.ident):
            verb(claim)
        assert (claim.is_lost, errors()) == (True, [])
        board().running.delete()

    def test_is_one_round_trip(self, verb: Callable[[Claim[Any]], None], commands: Any) -> None:
        job = Posting.get(Posting.add_job("a").pk.get())
        with commands() as sent:
            claim = job.claim()
        assert names(sent) == ["claim_job"]
        with commands() as sent:
            verb(claim)
        expected = {"cancel": ["finish_canceled"], "fail": ["fail", "add_error"]}
        (name,) = [name for name in VERBS if VERBS[name] is verb]
        assert names(sent) == expected.get(name, [name])
        if claim.status is None:
            claim.succeed()


ENDS: dict[str, Callable[[Claim[Any]], None]] = {
    **{name: verb for name, verb in VERBS.items() if name != "renew"},
    "fail and retry": lambda claim: claim.fail(ValueError("no"), retry_policy=Retry(times=3, delay=1000)),
    "release for later": lambda claim: claim.release(delayed_for=1000),
}


@pytest.mark.parametrize("second", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("first", ENDS.values(), ids=ENDS)
def test_a_verb_after_another_one_whose_reply_was_lost_tells_what_the_job_became(
    first: Callable[[Claim[Any]], None], second: Callable[[Claim[Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: Any) -> Any:
        raise redis.ConnectionError("lost")

    job = Posting.add_job("a")
    claim = job.claim()
    with monkeypatch.context() as patch:
        patch.setattr(JobClaim, "ended", lose)  # once Redis has done it
        with pytest.raises(NotRecorded, match=job.ident):
            first(claim)
    before = job.hgetall()
    second(claim)
    assert (claim.status, job.hgetall()) == (before["status"], before)
    assert not (errors() and claim.status in (STATUSES.SUCCESS, STATUSES.CANCELED))


def names(sent: Any) -> list[str]:
    """The names of the scripts among some commands."""
    return [SCRIPTS[words[1]] for words in (each.split() for each in sent) if words[0] == "EVALSHA"]


class TestWhatCannotBeClaimed:
    def test_what_somebody_holds(self) -> None:
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

    @pytest.mark.parametrize(
        "lease", [0, -1, float("nan"), float("inf"), 1e12, 10**400, True, "60", None, timedelta(1)]
    )
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
    def test_by_nobody(self, owner: Any, kind: type[Exception]) -> None:
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

    def test_what_somebody_let_lapse(self) -> None:
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


class TestTheHeartbeat:
    def test_renews_the_lease_inside_of_the_block(self) -> None:
        job = Posting.add_job("a")
        with job.claim(lease=0.2) as claim:
            until = board().running.zscore(job.ident)
            wait_until(lambda: board().running.zscore(job.ident) > until + 1)
            assert not claim.is_lost
            with pytest.raises(AlreadyClaimed):
                Posting.get(job.pk.get()).claim()

    def test_follows_a_shorter_lease(self) -> None:
        job = Posting.add_job("a")
        with job.claim(lease=3600) as claim:
            claim.renew(0.2)
            until = board().running.zscore(job.ident)
            wait_until(lambda: board().running.zscore(job.ident) > until + 1)
            assert (claim.is_lost, claim.lease) == (False, 0.2)

    def test_follows_a_longer_lease(self, commands: Any) -> None:
        job = Posting.add_job("a")
        with job.claim(lease=0.04) as claim:
            claim.renew(3600)
            with commands() as sent:
                assert job.status.hget() == STATUSES.RUNNING
            assert names(sent) == []
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
        with Posting.add_job("a").claim(lease=1e-6), commands() as sent:
            threading.Event().wait(0.05)
        assert len(names(sent)) < 20

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

    def test_notices_that_somebody_else_has_the_job(self, caplog: pytest.LogCaptureFixture) -> None:
        job = Posting.add_job("a")
        with job.claim(lease=0.2) as claim:
            lapse()
            other = Posting.get(job.pk.get()).claim("other")
            wait_until(lambda: claim.is_lost)
            assert job.is_cancelled()
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

    @pytest.mark.skipif(sys.version_info[:2] != (3, 12), reason="Python starts threads until its very end")
    def test_that_cannot_begin_as_python_shuts_down_leaves_nobody_with_the_job(self, redis_server: RedisServer) -> None:
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
from test_claiming import Posting

BaseJobsModel.database.connect(unix_socket_path=sys.argv[1])
with Posting.get(identifier="a").claim("somebody who dies"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_job_of_a_holder_who_was_killed_is_run_by_a_worker(redis_server: RedisServer) -> None:
    job = Posting.add_job("a")
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
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


class TestAFailure:
    def test_that_is_told_again_is_one_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        job, error = Posting.add_job("a"), ValueError("no")
        claim = job.claim()
        with monkeypatch.context() as patch:
            patch.setattr(Error, "add_error", raising(redis.ConnectionError("gone")))
            with pytest.raises(NotRecorded):
                claim.fail(error)
        claim.fail(error)
        assert [each.message.hget() for each in errors()] == ["no"]
        assert job.status.hget() == STATUSES.ERROR

    def test_of_a_lost_claim_leaves_no_error(self) -> None:
        job = Posting.add_job("a")
        claim = job.claim()
        lapse()
        Posting.get(job.pk.get()).claim().succeed()
        with pytest.raises(ClaimLost):
            claim.fail(ValueError("late"))
        assert errors() == []

    @pytest.mark.parametrize("name", ["add_error", "must_be_cancelled_on_error"])
    def test_ends_the_job_whatever_the_application_raises(
        self, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        job = Stubborn.add_job("a")
        owner = Error if name == "add_error" else Stubborn
        value = raising(RuntimeError("oops"))
        monkeypatch.setattr(owner, name, value if name == "add_error" else property(value))
        job.claim().fail(ValueError("no"))
        assert job.status.hget() in (STATUSES.ERROR, STATUSES.DELAYED)
        assert board().running.zmembers() == []
        assert "oops" in caplog.text

    def test_takes_the_text_of_a_policy(self) -> None:
        job = Posting.add_job("a")
        job.claim().fail(ValueError("no"), retry_policy="delays=10")
        assert job.status.hget() == STATUSES.DELAYED

    def test_with_a_wrong_argument_decides_nothing(self) -> None:
        job = Posting.add_job("a")
        with pytest.raises(ValueError, match="delayed_for"), job.claim() as claim:
            claim.release(delayed_for="abc")  # type: ignore[arg-type]
        assert job.status.hget() == STATUSES.ERROR
        assert len(errors()) == 1


class TestARelease:
    def test_of_a_job_that_was_canceled_meanwhile_cancels_it(self) -> None:
        job = Posting.add_job("a")
        claim = job.claim()
        job.cancel()
        claim.release()
        assert (claim.status, job.status.hget()) == (STATUSES.CANCELED, STATUSES.CANCELED)
        assert board().waiting.lmembers() == []

    def test_of_a_job_that_was_delayed_meanwhile_delays_it(self) -> None:
        job = Posting.add_job("a")
        claim = job.claim()
        job.enqueue_or_delay(delayed_until=datetime(2099, 1, 1))
        claim.release()
        assert (claim.status, job.status.hget()) == (STATUSES.DELAYED, STATUSES.DELAYED)
        assert board().delayed.zmembers() == [job.ident]


def test_a_claim_that_fails_halfway_leaves_the_job_in_its_place(redis_client: redis.Redis) -> None:
    job = Posting.add_job("a")
    key = f"{Posting._name}:status:{STATUSES.RUNNING}"
    redis_client.set(key, "of a wrong type")
    with pytest.raises(redis.ResponseError):
        job.claim()
    assert board().waiting.lmembers() == [job.ident]
    redis_client.delete(key)
    assert work("board").num_loops == 1


def raising(error: Exception) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise error

    return function


class TestASuccessThatIsNotKept:
    """By a queue class with ``keep_success = 0``."""

    @pytest.fixture
    def job(self, redis_client: redis.Redis) -> Any:
        return Fleeting.add_job("a", size=5, colour="red")

    def test_is_erased_in_the_step_that_records_it(self, job: Any, redis_client: redis.Redis, commands: Any) -> None:
        Fleeting.add_job("first", size=5).claim().succeed()
        job.notes.rpush("x")
        claim = job.claim()
        with commands() as sent:
            claim.succeed()
        assert len(sent.names) == 1
        assert claim.status == STATUSES.SUCCESS
        left = {key for key in redis_client.scan_iter("fleeting:fleeting:*") if not key.endswith("max_pk")}
        assert left == set()
        assert redis_client.keys("fleeting:*:success") == redis_client.keys("fleeting:*:_running") == []
        assert redis_client.keys("fleeting:*:_claim*") == []

    def test_goes_with_the_errors_of_its_earlier_tries(self, job: Any) -> None:
        with pytest.raises(ValueError, match="once"), job.claim():
            raise ValueError("once")
        job.requeue()
        other = Fleeting.add_job("b", size=5)
        Error.add_error("q", other, ValueError("of another one"))
        with job.claim():
            pass
        assert [error.message.hget() for error in Error.collection().instances()] == ["of another one"]

    def test_that_was_canceled_meanwhile_is_canceled(self, job: Any) -> None:
        with job.claim() as claim:
            job.cancel()
        assert claim.status == STATUSES.CANCELED
        assert job.status.hget() == STATUSES.CANCELED

    def test_whose_reply_was_lost_may_be_told_again(self, job: Any, monkeypatch: Any) -> None:
        claim = job.claim()
        succeed = JobClaim.succeed

        def lose_reply(held: JobClaim, **how: Any) -> None:
            succeed(held, **how)
            raise redis.ConnectionError("lost")

        monkeypatch.setattr(JobClaim, "succeed", lose_reply)
        with pytest.raises(NotRecorded):
            claim.succeed()
        monkeypatch.undo()
        claim.succeed()
        assert claim.status == STATUSES.SUCCESS

    def test_that_somebody_else_deleted_is_told(self, job: Any) -> None:
        claim = job.claim()
        job.delete()
        with pytest.raises(JobGone):
            claim.succeed()

    def test_of_a_class_that_a_script_cannot_delete_is_kept_for_the_pruner(self) -> None:
        job = FleetingButIndexed.add_job("a")
        with job.claim():
            pass
        assert FleetingQueue.get_queue("q").success.lmembers() == [job.ident]
        assert FleetingQueue.get_queue("q").prune() == 1


class FleetingQueue(Queue):
    namespace = "fleeting"
    keep_success = 0


class Fleeting(Job):
    namespace = "fleeting"
    queue_model = FleetingQueue
    queue_name = "q"
    size = Argument(int, indexable=True, indexes=[NumberRangeIndex])
    colour = fields.InstanceHashField(indexable=True)
    notes = fields.ListField()


class FleetingButIndexed(Job):
    namespace = "fleeting"
    queue_model = FleetingQueue
    queue_name = "q"
    colours = fields.SetField(indexable=True)
