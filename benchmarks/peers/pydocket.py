"""pydocket, the queue of FastMCP."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

from docket import ConcurrencyLimit, Docket
from inside import AT_ONCE, KEYS, MOST, SECONDS, URL, mark, span

TITLE = "pydocket"
REQUIREMENTS = ["pydocket==0.27.0"]
PACKAGE = "pydocket"
ADDING = "`await docket.add(…)(…)`; many: `add_many`, pipelined"
WORKERS = {"default": "10 at once; defaults: streams, redelivered after 300 s, results kept 900 s"}

docket = Docket(name="benchmark", url=URL)


async def nothing(number: int) -> None:
    mark(number)
    if SECONDS:
        await asyncio.sleep(SECONDS)


async def limited(number: int, key: Annotated[int, ConcurrencyLimit(MOST or 1)]) -> None:
    with span(key):
        mark(number)
        await asyncio.sleep(SECONDS)


tasks = [limited if MOST else nothing]


async def setup() -> None:
    await docket.__aenter__()
    docket.register(tasks[0])


async def add(number: int) -> None:
    await docket.add(tasks[0])(*arguments(number))


async def add_many(numbers: range) -> None:
    await docket.add_many([docket.call(tasks[0])(*arguments(number)) for number in numbers])


def arguments(number: int) -> list[int]:
    return [number, number % KEYS] if MOST else [number]


def work(variant: str) -> list[str]:
    options = ["--docket", "benchmark", "--url", URL, "--tasks", "peers.pydocket:tasks"]
    options += ["--concurrency", str(AT_ONCE or 10), "--logging-level", "WARNING"]
    return [sys.executable, "-m", "docket", "worker", *options]
