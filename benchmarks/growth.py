"""Measure whether a job costs the same, whatever else there is: many jobs waiting, delayed or finished, many queues.

It measures redis-limpyd-jobs alone, on a Redis that it starts itself: the rate of adding and of running some jobs, in
relation to a bare loop of RPUSH at that moment, and what is sent to Redis for one job. And it watches the memory of a
worker that runs many.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import harmonic_mean, median
from typing import Any, NamedTuple

from environments import HERE, all_peers, prepare
from measured import Results
from measures import Entry, Sizes, bare_rate
from measures import fill as fill_for
from processes import Place, resident_bytes
from report import table
from server import Counts, Server

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel

if __name__ == "__main__":
    # jobs are stored with the path of their class: "__main__" is something else in each process, "growth" is not
    sys.exit(import_module("growth").main(sys.argv[1:]))

NAME = "growth"
NOTE = """
Add and run are rates in relation to a bare loop of RPUSH; cpu is microseconds of a core, of client and Redis together,
which other programs disturb less. Commands include those that scripts call. Of a command of many kilobytes, the parts
that Redis reads one after the other count as round trips.
"""
DAY = 86_400  # seconds

WAITING = [1_000, 10_000, 100_000, 1_000_000]
QUEUES = [1, 10, 50, 200]
DELAYED = [0, 1_000, 10_000, 100_000]
FINISHED = [0, 10_000, 100_000, 1_000_000]


class Nothing(Job):
    """Does nothing but count how often it was run."""

    namespace = NAME
    runs = 0

    def run(self, queue: Queue) -> None:
        Nothing.runs += 1


class Load(NamedTuple):
    """What the measured jobs are among: their queues, by name and priority, which the worker looks after."""

    queues: list[tuple[str, int]]
    names: str


class Cost(NamedTuple):
    """What one job costs: rates in relation to the bare loop, microseconds of a core, and what is sent to Redis."""

    add: float
    run: float
    add_cpu: float
    run_cpu: float
    add_round_trips: float
    add_commands: float
    run_round_trips: float
    run_commands: float


Several = Callable[[int], Load]


def one_queue() -> Load:
    return Load([(NAME, 0)], NAME)


def several_names(number: int) -> Load:
    names = [f"{NAME}{position}" for position in range(number)]
    return Load([(name, 0) for name in names], ",".join(names))


def several_priorities(number: int) -> Load:
    return Load([(NAME, priority) for priority in range(number)], NAME)


_identifiers = map("job:{}".format, itertools.count())


def add(number: int, load: Load, **options: Any) -> None:
    """Add jobs, one call per job, to all queues in turn."""
    for position in range(number):
        name, priority = load.queues[position % len(load.queues)]
        Nothing.add_job(next(_identifiers), queue_name=name, priority=priority, **options)


def fill(number: int, load: Load, **options: Any) -> None:
    """Add jobs in the fastest way there is."""
    add_jobs = getattr(Nothing, "add_jobs", None)
    if add_jobs is None or number < 1:
        add(number, load, **options)
        return
    share, rest = divmod(number, len(load.queues))
    for position, (name, priority) in enumerate(load.queues):
        identifiers = [next(_identifiers) for _ in range(share + (position < rest))]
        add_jobs(identifiers, queue_name=name, priority=priority, **options)


def run(number: int, load: Load) -> None:
    """Run so many jobs, by a worker in this process."""
    Nothing.runs = 0
    options = {"terminate_gracefuly": False, "logger_level": logging.CRITICAL, "metrics": False}
    Worker(load.names, max_loops=number, **options).run()
    assert Nothing.runs == number


def cost(server: Server, load: Load, jobs: int, rounds: int) -> Cost:
    """Measure adding and running some jobs among what is there; there is as much afterwards as before."""
    sizes = Sizes(bare_jobs=jobs)
    found: list[list[float]] = []
    for _ in range(rounds):
        before = bare_rate(server, sizes)
        added, add_cpu = timed(server, partial(add, jobs, load))
        between = bare_rate(server, sizes)
        ran, run_cpu = timed(server, partial(run, jobs, load))
        after = bare_rate(server, sizes)
        rates = jobs / added / harmonic_mean([before, between]), jobs / ran / harmonic_mean([between, after])
        found.append([*rates, 1e6 * add_cpu / jobs, 1e6 * run_cpu / jobs])
    add_rate, run_rate, add_cpu, run_cpu = map(median, zip(*found, strict=True))
    return Cost(add_rate, run_rate, add_cpu, run_cpu, *count(server, load, min(jobs, 200)))


def timed(server: Server, action: Callable[[], None]) -> tuple[float, float]:
    """Do something; return the seconds that passed, and those of a core that this process and the server used."""
    used, began = time.process_time() + server.processor_seconds(), time.perf_counter()
    action()
    passed = time.perf_counter() - began
    return passed, time.process_time() + server.processor_seconds() - used


def count(server: Server, load: Load, jobs: int) -> tuple[float, float, float, float]:
    """Count the round trips, and the commands with inner ones, of adding a job, then of running one.

    It is the difference between many jobs and twice as many, so that the start of a worker does not count.
    """
    add(len(load.queues), load)  # so there are all queues, scripts are loaded, and the class of the jobs is known
    run(len(load.queues), load)
    added, ran = [], []
    for number in (jobs, 2 * jobs):
        with server.counting() as counts:
            add(number, load)
        added.append(counts)
        with server.counting() as counts:
            run(number, load)
        ran.append(counts)
    return (*_per_job(jobs, *added), *_per_job(jobs, *ran))


def _per_job(jobs: int, few: Counts, many: Counts) -> tuple[float, float]:
    commands = many.commands + many.inner - few.commands - few.inner
    return (many.round_trips - few.round_trips) / jobs, commands / jobs


# -- What there is more and more of


def grow_waiting(server: Server, sizes: list[int], jobs: int, rounds: int) -> Iterator[tuple[int, Cost]]:
    """More and more jobs wait."""
    load, there = one_queue(), 0
    for size in sizes:
        fill(size - there, load)
        there = size
        yield size, cost(server, load, jobs, rounds)


def grow_delayed(server: Server, sizes: list[int], jobs: int, rounds: int) -> Iterator[tuple[int, Cost]]:
    """More and more jobs are delayed."""
    load, there = one_queue(), 0
    for size in sizes:
        fill(size - there, load, delayed_for=DAY)
        there = size
        yield size, cost(server, load, jobs, rounds)


def grow_finished(server: Server, sizes: list[int], jobs: int, rounds: int) -> Iterator[tuple[int, Cost]]:
    """More and more finished jobs are kept."""
    load, there = one_queue(), 0
    for size in sizes:
        if size > there:
            fill(size - there, load)
            run(size - there, load)
            there = size
        yield size, cost(server, load, jobs, rounds)


def grow_queues(server: Server, sizes: list[int], jobs: int, rounds: int) -> Iterator[tuple[int, Cost]]:
    """A worker looks after more and more queues, each of a name of its own."""
    for size in sizes:
        server.empty()
        yield size, cost(server, several_names(size), jobs, rounds)


def grow_priorities(server: Server, sizes: list[int], jobs: int, rounds: int) -> Iterator[tuple[int, Cost]]:
    """A worker looks after one name with more and more priorities."""
    for size in sizes:
        server.empty()
        yield size, cost(server, several_priorities(size), jobs, rounds)


Grow = Callable[[Server, list[int], int, int], Iterator[tuple[int, Cost]]]

KINDS: dict[str, tuple[Grow, list[int]]] = {
    "waiting jobs": (grow_waiting, WAITING),
    "queues": (grow_queues, QUEUES),
    "priorities of a queue": (grow_priorities, QUEUES),
    "delayed jobs": (grow_delayed, DELAYED),
    "finished jobs kept": (grow_finished, FINISHED),
}


def memory_of_a_worker(server: Server, jobs: int) -> list[tuple[int, float]]:
    """Return the megabytes a worker occupies after so many jobs, ten times until it has run them all."""
    peer = all_peers()["limpyd_jobs_3"]
    entry = Entry(peer, "default", prepare(peer, HERE), is_first=True)
    found = []
    with Place(server.url) as place:
        fill_for(place, entry, jobs)
        place.open_gate()
        worker = place.start(entry.environment, "work", entry.variant)
        for step in range(1, 11):
            place.wait_until(partial(_has_begun, place, jobs * step // 10), 3600, "jobs did not run")
            found.append((place.jobs_begun(), (resident_bytes(worker.pid) or 0) / 1e6))
    return found


def _has_begun(place: Place, jobs: int) -> bool:
    return place.jobs_begun() >= jobs


# -- The program


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/growth.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--most", type=int, default=100_000, metavar="N", help="the most jobs there are (default: 100,000)")
    add("--jobs", type=int, default=2_000, metavar="N", help="how many are added and run each time (default: 2,000)")
    add("--rounds", type=int, default=2, metavar="N", help="how many times each is measured (default: 2)")
    add("--only", nargs="+", metavar="KIND", choices=KINDS, default=[*KINDS], help=f"of: {', '.join(KINDS)}")
    add("--worker-jobs", type=int, metavar="N", help="how many jobs the watched worker runs (default: as --most)")
    add("--redis-server", default="redis-server", metavar="PATH", help="the server program")
    add("--results", type=Path, default=HERE / "results", metavar="DIR", help="where to write (benchmarks/results)")
    add("--no-plots", action="store_true", help="write no plots, which need matplotlib: pip install -e .[benchmarks]")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure, and write the results."""
    options = parse_arguments(arguments)
    found: dict[str, Any] = {}
    with Server(options.redis_server) as server:
        BaseJobsModel.database.connect(url=server.url)
        about = Results.of_this_machine(server, options.rounds, 1, Sizes())
        for kind in options.only:
            grow, sizes = KINDS[kind]
            server.empty()
            found[kind] = []
            for size, job in grow(
                server, [size for size in sizes if size <= options.most], options.jobs, options.rounds
            ):
                found[kind].append({"there": size, **job._asdict()})
                print(f"{size:,} {kind}: {shown(job)}", file=sys.stderr, flush=True)
        server.empty()
        memory = memory_of_a_worker(server, options.worker_jobs or options.most)
        print("a worker, MB after jobs: " + shown_memory(memory), file=sys.stderr, flush=True)
    raw = {"date": about.date, "machine": about.machine, "jobs": options.jobs, "rounds": options.rounds}
    write({**raw, "growth": found, "worker": memory}, options.results, plots=not options.no_plots)
    return 0


def shown(job: Cost) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in job._asdict().items())


def shown_memory(memory: list[tuple[int, float]]) -> str:
    return ", ".join(f"{megabytes:.1f} after {jobs:,}" for jobs, megabytes in memory)


def write(raw: dict[str, Any], directory: Path, plots: bool) -> None:
    """Write ``growth.json``, ``growth.rst`` and the plot."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "growth.json").write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    titles = ["beside more and more", "there are", *(name.replace("_", " ") for name in Cost._fields)]
    rows = [
        [kind, f"{row['there']:,}", *(f"{row[name]:.2f}" for name in Cost._fields)]
        for kind, costs in raw["growth"].items()
        for row in costs
    ]
    memory = f"Megabytes of a worker: {shown_memory(raw['worker'])} jobs.\n"
    (directory / "growth.rst").write_text(f"{table(titles, rows)}\n{memory}{NOTE}", encoding="utf-8")
    if plots:
        from plots import draw_growth

        draw_growth(raw, directory / "growth")
