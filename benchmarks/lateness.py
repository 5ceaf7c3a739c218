"""Measure how late delayed jobs begin: at random moments with an idle worker, and all at one moment, a flood.

During the flood, jobs of a higher priority are added: how long each of them waits is told, too. The Redis is one of its
own, the worker a process of its own with the default settings.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import random
import sys
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from itertools import count
from typing import Any

from report import table
from server import Server

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel

NAME = "bells"
AHEAD = 2.0  # seconds for the worker to start, and to find nothing to do
FILLED = 5_000  # jobs a second that are added at least
PAUSE = 0.05  # seconds between two urgent jobs

# How late jobs began, in seconds, by the first word of their identifiers.
Lateness = dict[str, list[float]]


def identifier(kind: str, number: int, due: float) -> str:
    return f"{kind} {number} {due!r}"


def work(url: str, jobs: int, found: Any) -> None:
    """Run so many jobs that are not urgent, and put how late each job began in `found`."""
    BaseJobsModel.database.connect(url=url)
    late: Lateness = {"urgent": [], "delayed": []}

    def ring(job: Job, queue: Queue) -> None:
        began = time.time()
        kind, _, due = job._cached_identifier.split()
        late[kind].append(began - float(due))
        worker.end_forced = len(late["delayed"]) == jobs

    worker = Worker(NAME, callback=ring, max_loops=sys.maxsize, logger_level=logging.CRITICAL)
    worker.run()
    found.put(late)


def add_at(moments: Iterable[float]) -> None:
    """Add jobs that are due at some moments."""
    dates = ((due, datetime.fromtimestamp(due, timezone.utc)) for due in moments)
    jobs = (
        {"identifier": identifier("delayed", number, due), "delayed_until": date}
        for number, (due, date) in enumerate(dates)
    )
    Job.add_jobs(jobs, queue_name=NAME)


def measure(server: Server, moments: list[float], pause: float | None = None) -> Lateness:
    """Have delayed jobs run, and urgent ones beside them, with a pause in between, once the first of them is due."""
    server.empty()
    Queue.get_queue(NAME, 1)
    numbers = count()
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    add_at(moments)
    if time.time() > min(moments):
        raise SystemExit("This machine is too slow to add so many jobs before they are due")
    worker = context.Process(target=work, args=(server.url, len(moments), found))
    worker.start()
    if pause is not None:
        time.sleep(max(min(moments) - time.time(), 0))
        while found.empty():
            Job.add_job(identifier("urgent", next(numbers), time.time()), queue_name=NAME, priority=1)
            time.sleep(pause)
    late: Lateness = found.get()
    worker.join()
    return late


def row(what: str, late: list[float]) -> list[str]:
    ranks = [sorted(late)[round(share * (len(late) - 1))] for share in (0.5, 0.99, 1)]
    return [what, f"{len(late):,}", *(f"{1000 * seconds:,.1f}" for seconds in ranks)]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="benchmarks/lateness.py", description=__doc__)
    add = parser.add_argument
    add("--jobs", type=int, default=1_000, metavar="N", help="how many are due at random moments (default: 1,000)")
    add("--seconds", type=float, default=20, metavar="S", help="in how many seconds (default: 20)")
    add("--flood", type=int, default=20_000, metavar="N", help="how many are due at one moment (default: 20,000)")
    add("--redis-server", default="redis-server", metavar="PATH", help="the server program")
    options = parser.parse_args()
    with Server(options.redis_server) as server:
        BaseJobsModel.database.connect(url=server.url)
        begin = time.time() + AHEAD
        alone = measure(server, [begin + random.uniform(0, options.seconds) for _ in range(options.jobs)])
        flood = measure(server, [time.time() + AHEAD + options.flood / FILLED] * options.flood, PAUSE)
    rows = [
        row("at random moments", alone["delayed"]),
        row("urgent, during a flood", flood["urgent"]),
        row("a flood at one moment", flood["delayed"]),
    ]
    print(table(["delayed jobs", "jobs", "p50, ms", "p99, ms", "max, ms"], rows))


if __name__ == "__main__":
    main()
