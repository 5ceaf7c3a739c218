"""redis-limpyd-jobs as it is in this repository."""

from __future__ import annotations

import asyncio
import sys
import time

from inside import AT_ONCE, CANCELED, CHILDREN, KEYS, MOST, SECONDS, URL, mark, span

from limpyd_jobs import Argument, Flow, Job, Limit, Queue
from limpyd_jobs.models import BaseJobsModel

TITLE = "redis-limpyd-jobs 3"
REQUIREMENTS: list[str] = []  # it is measured with the Python that runs the benchmark
PACKAGE = "redis-limpyd-jobs"
ADDING = "`add_job` with an identifier and an argument; many: `add_jobs`, 1,000 at a time"
WORKERS = {
    "default": "`limpyd-jobs-worker` as it comes: all guarantees, finished jobs kept, log level INFO",
    "prefetch 100": "`--prefetch=100`; the rest as above",
    "prefetch auto": "`--prefetch=auto`; the rest as above",
    "processes 2": "`--processes=2`, instead of two commands; the rest as above",
}
STARTS_BOTH = ["processes 2"]

BaseJobsModel.database.connect(url=URL)


class Nothing(Job):
    namespace = "bench"
    queue_name = "bench"

    number = Argument(int)

    def run(self, queue: Queue) -> None:
        mark(self.arguments.number)


class Waiting(Nothing):
    async def run(self, queue: Queue) -> None:  # type: ignore[override]
        mark(self.arguments.number)
        if SECONDS:
            try:
                await asyncio.sleep(SECONDS)
            except asyncio.CancelledError:
                with CANCELED.open("a") as file:
                    file.write(f"{self.arguments.number} {time.monotonic()!r}\n")
                raise


class Limited(Nothing):
    """One whose key has a limit, and that waits while it holds its slot."""

    key = Argument(int)
    limits = [Limit("key", concurrency=MOST or 1)]

    def run(self, queue: Queue) -> None:
        with span(self.arguments.key):
            mark(self.arguments.number)
            time.sleep(SECONDS)


class LimitedWaiting(Limited):
    async def run(self, queue: Queue) -> None:  # type: ignore[override]
        with span(self.arguments.key):
            mark(self.arguments.number)
            await asyncio.sleep(SECONDS)


if MOST:
    job_class: type[Nothing] = LimitedWaiting if AT_ONCE else Limited
else:
    job_class = Waiting if AT_ONCE else Nothing


def setup() -> None:
    Queue.get_queue("bench")


def add(number: int) -> None:
    job_class.add_job(f"job:{number}", **arguments(number))


def add_many(numbers: range) -> None:
    for start in range(0, len(numbers), 1000):
        step = numbers[start : start + 1000]
        job_class.add_jobs({"identifier": f"job:{number}", **arguments(number)} for number in step)


def arguments(number: int) -> dict[str, int]:
    return {"number": number, "key": number % KEYS} if MOST else {"number": number}


def add_flow(number: int) -> None:
    with Flow() as flow:
        children = [flow.add(job_class.prepare(number=number)) for number in range(CHILDREN)]
        flow.add(job_class.prepare(number=number), after=children)


def work(variant: str) -> list[str]:
    options = [f"--{variant.replace(' ', '=')}"] if variant != "default" else []
    options = [f"--concurrency={AT_ONCE}"] if AT_ONCE > 1 else options
    modules = f"--job-modules={__name__}"  # this folder is no package
    command = ["--queues=bench", f"--database={URL}", "--max-loops=1000000000", modules, *options]
    return [sys.executable, "-m", "limpyd_jobs.scripts.worker", *command]
