"""Deadlines: `start_within`, until when a job has to begin, and `retry_for`, for how long it is tried again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from cases import each
from invariants import violations
from running import delayed_and_due, fail, messages, work

from limpyd_jobs import STATUSES, ConfigurationException, Error, Job, Queue, Retry, Schedule, Worker, events
from limpyd_jobs.exceptions import NotClaimable
from limpyd_jobs.models import datetime_to_score
from limpyd_jobs.query import JobFilter, edit_job

pytestmark = pytest.mark.usefixtures("redis_client")

LONG_AGO = datetime(2020, 1, 1)


class Call(Job):
    """Has deadlines, and keeps its history."""

    namespace = "deadlines"
    queue_name = "queue"
    keep_history = 5
    start_within = timedelta(minutes=1)
    retry_for = 60


class Letter(Job):
    """Has none of its own."""

    namespace = "deadlines"
    queue_name = "queue"


@pytest.fixture(autouse=True)
def _consistent_at_the_end(redis_client: redis.Redis) -> Any:
    yield
    found = violations(redis_client, Call, Letter, Queue, Error)
    assert [problem for problem in found if "_history belongs" not in problem] == []


def late(job: Any) -> Any:
    """A job that was added long ago."""
    job.added.hset(str(LONG_AGO))
    return job


def status(job: Any) -> str | None:
    return STATUSES.by_value(job.status.hget())


class TestStartWithin:
    def test_a_job_that_was_not_begun_in_time_is_canceled_and_told_why(self, caplog: pytest.LogCaptureFixture) -> None:
        job = late(Call.add_job("1"))
        seen: list[events.Event] = []
        events.subscribe(seen.append)
        work(max_loops=1)
        events.unsubscribe(seen.append)
        assert status(job) == "CANCELED"
        assert job.queued.hget() is None
        why = "it had not begun within 60 s"
        assert f"[queue|1|1] job skipped (current status: CANCELED): {why}" in messages(caplog)
        assert [event.message[-len(why) :] for event in seen if isinstance(event, events.JobSkipped)] == [why]
        assert [(each.status, each.reason) for each in job.read_history()[-1:]] == [("CANCELED", why)]
        assert [(reason.code, reason.text) for reason in job.explain().reasons] == [
            ("canceled", f"It was canceled: {why}.")
        ]

    def test_one_that_begins_in_time_runs_and_its_identifier_is_free_once_it_was_too_late(self) -> None:
        first = late(Call.add_job("same"))
        work()
        second = Call.add_job("same")
        work()
        assert [status(job) for job in (first, second)] == ["CANCELED", "SUCCESS"]

    def test_explain_tells_until_when(self) -> None:
        job = Call.add_job("1")
        texts = [reason.text for reason in job.explain().reasons if reason.code == "start_within"]
        assert len(texts) == 1
        assert texts[0].startswith("It is canceled if it has not begun within ")
        late(job)
        texts = [reason.text for reason in job.explain().reasons if reason.code == "start_within"]
        assert texts[0].startswith("It is too late to begin it, for ")

    def test_it_counts_from_the_end_of_the_delay(self) -> None:
        job = delayed_and_due(Call, "1")
        late(job)
        work()
        assert status(job) == "SUCCESS"

    def test_a_job_that_was_begun_is_in_time_for_good(self) -> None:
        retried = late(Call.add_job("fails", start_within=0))
        work(callback=fail)
        retried.get_field("_start_within").hset("1")
        work(callback=fail)
        assert retried.tries.hget() == "2"

    def test_a_job_that_was_released_by_its_own_claim_is_in_time_for_good(self) -> None:
        job = Call.add_job("1")
        job.claim().release()
        late(job)
        work()
        assert status(job) == "SUCCESS"

    def test_a_job_that_is_put_back_by_hand_has_no_deadline(self) -> None:
        job = late(Call.add_job("1"))
        work()
        job.enqueue_or_delay()
        assert job.get_field("_cancel_reason").hget() is None
        work()
        assert status(job) == "SUCCESS"

    def test_a_claim_is_refused_and_says_why(self) -> None:
        for job in (Call.add_job("waits"), delayed_and_due(Call, "is delayed")):
            late(job)
            job.delayed_until.hset(str(LONG_AGO)) if status(job) == "DELAYED" else None
            with pytest.raises(NotClaimable, match="its status is CANCELED: it had not begun within 60 s"):
                job.claim()
            assert status(job) == "CANCELED"

    def test_a_worker_whose_jobs_are_claimed_together_finds_it_too(self) -> None:
        jobs = [Call.add_job(str(number)) for number in range(6)]
        for job in (jobs[0], jobs[3], jobs[4]):
            late(job)
        work(max_loops=6, prefetch=10)
        assert "".join(job.status.hget() for job in jobs) == "cssccs"

    def test_a_paused_queue_lets_it_wait_and_the_next_worker_cancels_it(self) -> None:
        job = late(Call.add_job("1"))
        Queue.pause("queue")
        work(timeout=0.05, max_duration=0.2)
        assert status(job) == "WAITING"
        Queue.resume("queue")
        work()
        assert status(job) == "CANCELED"


class TestHowItIsGiven:
    @pytest.mark.parametrize(
        ("given", "stored"),
        [(5, "5"), (0.25, "0.25"), (timedelta(hours=1), "3600"), (0, "0"), (None, "60"), (7e9, "7000000000")],
    )
    def test_a_job_has_its_own_or_that_of_its_class(self, given: Any, stored: str) -> None:
        (one,), two = Call.add_jobs([{"identifier": "1", "start_within": given}]), Call.add_job("2", start_within=given)
        assert [job.get_field("_start_within").hget() for job in (one, two)] == [stored, stored]

    @each("name", ["start_within", "retry_for"])
    @each("value", [-1, float("nan"), float("inf"), True, "60", 1e11, [1]])
    def test_what_is_no_time_is_refused_and_adds_nothing(
        self, name: str, value: Any, redis_client: redis.Redis
    ) -> None:
        for add in (Letter.add_job, lambda *args, **named: Letter.add_jobs(args, **named)):
            with pytest.raises((TypeError, ValueError), match=f"^{name} must be "):
                add("1", **{name: value})
        assert redis_client.keys("deadlines:letter:*") == []

    @pytest.mark.parametrize("value", [-1, float("nan"), timedelta(days=-1), "1h", "30 seconds"])
    def test_a_class_with_a_wrong_one_is_refused(self, value: Any) -> None:
        for name in ("start_within", "retry_for", "unique_for", "keep_output", "default_job_timeout"):
            with pytest.raises(ConfigurationException, match=rf"Wrong\.{name} must be (from 0 to|a number of seconds)"):
                type("Wrong", (Letter,), {"__module__": __name__, "abstract": True, name: value})

    def test_a_class_whose_time_limit_is_no_number_is_refused(self) -> None:
        with pytest.raises(ConfigurationException, match=r"kill_after must be a number of seconds, not datetime"):
            type("Wrong", (Letter,), {"__module__": __name__, "abstract": True, "kill_after": timedelta(hours=1)})

    def test_a_text_that_is_no_time_is_the_applications_own(self) -> None:
        own = type("Own", (Letter,), {"__module__": __name__, "abstract": True, "unique_for": "customer"})
        assert own.unique_for == "customer"  # type: ignore[attr-defined]

    def test_schedules_give_it_too(self, redis_client: redis.Redis) -> None:
        schedule = Schedule.add("often", Letter, interval=3600, start_within=timedelta(seconds=5), job_timeout=3)
        jobs = [schedule.run_now()]
        schedule.next_run.hset(str(LONG_AGO))
        redis_client.zadd(f"{Schedule._name}:due", {schedule.pk.get(): datetime_to_score(LONG_AGO)})
        work()
        jobs += Letter.collection().instances()
        assert [job.hmget("_start_within", "_job_timeout") for job in jobs] == [["5", "3.0"]] * len(jobs)

    def test_it_can_be_edited(self) -> None:
        job = late(Call.add_job("1"))
        edit_job(job.ident, {"start_within": 0, "retry_for": 5})
        assert job.hmget("_start_within", "_retry_for") == ["0", "5"]
        edit_job(job.ident, {"start_within": None})
        work()
        assert status(job) == "SUCCESS"

    @each("text", ["soon", "nan", "inf", "-5", "1e400", "", "9" * 400, "\0"])
    def test_a_stored_one_that_is_none_is_none(self, text: str) -> None:
        job = late(Call.add_job("1"))
        job.get_field("_start_within").hset(text)
        job.get_field("_retry_for").hset(text)
        job.get_field("_failing_since").hset(text)
        job.explain()
        work(callback=fail)
        assert status(job) in ("DELAYED", "WAITING", "ERROR")

    def test_dates_that_are_none_do_no_harm(self) -> None:
        job = Call.add_job("1")
        job.set_fields(tries="many")
        job.added.hset("long ago")
        job.explain()
        work()
        assert status(job) == "SUCCESS"


def failed(job: Any, *, since: datetime | None = None) -> str | None:
    """Let a try of a job fail that has been failing for some time already; return its status."""
    if since:
        job.get_field("_failing_since").hset(str(since))
    if status(job) == "DELAYED":
        job.enqueue_or_delay()
    work(callback=fail)
    return status(job)


class TestRetryFor:
    def test_without_a_policy_it_is_tried_again_until_then(self) -> None:
        job = Call.add_job("1")
        assert failed(job) == "DELAYED"
        since = job.get_field("_failing_since").hget()
        assert failed(job) == "DELAYED"
        assert job.get_field("_failing_since").hget() == since
        assert failed(job, since=LONG_AGO) == "ERROR"

    def test_no_try_begins_later_whatever_the_policy_says(self) -> None:
        within, beyond = (
            Letter.add_job(name, retry_policy=Retry(3, delay=10), retry_for=limit)
            for name, limit in (("a", 11), ("b", 9))
        )
        assert [failed(job) for job in (within, beyond)] == ["DELAYED", "ERROR"]

    @pytest.mark.parametrize("concurrency", [1, 2])
    def test_a_try_whose_turn_comes_later_is_not_begun(
        self, concurrency: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        job = Call.add_job("1")
        assert failed(job) == "DELAYED"
        job.enqueue_or_delay()
        job.get_field("_failing_since").hset(str(LONG_AGO))
        Worker("queue", callback=None, burst=True, concurrency=concurrency, terminate_gracefuly=False).run()
        assert status(job) == "ERROR"
        last = Error.collection(identifier="1").sort(by="pk").instances()[-1]
        assert last.type.hget() == "RetriedTooLate"
        assert "is tried again for 60 s only, which were over when its turn came" in last.message.hget()
        assert any("error: RetriedTooLate" in message for message in messages(caplog))

    def test_the_policy_may_give_up_before(self) -> None:
        assert failed(Letter.add_job("1", retry_policy=Retry(0), retry_for=1000)) == "ERROR"

    def test_a_job_may_have_no_limit_though_its_class_has_one(self) -> None:
        assert failed(Call.add_job("1", retry_for=0)) == "ERROR"
        job = Call.add_job("2", retry_for=0, retry_policy=Retry(5, delay=10))
        assert failed(job, since=LONG_AGO) == "DELAYED"

    @pytest.mark.parametrize(
        "worker_class", [Worker, type("Hooked", (Worker,), {"job_error_message": lambda *args: "x"})]
    )
    def test_it_limits_what_the_worker_allows(self, worker_class: type[Worker]) -> None:
        job = Call.add_job("1")
        options = {"callback": fail, "requeue_times": 5, "requeue_delay_delta": 20, "worker_class": worker_class}
        work(**options)
        assert status(job) == "DELAYED"
        assert job.get_field("_failing_since").hget()
        job.get_field("_failing_since").hset(str(LONG_AGO))
        job.enqueue_or_delay()
        work(**options)
        assert status(job) == "ERROR"

    def test_a_claim_heeds_it(self) -> None:
        job = Call.add_job("1")
        job.claim().fail(ValueError("no"))
        assert status(job) == "DELAYED"
        job.enqueue_or_delay()
        job.get_field("_failing_since").hset(str(LONG_AGO))
        job.claim().fail(ValueError("no"))
        assert status(job) == "ERROR"

    @pytest.mark.parametrize("many", [False, True])
    def test_it_begins_anew_if_the_job_is_put_back_by_hand(self, many: bool) -> None:
        job = Call.add_job("1")
        assert failed(job, since=LONG_AGO) == "ERROR"
        if many:
            JobFilter("status=error").requeue_all()
        else:
            job.requeue()
        assert job.get_field("_failing_since").hget() is None
        assert failed(job) == "DELAYED"


def test_jobs_of_version_2_have_none(redis_client: redis.Redis) -> None:
    job = late(Letter(identifier="1", status="w", queued="1", priority=0))
    redis_client.rpush(Queue.get_queue("queue").waiting.key, job.ident)
    work()
    assert status(job) == "SUCCESS"
