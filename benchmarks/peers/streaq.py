"""streaq."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from inside import AT_ONCE, SECONDS, URL, mark
from streaq import Worker

TITLE = "streaq"
REQUIREMENTS = ["streaq==7.2.0"]
PACKAGE = "streaq"
ADDING = "`await enqueue`; many: `enqueue_many`, 1,000 at a time"
WORKERS = {"default": "16 at once, prefetch 16, results kept 300 s, acknowledged when done"}

worker: Worker[None] = Worker(redis_url=URL, concurrency=AT_ONCE or 16)
stack = AsyncExitStack()


@worker.task
async def nothing(number: int) -> None:
    mark(number)
    if SECONDS:
        await asyncio.sleep(SECONDS)


async def setup() -> None:
    await stack.enter_async_context(worker)


async def add(number: int) -> None:
    await nothing.enqueue(number)


async def add_many(numbers: range) -> None:
    for start in range(0, len(numbers), 1000):
        await worker.enqueue_many([nothing.enqueue(number) for number in numbers[start : start + 1000]])


def work(variant: str) -> None:
    worker.run_sync()
