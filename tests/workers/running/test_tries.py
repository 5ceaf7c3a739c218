"""Jobs that fail are tried again as their policy says; the code of a job may ask to be put back, or canceled."""

from __future__ import annotations

import sys
import time
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from invariants import violations
from running import fail, messages, work
from servers import wait_until

from limpyd_jobs import STATUSES, Cancel, Error, Exponential, Job, Queue, Requeue, Retry, Worker
from limpyd_jobs.dates import parse_datetime
from limpyd_jobs.exceptions import ConfigurationException

pytestmark = pytest.mark.usefixtures("jobs_database")

AT_ONCE = {"delay": 0, "priority_delta": 0}


class Task(Job):
    namespace = "retrying"
    queue_name = "queue"


class Patient(Task):
    default_retry_policy = Retry(delay=[100, 1000])


class Always(Task):
    always_cancel_on_error = True


class Tells(Task):
    """Notes its events."""

    events: list[str] = []

    def on_error(self, queue: Queue, exception: BaseException, traceback: str | None) -> None:
        self.events.append(f"error, {STATUSES.by_value(self.status.hget())}")

    def on_requeued(self, queue: Queue) -> None:
        self.events.append(f"requeued, {STATUSES.by_value(self.status.hget())}")

    def on_skipped(self, queue: Queue) -> None:
        self.events.append(f"skipped, {STATUSES.by_value(self.status.hget())}")


class PlacedByHand(Tells):
    placed: list[Any] = []

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        self.placed.append({**kwargs, "status": self.status.hget()})
        super().enqueue_or_delay(*args, **kwargs)


@pytest.fixture(autouse=True)
def _nothing_is_wrong_afterwards(redis_client: redis.Redis):
    Tells.events.clear()
    PlacedByHand.placed.clear()
    yield
    assert violations(redis_client, Task, Patient, Asks, Leaves, Tells, PlacedByHand, Queue, Error) == []


def raising(exception: BaseException) -> Callable[[Job, Queue], None]:
    """Return a callback that raises."""

    def callback(job: Job, queue: Queue) -> None:
        raise exception

    return callback


def delay_of(job: Job) -> float:
    """Return for how many seconds after its end a job is delayed, as far as can be told from outside."""
    until, now = parse_datetime(job.delayed_until.hget()), Queue.get_connection().time()
    assert until
    return (until - datetime(1970, 1, 1)).total_seconds() - now[0]


def errors_of(job: Job) -> int:
    return len(Error.collection(identifier=job.identifier.hget()))


def state_of(job: Job) -> str:
    return str(STATUSES.by_value(job.status.hget()))


@pytest.fixture(params=[Task, Tells, PlacedByHand], ids=["at once", "step by step", "by hand"])
def job_class(request: pytest.FixtureRequest) -> type[Job]:
    """Classes whose failure is recorded in one step, or in several for hooks to see it."""
    cls: type[Job] = request.param
    return cls


class TestAPolicy:
    def test_of_the_worker_lets_a_job_run_so_many_times_more(self, job_class: type[Job]) -> None:
        job = job_class.add_job("a")
        work(callback=fail, retry_policy=Retry(times=2, **AT_ONCE), max_loops=3)
        assert job.hmget("status", "tries", "queued") == ["e", "3", None]
        assert errors_of(job) == 3
        assert Queue.get_queue("queue").errors.lmembers() == [job.ident] * 3

    def test_may_be_a_text(self) -> None:
        job = Task.add_job("a")
        work(callback=fail, retry_policy="times=1,delay=0,priority_delta=0", max_loops=2)
        assert job.hmget("status", "tries") == ["e", "2"]

    def test_says_the_delay_and_the_priority(self, job_class: type[Job]) -> None:
        job = job_class.add_job("a", priority=5)
        work(callback=fail, retry_policy=Retry(delay=[100, 1000], priority_delta=-2))
        assert job.hmget("status", "priority", "tries") == ["d", "3", "1"]
        assert 90 < delay_of(job) < 101

    def test_asks_once_for_the_priority_of_the_queue_of_an_application(
        self, commands: Callable[[], AbstractContextManager[list[str]]]
    ) -> None:
        class OwnQueues(Worker):
            def get_queue(self, queue_redis_key: str) -> Queue:
                return Queue.get(name="queue", priority=3)

        Patient.add_job("a", priority=3)
        with commands() as sent:
            work(worker_class=OwnQueues, callback=fail, requeue_priority_delta=-1)
        assert len([command for command in sent if command.endswith(":hash priority")]) == 1
        assert Patient.get(identifier="a").priority.hget() == "2"

    def test_without_a_priority_leaves_it_to_the_worker(self, job_class: type[Job]) -> None:
        job = job_class.add_job("a", priority=5)
        work(callback=fail, retry_policy=Retry(times=1), requeue_priority_delta=-3)
        assert job.priority.hget() == "2"

    def test_grows_with_the_tries(self) -> None:
        job = Task.add_job("a")
        job.tries.hset(1)
        work(callback=fail, retry_policy=Retry(delay=[100, 1000]))
        assert 990 < delay_of(job) < 1001

    def test_waits_a_random_part_of_an_exponential_delay(self) -> None:
        jobs = [Task.add_job(f"{number}") for number in range(10)]
        work(callback=fail, retry_policy=Retry(times=1, delay=Exponential(1000, 1000)), max_loops=10)
        delays = {round(delay_of(job)) for job in jobs}
        assert len(delays) > 1
        assert all(-2 <= delay <= 1000 for delay in delays)

    def test_of_the_class_comes_before_that_of_the_worker(self) -> None:
        job = Patient.add_job("a")
        work(callback=fail, retry_policy=Retry(times=0))
        assert 90 < delay_of(job) < 101

    def test_of_the_job_comes_before_that_of_its_class(self) -> None:
        job = Patient.add_job("a", retry_policy=Retry(times=0))
        (other,) = Patient.add_jobs([{"identifier": "b", "retry_policy": "delay=500,times=1"}])
        work(callback=fail, max_loops=2)
        assert state_of(job) == "ERROR"
        assert 490 < delay_of(other) < 501

    def test_comes_before_the_requeue_times_of_the_worker(self) -> None:
        job = Patient.add_job("a")
        work(callback=fail, requeue_times=10, requeue_delay_delta=5)
        assert 90 < delay_of(job) < 101

    @pytest.mark.parametrize("text", ["garbage", "times=-1", "times=1,only_on=Nonsense", "é" * 10_000, "\0"])
    def test_that_a_process_stored_and_is_none_counts_for_nothing(self, text: str) -> None:
        job = Patient.add_job("a")
        job.retry_policy.hset(text)
        work(callback=fail)
        assert 90 < delay_of(job) < 101

    @pytest.mark.parametrize("wrong", ["garbage", "times=-1", 5, ["times=1"], Exponential()])
    def test_that_is_none_is_refused_by_add_job_and_by_a_worker(self, wrong: Any, redis_client: redis.Redis) -> None:
        with pytest.raises((TypeError, ValueError)):
            Task.add_job("a", retry_policy=wrong)
        assert not redis_client.keys()
        with pytest.raises(ConfigurationException, match="retry_policy"):
            Worker("queue", retry_policy=wrong)

    @pytest.mark.parametrize("field", ["uncounted_tries", "_uncounted_tries", "requeued_at", "_requeued_at"])
    def test_has_fields_that_add_job_does_not_take(self, field: str) -> None:
        with pytest.raises(AttributeError, match=field):
            Task.add_job("a", **{field: 1})

    def test_is_for_some_exceptions(self, job_class: type[Job]) -> None:
        policy = Retry(times=1, delay=100, only_on=LookupError, never_on=IndexError)
        jobs = []
        for exception in (KeyError("k"), IndexError("i"), ValueError("v")):
            jobs.append(job_class.add_job(repr(exception)))
            work(callback=raising(exception), retry_policy=policy)
        assert [*map(state_of, jobs)] == ["DELAYED", "ERROR", "ERROR"]

    def test_gives_up_a_job_that_would_be_too_old(self, job_class: type[Job]) -> None:
        job, old = job_class.add_job("a"), job_class.add_job("b")
        old.added.hset(str(parse_datetime(old.added.hget()) - timedelta(seconds=60)))
        work(callback=fail, retry_policy=Retry(delay=100, max_age=130), max_loops=2)
        assert (state_of(job), state_of(old)) == ("DELAYED", "ERROR")

    def test_gives_up_a_job_that_became_too_old_while_it_ran(self) -> None:
        def take_time(job: Job, queue: Queue) -> None:
            began = time.monotonic()
            wait_until(lambda: time.monotonic() > began + 0.3)
            raise ValueError

        job = Task.add_job("a")
        work(callback=take_time, retry_policy=Retry(max_age=0.3, **AT_ONCE))
        assert state_of(job) == "ERROR"

    @pytest.mark.parametrize("stored", ["", "long ago", "2999-01-01 00:00:00"])
    def test_takes_a_job_for_young_whose_date_is_none(self, stored: str) -> None:
        job = Task.add_job("a")
        job.added.hset(stored)
        work(callback=fail, retry_policy=Retry(delay=100, max_age=130))
        assert state_of(job) == "DELAYED"

    def test_does_not_count_against_the_will_of_the_job(self, job_class: type[Job]) -> None:
        job = job_class.add_job("a", cancel_on_error=1)
        other = Always.add_job("a")
        work(callback=fail, retry_policy=Retry(times=5), max_loops=2)
        assert (state_of(job), state_of(other)) == ("ERROR", "ERROR")

    def test_does_not_put_back_what_was_canceled_meanwhile(self, job_class: type[Job]) -> None:
        def cancel_and_fail(job: Job, queue: Queue) -> None:
            job.cancel()
            raise ValueError

        job = job_class.add_job("a")
        work(callback=cancel_and_fail, retry_policy=Retry(times=5))
        assert job.hmget("status", "queued") == ["e", None]

    def test_holds_when_hooks_are_called_by_hand(self) -> None:
        job, worker = Patient.add_job("a"), Worker("queue", terminate_gracefuly=False)
        queue = Queue.get_queue("queue")
        queue.waiting.lpop()
        worker.job_started(job, queue)
        worker.job_error(job, queue, ValueError("by hand"))
        assert 90 < delay_of(job) < 101


class Busy(Exception):
    """A server says when to ask again."""

    retry_after: Any = 100


class Asks(Task):
    default_retry_policy = Retry(times=1, delay=lambda error, number: error.retry_after * number, priority_delta=0)


class Leaves(Task):
    default_retry_policy = Retry(times=1, delay=lambda error, number: sys.exit(5))


def pass_on(error: BaseException, number: int) -> float:
    raise Passes.raised


class Passes(Task):
    raised: BaseException
    default_retry_policy = Retry(times=1, delay=pass_on)


class TestADelayOfTheException:
    def test_is_that_of_the_exception_and_the_number_of_tries(self) -> None:
        job = Asks.add_job("a")
        work(callback=raising(Busy()))
        assert 90 < delay_of(job) < 101
        job.enqueue_or_delay()
        work(callback=raising(Busy()))
        assert (state_of(job), errors_of(job)) == ("ERROR", 2)

    @pytest.mark.parametrize(("wrong", "why"), [(None, "TypeError: unsupported operand"), (-1, "ValueError: what the")])
    def test_that_fails_gives_the_job_the_default_delay_and_is_logged(
        self, wrong: Any, why: str, log: pytest.LogCaptureFixture
    ) -> None:
        error = Busy()
        error.retry_after = wrong
        job = Asks.add_job("a")
        work(callback=raising(error))
        assert job.tries.hget() == "1"
        assert state_of(job) == "DELAYED"
        assert delay_of(job) < 2
        (message,) = [line for line in log.text.splitlines() if "the delay of its retry policy, failed" in line]
        assert f"[{job.ident}]" in message
        assert why in message

    def test_that_exits_does_not_end_the_worker(self, log: pytest.LogCaptureFixture) -> None:
        job, other = Leaves.add_job("a"), Task.add_job("b")
        work(callback=fail, max_loops=2)
        assert (state_of(job), other.tries.hget()) == ("DELAYED", "1")
        assert "Leaves.<lambda>, the delay of its retry policy, failed: SystemExit: 5" in log.text

    @pytest.mark.parametrize(
        ("raised", "state"),
        [(CancelledError(), "DELAYED"), (GeneratorExit(), "DELAYED"), (KeyboardInterrupt(), "ERROR")],
    )
    def test_that_raises_what_is_no_exception_does_not_end_the_worker(self, raised: BaseException, state: str) -> None:
        error = Busy()
        Passes.raised = raised
        job, other = Passes.add_job("a"), Task.add_job("b")
        work(callback=raising(error), max_loops=2)
        assert (state_of(job), other.tries.hget()) == (state, "1")

    def test_is_refused_with_the_job_itself(self, redis_client: redis.Redis) -> None:
        with pytest.raises(TypeError, match="cannot be stored with a job"):
            Task.add_job("a", retry_policy=Retry(times=1, delay=lambda error, number: 5))
        assert redis_client.keys() == []


class TestAJobThatWasGivenUp:
    def test_rests_in_errors_with_its_history_and_has_all_its_tries_after_a_requeue(self, job_class: type[Job]) -> None:
        options = {"callback": fail, "retry_policy": Retry(times=2, **AT_ONCE), "max_loops": 3}
        job = job_class.add_job("a")
        work(**options)
        assert (state_of(job), job.tries.hget(), errors_of(job)) == ("ERROR", "3", 3)

        job.requeue()
        assert job.hmget("tries", "_uncounted_tries") == ["3", "3"]
        work(**options)
        assert (state_of(job), job.tries.hget(), errors_of(job)) == ("ERROR", "6", 6)

    def test_has_its_priority_again_after_a_requeue(self, job_class: type[Job]) -> None:
        job = job_class.add_job("a", priority=5)
        for _ in range(3):
            work(callback=fail, retry_policy=Retry(times=2, delay=0, priority_delta=-2))
        assert (state_of(job), job.priority.hget()) == ("ERROR", "1")
        job.requeue()
        assert job.priority.hget() == "5"
        assert Queue.get_queue("queue", 5).waiting.lmembers() == [job.ident]

    def test_keeps_its_priority_without_a_policy_as_ever(self, job_class: type[Job]) -> None:
        job = job_class.add_job("a", priority=5)
        for _ in range(2):
            work(callback=fail, requeue_times=1, requeue_priority_delta=-2, requeue_delay_delta=0)
        job.requeue()
        assert job.priority.hget() == "3"

    def test_is_young_again_after_a_requeue(self) -> None:
        job = Task.add_job("a")
        job.added.hset("2020-01-01 00:00:00")
        work(callback=fail, retry_policy=Retry(max_age=100, delay=10))
        assert state_of(job) == "ERROR"

        job.requeue()
        assert job.added.hget() == "2020-01-01 00:00:00"
        work(callback=fail, retry_policy=Retry(max_age=100, delay=10))
        assert state_of(job) == "DELAYED"

    def test_has_one_more_try_with_requeue_times_as_ever(self) -> None:
        options = {"callback": fail, "requeue_times": 2, "requeue_delay_delta": 0, "requeue_priority_delta": 0}
        job = Task.add_job("a")
        work(**options, max_loops=3)
        job.requeue()
        work(**options)
        assert job.hmget("status", "tries") == ["e", "4"]


class TestRequeue:
    def test_puts_the_job_back_without_an_error_and_without_a_try_of_its_policy(self, job_class: type[Job]) -> None:
        job = job_class.add_job("a")
        work(callback=raising(Requeue(delayed_for=100, priority=7)), retry_policy=Retry(times=0))
        assert job.hmget("status", "priority", "queued") == ["d", "7", "1"]
        assert job.hmget("tries", "_uncounted_tries") == ["1", "1"]
        assert 90 < delay_of(job) < 101
        assert errors_of(job) == 0
        assert Queue.get_queue("queue").errors.llen() == 0

    def test_without_arguments_lets_it_wait_behind_the_others(self, job_class: type[Job]) -> None:
        job, other = job_class.add_job("a"), job_class.add_job("b")
        work(callback=raising(Requeue()))
        assert job.hmget("status", "priority", "delayed_until") == ["w", "0", None]
        assert Queue.get_queue("queue").waiting.lmembers() == [other.ident, job.ident]

    def test_takes_a_date(self) -> None:
        job = Task.add_job("a")
        work(callback=raising(Requeue(delayed_until=datetime(2099, 1, 1))))
        assert job.hmget("status", "delayed_until") == ["d", "2099-01-01 00:00:00"]

    def test_may_come_any_number_of_times_before_a_failure(self) -> None:
        outcomes = iter([Requeue(), ValueError(), Requeue(), Requeue(), ValueError(), ValueError(), ValueError()])

        def callback(job: Job, queue: Queue) -> None:
            raise next(outcomes)

        job = Task.add_job("a")
        work(callback=callback, retry_policy=Retry(times=2, **AT_ONCE), max_loops=6)
        assert job.hmget("status", "tries", "_uncounted_tries") == ["e", "6", "3"]
        assert errors_of(job) == 3

    def test_at_once_again_and_again_lets_it_wait_longer_each_time(
        self, job_class: type[Job], log: pytest.LogCaptureFixture
    ) -> None:
        job = job_class.add_job("a")
        work(callback=raising(Requeue()), max_loops=10)
        assert job.hmget("status", "_quick_returns") == ["w", "10"]
        work(callback=raising(Requeue(delayed_for=0.01)))
        assert job.hmget("status", "_quick_returns") == ["d", "11"]
        assert len([each for each in messages(log) if "asked too often to be put back at once" in each]) == 1
        job.quick_returns.hset(30)
        job.enqueue_or_delay("queue", 0)
        work(callback=raising(Requeue()))
        assert 50 < delay_of(job) < 61
        assert [reason.code for reason in job.explain().reasons] == ["delayed", "slowed"]

    def test_with_a_delay_is_as_often_as_the_job_likes(self) -> None:
        job = Task.add_job("a")
        job.quick_returns.hset(30)
        work(callback=raising(Requeue(delayed_for=2)))
        assert job.hmget("status", "_quick_returns") == ["d", None]
        assert delay_of(job) < 3

    def test_calls_the_hooks_of_a_requeue_and_is_logged_as_one(self, log: pytest.LogCaptureFixture) -> None:
        job = Tells.add_job("a")
        work(callback=raising(Requeue(delayed_for=100, priority=7)))
        assert Tells.events == ["requeued, DELAYED"]
        until = job.delayed_until.hget()
        assert f"[queue|1|a] requeued with priority 7, delayed until {until}" in messages(log)

    def test_is_a_hook_of_the_worker(self) -> None:
        class Asking(Worker):
            def job_requeued(self, job: Job, queue: Queue, request: Requeue) -> None:
                seen.append((job.identifier.hget(), request.delayed_for, request.priority))
                super().job_requeued(job, queue, request)

        seen: list[Any] = []
        job = Task.add_job("a")
        work(worker_class=Asking, callback=raising(Requeue(delayed_for=100)))
        assert (seen, state_of(job)) == ([("a", 100, "")], "DELAYED")

    def test_is_called_by_hand_with_the_arguments_of_old(self) -> None:
        PlacedByHand.add_job("a")
        PlacedByHand.placed.clear()
        work(callback=raising(Requeue(priority=3)))
        (given,) = PlacedByHand.placed
        assert (given["queue_name"], given["priority"], given["delayed_until"]) == ("queue", "3", None)

    def test_by_hand_leaves_the_job_to_no_other_worker_meanwhile(self) -> None:
        PlacedByHand.add_job("a")
        PlacedByHand.placed.clear()
        work(callback=raising(Requeue()))
        (given,) = PlacedByHand.placed
        assert given["status"] == STATUSES.DELAYED

    def test_of_a_job_that_was_canceled_meanwhile_cancels_it(self, job_class: type[Job]) -> None:
        def cancel_and_ask(job: Job, queue: Queue) -> None:
            job.cancel()
            raise Requeue(delayed_for=100)

        job = job_class.add_job("a")
        work(callback=cancel_and_ask)
        assert job.hmget("status", "queued") == ["c", None]

    def test_of_a_job_whose_claim_is_lost_changes_nothing(self, log: pytest.LogCaptureFixture) -> None:
        def lose_and_ask(job: Job, queue: Queue) -> None:
            job.claim_token.hset("of another worker")
            raise Requeue

        job = Task.add_job("a")
        work(callback=lose_and_ask)
        assert job.hmget("status", "_uncounted_tries") == ["r", None]
        assert any("is lost" in message for message in messages(log))

    def test_may_be_raised_by_what_a_job_does_first(self) -> None:
        class Closed(Worker):
            def job_started(self, job: Job, queue: Queue) -> None:
                super().job_started(job, queue)
                raise Requeue(delayed_for=100)

        job = Task.add_job("a")
        work(worker_class=Closed)
        assert state_of(job) == "DELAYED"

    def test_with_a_wrong_argument_is_an_error_of_the_job(self) -> None:
        def ask(job: Job, queue: Queue) -> None:
            raise Requeue(priority="high")

        job = Task.add_job("a")
        work(callback=ask)
        (error,) = Error.collection_for_job(job).instances()
        assert (state_of(job), error.type.hget()) == ("ERROR", "ValueError")


class TestRequeueThatCounts:
    def test_ends_as_an_error_when_the_tries_of_the_policy_are_used_up(self, job_class: type[Job]) -> None:
        job = job_class.add_job("a")
        policy = Retry(times=2, only_on=OSError)
        work(callback=raising(Requeue(delayed_for=100, priority=7, count=True)), retry_policy=policy)
        assert job.hmget("status", "priority", "tries", "_uncounted_tries") == ["d", "7", "1", None]
        assert 90 < delay_of(job) < 101
        assert errors_of(job) == 0
        job.enqueue_or_delay()
        work(callback=raising(Requeue(count=True)), retry_policy=policy, max_loops=2)
        assert job.hmget("status", "tries", "queued") == ["e", "3", None]
        (error,) = Error.collection_for_job(job).instances()
        assert error.type.hget() == "RetriedTooOften"
        assert "none left after 3 of them" in error.message.hget()
        assert "raise exception" in error.traceback.hget()

    def test_shares_the_tries_with_failures_and_not_with_what_does_not_count(self) -> None:
        outcomes = iter([Requeue(), ValueError(), Requeue(count=True), Requeue(count=True)])

        def callback(job: Job, queue: Queue) -> None:
            raise next(outcomes)

        job = Task.add_job("a")
        work(callback=callback, retry_policy=Retry(times=2, **AT_ONCE), max_loops=4)
        assert job.hmget("status", "tries", "_uncounted_tries") == ["e", "4", "1"]

    def test_counts_against_the_requeue_times_of_the_worker_without_a_policy(self) -> None:
        job = Task.add_job("a")
        work(callback=raising(Requeue(count=True)), requeue_times=1, max_loops=2)
        assert job.hmget("status", "tries") == ["e", "2"]

    def test_is_limited_by_the_age_with_its_delay(self) -> None:
        job = Task.add_job("a")
        work(callback=raising(Requeue(delayed_for=100, count=True)), retry_policy=Retry(max_age=60))
        assert state_of(job) == "ERROR"

    def test_begins_the_time_for_which_a_job_is_tried_again(self) -> None:
        job = Task.add_job("a", retry_for=1000)
        work(callback=raising(Requeue(delayed_for=100, count=True)))
        assert state_of(job) == "DELAYED"
        job.get_field("_failing_since").hset("2020-01-01 00:00:00")
        job.enqueue_or_delay()
        work(callback=raising(Requeue(delayed_for=100, count=True)))
        assert state_of(job) == "ERROR"

    def test_of_a_job_that_was_canceled_meanwhile_cancels_it(self) -> None:
        def callback(job: Job, queue: Queue) -> None:
            job.cancel()
            raise Requeue(count=True)

        job = Task.add_job("a")
        work(callback=callback, retry_policy=Retry(times=1))
        assert state_of(job) == "CANCELED"


class TestCancel:
    def test_ends_the_job_as_canceled_without_an_error(self, job_class: type[Job]) -> None:
        job = job_class.add_job("a")
        work(callback=raising(Cancel()), retry_policy=Retry(times=5))
        assert job.hmget("status", "queued") == ["c", None]
        assert errors_of(job) == 0
        assert job_class.add_job("a") != job

    def test_calls_the_hooks_of_a_skipped_job_and_logs_why(self, log: pytest.LogCaptureFixture) -> None:
        Tells.add_job("a")
        work(callback=raising(Cancel("no such\nuser")))
        assert Tells.events == ["skipped, CANCELED"]
        assert "[queue|1|a] job skipped (current status: CANCELED): no such\\nuser" in messages(log)

    def test_without_a_reason_is_logged_as_ever(self, log: pytest.LogCaptureFixture) -> None:
        Task.add_job("a")
        work(callback=raising(Cancel()))
        assert "[queue|1|a] job skipped (current status: CANCELED)" in messages(log)

    def test_is_recorded_though_the_hook_was_replaced(self) -> None:
        class Silent(Worker):
            def job_skipped(self, job: Job, queue: Queue) -> None:
                seen.append(job.status.hget())

        seen: list[str] = []
        job = Task.add_job("a")
        work(worker_class=Silent, callback=raising(Cancel()))
        assert seen == ["c"]
        assert job.hmget("status", "queued", "_claim_token") == ["c", None, None]


def test_after_any_of_them_the_worker_goes_on_to_the_next_job() -> None:
    endings = iter([ValueError(), Requeue(delayed_for=100), Cancel(), None])

    def callback(job: Job, queue: Queue) -> None:
        ending = next(endings)
        if ending:
            raise ending

    jobs = [Task.add_job(identifier) for identifier in "abcd"]
    work(callback=callback, retry_policy=Retry(times=1, delay=100), max_loops=4)
    assert [*map(state_of, jobs)] == ["DELAYED", "DELAYED", "CANCELED", "SUCCESS"]
