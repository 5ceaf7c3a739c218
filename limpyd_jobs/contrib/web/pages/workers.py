"""Which workers are there, and what they run; quiet, resume, stop, and a look inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.rendering import address, as_utc, plural
from limpyd_jobs.contrib.web.tasks import OnStep
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.query import (
    AliveWorker,
    RunningJob,
    WorkerDump,
    alive_workers,
    order_worker,
    silences,
    worker_dump,
)

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
class Running:
    """A job that a worker runs. `seconds` says for how long, as of its last sign of life; None of a silent one."""

    ident: str
    identifier: str
    since: str
    seconds: float | None


@dataclass(frozen=True)
class WorkerShown:
    """A worker, as of its last sign of life. `silence` says for how long it has been silent, and what comes next."""

    pk: str
    name: str
    id: str
    host: str
    pid: int
    parent: int
    status: str
    silence: str
    queues: Sequence[str]
    queue_model: str
    since: datetime
    last_seen: datetime
    running: Sequence[Running]
    running_number: int
    done: int
    failed: int
    memory: int


@dataclass(frozen=True)
class WorkersShown:
    """Some workers, of all that there are of a queue and a status, in the order of registration."""

    queue: str
    status: str
    workers: Sequence[WorkerShown]
    number: int
    is_whole: bool


@dataclass(frozen=True)
class OneShown:
    """All that is known of a worker."""

    worker: WorkerShown
    unresolved: Sequence[str]
    options: Sequence[tuple[str, object]]
    versions: Sequence[tuple[str, str]]
    dump: WorkerDump | None


def show(asked: Asked) -> WorkersShown:
    queue, status = asked.query.get("queue"), asked.query.get("status")
    limit = asked.query.number("limit", PER_PAGE, 1, MAX_PER_PAGE)
    everyone = alive_workers(asked.database)
    found = [each for each in everyone if queue in ("", *each.queues) and status in ("", each.status)]
    silent = silences(everyone)
    shown = [_shown(asked, each, silent.get(each.pk, ""), MAX_IN_ROW) for each in found[:limit]]
    return WorkersShown(queue, status, shown, len(found), len(found) <= limit)


def show_one(asked: Asked) -> OneShown:
    everyone = alive_workers(asked.database)
    worker = next((each for each in everyone if each.pk == asked.path["pk"]), None)
    if worker is None:
        raise Refusal(404, "That worker is not there any more")
    options = [(name, value) for name, value in worker.options.items() if value is not None]
    dump = worker_dump(worker, asked.database)
    shown = _shown(asked, worker, silences(everyone).get(worker.pk, ""), MAX_ON_PAGE)
    return OneShown(shown, worker.unresolved, options[:MAX_ON_PAGE], [*worker.versions.items()][:MAX_ON_PAGE], dump)


def _shown(asked: Asked, worker: AliveWorker, silence: str, most: int) -> WorkerShown:
    return WorkerShown(
        pk=worker.pk,
        name=worker.name,
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        parent=worker.parent,
        status=worker.status,
        silence=silence,
        queues=worker.queues[:MAX_ON_PAGE],
        queue_model=worker.queue_model,
        since=worker.since,
        last_seen=worker.last_seen,
        running=[_running(asked, job, worker) for job in worker.running[:most]],
        running_number=len(worker.running),
        done=worker.done,
        failed=worker.failed,
        memory=worker.memory,
    )


def _running(asked: Asked, job: RunningJob, worker: AliveWorker) -> Running:
    began, seen = as_utc(job.since), as_utc(worker.last_seen)
    is_known = began and seen and not worker.silent_for
    seconds = max((seen - began).total_seconds(), 0.0) if is_known and began and seen else None
    identifier = asked.masking.identifier(job.identifier, job.ident) or ""
    return Running(job.ident, identifier, job.since, seconds)


def order(verb: str, asked: Asked, form: Form) -> Plan:
    """Ask something of the workers whose pks or names are sent, or, with ``all``, of all."""
    everyone, meant = alive_workers(asked.database), {*form.all("worker")}
    workers = everyone if form.get("all") else [each for each in everyone if meant & {each.pk, each.name}]
    if not workers:
        raise Refusal(400, "Select workers that are there first, or all")
    back = address(f"{HERE}/{workers[0].pk}") if len(workers) == 1 else HERE
    what = workers[0].name if len(workers) == 1 else plural(len(workers), "worker")
    is_stop = verb == "stop"
    danger = "They end after the jobs that they run. In a pool, no other worker takes their place." if is_stop else ""
    do = partial(_order, verb, asked, workers)
    return Plan(
        f"{verb.capitalize()} {what}",
        do,
        (lambda: plural(len(workers), "worker")) if is_stop else None,
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
    asked_for = plural(len(workers) - gone, "worker")
    return f"{asked_for} asked{left}. With the next heartbeat, by default within 15 s, {TOLD[verb]}"


PAGE = Page(
    HERE,
    "Workers",
    show,
    "workers.html",
    "Workers",
    acts=[Act(f"{HERE}/{verb}", role, partial(order, verb)) for verb, role in ROLES.items()],
    lane="records",
)
ONE_PAGE = Page(f"{HERE}/{{pk:path}}", "Worker", show_one, "worker.html", lane="records")
