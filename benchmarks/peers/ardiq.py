"""ArdiQ, whose core is written in Rust."""

from __future__ import annotations

import asyncio
import sys

from ardiq import Ardiq
from inside import AT_ONCE, SECONDS, URL, mark

TITLE = "ArdiQ"
REQUIREMENTS = ["ardiq==1.2.0"]
PACKAGE = "ardiq"
ADDING = "`await enqueue`; many: `enqueue_many` of 1,000"
WORKERS = {"default": "16 at once; defaults: streams, read by a group, results kept 300 s"}

app = Ardiq(URL, **({"concurrency": AT_ONCE} if AT_ONCE else {}))


@app.task
async def nothing(number: int) -> None:
    mark(number)
    if SECONDS:
        await asyncio.sleep(SECONDS)


async def setup() -> None:
    pass


async def add(number: int) -> None:
    await nothing.enqueue(number)


async def add_many(numbers: range) -> None:
    for start in range(0, len(numbers), 1000):
        await app.enqueue_many([nothing.prepare(number) for number in numbers[start : start + 1000]])


def work(variant: str) -> list[str]:
    return [sys.executable, "-m", "ardiq", "run", "-q", "peers.ardiq:app"]
