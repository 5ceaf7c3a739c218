"""The workers that are there: what each does, and what it is asked for."""

from __future__ import annotations

from limpyd_jobs.models.presence import AliveWorker, WorkerDump, WorkerPresence
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import on


def alive_workers(database: JobsDatabase | None = None) -> list[AliveWorker]:
    """Return the workers of a database, as `WorkerPresence.alive` does."""
    found: list[AliveWorker] = on(WorkerPresence, database).alive()
    return found


def order_worker(
    worker: AliveWorker,
    verb: str,
    value: str = "",
    database: JobsDatabase | None = None,
    *,
    unaudited: bool = False,
) -> None:
    """Ask something of a worker of a database: see `WorkerPresence.order`."""
    on(WorkerPresence, database).order(worker, verb, value, unaudited=unaudited)


def worker_dump(worker: AliveWorker, database: JobsDatabase | None = None) -> WorkerDump | None:
    """Return what a worker of a database answered to the last ``dump``: see `WorkerPresence.dump_of`."""
    found: WorkerDump | None = on(WorkerPresence, database).dump_of(worker)
    return found
