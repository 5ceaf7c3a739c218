"""Which workers are there, and what they run; quiet, resume, stop, and a look inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.rendering import address
from limpyd_jobs.contrib.web.tasks import OnStep
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.query import AliveWorker, WorkerDump, alive_workers, order_worker, worker_dump
from limpyd_jobs.views import ShownWorker, count_of, shown_workers

HERE = "/workers"

PER_PAGE, MAX_PER_PAGE = 100, 1_000

# How many of the jobs that a worker runs are in its row of the list, and on its own page.
MAX_IN_ROW, MAX_ON_PAGE = 3, 100

ROLES = {"quiet": Role.ACT, "resume": Role.ACT, "dump": Role.ACT, "stop": Role.ADMIN}

# What it means that a worker was asked for something.
TOLD = {
    "quiet": "no other job is begun",
    "resume": "jobs are begun again",
    "dump": "what it does is in its log, and on its page",
    "stop": "it ends after its running jobs",
}


@dataclass(frozen=True)
class WorkersShown:
    """Some workers, of all that there are of a queue and a status, in the order of registration."""

    queue: str
    status: str
    workers: Sequence[ShownWorker]
    number: int
    is_whole: bool


@dataclass(frozen=True)
class OneShown:
    """All that is known of a worker."""

    worker: ShownWorker
    dump: WorkerDump | None


def show(asked: Asked) -> WorkersShown:
    queue, status = asked.query.get("queue"), asked.query.get("status")
    limit = asked.query.number("limit", PER_PAGE, 1, MAX_PER_PAGE)
    everyone = shown_workers(alive_workers(asked.database))
    found = [each for each in everyone if queue in ("", *each.queues) and status in ("", each.status)]
    shown = [_masked(asked, each, MAX_IN_ROW) for each in found[:limit]]
    return WorkersShown(queue, status, shown, len(found), len(found) <= limit)


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
