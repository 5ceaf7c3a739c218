"""Measure redis-limpyd-jobs and other job queues beside each other, on one Redis that this starts itself.

Each peer is installed in a virtual environment of its own, once. Then all are measured in turn, measure by measure and
round by round, so that what else the machine does hits all alike; beside each measure stands the rate of a bare loop
of RPUSH at that moment. A peer that cannot be installed or measured is shown with the reason.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from environments import CACHE, HERE, Environment, Peer, Unavailable, all_peers, prepare
from history import remember
from measured import Results
from measures import MEASURES, Entry, Sizes, Values, bare_rate, is_wanted, take
from report import show_summary, write_results
from server import Server

RESULTS = HERE / "results"

# Of its best rate, what the bare loop makes on a machine that is calm enough to measure on.
LEAST_SHARE = 0.75

# The least scale at which that is asked: a short loop tells nothing.
LEAST_SCALE = 0.2

TRIES, PATIENCE = 4, 5.0  # how often a measure is taken on a machine that is disturbed, and seconds in between

QUICK = 0.05


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/run.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Peers: " + ", ".join(all_peers()) + "\nMeasures: " + ", ".join(MEASURES),
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="few jobs: to see that it works, not how fast it is (--scale=0.05)")
    add("--scale", type=float, default=1, metavar="X", help="how much of everything is done (default: 1)")
    add("--only", nargs="+", metavar="PEER", choices=all_peers(), help="only these peers")
    add("--variants", nargs="+", metavar="VARIANT", help="only these kinds of workers, as `default`")
    add("--measures", nargs="+", metavar="MEASURE", choices=MEASURES, default=[*MEASURES], help="only these measures")
    add("--rounds", type=int, default=2, metavar="N", help="how many times each is measured (default: 2)")
    add("--newest", action="store_true", help="take the newest versions of the peers, not those their files name")
    add("--environments", type=Path, default=CACHE, metavar="DIR", help=f"where the peers are (default: {CACHE})")
    add("--redis-server", default="redis-server", metavar="PATH", help="the server program")
    add("--results", type=Path, default=RESULTS, metavar="DIR", help="where to write (default: benchmarks/results)")
    add("--no-plots", action="store_true", help="write no plots, which need matplotlib: pip install -e .[benchmarks]")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure, and write the results."""
    options = parse_arguments(arguments)
    scale = QUICK if options.quick else options.scale
    sizes = Sizes().scaled(scale)
    names = options.only or [*all_peers()]
    with Server(options.redis_server) as server:
        results = Results.of_this_machine(server, options.rounds, scale, sizes)
        entries = install([all_peers()[name] for name in names], options, results)
        measure(server, entries, options.measures, options.rounds, sizes, results)
    write_results(results, options.results, plots=not options.no_plots)
    if scale >= LEAST_SCALE:
        remember(results, options.results)
    show_summary(results)
    return 0 if any(entry.values for entry in results.entries) else 1


def install(peers: list[Peer], options: argparse.Namespace, results: Results) -> list[Entry]:
    """Return an entry for each kind of worker of each peer that can be installed."""
    entries: list[Entry] = []
    for peer in peers:
        say(f"{peer.TITLE}: environment")
        try:
            environment = prepare(peer, options.environments, options.newest)
        except Unavailable as reason:
            environment = None
            say(f"{peer.TITLE}: {reason}")
            results.add_missing(peer, str(reason))
        if environment:
            found = entries_of(peer, environment)
            entries += [entry for entry in found if not options.variants or entry.variant in options.variants]
    for entry in entries:
        results.add_entry(entry)
    return entries


def entries_of(peer: Peer, environment: Environment) -> list[Entry]:
    return [Entry(peer, variant, environment, is_first=not number) for number, variant in enumerate(peer.WORKERS)]


def measure(
    server: Server, entries: list[Entry], names: list[str], rounds: int, sizes: Sizes, results: Results
) -> None:
    """Take all measures, interleaved: the same measure of all entries, then the next one, then the next round."""
    todo = [
        (number, name, entry)
        for number in range(rounds)
        for name in names
        for entry in (entries if number % 2 == 0 else entries[::-1])
        if is_wanted(name, entry, number)
    ]
    rates = (bare_rate(server, sizes) for _ in range(5))
    began, calm = time.monotonic(), Calmness(rates, is_asked=results.settings["scale"] >= LEAST_SCALE)
    for position, (number, name, entry) in enumerate(todo, 1):
        if results.has_failed(entry, name):
            continue
        progress = f"{position}/{len(todo)} {time.monotonic() - began:.0f}s round {number + 1} {name}: {entry.title}"
        try:
            values, bare = take_in_calm(name, server, entry, sizes, calm, results)
        except Unavailable as reason:
            for failed in [name, *(others_of_workers(names) if name == "run_1" else ())]:
                results.add_failure(entry, failed, str(reason))
            say(f"{progress}: {reason}")
        else:
            results.add_values(entry, values, bare)
            shown = ", ".join(f"{column} {value:,.2f}" for column, value in values.items() if value is not None)
            say(f"{progress}: {shown} (bare loop {bare:,.0f}/s)")


class Calmness:
    """Whether the machine has nothing else to do: then the bare loop runs about as fast as it ever did."""

    def __init__(self, rates: Iterable[float], is_asked: bool) -> None:
        self._best = max(rates)
        self._is_asked = is_asked

    def __call__(self, rate: float) -> bool:
        self._best = max(self._best, rate)
        return not self._is_asked or rate >= LEAST_SHARE * self._best


def take_in_calm(
    name: str, server: Server, entry: Entry, sizes: Sizes, calm: Calmness, results: Results
) -> tuple[Values, float]:
    """Take a measure, and again if the machine was disturbed meanwhile: what was found then is thrown away.

    Raises
    ------
    Unavailable
        If the machine was disturbed each time, or the measure cannot be taken.
    """
    for _ in range(TRIES):
        values, bare = take(name, server, entry, sizes)
        if calm(bare):
            return values, bare
        results.settings["thrown away"] += 1
        say(f"thrown away, as the machine was disturbed: the bare loop makes only {bare:,.0f}/s")
        time.sleep(PATIENCE)
    raise Unavailable(f"the machine was disturbed, {TRIES} times in a row")


def others_of_workers(names: list[str]) -> list[str]:
    """Return what need not be tried when a worker does not run."""
    return [name for name in names if MEASURES[name].needs_worker]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
