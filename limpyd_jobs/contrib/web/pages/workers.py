"""Which workers are there, and what they run; quiet, resume, stop, and a look inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.rendering import address
from limpyd_jobs.contrib.web.tasks import OnStep
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.query import (
    AliveWorker,
    EndedWorker,
    WorkerDump,
    alive_workers,
    ended_workers,
    order_worker,
    worker_dump,
)
from limpyd_jobs.views import ShownWorker, count_of, shown_workers

HERE = "/workers"

PER_PAGE, MAX_PER_PAGE = 100, 1_000

# How many of the jobs that a worker runs are in its row of the list, and on its own page.
MAX_IN_ROW, MAX_ON_PAGE = 3, 100

# How many of the workers that ended are on the page.
MAX_ENDED = 60

ROLES = {"quiet": Role.ACT, "resume": Role.ACT, "dump": Role.ACT, "stop": Role.ADMIN}

# What it means that a worker was asked for something.
TOLD = {
    "quiet": "no other job is begun",
    "resume": "jobs are begun again",
    "dump": "what it does is in its log, and on its page",
    "stop": "it ends after its running jobs",
}


class Tile(NamedTuple):
    """A worker, as the page has it.

    Attributes
    ----------
    worker: ShownWorker
    name: str
        The host and the process: what follows in the name tells two processes with the same pid apart.
    busy, slots: int
        How many jobs it runs, and how many at once at most.
    runs: sequence of (str, int)
        How many jobs of each class, by its short name.
    is_failing: bool
        Whether one job of ten or more failed.
    version: str
        That of the application.
    """

    worker: ShownWorker
    name: str
    busy: int
    slots: int
    runs: Sequence[tuple[str, int]]
    is_failing: bool
    version: str

    @classmethod
    def of(cls, worker: ShownWorker, shown: ShownWorker) -> Tile:
        kinds = Counter(job.ident.rpartition(":")[0].rpartition(".")[2] for job in worker.running)
        ended = worker.done + worker.failed
        return cls(
            worker=shown,
            name=short_name(worker),
            busy=worker.running_number,
            slots=worker.slots,
            runs=kinds.most_common(MAX_IN_ROW),
            is_failing=worker.failed >= MANY and worker.failed * 10 >= ended,
            version=worker.versions.get("application", ""),
        )


# From how many failures on they are worth a colour.
MANY = 3

# In which order workers may be.
ORDERS: Mapping[str, Callable[[Tile], Any]] = {
    "worst": lambda tile: (not tile.worker.silence, not tile.is_failing, -tile.busy / tile.slots, tile.name),
    "host": lambda tile: (tile.worker.host, tile.name),
    "queue": lambda tile: (sorted(tile.worker.queues), tile.name),
}

# What is on the page only, and not sent to programs.
OF_PAGE = ("tiles", "sums")


class Sums(NamedTuple):
    """All workers together: the slots that are there, and how many are busy; and those of silent workers."""

    workers: int = 0
    silent: int = 0
    busy: int = 0
    slots: int = 0
    of_silent: int = 0
    hosts: int = 0
    versions: int = 0

    @property
    def idle(self) -> int:
        return max(self.slots - self.busy, 0)


@dataclass(frozen=True)
class WorkersShown:
    """Some workers, of all that there are of a queue and a status, in an order; and those that ended lately."""

    queue: str
    status: str
    sort: str
    workers: Sequence[ShownWorker]
    number: int
    is_whole: bool
    ended: Sequence[EndedWorker]
    tiles: Sequence[Tile]
    sums: Sums

    def as_dict(self) -> Mapping[str, Any]:
        """Return what a program is sent."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in OF_PAGE}


@dataclass(frozen=True)
class OneShown:
    """All that is known of a worker."""

    worker: ShownWorker
    dump: WorkerDump | None


def show(asked: Asked) -> WorkersShown:
    queue, status, sort = asked.query.get("queue"), asked.query.get("status"), asked.query.get("sort", "worst")
    if sort not in ORDERS:
        raise Refusal(400, f"sort must be one of {', '.join(ORDERS)}")
    limit = asked.query.number("limit", PER_PAGE, 1, MAX_PER_PAGE)
    everyone = shown_workers(alive_workers(asked.database))
    found = [each for each in everyone if queue in ("", *each.queues) and status in ("", each.status)]
    tiles = sorted((Tile.of(each, _masked(asked, each, MAX_IN_ROW)) for each in found), key=ORDERS[sort])
    ended = [each for each in ended_workers(asked.database) if queue in ("", *each.queues)]
    return WorkersShown(
        queue,
        status,
        sort,
        [tile.worker for tile in tiles[:limit]],
        len(found),
        len(found) <= limit,
        ended[:MAX_ENDED] if not status else [],
        tiles[:limit],
        _sums(tiles),
    )


def _sums(tiles: Sequence[Tile]) -> Sums:
    silent = [tile for tile in tiles if tile.worker.silence]
    return Sums(
        workers=len(tiles),
        silent=len(silent),
        busy=sum(tile.busy for tile in tiles if not tile.worker.silence),
        slots=sum(tile.worker.slots_there for tile in tiles),
        of_silent=sum(tile.slots for tile in silent),
        hosts=len({tile.worker.host for tile in tiles}),
        versions=len({tile.version for tile in tiles if tile.version}),
    )


def short_name(worker: AliveWorker | EndedWorker) -> str:
    """Return the host and the process of a worker, if its name begins with them; else its name."""
    short = f"{worker.host}:{worker.pid}"
    return short if worker.name.startswith(f"{short}:") else worker.name


def show_one(asked: Asked) -> OneShown:
    everyone = shown_workers(alive_workers(asked.database))
    worker = next((each for each in everyone if each.pk == asked.path["pk"]), None)
    if worker is None:
        raise Refusal(404, "That worker is not there any more")
    return OneShown(_masked(asked, worker, MAX_ON_PAGE), worker_dump(worker, asked.database))


def _masked(asked: Asked, worker: ShownWorker, most: int) -> ShownWorker:
    """Return a worker without secrets, with some of the jobs that it runs, and of its queues."""
    identifier = asked.masking.identifier
    running = [job._replace(identifier=identifier(job.identifier, job.ident) or "") for job in worker.running[:most]]
    lists = {name: getattr(worker, name)[:MAX_ON_PAGE] for name in ("queues", "unresolved")}
    mappings = {name: dict(islice(getattr(worker, name).items(), MAX_ON_PAGE)) for name in ("options", "versions")}
    bounded: dict[str, Any] = {**lists, **mappings, "running": running}
    return replace(worker, **bounded)


def order(verb: str, asked: Asked, form: Form) -> Plan:
    """Ask something of the workers whose pks or names are sent, or, with ``all``, of all."""
    everyone, meant = alive_workers(asked.database), {*form.all("worker")}
    workers = everyone if form.get("all") else [each for each in everyone if meant & {each.pk, each.name}]
    if not workers:
        raise Refusal(400, "Select workers that are there first, or all")
    back = address(f"{HERE}/{workers[0].pk}") if len(workers) == 1 else HERE
    what = workers[0].name if len(workers) == 1 else count_of(len(workers), "worker")
    is_stop = verb == "stop"
    danger = "They end after the jobs that they run. In a pool, no other worker takes their place." if is_stop else ""
    do = partial(_order, verb, asked, workers)
    return Plan(
        f"{verb.capitalize()} {what}",
        do,
        (lambda: count_of(len(workers), "worker")) if is_stop else None,
        danger,
        back,
        is_short=True,
    )


def _order(verb: str, asked: Asked, workers: Sequence[AliveWorker], step: OnStep) -> str:
    gone = 0
    for number, worker in enumerate(workers):
        step(number, len(workers))
        try:
            order_worker(worker, verb, database=asked.database)
        except LookupError:
            gone += 1
    left = f"; {gone:,} not there any more" if gone else ""
    asked_for = count_of(len(workers) - gone, "worker")
    return f"{asked_for} asked{left}. With the next heartbeat, by default within 15 s, {TOLD[verb]}"


PAGE = Page(
    HERE,
    "Workers",
    show,
    "workers.html",
    "Workers",
    "workers",
    "w",
    acts=[Act(f"{HERE}/{verb}", role, partial(order, verb)) for verb, role in ROLES.items()],
    lane="records",
)
ONE_PAGE = Page(f"{HERE}/{{pk:path}}", "Worker", show_one, "worker.html", lane="records")
