"""A worker of several slots that is asked to end, or to be quiet: real processes, real signals, also without Redis."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from invariants import violations
from running import worker_of
from servers import RedisServer, wait_until

from limpyd_jobs import Argument, Error, Job, Queue, WorkerPresence
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.redis.database import JobsDatabase

pytestmark = pytest.mark.usefixtures("jobs_database")

FOR_EVER = 600  # seconds: the tests fail long before
ASKS = {signal.SIGTERM: "SIGTERM caught: ending", signal.SIGUSR2: "SIGUSR2 caught: quiet"}


class Base(Job):
    namespace = "draining"
    queue_name = "queue"
    gates = Path()
    gate = Argument(str, default="closed")
    abstract = True

    @property
    def may_end(self) -> bool:
        return (self.gates / self.arguments.gate).exists()


class Gated(Base):
    async def run(self, queue: Queue) -> None:
        while not self.may_end:
            await asyncio.sleep(0.02)


class PlainGated(Base):
    def run(self, queue: Queue) -> None:
        while not (self.may_end or self.is_cancelled()):
            time.sleep(0.02)


class Patient(Base):
    async def run(self, queue: Queue) -> None:
        try:
            await asyncio.sleep(0 if self.may_end else FOR_EVER)
        except asyncio.CancelledError:
            (self.gates / f"canceled {self.ident}").touch()
            raise


class Stubborn(Base):
    async def run(self, queue: Queue) -> None:
        while not self.may_end:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.02)


class StubbornPlain(Base):
    def run(self, queue: Queue) -> None:
        while not self.may_end:
            time.sleep(0.02)


class Program:
    """A worker that runs in a process of its own."""

    def __init__(self, path: Path, **options: Any) -> None:
        self._log, self.status = path / "log", -1
        self._log.touch()
        self._pid = os.fork()
        if not self._pid:
            try:
                logging.basicConfig(filename=self._log, level="INFO", force=True)
                given = {"callback": None, "max_loops": 1000, "max_duration": None, "terminate_gracefuly": True}
                worker_of(**{**given, **options}).run()
                os._exit(0)
            finally:
                os._exit(1)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_until_all_run(self, jobs: int) -> None:
        wait_until(lambda: self.log.count(" starting") == jobs, "all jobs have begun")

    def send(self, number: int) -> None:
        os.kill(self._pid, number)

    @property
    def has_ended(self) -> bool:
        if self.status < 0:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else -1
        return self.status >= 0

    def kill(self) -> None:
        if not self.has_ended:
            self.send(signal.SIGKILL)
            os.waitpid(self._pid, 0)


@contextmanager
def running(path: Path, **options: Any) -> Iterator[Program]:
    program = Program(path, **options)
    try:
        yield program
    finally:
        program.kill()


@pytest.fixture(autouse=True)
def gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Base, "gates", tmp_path)
    return tmp_path


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not end is left behind soon."""
    monkeypatch.setattr("limpyd_jobs.workers.running.interrupting.LAST_SECONDS", 0.2)
    monkeypatch.setattr("limpyd_jobs.workers.running.interrupting.RECORD_WITHIN", 0.3)


def add(number: int, *job_classes: type[Job], gate: str = "closed") -> list[Job]:
    """Add that many jobs, of each class in turn."""
    classes = [job_classes[place % len(job_classes)] for place in range(number)]
    return [job_class.add_job(f"{gate} {place}", gate=gate) for place, job_class in enumerate(classes)]


def statuses(jobs: list[Job]) -> list[str]:
    return [job.status.hget() for job in jobs]


@pytest.mark.parametrize("asked", ASKS, ids=lambda asked: asked.name)
def test_until_the_last_job_has_ended_all_goes_on_but_claims(
    asked: signal.Signals, gates: Path, redis_client: redis.Redis
) -> None:
    first, last = (add(10, Gated, PlainGated, gate=gate) for gate in ("first", "last"))
    leases = f"{Queue.get_queue('queue').key.removesuffix(':hash')}:_running"
    with running(gates, concurrency=30, lease=2) as program:
        program.wait_until_all_run(20)
        program.send(asked)
        wait_until(lambda: ASKS[asked] in program.log)
        later = Gated.add_job("later")

        before = dict(redis_client.zrange(leases, 0, -1, withscores=True))
        wait_until(lambda: all(score > before[ident] for ident, score in redis_client.zscan_iter(leases)), "renewals")
        wait_until(WorkerPresence.alive)
        (there,) = WorkerPresence.alive()

        for job in last[:2]:
            job.cancel()
        wait_until(lambda: program.log.count("job skipped") == 2, "what is canceled ends")
        assert redis_client.zcard(leases) == 18
        program.send(signal.SIGUSR1)
        wait_until(lambda: program.log.count("has the claim") >= 18, "a dump")
        WorkerPresence.order(there, "dump")
        wait_until(lambda: program.log.count("has the claim") >= 36, "a dump that others ask for")
        program.send(signal.SIGUSR2)
        wait_until(lambda: "SIGUSR2 caught: quiet" in program.log)
        program.send(signal.SIGTERM)
        wait_until(lambda: "SIGTERM caught: ending" in program.log)
        program.send(signal.SIGTERM)

        (gates / "first").touch()
        wait_until(lambda: statuses(first) == ["s"] * 10, "ends are recorded")
        assert statuses([*last, later]) == ["c"] * 2 + ["r"] * 8 + ["w"]
        (gates / "last").touch()
        wait_until(lambda: program.has_ended)
        assert program.status == 0
    assert statuses(last) == ["c"] * 2 + ["s"] * 8
    assert {job.tries.hget() for job in first + last} == {"1"}
    assert violations(redis_client, Gated, PlainGated, Queue, Error) == []


def test_after_the_grace_period_what_runs_is_released(gates: Path, redis_client: redis.Redis, hurried: None) -> None:
    jobs = add(100, Patient, Stubborn, PlainGated, StubbornPlain)
    with running(gates, concurrency=100, grace_period=0.1) as program:
        program.wait_until_all_run(100)
        program.send(signal.SIGTERM)
        wait_until(lambda: program.has_ended)
        assert program.status == 0
    assert sorted(Queue.get_queue("queue").waiting.lmembers()) == sorted(job.ident for job in jobs)
    assert {tuple(job.hmget("status", "tries")) for job in jobs} == {("w", None)}
    assert len(list(gates.glob("canceled *"))) == 25
    assert violations(redis_client, Patient, Stubborn, PlainGated, StubbornPlain, Queue, Error) == []


@pytest.mark.matrix(1)
@pytest.mark.parametrize("how", ["silent", "gone"])
def test_while_redis_is_away_it_ends_all_the_same(
    how: str, gates: Path, jobs_database: JobsDatabase, redis_binary: str, hurried: None
) -> None:
    with RedisServer(redis_binary) as server:
        assert server.process
        BaseJobsModel.database.connect(unix_socket_path=server.socket, socket_timeout=FOR_EVER)
        jobs = add(100, Patient, Stubborn, PlainGated, StubbornPlain)
        with running(gates, concurrency=100, grace_period=0.1, lease=1) as program:
            program.wait_until_all_run(100)
            if how == "gone":
                server.kill()
            else:
                server.process.send_signal(signal.SIGSTOP)
            program.send(signal.SIGTERM)
            wait_until(lambda: program.has_ended)
            assert program.status == 0
        if how == "silent":
            server.process.send_signal(signal.SIGCONT)
            (gates / "closed").touch()
            worker_of(callback=None, concurrency=100, max_loops=100, lease=1).run()
            assert {tuple(job.hmget("status", "tries")) for job in jobs} == {("s", "1")}
        BaseJobsModel.database.connection.close()
