"""A job whose code forks: the child ends where the code does, and all that follows is done once, by the worker."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
import redis
from running import worker_of
from servers import wait_until

from limpyd_jobs import Error, Job, Queue, Worker

pytestmark = pytest.mark.usefixtures("redis_client")


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


def test_the_child_that_a_hook_forked_ends_with_the_job(redis_client: redis.Redis) -> None:
    children: list[int] = []

    class Forks(Worker):
        def job_success(self, *args: Any) -> None:
            super().job_success(*args)
            children.append(os.fork())

        def run_ended(self) -> None:
            redis_client.rpush("ended", os.getpid())

    Forking.add_jobs(["1", "2"])
    worker_of(worker_class=Forks, max_loops=2).run()
    assert [status_of(child) for child in children] == [0, 0]
    assert redis_client.lrange("ended", 0, -1) == [str(os.getpid())]
    assert len(Forking.collection(status="s")) == 2
