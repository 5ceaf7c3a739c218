"""Measure many jobs at once in one process: their rates beside other queues, and what they cost.

All queues run the same coroutines, in turn and round by round, on one Redis that this starts itself: each marks that it
has begun, and waits. Beside them, a bare loop of asyncio does nothing but wait as often: no queue can be faster on this
machine. Rates are taken from the moment on when all slots were taken once.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import inside
from adding import TASKS, measured, ratio
from environments import CACHE, HERE, Unavailable, all_peers, prepare
from measured import Results
from measures import MAX_RUN, Entry, Sizes, fill, reach, start_workers
from processes import Place, processor_seconds, resident_bytes
from report import NONE, table
from server import Server

from limpyd_jobs import transitions
from limpyd_jobs.models import BaseJobsModel

OURS = "limpyd_jobs_3"
BARE = "limit: a bare loop of asyncio"
OTHERS = {"arq": "tuned", "saq": "default", "taskiq": "no results", "streaq": "default", "bullmq_node": "50 at once"}

CANCELS = 10  # a second
LEASES = 1_000
IDLE_SECONDS = 5.0  # in which processor time is counted


class Load(NamedTuple):
    """So many jobs at once, each of which waits for some seconds."""

    title: str
    at_once: int
    seconds: float
    jobs: int

    @property
    def ideal(self) -> float:
        """Jobs a second if all slots were always taken; 0 if jobs take no time."""
        return self.at_once / self.seconds if self.seconds else 0.0


LOADS = [
    Load("50 ms, 100 at once", 100, 0.05, 10_000),
    Load("nothing, 100 at once", 100, 0.0, 10_000),
    Load("50 ms, 1,000 at once", 1_000, 0.05, 10_000),
    Load("1 s, 1,000 at once", 1_000, 1.0, 6_000),
]
ONE_BY_ONE = {"one by one, --prefetch=100": 0, "one by one, --prefetch=100, coroutines": 1}

Found = defaultdict[tuple[str, str], list[float]]


def entry_of(name: str, variant: str, load: Load, environments: Path) -> Entry:
    """Return a queue whose workers run that load."""
    peer = all_peers()[name]
    environment = prepare(peer, environments)
    asked = {"BENCHMARK_AT_ONCE": str(load.at_once), "BENCHMARK_SECONDS": str(load.seconds)}
    return Entry(peer, variant, replace(environment, variables={**environment.variables, **asked}), is_first=True)


def rate(server: Server, entry: Entry, load: Load, meanwhile: Callable[[Place], None] | None = None) -> float:
    """Return how many jobs began in a second, once all slots were taken."""
    server.empty()
    with Place(server.url) as place:
        fill(place, entry, load.jobs)
        start_workers(place, entry, 1)
        place.open_gate()
        first, began = reach(place, max(load.at_once, load.jobs // 10), load.jobs)
        if meanwhile:
            meanwhile(place)
        place.wait_until(lambda: place.jobs_begun() >= load.jobs, MAX_RUN, f"{load.jobs} jobs did not run")
        return (load.jobs - first) / (place.last_begun() - began)


def bare(load: Load) -> float:
    """Return the rate of coroutines that only wait, one after the other in each slot."""

    async def slot() -> None:
        for _ in range(load.jobs // load.at_once):
            await asyncio.sleep(load.seconds)

    async def run() -> None:
        await asyncio.gather(*(slot() for _ in range(load.at_once)))

    began = time.perf_counter()
    asyncio.run(run())
    return load.jobs // load.at_once * load.at_once / (time.perf_counter() - began)


class Canceling:
    """Cancels running jobs while a load runs, and finds out how soon their code was told."""

    def __init__(self, load: Load) -> None:
        self.late: list[float] = []
        self._load = load

    def __call__(self, place: Place) -> None:
        job_class = import_module(f"peers.{OURS}").Waiting
        asked: dict[int, float] = {}
        until = self._load.jobs - self._load.at_once
        while (begun := place.jobs_begun()) < until:
            number = begun - random.randrange(1, self._load.at_once // 4)
            if number not in asked:
                job = job_class(number + 1)
                asked[number] = time.monotonic()
                job.cancel()
            time.sleep(1 / CANCELS)
        time.sleep(0.1)  # the last one is told
        path = place.path / inside.CANCELED.name
        lines = path.read_text().splitlines() if path.exists() else []
        told = {int(number): float(moment) for number, moment in map(str.split, lines)}
        self.late += [1000 * (told[number] - moment) for number, moment in asked.items() if number in told]


# -- What else it costs


def renewing(jobs: int) -> tuple[float, float]:
    """Return how many seconds it takes to renew some leases, in one step, and one by one."""
    job_class = import_module(f"peers.{OURS}").Waiting
    job_class.add_jobs({"identifier": f"leased:{number}", "number": number} for number in range(jobs))
    claims = [job.claim() for job in job_class.collection(status="w").instances()]
    deliveries = [transitions.Renewal(job_class, claim._claim.delivery) for claim in claims]
    client = job_class.get_connection()
    transitions.renew_all(client, deliveries, 60)
    began = time.perf_counter()
    transitions.renew_all(client, deliveries, 60)
    together = time.perf_counter() - began
    for claim in claims:
        claim.renew()
    return together, time.perf_counter() - began - together


def waiting(server: Server, load: Load, seconds: float, environments: Path) -> tuple[float, float]:
    """Return how many bytes a process has while all slots are taken by jobs that wait, and the percentage of a core."""
    server.empty()
    entry = entry_of(OURS, "default", load, environments)
    with Place(server.url) as place:
        fill(place, entry, load.jobs)
        (session,) = start_workers(place, entry, 1)
        place.open_gate()
        reach(place, load.jobs, load.jobs)
        time.sleep(1)
        used, began = processor_seconds(session) or 0.0, time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - began
        return resident_bytes(session) or 0, 100 * ((processor_seconds(session) or 0.0) - used) / passed


# -- All of it


def take_rates(server: Server, loads: list[Load], rounds: int, environments: Path) -> tuple[Found, list[float]]:
    """Return the rates by load and queue, and how late cancelled jobs were told, in milliseconds."""
    found: Found = defaultdict(list)
    late: list[float] = []
    failed: set[tuple[str, str]] = set()
    for number in range(rounds):
        for load in loads:
            ways = ways_of(server, load, environments, late)
            for name, way in list(ways.items())[:: 1 if number % 2 == 0 else -1]:
                if (load.title, name) in failed:
                    continue
                try:
                    value = way()
                except Unavailable as reason:
                    failed.add((load.title, name))
                    say(f"{load.title}: {name}: {reason}")
                else:
                    found[load.title, name].append(value)
                    say(f"round {number + 1}, {load.title}: {name}: {value:,.0f}/s")
    return found, late


def ways_of(server: Server, load: Load, environments: Path, late: list[float]) -> dict[str, Callable[[], float]]:
    """Return what runs a load, by its name."""

    def of(name: str, variant: str, asked: Load = load, meanwhile: Any = None) -> Callable[[], float]:
        return lambda: rate(server, entry_of(name, variant, asked, environments), load, meanwhile)

    ways = {OURS: of(OURS, "default"), **{name: of(name, variant) for name, variant in OTHERS.items()}}
    if load.seconds == 0:
        ways |= {name: of(OURS, "prefetch 100", load._replace(at_once=number)) for name, number in ONE_BY_ONE.items()}
    else:
        ways[BARE] = lambda: bare(load)
    if load.seconds >= 1:

        def with_cancels() -> float:
            canceling = Canceling(load)
            value = of(OURS, "default", meanwhile=canceling)()
            late.extend(canceling.late)
            return value

        ways[f"{OURS}, {CANCELS} cancels a second"] = with_cancels
    return ways


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def rows_of(found: Found, loads: list[Load]) -> list[list[str]]:
    rows = []
    for load in loads:
        ours = found[load.title, OURS]
        for (title, name), rates in found.items():
            if title == load.title and rates:
                ideal = f"{median(rates) / load.ideal:.2f}" if load.ideal else NONE
                beside = f"{ratio(rates, ours):.2f}" if len(rates) == len(ours) else NONE
                spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
                rows.append([load.title, title_of(name), f"{median(rates):,.0f}", spread, ideal, beside])
    return rows


def title_of(name: str) -> str:
    key, comma, rest = name.partition(",")
    return (all_peers()[key].TITLE if key in all_peers() else key) + comma + rest


def costs(server: Server, rounds: int, scale: float, environments: Path) -> list[list[str]]:
    """Return what is told of the rest, each as a row."""
    leases = int(LEASES * scale)
    server.empty()
    renewed = []
    for _ in range(rounds):
        renewed.append(renewing(leases))
        server.empty()
    seconds = max(IDLE_SECONDS * min(scale, 1), 0.1)
    few, many = (Load("", int(number * scale), 600.0, int(number * scale)) for number in (200, 2_000))
    memory = [[waiting(server, load, seconds, environments) for load in (few, many)] for _ in range(min(rounds, 3))]
    each = [(most[0] - least[0]) / (many.jobs - few.jobs) / 1000 for least, most in memory]
    server.empty()
    added = measured(rounds, max(int(5_000 * scale) // TASKS * TASKS, TASKS))
    by_tasks = ratio(added[f"aadd_job, {TASKS} tasks"], added["add_job"])
    together, alone = (median(one[place] for one in renewed) for place in (0, 1))
    return [
        [f"renewing {leases:,} leases", f"{1000 * together:,.1f} ms in one step, {1000 * alone:,.1f} ms one by one"],
        ["a coroutine that waits", f"{median(each):,.1f} kB"],
        [f"a process of {many.jobs:,} that wait", f"{median(most[1] for _, most in memory):,.2f} % of a core"],
        [f"aadd_job, {TASKS} tasks", f"{by_tasks:.2f} times the rate of add_job"],
    ]


def about_run(server: Server, options: argparse.Namespace) -> str:
    """Return on what machine, and with which versions, it was measured."""
    machine = Results.of_this_machine(server, options.rounds, options.scale, Sizes()).machine
    versions = ", ".join(versions_of(options.environments))
    text = (
        f"Measured on {time.strftime('%Y-%m-%d', time.gmtime())}: {machine['processor']}, {machine['cores']} cores, "
        f"Redis {machine['Redis']}, Python {machine['Python']}; {versions}; medians, rounds: {options.rounds}."
    )
    rough = f" A small run, of scale {options.scale:g}: the numbers are rough." if options.scale < 1 else ""
    return f"{text}{rough} {options.note}".rstrip()


def versions_of(environments: Path) -> Iterator[str]:
    """Yield the names and versions of the queues that are there."""
    for peer in map(all_peers().__getitem__, OTHERS):
        with suppress(Unavailable):
            yield f"{peer.TITLE} {prepare(peer, environments).versions[peer.PACKAGE]}"


def main(arguments: list[str]) -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/at_once.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rounds", type=int, default=5, metavar="N", help="how many times each is measured (default: 5)")
    add("--scale", type=float, default=1, metavar="X", help="how many of all jobs are run (default: 1)")
    add("--only", nargs="*", metavar="PEER", choices=[*OTHERS], default=[*OTHERS], help="only these beside ours")
    add("--loads", nargs="*", type=int, metavar="N", choices=range(4), default=[0, 1, 2, 3], help="only these, from 0")
    add("--environments", type=Path, default=CACHE, metavar="DIR", help=f"where the peers are (default: {CACHE})")
    add("--note", default="", metavar="TEXT", help="what else to tell of the run")
    add("--results", type=Path, default=HERE / "results", metavar="DIR", help="where to write (benchmarks/results)")
    add("--redis-server", default="redis-server", metavar="PATH", help="the server program")
    options = parser.parse_args(arguments)
    for name in {*OTHERS} - {*options.only}:
        del OTHERS[name]
    loads = [LOADS[number] for number in options.loads]
    loads = [load._replace(jobs=max(int(load.jobs * options.scale), 2 * load.at_once)) for load in loads]
    warnings.simplefilter("ignore")
    with Server(options.redis_server) as server:
        BaseJobsModel.database.connect(url=server.url)
        inside.URL = server.url  # for the classes of our peer
        found, late = take_rates(server, loads, options.rounds, options.environments)
        rest = costs(server, options.rounds, options.scale, options.environments)
        about = about_run(server, options)
    if len(late) > 1:
        shares = quantiles(late, n=100, method="inclusive")
        text = f"p50 {shares[49]:,.1f} ms, p99 {shares[98]:,.1f} ms, of {len(late):,}"
        rest.append(["from job.cancel() to CancelledError", text])
    titles = ["jobs", "by", "jobs a second", "range", "of the ideal", "beside ours"]
    text = "\n".join([about, "", table(titles, rows_of(found, loads)), table(["what", "measured"], rest)])
    print(text)
    (options.results / "at_once.rst").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
