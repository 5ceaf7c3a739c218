"""Any number of threads wait for jobs: over one connection, whatever becomes of Redis meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
import redis
from running import work
from servers import RedisServer, free_port, wait_until

from limpyd_jobs import Job, JobFailed, LimpydJobsException, NoResult, ResultTimeout
from limpyd_jobs.redis.database import JobsDatabase

pytestmark = pytest.mark.usefixtures("redis_client")


class Sum(Job):
    namespace = "waiting"
    queue_name = "sums"
    keep_result = True

    def run(self, queue: Any) -> Any:
        return int(self.identifier.hget())


def listeners() -> list[str]:
    """Return the threads that listen for those who wait here: others of earlier tests may not have ended yet."""
    return [thread.name for thread in enumerate_threads() if thread.name == "limpyd-jobs-listener-Sum"]


def awaited(wait: Callable[..., Any]) -> tuple[Thread, list[Any]]:
    """Wait in a thread; return the thread, and where the result will be."""
    found: list[Any] = []
    thread = Thread(target=lambda: found.append(wait(timeout=60)))
    thread.start()
    return thread, found


def test_many_threads_wait_over_one_connection_and_read_each_change_once(
    redis_server: RedisServer, redis_client: redis.Redis, commands: Any
) -> None:
    there = Sum.bound_to(JobsDatabase(unix_socket_path=redis_server.socket, db=0, max_connections=2))
    jobs = there.add_jobs(map(str, range(40)))
    with commands() as sent, ThreadPoolExecutor(40) as threads:
        results = [threads.submit(job.result, 60) for job in jobs]
        wait_until(lambda: redis_client.info("clients")["blocked_clients"])
        assert len(listeners()) == 1
        work("sums", callback=None, max_loops=40)
        assert [result.result() for result in results] == list(range(40))
    assert sent.names.count("XREVRANGE") == 1
    assert 0 < sent.names.count("XREAD") <= 2 * 40 + 1  # at most once for each time that something changed
    wait_until(lambda: not listeners())


def test_who_gave_up_does_not_end_the_wait_of_others() -> None:
    job = Sum.add_job("7")
    thread, found = awaited(job.result)
    assert not job.wait(0.01)
    assert not Sum.add_job("8").wait(0.01)
    work("sums", callback=None)
    thread.join(60)
    assert found == [7]


def test_who_waits_in_a_forked_process_listens_there() -> None:
    job = Sum.add_job("7")
    assert not job.wait(0.01)
    assert listeners()
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if job.result(timeout=60) == 7 else 2
        finally:
            os._exit(status)
    work("sums", callback=None)
    assert os.waitpid(child, 0)[1] == 0
    assert job.result(timeout=60) == 7


def test_who_waits_after_the_database_was_moved_listens_there(
    redis_server: RedisServer, jobs_database: JobsDatabase
) -> None:
    assert not Sum.add_job("7").wait(0.01)
    jobs_database.connect(unix_socket_path=redis_server.socket, db=1)
    thread, found = awaited(Sum.add_job("8").result)
    work("sums", callback=None)
    thread.join(60)
    assert found == [8]


@pytest.fixture
def frail_server(redis_binary: str) -> Iterator[RedisServer]:
    """A server that may be killed, and started again with its data."""
    with RedisServer(redis_binary, "--appendonly", "yes", "--appendfsync", "always", port=free_port()) as server:
        yield server


class TestWhileRedisIsDown:
    def test_the_wait_goes_on(self, frail_server: RedisServer) -> None:
        there = Sum.bound_to(JobsDatabase(unix_socket_path=frail_server.socket))
        job, other = there.add_jobs(["7", "8"])
        waiting = awaited(job.wait)
        frail_server.kill()
        also_waiting = awaited(other.wait)
        frail_server.start()
        for each in (job, other):
            there.get(each.pk.get()).claim().succeed()
        for thread, found in (waiting, also_waiting):
            thread.join(60)
            assert found == [True]

    def test_nothing_is_said_that_is_not_known(self, frail_server: RedisServer) -> None:
        job = Sum.bound_to(JobsDatabase(unix_socket_path=frail_server.socket)).add_job("7")
        frail_server.kill()
        assert job.wait(0.01) is False
        with pytest.raises(ResultTimeout, match="is not known, because Redis did not answer within"):
            job.result(0.01)
        for ask in (job.wait, job.result):
            with pytest.raises(redis.ConnectionError):
                ask(0)


def test_a_full_redis_tells_how_jobs_ended(redis_client: redis.Redis) -> None:
    done, failed = Sum.add_jobs(["7", "no number"])
    work("sums", callback=None, max_loops=2)
    redis_client.config_set("maxmemory", 1)
    try:
        assert done.result(timeout=60) == done.result(timeout=0) == 7
        with pytest.raises(JobFailed, match="ValueError: invalid literal"):
            failed.result(timeout=60)
    finally:
        redis_client.config_set("maxmemory", 0)


def test_the_failure_is_that_of_the_job_and_not_of_another_one_of_its_identifier() -> None:
    first = Sum.add_job("one")
    work("sums", callback=None)
    first.identifier.hset("two")
    second = Sum.add_job("two")
    work("sums", callback=None)
    for job, number in ((first, "one"), (second, "two")):
        with pytest.raises(JobFailed, match=number):
            job.result(timeout=60)


class TestAKeyOfAnotherProgram:
    def test_instead_of_a_result_is_no_result(self, redis_client: redis.Redis) -> None:
        job = Sum.add_job("7")
        work("sums", callback=None)
        redis_client.delete("waiting:sum:1:_result")
        redis_client.rpush("waiting:sum:1:_result", "x")
        with pytest.raises(NoResult, match="at waiting:sum:1:_result, is not a text"):
            job.result(timeout=60)

    @pytest.mark.parametrize("timeout", [0, 60])
    def test_instead_of_a_job_is_named(self, redis_client: redis.Redis, timeout: float) -> None:
        job = Sum.add_job("7")
        redis_client.set("waiting:sum:1:hash", "x")
        for ask in (job.wait, job.result):
            with pytest.raises(LimpydJobsException, match="waiting:sum:1:hash is not the hash of a job"):
                ask(timeout)

    def test_instead_of_the_changes_is_named(self, redis_client: redis.Redis) -> None:
        job, changes = Sum.add_job("7"), Sum.changes(timeout=0)
        redis_client.set("waiting:sum:changes", "x")
        for ask in (job.wait, job.result, Sum.changes, changes.read):
            with pytest.raises(LimpydJobsException, match="waiting:sum:changes is not a stream: another program wrote"):
                ask()
        assert job.cancel()
