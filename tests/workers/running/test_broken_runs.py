"""Runs that end otherwise than planned: exceptions in the loop, and errors of Redis."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from invariants import violations
from running import Collector, messages, waiting_idly, work, worker_of, working
from servers import wait_until

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.exceptions import GracePeriodOver
from limpyd_jobs.models import BaseJobsModel

pytestmark = pytest.mark.usefixtures("redis_client")


class Task(Job):
    namespace = "broken_runs"
    queue_name = "queue"


def interrupt_by_signal(job: Job, queue: Queue) -> None:
    signal.raise_signal(signal.SIGINT)


def interrupt_anew(job: Job, queue: Queue) -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        raise KeyboardInterrupt("again") from None


class TestRunsThatAreBrokenOff:
    def test_an_exit_in_a_job_is_an_error_of_the_job_and_goes_through_run(self) -> None:
        jobs = [Task.add_job(name) for name in "abc"]
        worker = worker_of(callback=lambda *_: sys.exit("enough\n\x1b[2J"), max_loops=3)
        with pytest.raises(SystemExit) as exit_:
            worker.run()
        assert exit_.value.code == r"enough\n\x1b[2J"  # which Python prints
        assert (worker.status, worker.num_loops) == ("running", 1)
        assert jobs[0].hmget("status", "queued", "tries") == ["e", None, "1"]
        assert Queue.get_queue("queue").waiting.lmembers() == [job.ident for job in jobs[1:]]
        assert [error.hmget("type", "message") for error in Error.collection().instances()] == [
            ["SystemExit", "enough\n\x1b[2J"]
        ]

    def test_an_interrupt_by_a_signal_releases_the_job_and_goes_through_run(self) -> None:
        jobs = [Task.add_job(name) for name in "abc"]
        worker = worker_of(callback=interrupt_by_signal, max_loops=3)
        with pytest.raises(KeyboardInterrupt):
            worker.run()
        assert (worker.status, worker.num_loops) == ("running", 1)
        assert jobs[0].hmget("status", "queued", "tries", "start") == ["w", "1", None, None]
        assert Queue.get_queue("queue").waiting.lmembers() == [job.ident for job in jobs]
        assert Error.collection().instances() == []
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    @pytest.mark.parametrize("code", [interrupt_by_signal, interrupt_anew])
    def test_a_handler_of_the_application_may_interrupt_it_too(self, code: Any) -> None:
        def handle(*_: Any) -> None:
            raise KeyboardInterrupt

        job = Task.add_job("a")
        before = signal.signal(signal.SIGINT, handle)
        try:
            with pytest.raises(KeyboardInterrupt):
                work(callback=code)
        finally:
            signal.signal(signal.SIGINT, before)
        assert job.hmget("status", "tries") == ["w", None]

    @pytest.mark.parametrize("exception", [SystemExit, KeyboardInterrupt])
    def test_an_exit_while_waiting_goes_through_run(self, exception: type[BaseException]) -> None:
        class Exiting(Worker):
            def wait_for_job(self) -> Any:
                raise exception

        Task.add_job("a")
        with pytest.raises(exception):
            work(worker_class=Exiting)
        assert Queue.get_queue("queue").waiting.llen() == 1

    def test_an_exception_before_the_loop_goes_through_run(self) -> None:
        class Broken(Worker):
            def run_started(self) -> None:
                raise ValueError("not today")

        Task.add_job("a")
        with pytest.raises(ValueError, match="not today"):
            work(worker_class=Broken)

    def test_redis_out_of_reach_at_the_start_goes_through_run(self, tmp_path: Path) -> None:
        BaseJobsModel.database.connect(unix_socket_path=str(tmp_path / "nowhere"))
        with pytest.raises(redis.ConnectionError):
            work()


def interrupted(job: Job, queue: Queue) -> None:
    raise KeyboardInterrupt


async def interrupted_coroutine(job: Job, queue: Queue) -> None:
    raise KeyboardInterrupt


def told_to_end(job: Job, queue: Queue) -> None:
    raise GracePeriodOver


class TestAJobThatEndsItsWorkerByItself:
    """It raises what a signal would raise in it: that is an error of the job, which counts as any other."""

    @pytest.mark.parametrize("options", [{}, {"concurrency": 2}, {"prefetch": 10}, {"terminate_gracefuly": True}])
    @pytest.mark.parametrize("callback", [interrupted, interrupted_coroutine, told_to_end])
    def test_fails_and_the_others_run(self, callback: Any, options: dict[str, Any]) -> None:
        jobs = [Task.add_job(name) for name in "abc"]
        work(callback=callback, max_loops=4, requeue_times=1, requeue_delay_delta=100, burst=True, **options)
        assert [job.hmget("status", "tries") for job in jobs] == [["d", "1"]] * 3
        assert len(Error.collection()) == 3

    def test_fails_if_a_method_of_it_does_so(self) -> None:
        class Starting(Worker):
            def job_started(self, job: Job, queue: Queue) -> None:
                super().job_started(job, queue)
                raise KeyboardInterrupt

        job = Task.add_job("a")
        work(worker_class=Starting)
        assert job.hmget("status", "tries") == ["e", "1"]


class Unlucky(Worker):
    """Its rounds beside the jobs fail, all but the first."""

    rounds = 0

    def round(self) -> None:
        self.rounds += 1
        if self.rounds > 1:
            raise ValueError("no luck")


class UnluckyWithKeys(Unlucky):
    def update_keys(self) -> None:
        super().update_keys()
        self.round()


class UnluckyWithDelayed(Unlucky):
    def requeue_delayed_jobs(self) -> None:
        self.round()
        super().requeue_delayed_jobs()


class TestExceptionsInTheLoop:
    """They are logged, and neither end the run nor keep it from other jobs."""

    @pytest.mark.parametrize("worker_class", [UnluckyWithKeys, UnluckyWithDelayed])
    @pytest.mark.parametrize("delay", [0, 0.05])
    def test_a_round_that_fails_does_not_end_the_run(
        self, log: pytest.LogCaptureFixture, collector: Collector, worker_class: type[Unlucky], delay: float
    ) -> None:
        def callback(job: Job, queue: Queue) -> None:
            collector(job, queue)
            threading.Event().wait(delay)

        for name in "abc":
            Task.add_job(name)
        options = {"fetch_priorities_delay": delay, "fetch_delayed_delay": delay}
        worker = work(worker_class=worker_class, callback=callback, max_loops=3, max_duration=60, **options)
        assert worker.rounds > 1
        assert collector.identifiers == ["a", "b", "c"]
        assert "no luck" in log.text
        assert "Traceback" in log.text

    @pytest.mark.parametrize("worker_class", [UnluckyWithKeys, UnluckyWithDelayed])
    def test_a_round_that_fails_waits_for_its_next_turn(
        self, log: pytest.LogCaptureFixture, worker_class: type[Unlucky]
    ) -> None:
        Queue.get_queue("queue")
        options = {"fetch_priorities_delay": 0.2, "fetch_delayed_delay": 0.2}
        worker = worker_of(worker_class=worker_class, timeout=0.05, **options)
        began = time.monotonic()
        with working(worker):
            wait_until(lambda: log.text.count("Traceback") > 3)
            worker.end_forced = True
        assert sum("no luck" in message for message in messages(log)) <= 2 + (time.monotonic() - began) / 0.2

    def test_wait_for_job_that_fails_does_not_end_the_run(self, log: pytest.LogCaptureFixture) -> None:
        class UnluckyOnce(Worker):
            waits = 0

            def wait_for_job(self) -> Any:
                self.waits += 1
                if self.waits == 1:
                    raise ValueError("no luck")
                return super().wait_for_job()

        job = Task.add_job("a")
        assert work(worker_class=UnluckyOnce).num_loops == 1
        assert job.status.hget() == STATUSES.SUCCESS
        (message,) = [message for message in messages(log) if "no luck" in message]
        assert message.startswith("Unable to get job: no luck\nTraceback")

    @pytest.mark.parametrize("method", ["get_queue", "get_job"])
    def test_a_job_that_could_not_be_had_is_kept_for_later(
        self, redis_client: redis.Redis, log: pytest.LogCaptureFixture, method: str
    ) -> None:
        def fail_once(self: Any, key: str) -> Any:
            if not hasattr(self, "failed"):
                self.failed = True
                raise ValueError("no luck")
            return getattr(Worker, method)(self, key)

        first, second = Task.add_job("a"), Task.add_job("b")
        assert work(worker_class=type("UnluckyOnce", (Worker,), {method: fail_once})).num_loops == 1
        assert first.hmget("status", "queued") == [STATUSES.DELAYED, "1"]
        assert second.status.hget() == STATUSES.SUCCESS
        assert "Unable to get job: no luck" in log.text
        assert violations(redis_client, Task, Queue) == []


class TestRedisErrors:
    def test_a_connection_that_is_cut_while_the_worker_is_idle(
        self, redis_client: redis.Redis, log: pytest.LogCaptureFixture
    ) -> None:
        Queue.get_queue("queue")
        with waiting_idly(worker_of(timeout=30), redis_client):
            (blocked,) = (one for one in redis_client.client_list() if one["cmd"] == "blpop")
            redis_client.client_kill_filter(_id=blocked["id"])
            wait_until(lambda: "Unable to get job" in log.text)
            job = Task.add_job("a")
        assert job.status.hget() == STATUSES.SUCCESS
        assert "Traceback" not in log.text

    def test_a_full_redis_loses_no_job(
        self, redis_client: redis.Redis, log: pytest.LogCaptureFixture, collector: Collector
    ) -> None:
        jobs = [Task.add_job(name) for name in "ab"]
        redis_client.config_set("maxmemory", "1")
        try:
            with working(worker_of(callback=collector, max_loops=2)):
                wait_until(lambda: "maxmemory" in log.text or len(collector.identifiers) == 2)
                redis_client.config_set("maxmemory", "0")
        finally:
            redis_client.config_set("maxmemory", "0")
        assert collector.identifiers == ["a", "b"]
        assert [job.status.hget() for job in jobs] == [STATUSES.SUCCESS] * 2

    def test_scripts_that_redis_forgot_are_sent_again(self, redis_client: redis.Redis, collector: Collector) -> None:
        def callback(job: Job, queue: Queue) -> None:
            collector(job, queue)
            redis_client.script_flush()

        for name in "abc":
            Task.add_job(name)
        work(callback=callback, max_loops=3)
        assert collector.identifiers == ["a", "b", "c"]
