"""Huey."""

from __future__ import annotations

import sys
from pathlib import Path

from huey import RedisHuey
from inside import URL, mark

TITLE = "Huey"
REQUIREMENTS = ["huey==3.5.4", "redis"]
PACKAGE = "huey"
ADDING = "a call of the task; none for many"
WORKERS = {
    "1 thread": "defaults: popped without a lease; a result of `None` is not kept",
    "1 process": "`--worker-type process`; the rest as above",
}

huey = RedisHuey("bench", url=URL)


@huey.task()
def nothing(number: int) -> None:
    mark(number)


def setup() -> None:
    huey.pending_count()


def add(number: int) -> None:
    nothing(number)


def work(variant: str) -> list[str]:
    command = str(Path(sys.executable).parent / "huey_consumer")
    return [sys.executable, command, "peers.huey.huey", "--worker-type", variant.split()[1]]
