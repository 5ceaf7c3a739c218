"""What the documents say of `Job.cancel` and `Job.is_cancelled`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import redis
from invariants import violations
from limpyd.exceptions import DoesNotExist
from running import Collector, fail, messages, work

from limpyd_jobs import STATUSES, ClaimLost, Error, Job, Queue, Worker, transitions
from limpyd_jobs.models.job import QUESTION_INTERVAL
from limpyd_jobs.query import JobFilter, explain_job, release_job
from limpyd_jobs.transitions import ClaimRequest

pytestmark = pytest.mark.usefixtures("redis_client", "consistent")


class Cancelable(Job):
    namespace = "cancelable"
    queue_name = "queue"


class WithoutQueue(Job):
    namespace = "cancelable"


class ByHand(Job):
    """Has its own way to a queue."""

    namespace = "cancelable"
    queue_name = "queue"

    def enqueue_or_delay(self, *args: Any, **options: Any) -> None:
        super().enqueue_or_delay(*args, **options)


class OwnQueue(Queue):
    """Has its own way to put a job in it."""

    namespace = "cancelable"

    def enqueue_job(self, job: Job, prepend: bool = False) -> None:
        self.waiting.lpush(job.ident)


class InOwnQueue(Job):
    namespace = "cancelable"
    queue_model = OwnQueue
    queue_name = "queue"


LATER = 4070908800  # in 2099
JOBS = [Cancelable, ByHand, InOwnQueue]


@pytest.fixture
def consistent(redis_client: redis.Redis) -> Iterator[None]:
    """Check at the end that hashes, indexes, lists and sets agree."""
    yield
    assert violations(redis_client, WithoutQueue, *JOBS, OwnQueue, Queue, Error) == []


each_class = pytest.mark.parametrize("job_class", JOBS)


def claimed(token: str = "mine") -> Any:
    """A job that runs, as its worker has it."""
    Cancelable.add_job("a")
    job = Cancelable.get(identifier="a")
    claim(token)
    job._held_token = token
    return job


def claim(token: str) -> None:
    request = ClaimRequest([Queue.get_queue("queue").waiting.key], token, 60, {Cancelable.get_model_repr(): Cancelable})
    fetched, _ = transitions.claim(Queue, request)
    assert fetched is not None
    assert fetched.outcome == "claimed"


def finish(job: Any, token: str = "mine") -> None:
    transitions.finish_canceled(job, Queue.get_queue("queue"), token)


class TestCancel:
    @each_class
    @pytest.mark.parametrize("options", [{}, {"delayed_for": 1000}, {"priority": 5}, {"queue_name": "other"}], ids=str)
    def test_takes_a_job_out_of_its_queue_at_once(self, job_class: Any, options: dict[str, Any]) -> None:
        job = job_class.add_job("a", **options)
        assert job.cancel() is True
        assert job.hmget("status", "queued") == [STATUSES.CANCELED, None]
        assert job_class.queue_model.count_jobs(["queue", "other"]) == (0, 0)

    @each_class
    def test_lets_its_identifier_be_added_again_at_once(self, job_class: Any) -> None:
        job = job_class.add_job("a")
        job.cancel()
        again = job_class.add_job("a")
        assert (again != job, job.cancel(), again.status.hget()) == (True, True, STATUSES.WAITING)
        done = Collector()
        work(queue_model=job_class.queue_model, callback=done)
        assert done.identifiers == ["a"]

    def test_lets_its_identifier_be_added_again_while_its_code_still_runs(self) -> None:
        job = claimed()
        job.cancel()
        again, same = Cancelable.add_job("a"), Cancelable.add_job("a")
        assert (again == job, again == same) == (False, True)
        assert [reason.code for reason in again.explain().reasons] == ["follows", "delayed"]
        again.enqueue_or_delay("queue", 0)  # which does not help: both must not run at once
        work(timeout=0.1, burst=True)
        assert again.status.hget() == STATUSES.DELAYED
        finish(job)
        assert again.status.hget() == STATUSES.WAITING
        work()
        assert [each.hmget("status", "queued") for each in (job, again)] == [["c", None], ["s", None]]

    @pytest.mark.parametrize("ends", ["its lease lapses", "it is deleted"])
    def test_lets_it_begin_however_the_other_one_ends(self, ends: str) -> None:
        job = claimed()
        job.cancel()
        again = Cancelable.add_job("a")
        Queue.get_queue("queue").running.zadd({job.ident: 1})
        if ends == "it is deleted":
            job.delete()
        Queue.get_queue("queue").delayed.zadd({again.ident: 1})  # as if it was due
        again.delayed_until.hset("2020-01-01 00:00:00")
        work()
        assert again.status.hget() == STATUSES.SUCCESS
        work(burst=True)

    def test_lets_it_begin_at_once_though_a_worker_had_found_it_too_early(self) -> None:
        job = claimed()
        job.cancel()
        again = Cancelable.add_job("a")
        Queue.get_queue("queue").delayed.zadd({again.ident: 1})  # as if it was due
        again.delayed_until.hset("2020-01-01 00:00:00")

        class Late(Worker):
            def job_delayed(self, found: Job, queue: Queue) -> None:
                finish(job)
                super().job_delayed(found, queue)

        Late("queue", callback=lambda *_: None, burst=True).run()
        assert again.status.hget() == STATUSES.SUCCESS

    def test_keeps_the_delay_that_the_new_one_asks_for(self) -> None:
        job = claimed()
        job.cancel()
        again = Cancelable.add_job("a", delayed_until=datetime(2099, 1, 1))
        finish(job)
        assert again.hmget("status", "delayed_until", "_follows") == ["d", "2099-01-01 00:00:00", None]

    def test_needs_no_name_of_a_queue(self) -> None:
        job = WithoutQueue.add_job("a", "anywhere", priority=3)
        job.queue_key.delete()  # as version 2 added it
        assert job.cancel() is True
        assert Queue.count_jobs("anywhere") == (0, 0)

    def test_leaves_an_entry_that_it_cannot_find_to_a_worker_which_drops_it(self) -> None:
        job = Cancelable.add_job("a", queue_model=OwnQueue)  # which the class does not name, nor the job
        assert job.cancel() is True
        done = Collector()
        work(queue_model=OwnQueue, callback=done)
        assert done.identifiers == []
        assert OwnQueue.count_jobs("queue") == (0, 0)

    @pytest.mark.parametrize("callback", [None, fail])
    def test_is_false_for_a_job_that_ended(self, callback: Any) -> None:
        job = Cancelable.add_job("a")
        work(**({"callback": callback} if callback else {}))
        before = job.hgetall()
        assert job.cancel() is False
        assert job.hgetall() == before

    def test_of_a_deleted_job_is_refused(self) -> None:
        job = Cancelable.add_job("a")
        Queue.get_queue("queue").waiting.delete()
        Cancelable.get(identifier="a").delete()
        with pytest.raises(DoesNotExist):
            job.cancel()

    def test_tells_the_code_that_runs_the_job(self, caplog: pytest.LogCaptureFixture) -> None:
        job = Cancelable.add_job("a")
        asked: list[bool] = []

        def run(running: Job, queue: Queue) -> None:
            asked.append(running.is_cancelled())
            assert Cancelable.get(identifier="a").cancel() is True
            vars(running).pop("_next_question")  # as a second later
            asked.append(running.is_cancelled())

        work(callback=run)
        assert asked == [False, True]
        assert job.hmget("status", "queued", "_claim_token") == [STATUSES.CANCELED, None, None]
        assert any(message.endswith("job skipped (current status: CANCELED)") for message in messages(caplog))

    def test_keeps_a_job_that_then_fails_from_being_run_again(self) -> None:
        job = Cancelable.add_job("a")

        def run(running: Job, queue: Queue) -> None:
            running.cancel()
            raise ValueError("on purpose")

        work(callback=run, requeue_times=5)
        assert job.hmget("status", "queued") == [STATUSES.ERROR, None]
        assert Queue.count_jobs("queue") == (0, 0)

    def test_leaves_a_job_that_was_taken_from_its_list_to_the_worker_which_skips_it(self) -> None:
        job = Cancelable.add_job("a")
        done = Collector()

        class Slow(Worker):
            def wait_for_job(self) -> Any:
                queue = Queue.get_queue("queue")
                ident = queue.waiting.lpop()
                job.cancel()
                return queue, self.get_job(ident)

        work(worker_class=Slow, callback=done)
        assert done.identifiers == []
        assert job.status.hget() == STATUSES.CANCELED


class TestOfAJobWhoseWorkerDied:
    @pytest.fixture
    def job(self, redis_client: redis.Redis) -> Any:
        job = claimed()
        assert job.cancel()
        redis_client.zadd("jobs:queue:1:_running", {job.ident: 1})
        return job

    def test_its_identifier_is_free(self, job: Any, redis_client: redis.Redis) -> None:
        new, *_ = Cancelable.add_jobs(["a"])
        assert (new.ident, new.status.hget()) == ("test_canceling.Cancelable:2", STATUSES.WAITING)
        assert job.hmget("status", "queued", "_claim_token") == [STATUSES.CANCELED, None, None]
        assert redis_client.zcard("jobs:queue:1:_running") == 0
        with pytest.raises(ClaimLost):
            finish(job)  # it was only silent
        assert Cancelable.collection(identifier="a", queued="1") == {"2"}

    def test_another_job_of_its_identifier_can_be_requeued(self, job: Any) -> None:
        failed = Cancelable(identifier="a", status=STATUSES.ERROR, priority=0)
        assert JobFilter(status="error").requeue_all(dry_run=True).done == 1
        assert job.queued.hget() == "1"
        failed.requeue()
        assert (failed.status.hget(), job.queued.hget()) == (STATUSES.WAITING, None)

    def test_it_can_be_deleted(self, job: Any, redis_client: redis.Redis) -> None:
        redis_client.zadd("jobs:queue:1:_running", {job.ident: LATER})
        assert JobFilter(identifier="a").delete_all().done == 0
        redis_client.zadd("jobs:queue:1:_running", {job.ident: 1})
        assert JobFilter(identifier="a").delete_all().done == 1
        assert redis_client.zcard("jobs:queue:1:_running") == 0

    def test_it_can_be_released_and_explain_says_so(self, job: Any) -> None:
        text = " ".join(reason.text for reason in explain_job(job.ident).reasons)
        assert "It was canceled: it is over, nothing of it runs again, and its identifier is free." in text
        assert "It is recorded as running" not in text
        assert "put the job back" not in text
        release_job(job.ident)
        assert job.hmget("status", "queued", "_claim_token") == [STATUSES.CANCELED, None, None]


class TestIsCancelled:
    def test_is_false_for_a_job_that_waits_runs_or_ended(self) -> None:
        job = Cancelable.add_job("a")
        assert job.is_cancelled() is False
        work()
        assert Cancelable.get(identifier="a").is_cancelled() is False

    def test_is_true_for_a_canceled_one_whoever_asks(self) -> None:
        job = Cancelable.add_job("a")
        job.cancel()
        assert Cancelable.get(identifier="a").is_cancelled() is True

    def test_is_true_once_another_process_holds_the_claim(self) -> None:
        job = claimed()
        assert job.is_cancelled() is False
        job.claim_token.hset("another")
        forget(job)
        assert job.is_cancelled() is True
        finish(job, "another")

    def test_is_true_once_the_job_is_deleted(self) -> None:
        job = claimed()
        Queue.get_queue("queue").running.delete()
        Cancelable.get(identifier="a").delete()
        assert job.is_cancelled() is True

    def test_is_true_if_the_worker_says_that_the_claim_is_lost(self) -> None:
        job = claimed()
        assert job.is_cancelled() is False
        job._claim_lost = True
        assert job.is_cancelled() is True
        finish(job)

    def test_stays_true(self) -> None:
        job = Cancelable.add_job("a")
        other = Cancelable.get(identifier="a")
        job.cancel()
        assert other.is_cancelled() is True
        job.enqueue_or_delay()
        forget(other)
        assert other.is_cancelled() is True
        assert job.is_cancelled() is False

    def test_asks_redis_once_per_second(self, monkeypatch: pytest.MonkeyPatch) -> None:
        moment = [1000.0]
        monkeypatch.setattr("limpyd_jobs.models.job.monotonic", lambda: moment[0])
        job = Cancelable.add_job("a")
        assert job.is_cancelled() is False
        job.cancel()
        moment[0] += QUESTION_INTERVAL - 0.001
        assert job.is_cancelled() is False
        moment[0] += 0.001
        assert job.is_cancelled() is True

    def test_is_false_while_redis_does_not_answer(self) -> None:
        job = Cancelable.add_job("a")
        database = Cancelable.database
        settings = database.connection_settings
        database.connect(unix_socket_path="/nowhere")
        try:
            assert job.is_cancelled() is False
        finally:
            database.connect(**settings)

    def test_is_answered_inside_a_pipeline(self) -> None:
        job = Cancelable.add_job("a")
        job.cancel()
        with Cancelable.database.pipeline() as pipe:
            assert job.is_cancelled() is True
            assert pipe.execute() == []


def forget(job: Job) -> None:
    """Let the next question go to Redis."""
    vars(job).pop("_next_question", None)
