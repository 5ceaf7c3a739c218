"""What a job costs, counted: commands inside the scripts, and calls of Python functions. Neither may grow unnoticed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import redis
from limpyd import fields

from limpyd_jobs import Job, Queue, Worker

JOBS = 200

# Add the reason to the commit that raises one of these.
COMMANDS_TO_ADD = 16  # inside the script
COMMANDS_TO_RUN = {1: 20, 100: 7}  # by prefetch
CALLS_TO_ADD = 67  # of functions of this package and of limpyd
CALLS_TO_RUN = {1: 197, 100: 162}


class Parcel(Job):
    namespace = "costs"
    queue_name = "q"
    label = fields.InstanceHashField()

    def run(self, queue: Queue) -> None:
        pass


def add(first: int) -> None:
    for i in range(first, first + JOBS):
        Parcel.add_job(identifier=f"job:{i}", label="x")


def worker(prefetch: int) -> Worker:
    return Worker(queues="q", prefetch=prefetch, max_loops=JOBS)


def commands_in(step: Callable[[], Any], client: redis.Redis) -> float:
    """Return how many commands a step sends for each job, those of scripts included, but not the call of the script."""
    before = statistics(client)
    step()
    after = statistics(client)
    return sum((after - before).values()) / JOBS


def statistics(client: redis.Redis) -> Counter[str]:
    entries = client.info("commandstats")
    return Counter(
        {name: entry["calls"] for name, entry in entries.items() if name not in ("cmdstat_info", "cmdstat_evalsha")}
    )


def calls_in(step: Callable[[], Any]) -> float:
    """Return how many functions of this package, and of limpyd, a step calls for each job."""
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and "limpyd" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls / JOBS


def test_adding_a_job(redis_client: redis.Redis) -> None:
    add(0)
    assert commands_in(lambda: add(JOBS), redis_client) <= COMMANDS_TO_ADD + 0.5
    assert calls_in(lambda: add(2 * JOBS)) <= CALLS_TO_ADD


@pytest.mark.parametrize("prefetch", [1, 100])
def test_running_a_job(prefetch: int, redis_client: redis.Redis) -> None:
    add(0)
    worker(prefetch).run()  # so that all classes and scripts are known
    idle = Worker(queues="q", prefetch=prefetch, burst=True)
    commands_to_start = commands_in(idle.run, redis_client)
    add(JOBS)
    assert commands_in(worker(prefetch).run, redis_client) - commands_to_start <= COMMANDS_TO_RUN[prefetch] + 0.5
    add(2 * JOBS)
    calls_to_start = calls_in(Worker(queues="none", prefetch=prefetch, burst=True).run)
    assert calls_in(worker(prefetch).run) - calls_to_start <= CALLS_TO_RUN[prefetch]
