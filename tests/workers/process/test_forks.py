"""A job whose code forks: the child ends where the code does, and all that follows is done once, by the worker."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
import redis
from running import worker_of
from servers import wait_until

from limpyd_jobs import Error, Job, Queue, Worker

pytestmark = pytest.mark.usefixtures("redis_client")


NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")


class Forking(Job):
    namespace = "forks"
    queue_name = "queue"


def come_back() -> None: ...


def exit_with_three() -> None:
    sys.exit(3)


def fail() -> None:
    raise ValueError("it fails in the child")


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.matrix(3)
@pytest.mark.parametrize("prefetch", [1, 10, "auto"])
@pytest.mark.parametrize(("end", "status"), [(come_back, 0), (exit_with_three, 3), (fail, 1)])
def test_the_child_ends_where_the_code_of_the_job_does(
    redis_client: redis.Redis, prefetch: int | str, end: Callable[[], None], status: int
) -> None:
    identifiers = [f"{number:03d}" for number in range(30)]
    Forking.add_jobs(identifiers)
    children: list[int] = []

    def callback(job: Job, queue: Queue) -> None:
        redis_client.rpush("ran", job._cached_identifier)
        if job._cached_identifier in ("009", "019"):
            children.append(os.fork())
            if not children[-1]:
                end()

    worker_of(callback=callback, prefetch=prefetch, max_loops=30).run()
    assert [status_of(child) for child in children] == [status, status]
    assert redis_client.lrange("ran", 0, -1) == identifiers
    assert len(Forking.collection(status="s")) == 30
    assert len(Error.collection()) == 0


@pytest.mark.parametrize("concurrency", [1, 2])
def test_the_child_ends_that_was_forked_in_a_thread_of_a_coroutine(concurrency: int, jobs_database: None) -> None:
    children: list[int] = []

    async def callback(job: Job, queue: Queue) -> None:
        children.append(await asyncio.to_thread(os.fork))

    Forking.add_job("a")
    worker_of(callback=callback, concurrency=concurrency).run()
    ended: list[tuple[int, int]] = []
    wait_until(lambda: ended.append(os.waitpid(children[0], os.WNOHANG)) or ended[-1][0])  # type: ignore[func-returns-value]
    assert os.waitstatus_to_exitcode(ended[-1][1]) == 0
    assert len(Forking.collection(status="s")) == 1


def test_the_child_may_remove_what_its_parent_is_running(jobs_database: None) -> None:
    """As its garbage collector does some day."""
    children: list[int] = []

    async def callback(job: Job, queue: Queue) -> None:
        while job._cached_identifier == "waits" and not children:
            await asyncio.sleep(0.01)
        if job._cached_identifier == "forks":
            others = asyncio.all_tasks() - {asyncio.current_task()}
            children.append(os.fork())
            if not children[-1]:
                for task in others:
                    task.get_coro().close()  # type: ignore[union-attr]
                os._exit(7)

    Forking.add_jobs(["waits", "forks"])
    worker_of(callback=callback, concurrency=2, max_loops=2).run()
    assert [status_of(child) for child in children] == [7]
    assert len(Forking.collection(status="s")) == 2


@pytest.mark.parametrize("options", [{}, {"prefetch": 10}, {"concurrency": 2}], ids=str)
@pytest.mark.parametrize(("hook", "status"), [("job_started", 0), ("job_success", 0), ("job_success", 1)])
def test_the_child_that_a_hook_forked_ends_with_the_hook(
    redis_client: redis.Redis, hook: str, status: int, options: dict[str, Any]
) -> None:
    children: list[int] = []

    def forks(worker: Worker, *args: Any) -> None:
        getattr(Worker, hook)(worker, *args)
        children.append(os.fork())
        if not children[-1] and status:
            fail()

    def callback(job: Job, queue: Queue) -> None:
        redis_client.rpush("ran", os.getpid())

    own = type("Forks", (Worker,), {hook: forks, "run_ended": lambda _: redis_client.rpush("ended", os.getpid())})
    Forking.add_jobs(["1", "2"])
    worker_of(worker_class=own, callback=callback, max_loops=2, **options).run()
    assert [status_of(child) for child in children] == [status, status]
    assert redis_client.lrange("ended", 0, -1) == [str(os.getpid())]
    assert redis_client.lrange("ran", 0, -1) == [str(os.getpid())] * 2
    assert len(Forking.collection(status="s")) == 2


def test_the_child_handles_signals_as_if_there_were_no_worker() -> None:
    found: list[dict[str, Any]] = []

    def callback(job: Job, queue: Queue) -> None:
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            handlers = {name: repr(signal.getsignal(signal.Signals[name])) for name in NAMES}
            os.write(writer, json.dumps(handlers).encode())
            signal.pause()
        found.append(json.loads(os.read(reader, 10_000)))
        os.kill(pid, signal.SIGTERM)
        found.append({"status": status_of(pid)})
        found.append({signal.SIGTERM.name: signal.getsignal(signal.SIGTERM)})

    before = {name: repr(signal.getsignal(signal.Signals[name])) for name in NAMES}
    Forking.add_job("1")
    worker = worker_of(callback=callback, terminate_gracefuly=True, job_timeout=60)
    worker.run()
    inside, end, parent = found
    assert inside == before
    assert end == {"status": -signal.SIGTERM}
    assert parent["SIGTERM"] == worker.catch_end_signal


@pytest.mark.proof
def test_a_pool_of_processes_ends_with_the_job_that_made_it() -> None:
    def callback(job: Job, queue: Queue) -> None:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(abs, [-1, -2]) == [1, 2]

    jobs = Forking.add_jobs([f"{number}" for number in range(20)])
    worker_of(callback=callback, terminate_gracefuly=True, max_loops=20).run()
    assert {job.status.hget() for job in jobs} == {"s"}
