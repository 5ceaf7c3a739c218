"""SAQ."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from inside import AT_ONCE, SECONDS, URL, mark
from saq import Queue

TITLE = "SAQ"
REQUIREMENTS = ["saq[redis]==0.26.4", "typing-extensions"]  # which it imports, and does not name
PACKAGE = "saq"
ADDING = "`await enqueue`; many: `gather` of 1,000"
WORKERS = {"default": "10 at once; defaults: popped without a lease, results kept 600 s"}

queue = Queue.from_url(URL)


async def nothing(context: Any, *, number: int) -> None:
    mark(number)
    if SECONDS:
        await asyncio.sleep(SECONDS)


settings = {"queue": queue, "functions": [nothing], "concurrency": AT_ONCE or 10}


async def setup() -> None:
    await queue.connect()


async def add(number: int) -> None:
    await queue.enqueue("nothing", number=number)


async def add_many(numbers: range) -> None:
    for start in range(0, len(numbers), 1000):
        await asyncio.gather(*[queue.enqueue("nothing", number=number) for number in numbers[start : start + 1000]])


def work(variant: str) -> list[str]:
    return [sys.executable, "-m", "saq", "peers.saq.settings"]
