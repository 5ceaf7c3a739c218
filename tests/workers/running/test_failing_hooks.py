"""What becomes of a job whose hook fails, and of one whose code raises what is not an `Exception`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Timer
from typing import Any

import pytest
from running import interrupt, messages, work
from servers import RedisServer

from limpyd_jobs import Cancel, Error, Job, Queue, Requeue, Worker
from limpyd_jobs.models import BaseJobsModel


class Letter(Job):
    namespace = "failing"
    queue_name = "q"

    def run(self, queue: Queue) -> None:
        pass


@pytest.fixture
def own_server(redis_binary: str, jobs_database: Any) -> Iterator[RedisServer]:
    with RedisServer(redis_binary, "--appendonly", "yes", "--appendfsync", "always") as server:
        jobs_database.connect(unix_socket_path=server.socket, db=0)
        yield server


@pytest.mark.parametrize("hook", ["job_success", "job_started"])
def test_its_error_is_recorded_once_redis_is_back(hook: str, own_server: RedisServer) -> None:
    """Then the job neither stays RUNNING without a claim, nor is it lost."""

    class Reading(Worker):
        def read(self, job: Job) -> None:
            own_server.kill()
            Timer(0.2, own_server.start).start()
            job.identifier.hget()

    setattr(Reading, hook, lambda self, job, *args: self.read(job))
    job = Letter.add_job("a")
    Reading(queues="q", max_loops=1).run()
    assert job.hmget("status", "queued", "tries", "_claim_token") == ["e", None, "1", None]
    assert job.ident in Queue.get_queue("q").errors.lmembers()
    assert BaseJobsModel.database.connection.zcard("jobs:queue:1:_running") == 0


@pytest.mark.parametrize("raised", [asyncio.CancelledError, GeneratorExit, BaseException])
@pytest.mark.usefixtures("redis_client")
def test_what_is_not_an_exception_fails_the_job_and_the_next_one_runs(raised: type[BaseException]) -> None:
    def callback(job: Job, queue: Queue) -> None:
        if job.identifier.hget() == "bad":
            raise raised("on purpose")

    bad, good = Letter.add_job("bad"), Letter.add_job("good")
    Worker(queues="q", callback=callback, max_loops=2).run()
    assert (bad.status.hget(), good.status.hget()) == ("e", "s")
    assert [error.type.hget() for error in Error.collection().instances()] == [raised.__name__]


class Parcel(Letter):
    """A job whose method raises what the test says, if it is the first one."""

    raised: Any = None

    def on_success(self, queue: Queue, result: Any) -> None:
        if self.identifier.hget() == "bad":
            raise self.raised


@pytest.mark.parametrize("raised", [asyncio.CancelledError, GeneratorExit, KeyboardInterrupt])
@pytest.mark.parametrize("concurrency", [1, 5])
@pytest.mark.usefixtures("redis_client")
def test_a_method_of_a_job_that_raises_it_ends_neither_the_worker_nor_the_jobs_beside(
    raised: type[BaseException], concurrency: int, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Parcel, "raised", raised("on purpose"))
    jobs = [Parcel.add_job(name) for name in ("bad", "good")]
    work("q", callback=None, max_loops=2, concurrency=concurrency)
    assert [job.status.hget() for job in jobs] == ["s", "s"]
    assert [text for text in messages(log) if f"unexpected error: {raised.__name__}: on purpose" in text]
    assert BaseJobsModel.database.connection.zcard("jobs:queue:1:_running") == 0


@pytest.mark.usefixtures("redis_client")
def test_an_interrupt_by_a_signal_ends_the_worker_in_a_method_of_a_job_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Letter, "on_success", lambda job, queue, result: interrupt(job, queue), raising=False)
    Letter.add_job("a")
    with pytest.raises(KeyboardInterrupt):
        work("q", callback=None)


@pytest.mark.parametrize("ending", [None, ValueError("it failed"), Requeue(), Requeue(count=True), Cancel()], ids=repr)
@pytest.mark.usefixtures("redis_client")
def test_of_a_job_whose_code_deletes_it_one_line_is_logged(ending: Any, log: pytest.LogCaptureFixture) -> None:
    def callback(job: Job, queue: Queue) -> None:
        job.delete()
        if ending:
            raise ending

    ident = str(Letter.add_job("a").ident)
    work("q", callback=callback)
    assert [text for text in messages(log) if "[a]" in text] == [f"[a] {ident} does not exist anymore"]
    assert Error.collection().instances() == []
