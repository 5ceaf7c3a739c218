"""A job that runs for too long is an error; one that does not end in the grace period is released."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from invariants import violations
from running import messages, work, worker_of, working
from servers import wait_until

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.exceptions import ConfigurationException, JobTimeout

pytestmark = pytest.mark.usefixtures("jobs_database")

FOR_EVER = 60  # seconds: the tests fail long before


class Slow(Job):
    namespace = "limits"
    queue_name = "queue"

    def run(self, queue: Queue) -> None:
        time.sleep(FOR_EVER)


class SlowByItself(Slow):
    default_job_timeout = 0.05


class Released(Slow):
    released: list[str] = []

    def on_released(self, queue: Queue) -> None:
        self.released.append(self.identifier.hget())


@pytest.fixture(autouse=True)
def _same_handlers_afterwards() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class TestJobTimeout:
    def check(self, redis_client: redis.Redis, job: Job, seconds: float) -> None:
        assert job.hmget("status", "queued", "tries") == ["e", None, "1"]
        (error,) = Error.collection_for_job(job).instances()
        assert error.hmget("type", "message") == ["JobTimeout", f"It ran for more than {seconds} seconds"]
        assert violations(redis_client, type(job), Queue, Error) == []

    def test_of_the_worker(self, redis_client: redis.Redis) -> None:
        job = Slow.add_job("a")
        work(callback=None, job_timeout=0.05)
        self.check(redis_client, job, 0.05)

    def test_of_the_class_comes_before_that_of_the_worker(self, redis_client: redis.Redis) -> None:
        job = SlowByItself.add_job("a")
        work(callback=None, job_timeout=FOR_EVER)
        self.check(redis_client, job, 0.05)

    def test_of_the_job_comes_before_all(self, redis_client: redis.Redis) -> None:
        job = SlowByItself.add_job("a", job_timeout=0.07)
        work(callback=None, job_timeout=FOR_EVER)
        self.check(redis_client, job, 0.07)

    def test_of_a_callback(self, redis_client: redis.Redis) -> None:
        job = Slow.add_job("a")
        work(callback=lambda *_: time.sleep(FOR_EVER), job_timeout=0.05)
        self.check(redis_client, job, 0.05)

    def test_the_error_says_where_it_was_interrupted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def callback(job: Job, queue: Queue) -> None:
            monkeypatch.setattr("limpyd_jobs.workers.timers.monotonic", lambda: time.monotonic() + FOR_EVER)
            signal.raise_signal(signal.SIGALRM)

        job = Slow.add_job("a")
        work(callback=callback, job_timeout=FOR_EVER)
        (error,) = Error.collection_for_job(job).instances()
        assert "in callback\n    signal.raise_signal(signal.SIGALRM)\n" in error.traceback.hget()

    @pytest.mark.parametrize("none", [None, 0])
    def test_none_is_no_limit(self, none: int | None) -> None:
        job = SlowByItself.add_job("a", job_timeout=0)
        work(callback=lambda *_: time.sleep(0.1), job_timeout=none)
        assert job.status.hget() == STATUSES.SUCCESS

    def test_code_that_swallows_it_once_is_interrupted_again(self) -> None:
        def stubborn(job: Job, queue: Queue) -> None:
            try:
                time.sleep(FOR_EVER)
            except JobTimeout:
                time.sleep(FOR_EVER)

        job = Slow.add_job("a")
        work(callback=stubborn, job_timeout=0.05)
        assert job.status.hget() == STATUSES.ERROR

    def test_code_that_swallows_it_and_returns_is_an_error_all_the_same(
        self, redis_client: redis.Redis, log: pytest.LogCaptureFixture
    ) -> None:
        def careless(job: Job, queue: Queue) -> str:
            with suppress(BaseException):
                time.sleep(FOR_EVER)
            return "done"

        job = Slow.add_job("a")
        work(callback=careless, job_timeout=0.05)
        self.check(redis_client, job, 0.05)
        assert any("[a] swallowed JobTimeout" in message for message in messages(log))

    def test_a_clause_for_exceptions_does_not_catch_it(self) -> None:
        def careless(job: Job, queue: Queue) -> None:
            try:
                time.sleep(FOR_EVER)
            except Exception:
                time.sleep(FOR_EVER)

        job = Slow.add_job("a")
        work(callback=careless, job_timeout=0.05)
        assert job.status.hget() == STATUSES.ERROR

    def test_it_is_put_back_as_after_any_error(self) -> None:
        job = Slow.add_job("a")
        work(callback=None, job_timeout=0.05, requeue_times=1, requeue_delay_delta=60)
        assert job.hmget("status", "tries") == ["d", "1"]

    def test_the_next_job_has_its_time_again(self) -> None:
        def first_is_slow(job: Job, queue: Queue) -> None:
            time.sleep(FOR_EVER if job.identifier.hget() == "a" else 0.15)

        first, second, third = (Slow.add_job(name) for name in "abc")
        second.job_timeout.hset(FOR_EVER)
        third.job_timeout.hset(0)
        work(callback=first_is_slow, job_timeout=0.1, max_loops=3)
        assert [job.status.hget() for job in (first, second, third)] == ["e", "s", "s"]

    @pytest.mark.parametrize("seconds", [1e11, 1e300, 10**400])
    def test_one_longer_than_timers_hold_is_none(self, seconds: float) -> None:
        first, second = Slow.add_job("a", job_timeout=1e11), Slow.add_job("b", job_timeout=0)
        third = Slow.add_job("c")
        work(job_timeout=seconds, grace_period=seconds, max_loops=3)
        assert [job.status.hget() for job in (first, second, third)] == ["s", "s", "s"]

    def test_an_interrupted_command_leaves_no_reply_for_the_next_one(self, redis_client: redis.Redis) -> None:
        def waits_for_redis(job: Job, queue: Queue) -> None:
            job.connection.blpop("never", 20)

        job = Slow.add_job("a")
        work(callback=waits_for_redis, job_timeout=0.05)
        redis_client.rpush("never", "a late reply")
        assert job.hmget("status", "tries") == ["e", "1"]
        assert violations(redis_client, Slow, Error) == []

    @pytest.mark.parametrize("text", ["soon", "", "-1", "inf", "nan"])
    def test_a_stored_one_that_is_none_does_not_count(self, text: str) -> None:
        job = Slow.add_job("a")
        job.job_timeout.hset(text)
        work(callback=lambda *_: time.sleep(0.01))
        assert job.status.hget() == STATUSES.SUCCESS

    @pytest.mark.parametrize("wrong", [-1, float("inf"), float("nan"), "soon", True])
    def test_a_wrong_one_is_refused_before_anything_is_written(self, redis_client: redis.Redis, wrong: Any) -> None:
        with pytest.raises((TypeError, ValueError), match="job_timeout"):
            Slow.add_job("a", job_timeout=wrong)
        assert redis_client.keys() == []

    @pytest.mark.parametrize("name", ["job_timeout", "grace_period"])
    @pytest.mark.parametrize("wrong", [-1, float("inf"), float("nan"), "soon", True])
    def test_wrong_parameters_are_refused(self, name: str, wrong: Any) -> None:
        with pytest.raises(ConfigurationException, match=name):
            worker_of(**{name: wrong})

    def test_a_worker_outside_of_the_main_thread_says_that_it_has_none(self, log: pytest.LogCaptureFixture) -> None:
        job = Slow.add_job("a")
        with working(worker_of(job_timeout=0.01, callback=lambda *_: time.sleep(0.05))):
            wait_until(lambda: job.status.hget() == STATUSES.SUCCESS)
        assert "a time limit needs the main thread" in log.text


class TestGracePeriod:
    @pytest.fixture
    def signalled(self) -> Callable[[Job, Queue], None]:
        def callback(job: Job, queue: Queue) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            job.run(queue)

        return callback

    def test_a_job_that_does_not_end_in_it_is_released(
        self, redis_client: redis.Redis, log: pytest.LogCaptureFixture, signalled: Any
    ) -> None:
        job, other = Released.add_job("a"), Released.add_job("b")
        worker = worker_of(callback=signalled, grace_period=0.05, terminate_gracefuly=True, max_loops=2)
        worker.run()
        assert job.hmget("status", "queued", "tries", "start") == ["w", "1", None, None]
        assert Queue.get_queue("queue").waiting.lmembers() == [job.ident, other.ident]
        assert Released.released == ["a"]
        assert "[queue|1|a] released, because its worker has to end" in messages(log)
        assert worker.status == "terminated"
        assert violations(redis_client, Released, Queue) == []

    def test_a_job_that_ends_in_it_is_recorded(self, signalled: Any) -> None:
        def quick(job: Job, queue: Queue) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

        job = Slow.add_job("a")
        worker_of(callback=quick, grace_period=FOR_EVER, terminate_gracefuly=True).run()
        assert job.status.hget() == STATUSES.SUCCESS

    def test_without_one_the_job_has_all_its_time(self) -> None:
        def callback(job: Job, queue: Queue) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)

        job = Slow.add_job("a")
        worker_of(callback=callback, terminate_gracefuly=True).run()
        assert job.status.hget() == STATUSES.SUCCESS

    def test_a_hook_sees_it(self, signalled: Any) -> None:
        seen = []

        class Watching(Worker):
            def job_released(self, job: Job, queue: Queue) -> None:
                super().job_released(job, queue)
                seen.append(job.status.hget())

        Slow.add_job("a")
        worker_of(worker_class=Watching, callback=signalled, grace_period=0.05, terminate_gracefuly=True).run()
        assert seen == ["w"]
