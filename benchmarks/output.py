"""Measure how soon the output of many jobs comes to those that follow it, beside bare streams of Redis.

Jobs emit chunks at a steady rate, in workers that run them as coroutines; each is followed by a coroutine in other
processes. Then other processes add as much to as many streams, and one reads them all. Both take turns, on one Redis
that this starts itself.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import redis
import redis.asyncio
from environments import HERE
from measured import Results
from measures import Sizes
from report import table
from server import Server

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel

if __name__ == "__main__":
    # jobs are stored with the path of their class: "__main__" is something else in each process, "output" is not
    sys.exit(import_module("output").main(sys.argv[1:]))

NAME = "talking"
WARM_UP = 1.0  # seconds of each job that do not count
LONGEST = 60.0  # seconds that a measurement takes at most, beside those for which the jobs emit


class Load(NamedTuple):
    """So many jobs each emit so many chunks a second for some seconds, in some processes, and others follow them."""

    jobs: int
    rate: int
    seconds: float
    emitting: int
    following: int

    @property
    def number(self) -> int:
        """How many chunks a job emits."""
        return int(self.rate * self.seconds)


class Talking(Job):
    """Emits when it did so, again and again."""

    namespace = NAME
    queue_name = NAME
    load: Load

    async def run(self, queue: Queue) -> None:
        await at_a_rate(self.load, lambda: self.aemit(time.monotonic()))


async def at_a_rate(load: Load, emit: Callable[[], Any]) -> None:
    """Emit what a job of a load emits."""
    began = time.monotonic()
    for number in range(load.number):
        await asyncio.sleep(max(0, began + number / load.rate - time.monotonic()))
        await emit()


Chunks = list[tuple[float, float]]


class Found(NamedTuple):
    """When chunks were emitted and after how many seconds they came, and how many seconds of a core processes used."""

    chunks: Chunks
    emitting: float
    following: float
    server: float


# -- Ours


def emit_ours(load: Load, url: str, _: Sequence[str]) -> Chunks:
    BaseJobsModel.database.connect(url=url)
    Talking.load = load
    each = -(-load.jobs // load.emitting)
    Worker(NAME, concurrency=each, max_loops=each, terminate_gracefully=False).run()
    return []


def follow_ours(load: Load, url: str, idents: Sequence[str]) -> Chunks:
    BaseJobsModel.database.connect(url=url)
    chunks: Chunks = []

    async def follow(job: Job) -> None:
        first = None
        async for chunk in job.aoutput(timeout=LONGEST):
            first = first or chunk.value
            if chunk.value > first + WARM_UP:
                chunks.append((chunk.value, time.monotonic() - chunk.value))

    async def follow_all() -> None:
        await asyncio.gather(*(follow(Talking.get_from_ident(ident)) for ident in idents))

    asyncio.run(follow_all())
    return chunks


# -- Bare streams


def emit_bare(load: Load, url: str, streams: Sequence[str]) -> Chunks:
    async def emit_all() -> None:
        client = redis.asyncio.Redis.from_url(url, decode_responses=True)

        async def emit(stream: str) -> None:
            await at_a_rate(load, lambda: client.xadd(stream, {"value": time.monotonic()}))

        await asyncio.gather(*map(emit, streams))
        await client.aclose()

    asyncio.run(emit_all())
    return []


def follow_bare(load: Load, url: str, streams: Sequence[str]) -> Chunks:
    client: Any = redis.Redis.from_url(url, decode_responses=True)
    after = dict.fromkeys(streams, "0")
    chunks, first, left = Chunks(), dict[str, float](), load.number * len(streams)
    until = time.monotonic() + load.seconds + LONGEST
    while left and time.monotonic() < until:
        for key, rows in client.xread(after, count=100, block=1000):
            now = time.monotonic()
            for after[key], fields in rows:
                moment = float(fields["value"])
                left -= 1
                if moment > first.setdefault(key, moment) + WARM_UP:
                    chunks.append((moment, now - moment))
    return chunks


# -- Measuring


def measured(server: Server, load: Load, names: Sequence[str], emit: Any, follow: Any) -> Found:
    """Let processes emit, and others follow."""
    context, used = multiprocessing.get_context("fork"), server.processor_seconds()

    def start(function: Any, some: Sequence[str]) -> tuple[Any, Any]:
        inbox, outbox = context.Pipe(duplex=False)
        process = context.Process(target=run, args=(outbox, function, load, server.url, some), daemon=True)
        process.start()
        outbox.close()
        return process, inbox

    followers = [start(follow, names[number :: load.following]) for number in range(load.following)]
    time.sleep(0.5)
    emitters = [start(emit, names[number :: load.emitting]) for number in range(load.emitting)]
    emitted = [received(*each, load) for each in emitters]
    followed = [received(*each, load) for each in followers]
    emitting, following = (sum(used for used, _ in some) for some in (emitted, followed))
    chunks = [chunk for _, some in followed for chunk in some]
    return Found(chunks, emitting, following, server.processor_seconds() - used)


def run(outbox: Any, function: Any, load: Load, url: str, some: Sequence[str]) -> None:
    """Do something in a process, and send what came of it, with the seconds of a core that it took. What was imported
    before is no garbage: to look through it would take 50 ms, now and then."""
    gc.freeze()
    chunks = function(load, url, some)
    spent = resource.getrusage(resource.RUSAGE_SELF)
    outbox.send((spent.ru_utime + spent.ru_stime, chunks))


def received(process: Any, inbox: Any, load: Load) -> tuple[float, Chunks]:
    """Return what a process sent, or end it if that takes too long."""
    try:
        if not inbox.poll(load.seconds + 2 * LONGEST):
            raise SystemExit("It takes too long: the machine is too busy")
        result: tuple[float, Chunks] = inbox.recv()
        return result
    finally:
        process.kill()
        process.join()


def ours(server: Server, load: Load) -> Found:
    server.empty()
    BaseJobsModel.database.connect(url=server.url)
    idents = [job.ident for job in Talking.add_jobs([Talking.prepare() for _ in range(load.jobs)])]
    BaseJobsModel.database.connection.connection_pool.disconnect()
    return measured(server, load, idents, emit_ours, follow_ours)


def bare(server: Server, load: Load) -> Found:
    server.empty()
    streams = [f"stream:{number}" for number in range(load.jobs)]
    return measured(server, load._replace(following=1), streams, emit_bare, follow_bare)


TITLES = ["", "chunks a second", "half within, ms", "99 % within, ms", "µs of a core a chunk: emit", "follow", "Redis"]


def row_of(name: str, load: Load, found: Sequence[Found]) -> list[str]:
    """Return the medians of some rounds."""
    whole = load.jobs * load.number
    moments, delays = zip(*(zip(*each.chunks, strict=True) for each in found), strict=True)
    spans = [quantiles(each, n=100) for each in delays]
    rate = median(len(each) / (max(each) - min(each)) for each in moments)
    costs = [
        median(getattr(each, which) / whole * 1e6 for each in found) for which in ("emitting", "following", "server")
    ]
    waits = [median(each[place] for each in spans) * 1000 for place in (49, 98)]
    return [name, f"{rate:,.0f}", *(f"{wait:.1f}" for wait in waits), *(f"{cost:.0f}" for cost in costs)]


def main(arguments: list[str]) -> int:
    """Measure, print the table, and write it."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/output.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--jobs", type=int, default=200, metavar="N", help="how many emit at once (default: 200)")
    add("--rate", type=int, default=50, metavar="N", help="how many chunks a second each emits (default: 50)")
    add("--seconds", type=float, default=6, metavar="N", help="for how long, at least 2 (default: 6)")
    add("--emitting", type=int, default=2, metavar="N", help="in how many processes (default: 2)")
    add("--following", type=int, default=1, metavar="N", help="in how many processes they are followed (default: 1)")
    add("--rounds", type=int, default=3, metavar="N", help="how many times each is measured (default: 3)")
    add("--redis-server", default="redis-server", metavar="PATH", help="the server program")
    add("--results", type=Path, default=HERE / "results", metavar="DIR", help="where to write (benchmarks/results)")
    options = parser.parse_args(arguments)
    load = Load(options.jobs, options.rate, max(options.seconds, 2), options.emitting, options.following)
    busy, found = os.getloadavg()[0], list[tuple[Found, Found]]()
    with Server(options.redis_server) as server:
        about = Results.of_this_machine(server, options.rounds, 1, Sizes()).machine
        for _ in range(options.rounds):
            found.append((ours(server, load), bare(server, load)))
            print(json.dumps([row_of("", load, [each])[1:] for each in found[-1]]), file=sys.stderr, flush=True)
    rows = [row_of("limpyd-jobs", load, [each for each, _ in found]), row_of("bare", load, [each for _, each in found])]
    times = float(rows[0][3]) / float(rows[1][3])
    text = (
        f"{load.jobs} jobs in {load.emitting} processes each emit {load.rate} chunks a second, followed in "
        f"{load.following}. {about['cores']} cores, load average before: {busy:.1f}; medians of {options.rounds}. "
        f"In relation to bare streams, 99 % take {times:.1f} times as long.\n\n"
        f"{table(TITLES, rows)}"
    )
    print(text)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "output.rst").write_text(text, encoding="utf-8")
    return 0
