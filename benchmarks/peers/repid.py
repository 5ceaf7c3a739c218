"""repid, on a stream of Redis."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from inside import URL, mark
from repid import RedisServer, Repid, Router

TITLE = "repid"
REQUIREMENTS = ["repid[redis]==2.1.4", "typing-extensions"]  # which it imports, and does not name
PACKAGE = "repid"
ADDING = "`await send_message_json`; many: `gather` of 1,000"
WORKERS = {"default": "a stream, read 10 at a time, 1,000 at once; acknowledged; jobs of dead workers not taken over"}

app = Repid(title="bench", version="1")
app.servers.register_server("default", RedisServer(URL), is_default=True)
router = Router()
stack = AsyncExitStack()


@router.actor(channel="bench")
async def nothing(number: int) -> None:
    mark(number)


app.include_router(router)


async def setup() -> None:
    await stack.enter_async_context(app.servers.default.connection())


async def add(number: int) -> None:
    await app.send_message_json(channel="bench", payload={"number": number}, headers={"topic": "nothing"})


async def add_many(numbers: range) -> None:
    for start in range(0, len(numbers), 1000):
        await asyncio.gather(*[add(number) for number in numbers[start : start + 1000]])


def work(variant: str) -> None:
    asyncio.run(run())


async def run() -> None:
    async with app.servers.default.connection():
        await app.run_worker()
