"""Measure how fast jobs are added: one after the other, by one task of asyncio, and by 100 that share a connection.

The rounds alternate, so that what else the machine does is in all of them. The Redis is one of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from itertools import count

from report import table
from server import Server

from limpyd_jobs import Job
from limpyd_jobs.models import BaseJobsModel

TASKS = 100

_numbers = count()


def add(jobs: int) -> None:
    for _ in range(jobs):
        Job.add_job(f"{next(_numbers)}", "added")


async def add_awaited(jobs: int) -> None:
    for _ in range(jobs):
        await Job.aadd_job(f"{next(_numbers)}", "added")


async def add_by_tasks(jobs: int) -> None:
    await asyncio.gather(*(add_awaited(jobs // TASKS) for _ in range(TASKS)))


WAYS: dict[str, Callable[[int], object]] = {
    "add_job": add,
    "aadd_job, 1 task": lambda jobs: asyncio.run(add_awaited(jobs)),
    f"aadd_job, {TASKS} tasks": lambda jobs: asyncio.run(add_by_tasks(jobs)),
}


def measured(rounds: int, jobs: int) -> dict[str, list[float]]:
    """Return the jobs a second of each way, round by round."""
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            way(TASKS)  # so that it is connected, and Redis knows the script
            start = time.perf_counter()
            way(jobs)
            found[name].append(jobs / (time.perf_counter() - start))
    return found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks/adding.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=5000, help="per round and way, a multiple of 100 (default 5000)")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    with Server() as server:
        BaseJobsModel.database.from_url(server.url)
        found = measured(options.rounds, options.jobs)
    rows = [
        [name, f"{statistics.median(rates):,.0f}", f"{ratio(rates, found['add_job']):.2f}"]
        for name, rates in found.items()
    ]
    print(table(["by", "jobs a second", "beside add_job"], rows))


def ratio(rates: list[float], others: list[float]) -> float:
    """Return the median of the ratios of the rounds."""
    return statistics.median(one / other for one, other in zip(rates, others, strict=True))


if __name__ == "__main__":
    main(sys.argv[1:])
