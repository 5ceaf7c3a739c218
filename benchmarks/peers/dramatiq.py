"""Dramatiq."""

from __future__ import annotations

import os
import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from inside import URL, mark

TITLE = "Dramatiq"
REQUIREMENTS = ["dramatiq[redis]==2.2.1"]
PACKAGE = "dramatiq"
ADDING = "`send`; many: a `group`, 1,000 at a time"
WORKERS = {
    "default": "one process of 8 threads; defaults: prefetch 16, acknowledged when done, no results",
    "prefetch 1000": "`dramatiq_queue_prefetch=1000`; the rest as above",
}

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)


@dramatiq.actor
def nothing(number: int) -> None:
    mark(number)


def setup() -> None:
    broker.client.ping()


def add(number: int) -> None:
    nothing.send(number)


def add_many(numbers: range) -> None:
    for start in range(0, len(numbers), 1000):
        dramatiq.group(nothing.message(number) for number in numbers[start : start + 1000]).run()


def work(variant: str) -> list[str]:
    if variant == "prefetch 1000":
        os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112
    return [sys.executable, "-m", "dramatiq", "peers.dramatiq", "--processes", "1"]
