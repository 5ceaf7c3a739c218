"""Measure limits beside pydocket's and RQ's, and flows beside those of Celery, RQ and BullMQ.

All queues do the same work, in turn and round by round, on one Redis that this starts itself, each in an environment of
its own. Jobs with limits write from when to when their code ran, so that it is counted from outside how many ran above
their limit. A flow has nine jobs that do nothing, and one more that runs after them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from adding import ratio
from environments import CACHE, HERE, Unavailable, all_peers, prepare
from inside import read_spans
from measured import Results
from measures import MAX_RUN, Entry, Sizes, fill, reach
from processes import Place, Subject
from report import NONE, table
from server import Server

CHILDREN = 9
NEVER_REACHED = 10_000  # jobs a second: limits that allow as many keep no job waiting


class Load(NamedTuple):
    """Jobs of some keys, each of which takes some seconds; so many of a key may run at once."""

    title: str
    workers: int
    at_once: int  # jobs in a process; 0 for one, without a loop of coroutines
    seconds: float
    keys: int
    most: int
    jobs: int
    peers: tuple[str, str]

    @property
    def ideal(self) -> float:
        """Jobs a second if all slots of the limits were always taken."""
        return self.keys * self.most / self.seconds


OURS = "limpyd_jobs_3"
LOADS = [
    Load("2 processes of 10 coroutines, 10 ms; 5 keys, 2 at once", 2, 10, 0.01, 5, 2, 2_000, (OURS, "pydocket")),
    Load("2 processes of 10 coroutines, 1 ms; 1,000 keys", 2, 10, 0.001, 1_000, 2, 2_000, (OURS, "pydocket")),
    Load("4 processes, 5 ms; 2 keys, 1 at once", 4, 0, 0.005, 2, 1, 1_000, (OURS, "rq")),
    Load("4 processes, 1 ms; 1,000 keys", 4, 0, 0.001, 1_000, 1, 1_000, (OURS, "rq")),
]
# By the kind of worker, and how many coroutines of it run at once, if that is to be asked for.
FLOWS = {
    OURS: (("default", 0), ("prefetch 100", 0), ("default", 10)),
    "celery": (("prefork", 0), ("solo", 0)),
    "rq": (("SimpleWorker", 0),),
    "bullmq": (("1 at once", 0), ("10 at once", 0)),
    "bullmq_node": (("1 at once", 0), ("10 at once", 10)),
}

Found = defaultdict[tuple[str, str], list[float]]  # by what is measured, and the queue


def entry_of(name: str, variant: str, environments: Path, **asked: float) -> Entry:
    """Return a queue whose processes are asked for something: see `inside`."""
    peer = all_peers()[name]
    environment = prepare(peer, environments)
    variables = {f"BENCHMARK_{key.upper()}": str(value) for key, value in asked.items()}
    return Entry(peer, variant, replace(environment, variables={**environment.variables, **variables}), is_first=True)


# -- Limits


def limited(server: Server, name: str, load: Load, environments: Path) -> tuple[float, int]:
    """Return how many jobs of a load began in a second, and how many ran above their limit."""
    asked = {"at_once": load.at_once, "seconds": load.seconds, "keys": load.keys, "most": load.most}
    variant = next(iter(all_peers()[name].WORKERS))
    entry = entry_of(name, variant, environments, **asked)
    server.empty()
    with Place(server.url) as place:
        fill(place, entry, load.jobs)
        place.open_gate()  # with few slots, not each worker would have a job that waits there
        for _ in range(load.workers):
            place.start(entry.environment, "work", variant)
        (first, began), (last, ended) = (reach(place, load.jobs * share // 10, load.jobs) for share in (1, 9))
        reach(place, load.jobs, load.jobs)
        until = time.monotonic() + MAX_RUN
        while len(spans := read_spans(place.path)) < load.jobs and time.monotonic() < until:
            time.sleep(0.01)
    return (last - first) / (ended - began), above(spans, load.most)


def above(spans: Iterable[tuple[int, float, float]], most: int) -> int:
    """Return how many jobs began while as many of their key ran as may."""
    moments = sorted(
        [(began, 1, key) for key, began, _ in spans] + [(ended, -1, key) for key, _, ended in spans]
    )  # at one moment, an end counts first
    running: dict[int, int] = defaultdict(int)
    found = 0
    for _, change, key in moments:
        found += change > 0 and running[key] >= most
        running[key] += change
    return found


# -- Flows


def flows(
    server: Server, name: str, variant: str, at_once: int, number: int, environments: Path
) -> Iterator[tuple[str, float]]:
    """Yield what is measured, and the value: the rate of adding flows; of running those that wait; and from adding one
    to an idle worker until its last job runs, in milliseconds."""
    entry = entry_of(name, variant, environments, children=CHILDREN, at_once=at_once)
    jobs = number * (CHILDREN + 1)
    server.empty()
    with Place(server.url) as place:
        subject = Subject(place, entry.environment, "add_flows", number)
        done = subject.go()
        subject.end()
        yield "added", done["jobs"] / done["seconds"]
        place.open_gate()
        place.start(entry.environment, "work", variant)
        first, began = reach(place, jobs // 10, jobs)
        reach(place, jobs, jobs)
        yield "run", (jobs - first) / (CHILDREN + 1) / (place.last_begun() - began)
    server.empty()
    with Place(server.url) as place:
        place.open_gate()
        fill(place, entry, 1)
        place.start(entry.environment, "work", variant)
        subject = Subject(place, entry.environment, "flow_latency", min(number, 100))
        yield "latency", 1000 * median(subject.go()["seconds"])


# -- All of it


def in_turn(ways: dict[tuple[str, str], Callable[[], Iterator[tuple[str, float]]]], rounds: int) -> Found:
    """Measure in each of some ways, round by round, in turn."""
    found: Found = defaultdict(list)
    failed: set[tuple[str, str]] = set()
    for number in range(rounds):
        for (what, name), way in list(ways.items())[:: 1 if number % 2 == 0 else -1]:
            if (what, name) in failed:
                continue
            try:
                values = [*way()]
            except Unavailable as reason:
                failed.add((what, name))
                say(f"{what}: {name}: {reason}")
                continue
            for column, value in values:
                found[f"{what}{column}", name].append(value)
                say(f"round {number + 1}, {what}{column}: {name}: {value:,.2f}")
    return found


def limits_table(server: Server, rounds: int, scale: float, environments: Path) -> str:
    """Return what limits reach."""
    loads = [load._replace(jobs=max(int(load.jobs * scale), 100)) for load in LOADS]

    def way_of(load: Load, name: str) -> Callable[[], Iterator[tuple[str, float]]]:
        def way() -> Iterator[tuple[str, float]]:
            rate, over = limited(server, name, load, environments)
            yield ", rate", rate
            yield ", above", over

        return way

    found = in_turn({(load.title, name): way_of(load, name) for load in loads for name in load.peers}, rounds)
    rows = []
    for load in loads:
        ours = found[f"{load.title}, rate", OURS]
        for name in load.peers:
            rates, over = found[f"{load.title}, rate", name], found[f"{load.title}, above", name]
            if rates:
                beside = f"{ratio(ours, rates):.2f}" if name != OURS and len(ours) == len(rates) else ""
                title, spread = all_peers()[name].TITLE, f"{min(rates):,.0f} to {max(rates):,.0f}"
                of_all = f"{sum(over):,.0f} of {len(over) * load.jobs:,}"
                ideal = f"{load.ideal:,.0f}" if load.ideal < NEVER_REACHED else NONE
                rows.append([load.title, title, f"{median(rates):,.0f}", spread, ideal, beside, of_all])
    titles = ["jobs", "by", "jobs a second", "range", "most possible", "ours, times as fast", "above the limit"]
    return table(titles, rows)


def flows_table(server: Server, rounds: int, scale: float, environments: Path, only: list[str]) -> str:
    """Return what flows reach."""
    number = max(int(300 * scale), 10)
    chosen = {title_of(name, *kind): (name, *kind) for name in only for kind in FLOWS[name]}

    def way_of(name: str, variant: str, at_once: int) -> Callable[[], Iterator[tuple[str, float]]]:
        return lambda: flows(server, name, variant, at_once, number, environments)

    found = in_turn({("", title): way_of(*each) for title, each in chosen.items()}, rounds)
    rows = []
    for title, (name, variant, at_once) in chosen.items():
        values = [found[column, title] for column in ("added", "run", "latency")]
        if all(values):
            is_many = at_once > 1 or variant == "10 at once"
            ours = found["run", title_of(OURS, "default", 10 if is_many else 0)]
            beside = f"{ratio(ours, values[1]):.2f}" if name != OURS and len(ours) == len(values[1]) else ""
            rates = [f"{median(some):,.0f}" for some in values[:2]]
            spread = f"{min(values[1]):,.0f} to {max(values[1]):,.0f}"
            rows.append([title, *rates, spread, beside, f"{median(values[2]):,.1f}"])
        else:
            rows.append([title, *[NONE] * 5])
    titles = ["flows by", "added a second", "run a second", "range", "ours, times as fast", "ms to the last job"]
    return table(titles, rows)


def title_of(name: str, variant: str, at_once: int) -> str:
    kind = f"{at_once} at once" if at_once else variant
    return f"{all_peers()[name].TITLE}, {kind}"


def about_run(server: Server, options: argparse.Namespace, load: float) -> str:
    """Return on what machine, and with which versions, it was measured."""
    machine = Results.of_this_machine(server, options.rounds, options.scale, Sizes()).machine
    versions = ", ".join(versions_of(options.environments))
    text = (
        f"Measured on {time.strftime('%Y-%m-%d', time.gmtime())}: {machine['processor']}, {machine['cores']} cores, "
        f"load average before: {load:.1f}, Redis {machine['Redis']}, Python {machine['Python']}; {versions}; "
        f"medians, rounds: {options.rounds}."
    )
    rough = f" A small run, of scale {options.scale:g}: the numbers are rough." if options.scale < 1 else ""
    return f"{text}{rough} {options.note}".rstrip()


def versions_of(environments: Path) -> Iterator[str]:
    """Yield the names and versions of the queues that are there."""
    for peer in map(all_peers().__getitem__, [*FLOWS, "pydocket"]):
        if peer.name != OURS:
            with suppress(Unavailable):
                yield f"{peer.TITLE} {prepare(peer, environments).versions[peer.PACKAGE]}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> None:
    """Measure, print the tables, and write them."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/limits_and_flows.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rounds", type=int, default=5, metavar="N", help="how many times each is measured (default: 5)")
    add("--scale", type=float, default=1, metavar="X", help="how many of all jobs are run (default: 1)")
    add("--flows", nargs="*", metavar="PEER", choices=[*FLOWS], default=[*FLOWS], help="only the flows of these")
    add("--environments", type=Path, default=CACHE, metavar="DIR", help=f"where the peers are (default: {CACHE})")
    add("--note", default="", metavar="TEXT", help="what else to tell of the run")
    add("--results", type=Path, default=HERE / "results", metavar="DIR", help="where to write (benchmarks/results)")
    add("--redis-server", default="redis-server", metavar="PATH", help="the server program")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    with Server(options.redis_server) as server:
        limits = limits_table(server, options.rounds, options.scale, options.environments)
        joins = flows_table(server, options.rounds, options.scale, options.environments, options.flows)
        about = about_run(server, options, load)
    text = "\n".join([about, "", limits, joins])
    print(text)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "limits_and_flows.rst").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
