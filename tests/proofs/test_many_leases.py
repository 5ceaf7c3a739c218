"""A worker of thousands of jobs that tell how far they are keeps all its leases, over a slow network, too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import pytest
import redis
from proxy import Proxy
from running import messages, worker_of, working
from servers import RedisServer, wait_until

from limpyd_jobs import Job, Queue
from limpyd_jobs.models import BaseJobsModel

pytestmark = pytest.mark.proof

ROUND_TRIP = 0.02  # seconds


class Size(NamedTuple):
    jobs: int
    lease: float  # seconds
    pause: float  # seconds from one item of each job to the next one


SHORT, LONG = Size(1_500, 6, 1), Size(10_000, 30, 10)


class Loop(Job):
    """Does one item after the other, until the test is over."""

    namespace = "manyleases"
    queue_name = "queue"
    pause = 1.0
    is_over = threading.Event()
    done: dict[str, list[int]]

    async def run(self, queue: Queue) -> None:
        items = self.done.setdefault(self.ident, [])
        async for number in self.iterate(range(1_000_000)):
            items.append(number)
            await asyncio.sleep(self.pause)
            if self.is_over.is_set():
                break


@pytest.fixture
def size(request: pytest.FixtureRequest) -> Size:
    return LONG if request.config.getoption("--long") else SHORT


@pytest.fixture
def over_a_slow_network(redis_server: RedisServer, redis_client: redis.Redis) -> Iterator[None]:
    before = BaseJobsModel.database.connection_settings
    with Proxy(redis_server.socket, ROUND_TRIP) as proxy:
        BaseJobsModel.database.reset(unix_socket_path=proxy.socket, decode_responses=True)
        yield
        BaseJobsModel.database.reset(**before)


def test_none_lapses_and_no_job_runs_twice(
    size: Size, redis_client: redis.Redis, over_a_slow_network: None, caplog: pytest.LogCaptureFixture
) -> None:
    Loop.pause, Loop.done = size.pause, {}
    Loop.is_over.clear()
    for first in range(0, size.jobs, 1_000):
        Loop.add_jobs([f"{number}" for number in range(first, min(first + 1_000, size.jobs))])
    at_once = {"concurrency": size.jobs, "max_loops": size.jobs, "max_duration": 600}
    worker = worker_of(callback=None, lease=size.lease, **at_once)
    key = Queue.get_queue("queue").running.key
    with working(worker), _over_at_the_end():
        for thousands in range(1_000, size.jobs + 1_000, 1_000):
            wait_until(partial(_have_begun, min(thousands, size.jobs)))
        lapsed, until = 0, _now(redis_client) + 3 * size.lease
        while _now(redis_client) < until:
            lapsed = max(lapsed, redis_client.zcount(key, "-inf", _now(redis_client)))
            threading.Event().wait(0.05)
        kept = sum(redis_client.hexists(f"manyleases:loop:{pk}:hash", "_cursor") for pk in range(1, size.jobs + 1))
    assert (lapsed, kept) == (0, size.jobs)
    assert [number for items in Loop.done.values() for number in items[:1]] == [0] * size.jobs
    assert len(Loop.collection(status="s")) == size.jobs
    assert not [text for text in messages(caplog) if "not renewed" in text or "rescued" in text or "lost" in text]


@contextmanager
def _over_at_the_end() -> Iterator[None]:
    try:
        yield
    finally:
        Loop.is_over.set()


def _have_begun(number: int) -> bool:
    return len(Loop.done) >= number


def _now(client: redis.Redis) -> float:
    seconds, microseconds = client.time()
    return float(seconds + microseconds / 1_000_000)
