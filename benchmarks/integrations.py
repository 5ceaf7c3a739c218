"""Measure our integrations beside the Redis stores that these systems have of their own: on one Redis, in turns. Of
Django, measure what it costs that it is around each job.

Each number is the best of some rounds, in which all take turns. Beside it stands its ratio to the system's own store,
and the goal: such a ratio, or a limit.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta, timezone
from functools import cache
from importlib import import_module
from queue import Queue
from statistics import median
from tempfile import mkdtemp
from threading import Thread
from typing import Any, NamedTuple

from apscheduler.job import Job
from apscheduler.jobstores.redis import RedisJobStore as TheirStore
from apscheduler.schedulers.background import BackgroundScheduler
from report import table
from server import Server

from limpyd_jobs.contrib.apscheduler import LimpydJobStore, RedisJobStore

if __name__ == "__main__":
    # functions are stored with their module: "__main__" is something else in each process, "integrations" is not
    sys.exit(import_module("integrations").main(sys.argv[1:]))


class Measure(NamedTuple):
    """What is measured, and what is to be reached.

    Attributes
    ----------
    title: str
    unit: str
        ``/s``, of which more is better; else less is.
    ratio: float
        To the number of the system's own store: at least, or at most.
    limit: float
        The most that is allowed, if there is no ratio to be reached.
    """

    title: str
    unit: str
    ratio: float | None = None
    limit: float | None = None

    @property
    def is_rate(self) -> bool:
        return self.unit == "/s"

    @property
    def goal(self) -> str:
        sign = "≥" if self.is_rate else "≤"
        return f"{sign} {self.limit:,} {self.unit}" if self.ratio is None else f"{sign} {self.ratio}x"

    def is_reached(self, theirs: float, ours: float) -> bool:
        goal = self.limit if self.ratio is None else self.ratio * theirs
        assert goal is not None
        return ours >= goal if self.is_rate else ours <= goal

    def best(self, values: list[float]) -> float:
        return max(values) if self.is_rate else min(values)


Values = dict[str, float]  # by the names of measures


class Comparison(NamedTuple):
    """What is measured of a system, and its stores: its own first."""

    measures: dict[str, Measure]
    stores: dict[str, Callable[[int], Any]]
    measure: Callable[[Server, Any, int, int], Values]


# -- APScheduler

NOW = datetime.now(timezone.utc)


def work(number: int, text: str) -> None:
    """What is scheduled."""


def some_jobs(number: int, first: datetime, name: str = "job") -> list[Job]:
    """Return jobs, one second apart, as a scheduler makes them that has not begun."""
    scheduler = BackgroundScheduler(timezone="UTC")
    return [
        scheduler.add_job(
            work,
            "interval",
            hours=1,
            id=f"{name}-{position}",
            args=[position, "some text"],
            start_date=first,
            next_run_time=first + timedelta(seconds=position),
            misfire_grace_time=60,
            coalesce=True,
            max_instances=1,
        )
        for position in range(number)
    ]


def measure_store(server: Server, store: Any, jobs: int, many: int) -> Values:
    """Return the metrics of a job store of APScheduler."""
    store.start(None, "default")
    store.add_job(some_jobs(1, NOW, "first")[0])  # connected, and scripts are loaded
    store.remove_all_jobs()
    later, before, found = some_jobs(many, NOW + timedelta(days=1)), server.memory(), Values()
    found["add"] = many / seconds(store.add_job, later)
    found["bytes"] = (server.memory() - before) / many
    found["all"] = 1000 * seconds(lambda _: store.get_all_jobs())
    found["one"] = jobs / due_one(store, jobs)
    found["remove"] = jobs / seconds(store.remove_job, [job.id for job in later[:jobs]])
    for job in later[:jobs]:
        store.add_job(job)
    found["remove_all"] = 1000 * seconds(lambda _: store.remove_all_jobs())
    for job in some_jobs(1_000, NOW - timedelta(days=1)):
        store.add_job(job)
    found["thousand"] = 1000 * min(due_many(store) for _ in range(3))
    due = store.get_due_jobs(NOW)
    found["update"] = len(due) / seconds(store.update_job, [*moved(due)])
    store.shutdown()
    return found


def seconds(action: Callable[[Any], Any], arguments: list[Any] | None = None) -> float:
    """Return how long it takes to do something with each argument."""
    arguments = [None] if arguments is None else arguments
    began = time.perf_counter()
    for argument in arguments:
        action(argument)
    return time.perf_counter() - began


def moved(jobs: list[Job]) -> Iterator[Job]:
    """Yield jobs with the next run time that a scheduler gives them."""
    scheduler = BackgroundScheduler(timezone="UTC")
    for job in jobs:
        job._scheduler = scheduler
        job._modify(next_run_time=job.next_run_time + timedelta(hours=1))
        yield job


def due_one(store: Any, times: int) -> float:
    """Return how long it takes to look so many times for what is due, of which there is one."""
    (job,) = some_jobs(1, NOW - timedelta(days=1), "due")
    store.add_job(job)
    passed = seconds(lambda _: store.get_due_jobs(NOW), [None] * times)
    store.remove_job(job.id)
    return passed


def due_many(store: Any) -> float:
    """Return how long it takes to be handed out 1,000 jobs, be it in several rounds, each ended as schedulers do."""
    due: list[Job] = []
    passed = seconds(lambda _: due.extend(store.get_due_jobs(NOW)))
    store.get_next_run_time()
    return passed * 1_000 / len(due)


APSCHEDULER = Comparison(
    {
        "add": Measure("add_job", "/s", 1.5),
        "one": Measure("get_due_jobs, 1 due", "/s", 1.3),
        "thousand": Measure("get_due_jobs, 1,000 due", "ms", 1.3),
        "update": Measure("update_job", "/s", 1.5),
        "remove": Measure("remove_job", "/s", 1.5),
        "all": Measure("get_all_jobs, 10,000", "ms", limit=250),
        "remove_all": Measure("remove_all_jobs, 10,000", "ms", limit=350),
        "bytes": Measure("a job", "bytes", limit=1_200),
    },
    {
        "APScheduler's own": lambda port: TheirStore(port=port),
        "LimpydJobStore": lambda port: LimpydJobStore(port=port, allowed=[__name__]),
        "RedisJobStore": lambda port: RedisJobStore(port=port),
    },
    measure_store,
)

# -- TaskFlow


def measure_board(server: Server, board: Any, jobs: int, many: int) -> Values:
    """Return the metrics of a jobboard of TaskFlow."""
    board.connect()
    first = board.post("first")
    board.claim(first, "ann")
    board.consume(first, "ann")
    before, found, posted = server.memory(), Values(), list[Any]()
    found["post"] = many / seconds(
        lambda number: posted.append(board.post("resize", details={"n": number})), [*range(many)]
    )
    found["bytes"] = (server.memory() - before) / many
    found["first"] = 1000 * seconds(lambda _: next(iter(board.iterjobs())))
    found["all"] = 1000 * seconds(lambda _: list(board.iterjobs()))
    found["claim"] = jobs / seconds(lambda job: board.claim(job, "ann"), posted[:jobs])
    found["consume"] = jobs / seconds(lambda job: board.consume(job, "ann"), posted[:jobs])
    for job in posted[jobs : many - 1_000]:
        board.claim(job, "ann")
        board.consume(job, "ann")
    found["thousand"] = 1000 * seconds(lambda _: list(board.iterjobs()))
    for job in posted[max(jobs, many - 1_000) :]:
        board.claim(job, "ann")
        board.consume(job, "ann")
    found["late"] = 1000 * lateness(board)
    board.close()
    return found


def lateness(board: Any) -> float:
    """Return how long, at the median, it takes from a post to the end of the wait of another one for it."""
    found, times = list[float](), Queue[float]()

    def wait() -> None:
        job = next(iter(board.wait(30)))
        times.put(time.perf_counter())
        board.claim(job, "ann")
        board.consume(job, "ann")

    for _ in range(20):
        waiter = Thread(target=wait)
        waiter.start()
        time.sleep(0.3)  # it waits
        began = time.perf_counter()
        board.post("wanted")
        found.append(times.get(timeout=30) - began)
        waiter.join()
    return median(found)


def their_board(port: int) -> Any:
    """Return TaskFlow's own board over Redis."""
    from taskflow.jobs.backends.impl_redis import RedisJobBoard

    return RedisJobBoard("flows", {"host": "localhost", "port": port, "namespace": "flows"})


def our_board(port: int) -> Any:
    """Return ours."""
    from limpyd_jobs.contrib.taskflow import LimpydJobBoard

    return LimpydJobBoard("flows", {"host": "localhost", "port": port})


TASKFLOW = Comparison(
    {
        "post": Measure("post", "/s", 1.0),
        "claim": Measure("claim", "/s", 1.2),
        "consume": Measure("consume", "/s", 0.7),
        "thousand": Measure("iterjobs, 1,000", "ms", limit=20),
        "all": Measure("iterjobs, 10,000", "ms", limit=250),
        "first": Measure("the first of 10,000", "ms", limit=25),
        "late": Measure("wait(), lateness at the median", "ms", limit=20),
        "bytes": Measure("a posting", "bytes", limit=900),
    },
    {"TaskFlow's own": their_board, "LimpydJobBoard": our_board},
    measure_board,
)

# -- Django


def measure_django(server: Server, is_around: bool, jobs: int, many: int) -> Values:
    """Return how many µs of the processor it takes to run what a job does, and with it what Django does around it. That
    sends Redis nothing, so no job is run: its time would hide this one."""
    set_up_django(server.port)
    from django.db import connections

    from limpyd_jobs.contrib.django.apps import around_jobs

    around: Callable[[Any], AbstractContextManager[Any]] = around_jobs.running if is_around else nullcontext
    found = Values()
    for name, action, age in (("nothing", int, 0), ("closed", ask_database, 0), ("kept", ask_database, 600)):
        connections["default"].close()
        connections["default"].settings_dict["CONN_MAX_AGE"] = age
        began = time.process_time()
        for _ in range(many):
            with around(None):
                action()
        found[name] = 1e6 * (time.process_time() - began) / many
    return found


@cache
def set_up_django(port: int) -> None:
    """Set Django up with a database in a file, in which connections cost something."""
    import django
    from django.conf import settings

    settings.configure(
        INSTALLED_APPS=["limpyd_jobs.contrib.django"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{mkdtemp()}/database"}},
        LIMPYD_JOBS={"DATABASE": f"redis://localhost:{port}/0"},
    )
    django.setup()


def ask_database() -> None:
    """Ask the database of Django for nothing much."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


DJANGO = Comparison(
    {
        "nothing": Measure("around a job", "µs", limit=60),
        "closed": Measure("one that asks SQLite, CONN_MAX_AGE=0", "µs", limit=300),
        "kept": Measure("one that asks SQLite, CONN_MAX_AGE=600", "µs", limit=100),
    },
    {"without": lambda port: False, "with": lambda port: True},
    measure_django,
)

# -- The program

INTEGRATIONS = {"APScheduler": APSCHEDULER, "TaskFlow": TASKFLOW, "Django": DJANGO}


def measured(server: Server, compared: Comparison, jobs: int, many: int) -> dict[str, Values]:
    """Measure each store of a system once."""
    found = {}
    for name, make in compared.stores.items():
        server.empty()
        found[name] = compared.measure(server, make(server.port), jobs, many)
    return found


def rows_of(compared: Comparison, rounds: list[dict[str, Values]]) -> Iterator[list[str]]:
    """Yield a line of the table for each measure."""
    for name, measure in compared.measures.items():
        theirs, *others = (measure.best([each[store][name] for each in rounds]) for store in compared.stores)
        cells = [_cell(measure, theirs, ours) for ours in others]
        yield [measure.title, measure.unit, f"{theirs:,.0f}", *cells, measure.goal]


def _cell(measure: Measure, theirs: float, ours: float) -> str:
    missed = "" if measure.is_reached(theirs, ours) else " (missed)"
    ratio = f", {ours / theirs:.2f}x" if theirs >= 1 else ""
    return f"{ours:,.0f}{ratio}{missed}"


def main(arguments: list[str]) -> int:
    """Measure, and print a table for each system."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/integrations.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--jobs", type=int, default=2_000, metavar="N", help="how many are done of each thing (default: 2,000)")
    add("--many", type=int, default=10_000, metavar="N", help="how many there are (default: 10,000)")
    add("--rounds", type=int, default=3, metavar="N", help="how many times each is measured (default: 3)")
    add(
        "--only",
        choices=INTEGRATIONS,
        nargs="+",
        default=[*INTEGRATIONS],
        metavar="INTEGRATION",
        help=f"of: {', '.join(INTEGRATIONS)}",
    )
    add("--redis-server", default="redis-server", metavar="PATH", help="the server program")
    options = parser.parse_args(arguments)
    with Server(options.redis_server) as server:
        for name in options.only:
            compared = INTEGRATIONS[name]
            try:
                rounds = [measured(server, compared, options.jobs, options.many) for _ in range(options.rounds)]
            except ImportError as error:
                print(f"{name} is not measured, because not all of it can be imported: {error}.", end="\n\n")
                continue
            print(table([name, "in", *compared.stores, "goal"], [*rows_of(compared, rounds)]))
    return 0
