"""RQ."""

from __future__ import annotations

import sys
from pathlib import Path

from inside import URL, mark
from redis import Redis
from rq import Queue

TITLE = "RQ"
REQUIREMENTS = ["rq==3.0.0"]
PACKAGE = "rq"
ADDING = "`enqueue`; many: `enqueue_many`, 1,000 at a time"
WORKERS = {"SimpleWorker": "no fork per job, log level INFO; defaults: results kept 500 s"}

queue = Queue("bench", connection=Redis.from_url(URL))


def nothing(number: int) -> None:
    mark(number)


def setup() -> None:
    queue.count  # noqa: B018


def add(number: int) -> None:
    queue.enqueue(nothing, number)


def add_many(numbers: range) -> None:
    for start in range(0, len(numbers), 1000):
        queue.enqueue_many([Queue.prepare_data(nothing, (number,)) for number in numbers[start : start + 1000]])


def work(variant: str) -> list[str]:
    command = str(Path(sys.executable).parent / "rq")
    return [sys.executable, command, "worker", "--url", URL, "--worker-class", "rq.SimpleWorker", "bench"]
