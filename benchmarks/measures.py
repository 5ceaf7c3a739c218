"""What is measured, and how. Each function is one measure of one entry: a fresh server, and processes of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import harmonic_mean, quantiles
from typing import NamedTuple

from environments import Environment, Peer, Unavailable
from processes import Place, Subject, processor_seconds
from server import Server

SETTLING = 1.0  # seconds from the last job until a worker counts as idle
MAX_RUN = 120  # seconds
MAX_JOBS = 60_000

# The rate of running is that between these shares of the jobs. Who fetches jobs ahead holds as many at the first
# moment as at the last one, so has no head start.
BETWEEN = (0.1, 0.9)


class Column(NamedTuple):
    """A value of the results: its title in tables, whether more of it is better, and how many digits are shown."""

    title: str
    more_is_better: bool
    digits: int = 0


COLUMNS = {
    "add": Column("add/s, one producer", True),
    "bulk": Column("bulk add/s", True),
    "run_1": Column("run/s, 1 worker", True),
    "run_2": Column("run/s, 2 workers", True),
    "worker_cpu": Column("run: µs of a core, worker", False),
    "redis_cpu": Column("run: µs of a core, Redis", False),
    "latency_p50": Column("latency p50, ms", False, 2),
    "latency_p99": Column("latency p99, ms", False, 2),
    "bytes": Column("bytes a waiting job", False),
    "add_round_trips": Column("add: round trips", False, 2),
    "add_commands": Column("add: commands", False, 2),
    "add_inner": Column("add: inner commands", False, 2),
    "run_round_trips": Column("run: round trips", False, 2),
    "run_commands": Column("run: commands", False, 2),
    "run_inner": Column("run: inner commands", False, 2),
    "idle_commands": Column("idle: commands/s", False, 2),
    "idle_cpu": Column("idle: % of a core", False, 2),
}


@dataclass
class Sizes:
    """How much is done for each measure."""

    seconds: float = 2.0  # of adding, and about of running
    least_jobs: int = 4_000  # to run
    bulk_jobs: int = 30_000
    waiting_jobs: int = 8_000  # for their memory; below a power of two, where Redis enlarges no table
    counted_jobs: int = 2_000
    samples: int = 300  # of latency
    idle_seconds: float = 5.0
    bare_jobs: int = 3_000  # of the loop beside each measure
    bare_seconds: float = 0.3  # of the same loop before that

    def scaled(self, scale: float) -> Sizes:
        """Return the same with so much of everything."""
        return Sizes(**{name: type(value)(value * scale) for name, value in vars(self).items()})


@dataclass
class Entry:
    """One row of the results: a peer with one kind of worker."""

    peer: Peer
    variant: str
    environment: Environment
    is_first: bool  # of its peer: what has nothing to do with workers is measured for this one only
    jobs: dict[int, int] = field(default_factory=dict)  # by number of workers: how many take about long enough

    @property
    def title(self) -> str:
        return self.peer.TITLE + ("" if self.variant == "default" else f", {self.variant}")


Values = dict[str, float | None]


def bare_rate(server: Server, sizes: Sizes) -> float:
    """Return the rate of a bare loop of RPUSH in this process, right now.

    After a rest, it is more than twice as fast for a moment: both processes are on one core until the system finds that
    both have enough to do. So that moment is not measured.
    """
    rested = time.perf_counter() + sizes.bare_seconds
    while time.perf_counter() < rested:
        server.client.rpush("bare", 0)
    began = time.perf_counter()
    for number in range(sizes.bare_jobs):
        server.client.rpush("bare", number)
    rate = sizes.bare_jobs / (time.perf_counter() - began)
    server.client.delete("bare")
    return rate


def add(server: Server, entry: Entry, sizes: Sizes) -> Values:
    """The rate of a loop that adds one job after the other."""
    with Place(server.url) as place:
        done = Subject(place, entry.environment, "add", sizes.seconds).go()
    return {"add": done["jobs"] / done["seconds"]}


def bulk(server: Server, entry: Entry, sizes: Sizes) -> Values:
    """The rate of adding many at once."""
    with Place(server.url) as place:
        done = Subject(place, entry.environment, "add_many", sizes.bulk_jobs).go()
    return {"bulk": done["jobs"] / done["seconds"]}


def memory(server: Server, entry: Entry, sizes: Sizes) -> Values:
    """What a job that waits costs in Redis."""
    with Place(server.url) as place:
        subject = Subject(place, entry.environment, "add_some", sizes.waiting_jobs)
        before = server.memory()
        subject.go()
        return {"bytes": (server.memory() - before) / sizes.waiting_jobs}


def run_1(server: Server, entry: Entry, sizes: Sizes) -> Values:
    """The rate of one worker that finds a backlog."""
    done = run(server, entry, sizes, workers=1)
    return {"run_1": done.rate, "worker_cpu": done.worker_cpu, "redis_cpu": done.redis_cpu}


def run_2(server: Server, entry: Entry, sizes: Sizes) -> Values:
    """The rate of two workers together, which begin at the same moment."""
    return {"run_2": run(server, entry, sizes, workers=2).rate}


class Run(NamedTuple):
    """The rate of jobs per second, and the microseconds of a core per job, as far as the system tells them."""

    rate: float
    worker_cpu: float | None
    redis_cpu: float


def run(server: Server, entry: Entry, sizes: Sizes, workers: int) -> Run:
    jobs = entry.jobs.get(workers, workers * sizes.least_jobs)
    while True:
        done = drain(server, entry, jobs, workers)
        wanted = min(MAX_JOBS, int(done.rate * sizes.seconds))
        entry.jobs[workers] = max(jobs, wanted)
        if jobs > 0.7 * wanted:
            return done
        jobs = wanted
        server.empty()


def drain(server: Server, entry: Entry, jobs: int, workers: int) -> Run:
    """Run so many jobs."""
    with Place(server.url) as place:
        fill(place, entry, jobs)
        sessions = start_workers(place, entry, workers)
        cpu, redis_cpu = processor_seconds(*sessions), server.processor_seconds()
        place.open_gate()
        (first, began), (last, ended) = (reach(place, int(share * jobs), jobs) for share in BETWEEN)
        reach(place, jobs, jobs)
        now = processor_seconds(*sessions)
        return Run(
            rate=(last - first) / (ended - began),
            worker_cpu=None if cpu is None or now is None else 1e6 * (now - cpu) / jobs,
            redis_cpu=1e6 * (server.processor_seconds() - redis_cpu) / jobs,
        )


def reach(place: Place, number: int, jobs: int) -> tuple[int, float]:
    """Wait until so many of the jobs have begun; return how many have, and the moment."""
    place.wait_until(lambda: place.jobs_begun() >= number, MAX_RUN, f"{jobs} jobs did not run")
    return place.jobs_begun(), time.monotonic()


def fill(place: Place, entry: Entry, jobs: int) -> None:
    """Add a backlog."""
    subject = Subject(place, entry.environment, "fill", jobs)
    subject.go(timeout=3600)
    subject.end()


def start_workers(place: Place, entry: Entry, workers: int) -> list[int]:
    """Start workers, wait until each of them has a job in its hands, and return their sessions."""
    commands = 1 if entry.variant in entry.peer.STARTS_BOTH else workers
    sessions = [place.start(entry.environment, "work", entry.variant).pid for _ in range(commands)]
    place.wait_until(lambda: place.workers_at_the_gate() >= workers, 20, f"not each of {workers} workers had a job")
    return sessions


def latency_and_idling(server: Server, entry: Entry, sizes: Sizes) -> Values:
    """What passes until an idle worker runs a job, and what it does while there is none."""
    with Place(server.url) as place:
        place.open_gate()
        fill(place, entry, 1)  # some workers look only now and then for a queue that is not there at their start
        worker = place.start(entry.environment, "work", entry.variant)
        subject = Subject(place, entry.environment, "latency", sizes.samples)
        found = subject.go()["seconds"]
        subject.end()
        time.sleep(SETTLING)
        if worker.poll() is not None:
            raise place.why(worker, "the worker ended")
        used, began = processor_seconds(worker.pid), time.monotonic()
        with server.counting() as counts:
            time.sleep(sizes.idle_seconds)
        passed = time.monotonic() - began
        now = processor_seconds(worker.pid)
    percentiles = quantiles([1000 * seconds for seconds in found], n=100, method="inclusive")
    return {
        "latency_p50": percentiles[49],
        "latency_p99": percentiles[98],
        "idle_commands": counts.commands / passed,
        "idle_cpu": None if used is None or now is None else 100 * (now - used) / passed,
    }


def counts_of_adding(server: Server, entry: Entry, sizes: Sizes) -> Values:
    """What is sent to Redis to add a job."""
    with Place(server.url) as place:
        subject = Subject(place, entry.environment, "add_some", sizes.counted_jobs)
        with server.counting() as counts:
            subject.go()
    return {f"add_{name}": number / sizes.counted_jobs for name, number in vars(counts).items()}


def counts_of_running(server: Server, entry: Entry, sizes: Sizes) -> Values:
    """What is sent to Redis to run a job of a backlog, the start of the worker included."""
    jobs = sizes.counted_jobs
    with Place(server.url) as place:
        fill(place, entry, jobs)
        place.open_gate()
        with server.counting() as counts:
            place.start(entry.environment, "work", entry.variant)
            place.wait_until(lambda: place.jobs_begun() >= jobs, MAX_RUN, f"{jobs} jobs did not run")
            time.sleep(0.1)  # the last of them ends
    return {f"run_{name}": number / jobs for name, number in vars(counts).items()}


class Measure(NamedTuple):
    """A function above, with the columns it fills, and when it is done."""

    function: Callable[[Server, Entry, Sizes], Values]
    columns: tuple[str, ...]
    needs_worker: bool = True
    each_round: bool = True  # once is enough for what does not depend on speed


MEASURES = {
    "add": Measure(add, ("add",), needs_worker=False),
    "bulk": Measure(bulk, ("bulk",), needs_worker=False),
    "run_1": Measure(run_1, ("run_1", "worker_cpu", "redis_cpu")),
    "run_2": Measure(run_2, ("run_2",)),
    "latency": Measure(latency_and_idling, ("latency_p50", "latency_p99", "idle_commands", "idle_cpu")),
    "memory": Measure(memory, ("bytes",), needs_worker=False, each_round=False),
    "add_counts": Measure(
        counts_of_adding, ("add_round_trips", "add_commands", "add_inner"), needs_worker=False, each_round=False
    ),
    "run_counts": Measure(counts_of_running, ("run_round_trips", "run_commands", "run_inner"), each_round=False),
}


def is_wanted(name: str, entry: Entry, round_number: int) -> bool:
    """Return whether a measure is due for an entry in a round, counted from 0."""
    measure = MEASURES[name]
    if entry.variant in entry.peer.STARTS_BOTH and name != "run_2":
        return False
    return (entry.is_first or measure.needs_worker) and (round_number == 0 or measure.each_round)


def take(name: str, server: Server, entry: Entry, sizes: Sizes) -> tuple[Values, float]:
    """Take a measure; return what was found, and the rate of the bare loop just before and after it.

    Raises
    ------
    Unavailable
        If it cannot be taken; the message says why.
    """
    server.empty()
    before = bare_rate(server, sizes)
    try:
        values = MEASURES[name].function(server, entry, sizes)
        return values, harmonic_mean([before, bare_rate(server, sizes)])
    except (OSError, ValueError, KeyError) as error:
        raise Unavailable(f"{type(error).__name__}: {error}") from error
