"""RQ."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from inside import CHILDREN, KEYS, MOST, SECONDS, URL, mark, span
from redis import Redis
from rq import Queue
from rq.rate_limit import RateLimit

TITLE = "RQ"
REQUIREMENTS = ["rq==3.0.0"]
PACKAGE = "rq"
ADDING = "`enqueue`; many: `enqueue_many`, 1,000 at a time"
WORKERS = {"SimpleWorker": "no fork per job, log level INFO; defaults: results kept 500 s"}

queue = Queue("bench", connection=Redis.from_url(URL))


def nothing(number: int) -> None:
    mark(number)


def limited(number: int, key: int) -> None:
    with span(key):
        mark(number)
        time.sleep(SECONDS)


def setup() -> None:
    queue.count  # noqa: B018


def add(number: int) -> None:
    if MOST:
        queue.enqueue(limited, number, number % KEYS, rate_limit=RateLimit(f"key:{number % KEYS}", MOST))
    else:
        queue.enqueue(nothing, number)


def add_many(numbers: range) -> None:
    if MOST:  # jobs with such limits cannot be added together
        for number in numbers:
            add(number)
        return
    for start in range(0, len(numbers), 1000):
        queue.enqueue_many([Queue.prepare_data(nothing, (number,)) for number in numbers[start : start + 1000]])


def add_flow(number: int) -> None:
    children = queue.enqueue_many([Queue.prepare_data(nothing, (number,)) for number in range(CHILDREN)])
    queue.enqueue(nothing, number, depends_on=children)


def work(variant: str) -> list[str]:
    command = str(Path(sys.executable).parent / "rq")
    return [sys.executable, command, "worker", "--url", URL, "--worker-class", "rq.SimpleWorker", "bench"]
