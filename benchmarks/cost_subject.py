"""Inside one commit: add jobs that do nothing, and run them. ``against.py`` starts it; it is not for people.

``python cost_subject.py PORT`` takes a line for each step, ``add JOBS`` or ``run JOBS PREFETCH CONCURRENCY``. It
answers with a line of JSON, with what a job cost in microseconds: of the clock, of a core in this process, and of one
in Redis.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import redis
from against import MARGIN

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel

if __name__ == "__main__":
    # jobs are stored with the path of their class, which must be the same for workers
    sys.exit(import_module("cost_subject").main(int(sys.argv[1])))


class Nothing(Job):
    """Does nothing, but for two of many jobs: they look at the clocks."""

    namespace = "cost"
    queue_name = "cost"
    marks: list[tuple[float, ...]] = []
    number, first, last = 0, 0, 0
    look: Callable[[], tuple[float, ...]]

    def run(self, queue: Queue) -> None:
        Nothing.number += 1
        if Nothing.number in (Nothing.first, Nothing.last):
            Nothing.marks.append(Nothing.look())


def main(port: int) -> None:
    """Take steps until there are no more."""
    BaseJobsModel.database.connect(host="127.0.0.1", port=port, db=0)
    logging.getLogger("limpyd-jobs").setLevel(logging.ERROR)
    server: Any = redis.Redis(port=port)

    def look() -> tuple[float, ...]:
        used = server.info("cpu")
        return time.perf_counter(), time.process_time(), used["used_cpu_user"] + used["used_cpu_sys"]

    Nothing.look = look  # type: ignore[method-assign]
    added = 0
    for line in sys.stdin:
        verb, *numbers = line.split()
        jobs = int(numbers[0])
        if verb == "add":
            before = look()
            for number in range(added, added + jobs):
                Nothing.add_job(f"job:{number}")
            added, after = added + jobs, look()
        else:
            before, after = run(jobs, *map(int, numbers[1:]))
            jobs -= 2 * MARGIN
        print(json.dumps([(end - start) / jobs * 1e6 for start, end in zip(before, after, strict=True)]), flush=True)


def run(jobs: int, prefetch: int, concurrency: int = 1) -> list[tuple[float, ...]]:
    """Run jobs; return what the clocks said after the first margin and before the last one."""
    Nothing.number, Nothing.marks = 0, []
    Nothing.first, Nothing.last = MARGIN, jobs - MARGIN
    Worker(queues="cost", max_loops=jobs, prefetch=prefetch, concurrency=concurrency).run()
    return Nothing.marks
