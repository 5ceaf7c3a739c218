"""BullMQ for Python."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from bullmq import FlowProducer, Job, Queue, Worker
from inside import CHILDREN, URL, mark

TITLE = "BullMQ for Python"
REQUIREMENTS = ["bullmq==3.4.4"]
PACKAGE = "bullmq"
ADDING = "`await add`; many: `addBulk`, 1,000 at a time"
WORKERS = {
    "1 at once": "defaults: a lock per job, finished jobs are kept",
    "10 at once": "`concurrency=10`; the rest as above",
}

queue: Queue
producer: FlowProducer


async def nothing(job: Job, token: str) -> None:
    mark(job.data["number"])


async def setup() -> None:
    global queue, producer
    queue = Queue("bench", {"connection": URL})
    if CHILDREN:
        producer = FlowProducer({"connection": URL})


async def add(number: int) -> None:
    await queue.add("nothing", {"number": number})


async def add_many(numbers: range) -> None:
    for start in range(0, len(numbers), 1000):
        await queue.addBulk(
            [{"name": "nothing", "data": {"number": number}} for number in numbers[start : start + 1000]]
        )


async def add_flow(number: int) -> None:
    await producer.add({**node(number), "children": [node(child) for child in range(CHILDREN)]})


def node(number: int) -> dict[str, Any]:
    return {"name": "nothing", "queueName": "bench", "data": {"number": number}}


def work(variant: str) -> None:
    asyncio.run(run(concurrency=int(variant.split()[0])))


async def run(**options: Any) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    worker = Worker("bench", nothing, {"connection": URL, **options})
    await stop.wait()
    await worker.close()
