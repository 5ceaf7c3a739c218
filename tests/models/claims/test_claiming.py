"""What the documents say of `Job.claim` and the claim it returns."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from postings import Complaint, Posting, Stubborn, board, errors, lapse, names
from running import work
from servers import RedisServer, wait_until

from limpyd_jobs import (
    STATUSES,
    Cancel,
    Claim,
    ClaimLost,
    Error,
    JobGone,
    Requeue,
    Retry,
    transitions,
)
from limpyd_jobs.exceptions import GracePeriodOver, JobTimeout, NotRecorded, RetriedTooOften
from limpyd_jobs.models.claims.job_claim import JobClaim
from limpyd_jobs.redis.database import JobsDatabase

pytestmark = pytest.mark.usefixtures("redis_client", "consistent")


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

    def test_may_ask_to_be_put_back_until_its_tries_are_used_up(self) -> None:
        job = Posting.add_job("a", retry_policy=Retry(times=1))
        with job.claim():
            raise Requeue(count=True)
        assert (job.status.hget(), job.uncounted_tries.hget()) == (STATUSES.WAITING, None)
        claim = job.claim()
        with pytest.raises(RetriedTooOften), claim:
            raise Requeue(count=True)
        assert claim.status == job.status.hget() == STATUSES.ERROR
        assert [error.type.hget() for error in Error.collection_for_job(job).instances()] == ["RetriedTooOften"]

    def test_may_ask_to_be_canceled(self) -> None:
        job = Posting.add_job("a")
        with job.claim() as claim:
            raise Cancel("not needed")
        assert claim.status == job.status.hget() == STATUSES.CANCELED

    def test_runs_the_code_of_the_job(self) -> None:
        with Posting.add_job("a").claim() as claim:
            assert claim.job.run(claim.queue) == "done"
            assert claim.queue.hmget("name", "priority") == ["board", "0"]

    def test_is_told_if_a_process_canceled_the_job(self) -> None:
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

    def test_still_counts_after_the_lease_if_no_process_took_the_job(self, verb: Callable[[Claim[Any]], None]) -> None:
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
        for name in ("ended", "ended_by"):
            patch.setattr(JobClaim, name, lose)  # once Redis has done it
        with pytest.raises(NotRecorded, match=job.ident):
            first(claim)
    before = job.hgetall()
    second(claim)
    assert (claim.status, job.hgetall()) == (before["status"], before)
    assert not (errors() and claim.status in (STATUSES.SUCCESS, STATUSES.CANCELED))


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
