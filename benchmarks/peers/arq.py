"""arq."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from inside import AT_ONCE, SECONDS, URL, mark

TITLE = "arq"
REQUIREMENTS = ["arq==0.28.0"]
PACKAGE = "arq"
ADDING = "`await enqueue_job`; many: `gather` of 1,000"
WORKERS = {
    "default": "10 at once, polls every 0.5 s, results kept an hour",
    "tuned": "`max_jobs=100`, `poll_delay=0.01`, `keep_result=0`",
}

pool: ArqRedis


async def nothing(context: Any, number: int) -> None:
    mark(number)
    if SECONDS:
        await asyncio.sleep(SECONDS)


class WorkerSettings:
    functions = [nothing]
    redis_settings = RedisSettings.from_dsn(URL)


class Tuned:
    functions = WorkerSettings.functions
    redis_settings = WorkerSettings.redis_settings
    max_jobs = AT_ONCE or 100
    poll_delay = 0.01
    keep_result = 0


async def setup() -> None:
    global pool
    pool = await create_pool(WorkerSettings.redis_settings)


async def add(number: int) -> None:
    await pool.enqueue_job("nothing", number)


async def add_many(numbers: range) -> None:
    for start in range(0, len(numbers), 1000):
        await asyncio.gather(*[pool.enqueue_job("nothing", number) for number in numbers[start : start + 1000]])


def work(variant: str) -> list[str]:
    name = "Tuned" if variant == "tuned" else "WorkerSettings"
    return [sys.executable, "-m", "arq", f"peers.arq.{name}"]
