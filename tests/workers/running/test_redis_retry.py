"""A worker insists on recording how a job went: as often as it takes, and once only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import redis
from invariants import violations
from parts import parts_of
from running import messages, work, worker_of, working
from servers import refuse_all, refuse_nothing, wait_until

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.exceptions import NotRecorded
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.workers import backoff

pytestmark = pytest.mark.usefixtures("redis_client")

REFUSED = "Unable to record how a job went"
Log = pytest.LogCaptureFixture


class Task(Job):
    """Does what its identifier says."""

    namespace = "insisting"
    queue_name = "queue"

    def act(self, queue: Queue) -> None:
        what = self._cached_identifier
        if what == "fails":
            raise ValueError("it fails")
        if what == "is canceled":
            self.cancel()
        if what == "delays itself" and self.tries.hget() == "1":
            self.status.hset(STATUSES.DELAYED)
            self.delayed_until.hset("2001-01-01 00:00:00")


class Told(Task):
    """Is recorded step by step, as it has methods for its events."""

    namespace = "insisting-told"

    def on_success(self, queue: Queue, result: Any) -> None: ...
    def on_error(self, queue: Queue, exception: Exception, trace: str | None) -> None: ...
    def on_requeued(self, queue: Queue) -> None: ...


class WithHooks(Worker):
    """So the status of a job is read before."""

    def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
        super().job_success(job, queue, job_result)


class ByHand(Worker):
    """Records nothing, so that the worker has to end the claim."""

    def job_success(self, job: Job, queue: Queue, job_result: Any) -> None: ...


MODELS = (Task, Told, Queue, Error)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(backoff, "MAX_PAUSE", 0.2)


class Outage:
    def __init__(self, client: redis.Redis) -> None:
        self.begin = partial(refuse_all, client)
        self.end = partial(refuse_nothing, client)


@pytest.fixture
def outage(redis_client: redis.Redis) -> Iterator[Outage]:
    outage = Outage(redis_client)
    yield outage
    outage.end()


ENDINGS = {
    # what a job does, how often it may be put back, its status in the end, how often it is run
    "success": ("succeeds", 0, STATUSES.SUCCESS, 1),
    "error": ("fails", 0, STATUSES.ERROR, 1),
    "error, and back in its queue": ("fails", 1, STATUSES.ERROR, 2),
    "canceled": ("is canceled", 0, STATUSES.CANCELED, 1),
    "delayed": ("delays itself", 0, STATUSES.SUCCESS, 2),
}


@pytest.mark.matrix
@pytest.mark.parametrize("worker_class", [Worker, WithHooks])
@pytest.mark.parametrize("job_class", [Task, Told])
@pytest.mark.parametrize("ending", ENDINGS)
def test_an_end_that_is_refused_for_a_while_is_recorded_once(
    redis_client: redis.Redis,
    log: Log,
    outage: Outage,
    ending: str,
    job_class: type[Task],
    worker_class: type[Worker],
) -> None:
    what, times, status, runs = ENDINGS[ending]
    job = job_class.add_job(what)
    counted: Counter[str] = Counter()

    def callback(job: Task, queue: Queue) -> None:
        counted[job._cached_identifier] += 1
        try:
            job.act(queue)
        finally:
            outage.begin()

    options = {"callback": callback, "requeue_times": times, "requeue_priority_delta": 0, "max_loops": runs}
    with working(
        worker_of(
            worker_class=worker_class, max_duration=60, requeue_delay_delta=0, fetch_delayed_delay=0.05, **options
        )
    ):
        for number in range(1, runs + 1):
            wait_until(lambda number=number: counted[what] == number, "a run")
            wait_until(lambda: REFUSED in log.text, "a refusal")
            log.clear()
            outage.end()
    assert counted[what] == runs
    assert job.status.hget() == status
    assert len(Error.collection()) == (runs if what == "fails" else 0)
    assert not any("unexpected" in message for message in messages(log))
    assert violations(redis_client, *MODELS) == []


def test_a_claim_that_no_hook_ended_is_ended_once_redis_is_back(
    redis_client: redis.Redis, log: Log, outage: Outage
) -> None:
    job = Task.add_job("a")
    with working(worker_of(worker_class=ByHand, max_duration=60, callback=lambda job, queue: outage.begin())):
        wait_until(lambda: REFUSED in log.text, "a refusal")
        outage.end()
    assert job.claim_token.hget() is None
    assert redis_client.zcard("jobs:queue:1:_running") == 0


def test_a_worker_that_has_to_end_gives_up_after_one_lease_and_another_one_runs_the_job(
    redis_client: redis.Redis, log: Log, outage: Outage
) -> None:
    job = Task.add_job("a")
    worker = worker_of(callback=lambda job, queue: outage.begin(), lease=0.5, max_duration=None)
    with working(worker):
        wait_until(lambda: REFUSED in log.text, "a refusal")
        worker.end_forced = True
    assert worker.status == "terminated"
    outage.end()
    assert job.hmget("status", "queued") == [STATUSES.RUNNING, "1"]
    with working(worker_of(lease=1, max_duration=60)):
        pass
    assert job.hmget("status", "tries") == [STATUSES.SUCCESS, "2"]
    assert violations(redis_client, *MODELS) == []


def test_a_worker_that_has_to_end_still_records_how_its_job_went(
    redis_client: redis.Redis, log: Log, outage: Outage
) -> None:
    job = Task.add_job("a")
    worker = worker_of(callback=lambda job, queue: outage.begin(), lease=60, max_duration=None)
    with working(worker):
        wait_until(lambda: REFUSED in log.text, "a refusal")
        worker.end_forced = True
        outage.end()
    assert job.status.hget() == STATUSES.SUCCESS
    assert violations(redis_client, *MODELS) == []


def test_what_will_not_pass_is_not_tried_again(redis_client: redis.Redis, log: Log) -> None:
    def callback(job: Job, queue: Queue) -> None:
        redis_client.set(queue.success.key, "of a wrong type")

    Task.add_job("a")
    work(callback=callback)
    assert sum("is not recorded: " in message and "WRONGTYPE" in message for message in messages(log)) == 1
    assert any(line.startswith("Not tried again: ") and "success is a string, which" in line for line in messages(log))
    assert REFUSED not in log.text


class CancelsItself(Task):
    """Is held in error while it is told of it, as it may be put back."""

    namespace = "insisting-canceled"

    def on_error(self, queue: Queue, exception: Exception, trace: str | None) -> None:
        assert self.status.hget() == STATUSES.ERROR
        self.cancel() if self._cached_identifier == "calls cancel" else self.status.hset(STATUSES.CANCELED)


@pytest.mark.parametrize("how", ["calls cancel", "sets its status"])
def test_a_held_job_that_cancels_itself_when_told_of_its_error_is_not_put_back(
    redis_client: redis.Redis, log: Log, how: str
) -> None:
    job = CancelsItself.add_job(how)
    calls: list[str] = []

    def callback(job: Job, queue: Queue) -> None:
        calls.append(job.pk.get())
        raise ValueError

    with working(worker_of(callback=callback, requeue_times=3, requeue_delay_delta=0, max_duration=60)):
        pass
    good = CancelsItself.add_job("good")
    work()
    assert calls == [job.pk.get()]
    assert job.status.hget() == STATUSES.CANCELED
    assert good.status.hget() == STATUSES.SUCCESS
    assert sum("job skipped (current status: CANCELED)" in message for message in messages(log)) == 1
    assert violations(redis_client, CancelsItself, *MODELS) == []


class TestBackoff:
    def test_waits_longer_after_each_failure_up_to_a_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        waits = backoff.Backoff()
        for longest in (2, 4, 8, 10, 10, 10):
            assert longest / 2 <= waits.next() <= longest

    def test_begins_anew_after_a_success(self) -> None:
        waits = backoff.Backoff()
        for _ in range(2000):  # past what a float can hold, if it doubled each time
            waits.next()
        waits.reset()
        assert waits.next() <= 2 * backoff.FIRST_PAUSE

    def test_differs_from_worker_to_worker(self) -> None:
        assert len({backoff.Backoff().next() for _ in range(20)}) > 1


def test_a_shard_that_failed_for_the_end_of_one_job_is_not_tried_for_the_next_ones() -> None:
    retry, tried = parts_of(worker_of(lease=0.1)).redis_retry, list[int]()
    shard = JobsDatabase(unix_socket_path="/nowhere/redis.sock")

    def record() -> None:
        tried.append(1)
        shard.connection.ping()

    numbers = []
    for _ in range(3):
        retry.away(shard)
        with pytest.raises(NotRecorded, match="is rescued there when its lease has lapsed"):
            retry.retry(record)
        retry.away(None)
        numbers.append(len(tried))
    assert numbers[0] == numbers[2]
    assert retry.retry(lambda: "recorded") == "recorded"
