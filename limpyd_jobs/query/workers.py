"""The workers that are there: what each does, and what it is asked for; and those that ended lately."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, NamedTuple, TypeVar

from limpyd_jobs.dates import EPOCH, parse_datetime, utcnow
from limpyd_jobs.models.presence import AliveWorker, WorkerDump, WorkerPresence
from limpyd_jobs.records import presences
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import connection_to, on

T = TypeVar("T")

# For how long workers that ended are shown.
ENDED_SINCE = timedelta(days=1)

# How a worker ended.
IN_ORDER, SILENT = "ended", "silent"


class EndedWorker(NamedTuple):
    """A worker that is not there any more, as it was at its last sign of life.

    Attributes
    ----------
    name: str
        As in `AliveWorker`.
    how: str
        ``ended`` if it ended in order; ``silent`` if its lease ended without another sign of life: its process was
        killed, cut off, or stopped.
    ended: datetime
        When that was found out, naive UTC.
    last_seen: datetime
        When it gave its last sign of life, naive UTC; None if that is not known.
    since: datetime
        When it was there first, naive UTC; None if that is not known.
    id, host: str
    pid: int
    queues: list of str
    queue_model: str
    running: int
        How many jobs it ran then.
    done, failed, memory, parent: int
        As in `AliveWorker`.
    versions: dict
    """

    name: str
    how: str
    ended: datetime
    last_seen: datetime | None
    since: datetime | None
    id: str
    host: str
    pid: int
    queues: list[str]
    queue_model: str
    running: int
    done: int
    failed: int
    memory: int
    parent: int
    versions: dict[str, str]


def ended_workers(database: JobsDatabase | None = None) -> list[EndedWorker]:
    """Return the workers that ended within the last day, the last one first: up to 200. One that was silent for long,
    and is there again, is not among them."""
    since, there = utcnow() - ENDED_SINCE, {each.name for each in alive_workers(database)}
    notes = [*_unnoted(database), *presences.ended(connection_to(database))]
    found = sorted(filter(None, (_ended(*note) for note in notes)), key=lambda each: each.ended, reverse=True)
    seen: dict[str, EndedWorker] = {}
    for each in found:
        if each.ended > since and each.name not in there:
            seen.setdefault(f"{each.name} {each.since}", each)
    return [*seen.values()]


def _unnoted(database: JobsDatabase | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a note for each worker whose lease has ended: others write one, and none may be there any more."""
    now = (utcnow() - EPOCH).total_seconds()
    for end, fields in presences.lapsed(on(WorkerPresence, database), "worker", now):
        yield f"{end * 1000:.0f}", {**fields, "until": f"{end!r}", "how": SILENT}


def _ended(pk: str, fields: dict[str, str]) -> EndedWorker | None:
    """Read a note; None if another program wrote it."""
    with suppress(KeyError, OverflowError, RecursionError, ValueError):
        details = json.loads(fields["details"])
        details = details if isinstance(details, dict) else {}

        def told(name: str, kind: type[T]) -> T:
            return value if type(value := details.get(name)) is kind else kind()

        running = details.get("running")
        until, lease = float(fields["until"] or "nan"), float(fields["_lease"] or "nan")
        last_seen = EPOCH + timedelta(seconds=until - lease) if isfinite(until - lease) else None
        return EndedWorker(
            name=fields["name"],
            how=fields["how"],
            ended=EPOCH + timedelta(milliseconds=int(pk.partition("-")[0])),
            last_seen=last_seen,
            since=parse_datetime(fields["since"]),
            id=told("id", str),
            host=fields["host"],
            pid=int(fields["pid"]),
            queues=[each for each in _list(details.get("queues")) if isinstance(each, str)],
            queue_model=told("queue_model", str),
            running=len(running) if isinstance(running, list) else _number(running),
            done=_number(details.get("done")),
            failed=_number(details.get("failed")),
            memory=_number(details.get("memory")),
            parent=_number(details.get("parent")),
            versions={name: f"{version}" for name, version in told("versions", dict).items()},
        )
    return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> int:
    """Return a number that Lua wrote: a large one as 1e+15."""
    return int(value) if isinstance(value, (int, float)) and isfinite(value) and abs(value) < 2**63 else 0


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
