"""However much is wrong, a worker says it in a few short lines, and says how much it was."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
import redis
from parts import calls_of, with_part
from running import Collector, messages, waiting_idly, work, worker_of, working
from servers import free_port, wait_until

from limpyd_jobs import STATUSES, Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.workers import backoff
from limpyd_jobs.workers.claiming.leases import Leases

pytestmark = pytest.mark.usefixtures("redis_client")

MANY = 300
MORE = re.compile(r": and ([\d,]+) more like it$")


class Task(Job):
    namespace = "quiet"
    queue_name = "queue"


def said(log: pytest.LogCaptureFixture) -> list[str]:
    """The warnings and errors of workers."""
    return [record.getMessage().split("] ", 1)[1] for record in log.records if record.levelno >= 30]


def counted(lines: list[str]) -> int:
    """How many lines there would be without counting."""
    matches = [MORE.search(line) for line in lines]
    return sum(int(match[1].replace(",", "")) if match else 1 for match in matches)


class TestGarbage:
    @pytest.mark.proof
    def test_many_that_wait_are_counted(self, log: pytest.LogCaptureFixture, collector: Collector) -> None:
        Queue.get_queue("queue").waiting.rpush(*(f"garbage {number}" for number in range(MANY)))
        Task.add_job("a")
        work(callback=collector)
        assert collector.identifiers == ["a"]
        lines = said(log)
        assert lines[0].startswith("Unable to get job: Not the ident of a job")
        assert counted(lines) == MANY
        assert len(lines) < MANY / 10

    @pytest.mark.proof
    def test_an_idle_worker_tells_the_number_before_it_waits(
        self, log: pytest.LogCaptureFixture, redis_client: redis.Redis
    ) -> None:
        Queue.get_queue("queue").waiting.rpush(*(f"garbage {number}" for number in range(MANY)))
        worker = worker_of(timeout=30)
        with waiting_idly(worker, redis_client):
            wait_until(lambda: counted(said(log)) == MANY, "the number")
            Task.add_job("a")

    def test_many_that_are_due_are_counted(self, log: pytest.LogCaptureFixture, collector: Collector) -> None:
        Queue.get_queue("queue").delayed.zadd({f"garbage {number}": 1 for number in range(MANY)})
        Task.add_job("a")
        work(callback=collector)
        assert collector.identifiers == ["a"]
        assert counted(said(log)) == MANY
        assert len(said(log)) < MANY / 10

    @pytest.mark.parametrize("ident", ["x" * 1_000_000, "\0" * 1_000_000 + ":1", "a.b" + "c" * 1_000_000 + ":1"])
    def test_a_long_one_is_shortened(self, log: pytest.LogCaptureFixture, ident: str) -> None:
        queue = Queue.get_queue("queue")
        queue.waiting.rpush(ident)
        queue.delayed.zadd({ident: 1})
        Task.add_job("a")
        work()
        assert said(log)
        assert max(map(len, "\n".join(messages(log)).splitlines())) < 5000

    def test_what_is_no_fault_of_code_has_no_traceback(self, log: pytest.LogCaptureFixture) -> None:
        path = Task.get_model_repr()
        Queue.get_queue("queue").waiting.rpush("garbage", f"{path}:99")
        BaseJobsModel.database.connection.set(f"{Task._name}:98:hash", "no hash")
        Queue.get_queue("queue").waiting.rpush(f"{path}:98")
        Task.add_job("a")
        work()
        assert len(said(log)) == 3
        assert "Traceback" not in log.text


@contextmanager
def without_enough_replicas(client: redis.Redis) -> Iterator[None]:
    client.config_set("min-replicas-to-write", 1)
    try:
        yield
    finally:
        client.config_set("min-replicas-to-write", 0)


@contextmanager
def read_only(client: redis.Redis) -> Iterator[None]:
    client.replicaof("127.0.0.1", str(free_port()))
    try:
        yield
    finally:
        client.replicaof("NO", "ONE")


@pytest.mark.matrix(1)
@pytest.mark.parametrize("refusing", [without_enough_replicas, read_only])
def test_a_redis_that_refuses_writes_is_said_once_a_second_however_many_jobs_are_due(
    refusing: object, log: pytest.LogCaptureFixture, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(backoff, "MAX_PAUSE", 0.05)
    for number in range(MANY):
        Task.add_job(f"{number}", delayed_for=0.5)
    worker = worker_of(max_loops=MANY, max_duration=60)
    with working(worker):
        with refusing(redis_client):  # type: ignore[operator]
            wait_until(lambda: len(said(log)) >= 2, "the second line")
        wait_until(lambda: worker.num_loops == MANY, "all jobs")
    moments = [record.created for record in log.records if record.levelno >= 30]
    assert all(one.startswith("Unable to") for one in said(log))
    assert all(later - earlier > 0.9 for earlier, later in pairwise(moments))
    assert len(Task.collection(status=STATUSES.SUCCESS)) == MANY


class TestLostClaims:
    """FLUSHALL while jobs run: their worker says so in two lines for each, without a traceback."""

    @staticmethod
    @contextmanager
    def working(redis_client: redis.Redis, last: str, fails: bool = False, **options: Any) -> Iterator[None]:
        def run(job: Job, queue: Queue) -> None:
            if job._cached_identifier != last:
                return
            redis_client.flushall()
            before = len(beats)
            wait_until(lambda: job.is_cancelled() and len(beats) > before + 5)
            if fails:
                raise ValueError("it fails")

        worker, leases = with_part(Leases, lambda: worker_of(callback=run, lease=0.4, **options))
        beats = calls_of(leases, "renew")
        with working(worker):
            yield
            worker.end_forced = True

    @pytest.mark.parametrize("fails", [False, True])
    def test_a_claim_is_said_to_be_lost_once(
        self, fails: bool, log: pytest.LogCaptureFixture, redis_client: redis.Redis
    ) -> None:
        Task.add_job("a")
        with self.working(redis_client, "a", fails):
            wait_until(lambda: len(said(log)) == 2)
        lost, unrecorded = said(log)
        assert lost == "[a] lost its claim: another worker may run it"
        assert unrecorded.startswith("[a] ")
        assert unrecorded.endswith("does not exist anymore")
        assert "Traceback" not in log.text

    def test_so_are_those_that_are_next(self, log: pytest.LogCaptureFixture, redis_client: redis.Redis) -> None:
        Task.add_jobs(f"{number}" for number in range(10))
        both = [
            "[1] lost its claim: another worker may run it",
            "[2] lost its claim: another worker may run it (and 7 more that are next)",
        ]
        with self.working(redis_client, "1", prefetch=10, max_loops=20):
            wait_until(lambda: sorted(line for line in said(log) if "lost its claim" in line) == both)
        assert "Traceback" not in log.text


class Unlucky(Worker):
    """Cannot get a job, many times."""

    def wait_for_job(self) -> Any:
        self.max_loops -= 1
        if self.max_loops:
            raise LookupError("no luck")


def test_an_error_of_the_application_that_repeats_is_said_once_a_second_with_its_traceback(
    log: pytest.LogCaptureFixture,
) -> None:
    Task.add_job("a")
    work(worker_class=Unlucky, max_loops=MANY)
    assert said(log)[0].startswith("Unable to get job: no luck\nTraceback")
    assert counted(said(log)) == MANY - 1
    assert len(said(log)) < MANY / 10
