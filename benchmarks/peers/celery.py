"""Celery."""

from __future__ import annotations

import os
import sys

from celery import Celery, chord, group
from inside import CHILDREN, URL, mark

TITLE = "Celery"
REQUIREMENTS = ["celery[redis]==5.7.0"]
PACKAGE = "celery"
ADDING = "`delay`; many: a `group`, 1,000 at a time"
WORKERS = {
    "prefork": "a parent and one child; defaults: prefetch 4, acknowledged early, no result backend",
    "solo": "`--pool solo`; the rest as above",
}

app = Celery("bench", broker=URL)
if CHILDREN:
    app.conf.result_backend = URL  # chords need one
app.conf.worker_hijack_root_logger = False


@app.task(name="nothing")
def nothing(number: int) -> None:
    mark(number)


def setup() -> None:
    app.connection_for_write().ensure_connection()


def add(number: int) -> None:
    nothing.delay(number)


def add_many(numbers: range) -> None:
    for start in range(0, len(numbers), 1000):
        group(nothing.s(number) for number in numbers[start : start + 1000]).apply_async()


def add_flow(number: int) -> None:
    chord([nothing.s(number) for number in range(CHILDREN)])(nothing.si(number))


def work(variant: str) -> list[str]:
    command = ["worker", "--pool", variant, "--concurrency", "1", "--hostname", f"{os.getpid()}@bench"]
    return [sys.executable, "-m", "celery", "--app", "peers.celery", *command]
