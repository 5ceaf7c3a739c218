"""taskiq, with its list broker."""

from __future__ import annotations

import asyncio
import os
import sys

from inside import AT_ONCE, SECONDS, URL, mark
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

TITLE = "taskiq"
REQUIREMENTS = ["taskiq==0.13.0", "taskiq-redis==1.2.4"]
PACKAGE = "taskiq"
ADDING = "`await kiq`; many: `gather` of 1,000"
WORKERS = {
    "no results": "list broker (not acknowledged), one process, 100 at once; defaults otherwise",
    "results": "the same with the result backend of Redis",
}

broker = ListQueueBroker(URL)
if os.environ.get("BENCHMARK_RESULTS"):
    broker = broker.with_result_backend(RedisAsyncResultBackend(URL))


@broker.task(task_name="nothing")
async def nothing(number: int) -> None:
    mark(number)
    if SECONDS:
        await asyncio.sleep(SECONDS)


async def setup() -> None:
    await broker.startup()


async def add(number: int) -> None:
    await nothing.kiq(number)


async def add_many(numbers: range) -> None:
    for start in range(0, len(numbers), 1000):
        await asyncio.gather(*[nothing.kiq(number) for number in numbers[start : start + 1000]])


def work(variant: str) -> list[str]:
    if variant == "results":
        os.environ["BENCHMARK_RESULTS"] = "1"
    options = ["--workers", "1", "--max-async-tasks", str(AT_ONCE or 100)]
    return [sys.executable, "-m", "taskiq", "worker", "peers.taskiq:broker", *options]
