"""Keys of the library to which another program wrote: what is in them cannot be read, and is not nothing."""

from __future__ import annotations

from collections.abc import Iterator
from time import time
from typing import Any

from limpyd_jobs.models.presence import WorkerPresence
from limpyd_jobs.records import app_versions, audit, known_classes, metrics, presences
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import due_key
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.schedules.model import Schedule
from limpyd_jobs.search.classes import classes_of, connection_to, error_models_of, on, queue_models_of, replies_to
from limpyd_jobs.texts import one_line

# What the types of keys are called.
KINDS = {"zset": "sorted set"}

# The keys that stand alone, and their types.
ALONE = {
    audit.KEY: "stream",
    presences.ENDED: "stream",
    app_versions.VERSIONS: "zset",
    known_classes.KEY: "hash",
    metrics.TOTAL: "hash",
}


def foreign_keys(database: JobsDatabase | None = None) -> list[str]:
    """Return a sentence for each key of a wrong type among those that lists, numbers and charts begin with, in a round
    trip: ``limpyd-jobs:audit is a string, not a stream``. `check` looks at all keys."""
    connection = connection_to(database)
    wanted = dict(_wanted(connection, database))
    kinds = replies_to(connection, [("TYPE", key) for key in wanted])
    return [
        f"{one_line(key)} is a {KINDS.get(kind, kind)}, not a {KINDS.get(right, right)}"
        for (key, right), kind in zip(wanted.items(), kinds, strict=True)
        if isinstance(kind, str) and kind not in (right, "none")
    ]


def _wanted(connection: Any, database: JobsDatabase | None) -> Iterator[tuple[str, str]]:
    now = int(time())
    periods = [f"{metrics.KEY}{name}:{now // size * size}" for name, size in (("minute", 60), ("day", 86400))]
    for key, kind in {**ALONE, **dict.fromkeys([*periods, f"{metrics.LEVELS}{now // 60 * 60}"], "hash")}.items():
        yield at(connection, key), kind
    for model in queue_models_of(database):
        yield from ((f"{model.name}:{key}", "set") for key in ("collection", "paused"))
    workers, schedules = on(WorkerPresence, database), on(Schedule, database)
    names = {each.name for each in (*classes_of(database).values(), *error_models_of(database, None))}
    yield from ((f"{name}:collection", "set") for name in sorted({*names, workers._name, schedules._name}))
    yield layout_of(workers).description["leases"], "zset"
    yield due_key(schedules), "zset"
