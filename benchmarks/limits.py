"""Count what limits cost: the commands of a job, with limits that are not reached, beside one without, and beside a
key with many parked jobs; and with a rate of ten a second, whose jobs idle workers begin, also how evenly they begin.

The Redis is one of its own. Commands are counted, so that the numbers do not depend on how busy the machine is. The
times between two starts do.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

from limpyd import fields
from report import table
from server import Server

from limpyd_jobs import Job, Limit, Queue, Worker
from limpyd_jobs.models import BaseJobsModel

NAME = "limits"
KEYS = 1000


class Plain(Job):
    namespace = "benchmark-limits"
    queue_name = NAME
    account = fields.InstanceHashField()
    region = fields.InstanceHashField()

    def run(self, queue: Queue) -> None:
        pass


class Concurrency(Plain):
    limits = [Limit("account", concurrency=100)]


class Rate(Plain):
    limits = [Limit("account", rate="1000000/s", burst=1000)]


class Two(Plain):
    limits = [Limit("account", concurrency=100), Limit("region", concurrency=1000)]


class Fair(Plain):
    limits = [Limit("account", concurrency=100, fair=True)]


class Single(Plain):
    limits = [Limit("account", concurrency=1)]


class Paced(Plain):
    limits = [Limit(rate="10/s")]


CLASSES = (Plain, Concurrency, Rate, Two, Fair)


def commands(client: Any) -> int:
    """Return how many commands Redis has done, but for the calls of scripts."""
    found = client.info("commandstats")
    return sum(each["calls"] for name, each in found.items() if name not in ("cmdstat_info", "cmdstat_evalsha"))


def run(jobs: int) -> None:
    Worker(NAME, max_loops=jobs, logger_level=logging.CRITICAL).run()


def cost(client: Any, job_class: type[Plain], jobs: int) -> float:
    """Return how many commands it takes to run a job, once all scripts are known."""
    job_class.add_jobs(
        {"account": f"{number % KEYS}", "region": f"{number % 7}"} for number in range(jobs + jobs // 10)
    )
    run(jobs // 10)
    before = commands(client)
    run(jobs)
    return (commands(client) - before) / jobs


def cost_beside(client: Any, parked: int, jobs: int) -> float:
    """Return the same, beside a key for which so many jobs are parked."""
    holder = Single.add_job(account="hot")
    Single.add_jobs({"account": "hot"} for _ in range(parked))
    with holder.claim(lease=3600):
        found = cost(client, Single, jobs)
    client.flushdb()
    return found


def work(url: str, seconds: float) -> None:
    BaseJobsModel.database.connect(url=url)
    Worker(NAME, max_duration=seconds, max_loops=1_000_000, logger_level=logging.CRITICAL).run()


def pace(server: Server, workers: int, seconds: int) -> list[str]:
    """Return how many workers there are, the commands of a job, and the times between two starts, in milliseconds."""
    Queue.get_queue(NAME)
    context = multiprocessing.get_context("spawn")
    crew = [context.Process(target=work, args=(server.url, seconds + 6)) for _ in range(workers)]
    for each in crew:
        each.start()
    while server.client.info("clients")["blocked_clients"] < workers:
        time.sleep(0.1)
    jobs = Paced.add_jobs({"account": "a"} for _ in range(10 * seconds))
    time.sleep(1)
    before, begun = commands(server.client), len(Paced.collection(status="s"))
    time.sleep(seconds - 2)
    number = (commands(server.client) - before) / max(1, len(Paced.collection(status="s")) - begun)
    for each in crew:
        each.join()
    starts = sorted(datetime.fromisoformat(start).timestamp() for job in jobs if (start := job.start.hget()))
    gaps = sorted(1000 * (later - sooner) for sooner, later in pairwise(starts))
    ranks = [gaps[round(share * (len(gaps) - 1))] for share in (0.5, 0.99, 1)]
    server.client.flushdb()
    return [str(workers), f"{number:.1f}", *(f"{gap:.1f}" for gap in ranks)]


def rows(server: Server, jobs: int, parked: int) -> Iterator[list[str]]:
    plain = 0.0
    for job_class in CLASSES:
        found = cost(server.client, job_class, jobs)
        server.client.flushdb()
        plain = plain or found
        yield [job_class.__name__, f"{found:.1f}", f"{found / plain:.2f}"]
    for number in (0, parked):
        found = cost_beside(server.client, number, jobs)
        yield [f"beside {number:,} parked jobs of one key", f"{found:.1f}", f"{found / plain:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--parked", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=10, help="for how long to watch the starts of a rate; 0 for not")
    options = parser.parse_args()
    with Server() as server:
        BaseJobsModel.database.connect(url=server.url)
        found = list(rows(server, options.jobs, options.parked))
        paced = [pace(server, workers, options.seconds) for workers in (2, 5) if options.seconds]
    print(table(["jobs with limits", "commands", "times"], found))
    if paced:
        print(table(["idle workers", "commands", "ms between starts", "99 %", "most"], paced))


if __name__ == "__main__":
    main()
