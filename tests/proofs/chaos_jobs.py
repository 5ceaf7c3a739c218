"""The jobs of the chaos test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from time import sleep
from typing import Any

from chaos_marks import Telling

from limpyd_jobs import Error, Job, Queue, Retry

QUEUE = "chaos"


class Quick(Job):
    """A job that takes no time."""

    namespace = "chaos"
    queue_name = QUEUE
    seconds = 0.0

    def run(self, queue: Queue) -> None:
        with Telling(self):
            sleep(self.seconds)


class Slow(Quick):
    namespace = "chaos-slow"
    seconds = 0.3


class Long(Quick):
    """A job that takes longer than the lease."""

    namespace = "chaos-long"
    seconds = 3.0


class Waiting(Quick):
    """A coroutine, which leaves its thread to others."""

    namespace = "chaos-waiting"

    async def run(self, queue: Queue) -> None:  # type: ignore[override]
        with Telling(self):
            await asyncio.sleep(0.3)


class Failing(Quick):
    """A job that fails, each time it is run."""

    namespace = "chaos-failing"

    def run(self, queue: Queue) -> None:
        super().run(queue)
        raise ValueError("it fails")


# -- Jobs that go on where they were

ROWS, PAGES = range(12), [f"page {number}" for number in range(6)]

# How many of the runs of a job fail at an item.
FAILURES = 0.15


def pages(after: str | None = None) -> Iterator[str]:
    """A source that begins after a cursor."""
    return iter(PAGES if after is None else PAGES[PAGES.index(after) + 1 :])


class Looping(Job):
    """A job of two loops and two steps, which fails now and then, and is put back after its success, too.

    It ends with a loop: of that, unlike of a step, nothing is kept at once.

    Attributes
    ----------
    units: tuple of str
        What all its runs have to do together, each time from its beginning to its success.
    """

    namespace = "chaos-looping"
    queue_name = QUEUE
    default_retry_policy = Retry(times=2, delay=0.2)
    seconds = 0.04  # for each item

    units = ("begin", *(f"row {row}" for row in ROWS), "mail", *PAGES)

    def run(self, queue: Queue) -> None:
        failing = _item_to_fail_at()
        with Telling(self) as telling:
            with self.step("begin") as step:
                if step.is_new:
                    telling.unit("begin")
            for row in self.iterate(ROWS, name="rows"):
                sleep(self.seconds)
                _fail_at(row, failing)
                telling.unit(f"row {row}")
            with self.step("mail") as step:
                if step.is_new:
                    telling.unit("mail")
            for page in self.iterate(pages, key=str, name="pages"):
                sleep(self.seconds)
                telling.unit(page)


class LoopingAsync(Looping):
    """The same, as a coroutine."""

    namespace = "chaos-looping-async"

    async def run(self, queue: Queue) -> None:  # type: ignore[override]
        failing = _item_to_fail_at()
        with Telling(self) as telling:
            async with self.step("begin") as step:
                if step.is_new:
                    telling.unit("begin")
            async for row in self.iterate(ROWS, name="rows"):
                await asyncio.sleep(self.seconds)
                _fail_at(row, failing)
                telling.unit(f"row {row}")
            async with self.step("mail") as step:
                if step.is_new:
                    telling.unit("mail")
            async for page in self.iterate(pages, key=str, name="pages"):
                await asyncio.sleep(self.seconds)
                telling.unit(page)


class Restarting(Looping):
    """A job that begins anew after each error."""

    namespace = "chaos-restarting"
    restart_after_error = True


class RestartingAsync(LoopingAsync):
    namespace = "chaos-restarting-async"
    restart_after_error = True


def _item_to_fail_at() -> int | None:
    return random.choice(ROWS) if random.random() < FAILURES else None


def _fail_at(item: int, failing: int | None) -> None:
    if item == failing:
        raise ValueError("it stumbles")


# -- Jobs that do not end when they should

HANGS_FOR = 25.0  # seconds; its time limit is shorter


class Hanging(Job):
    """A function that sleeps in every other run for much longer than its time limit, in a thread or not."""

    namespace = "chaos-hanging"
    queue_name = QUEUE
    default_retry_policy = Retry(times=1000, delay=0.2)
    default_job_timeout = 1
    units = ("work",)

    def run(self, queue: Queue) -> None:
        with Telling(self) as telling:
            if random.random() < 0.5:
                sleep(HANGS_FOR)
            telling.unit("work")


class HangingThread(Hanging):
    """A coroutine that waits for a thread that does so."""

    namespace = "chaos-hanging-thread"

    async def run(self, queue: Queue) -> None:  # type: ignore[override]
        with Telling(self) as telling:
            if random.random() < 0.5:
                await asyncio.to_thread(sleep, HANGS_FOR)
            telling.unit("work")


class Swallowing(Hanging):
    """A coroutine that goes on for ever, in every other run, whoever cancels it."""

    namespace = "chaos-swallowing"

    async def run(self, queue: Queue) -> None:  # type: ignore[override]
        with Telling(self) as telling:
            if random.random() < 0.5:
                await _swallow_for_ever()
            telling.unit("work")


async def _swallow_for_ever() -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.2)


# -- All of them

SIMPLE = {Quick: 72, Slow: 10, Waiting: 10, Long: 2, Failing: 6}
LOOPS = {Looping: 7, LoopingAsync: 7, Restarting: 3, RestartingAsync: 3}
HOSTILE = {Hanging: 1, HangingThread: 20, Swallowing: 1.5}

# How often each class of jobs comes up, by the name of the mixture.
MIXTURES: dict[str, dict[Any, float]] = {
    "simple": {**SIMPLE},
    "loops": {Quick: 20, Waiting: 5, Failing: 3, **{each: 3 * share for each, share in LOOPS.items()}},
    "async": {Waiting: 40, LoopingAsync: 30, RestartingAsync: 20},
    "hostile": {**SIMPLE, **LOOPS, **HOSTILE},
}

GO_ON = tuple(LOOPS)
JOBS: tuple[Any, ...] = (*SIMPLE, *LOOPS, *HOSTILE)
MODELS = (*JOBS, Queue, Error)
OF_PATH = {job_class.get_model_repr(): job_class for job_class in JOBS}


def class_of(ident: str) -> Any:
    """Return the class of a job, given its ident, or the name by which marks call it."""
    return OF_PATH[ident.rpartition(":")[0]]
