"""The models and the job classes of the database that is asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import attrgetter
from typing import Any

from limpyd_jobs.classes.binding import bound, bound_models
from limpyd_jobs.classes.job_classes import concrete
from limpyd_jobs.classes.roots import roots
from limpyd_jobs.exceptions import naming
from limpyd_jobs.records.known_classes import (
    ERRORS,
    QUEUES,
    KnownClass,
    MaskedFields,
    Written,
    classes_in,
    masked_by_path,
    models_in,
    read_written,
)
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.cluster.tags import without_tag
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.texts import one_line

# The model of the boards of TaskFlow. Conductors serve them, and no worker.
BOARDS = "taskflow:board"


def is_board(model: str) -> bool:
    """Whether the keys of this model of queues are those of boards, also on a cluster."""
    return without_tag(model) == BOARDS


def database_of(database: JobsDatabase | None) -> JobsDatabase:
    """Return a database that is given; else that of `BaseJobsModel`."""
    return database or roots.base.database


def on(model: Any, database: JobsDatabase | None) -> Any:
    """Return a model of ours on a database; None for that of `BaseJobsModel`, here and below."""
    database = database_of(database)
    return model if model.database is database else bound(model, database)


def connection_to(database: JobsDatabase | None) -> Any:
    """Return what sends commands to a database, whatever pipeline is open."""
    return redis_of(on(roots.job, database))


# What processes wrote of their classes, by database, inside `asking_once`.
_asked: ContextVar[dict[JobsDatabase, Written] | None] = ContextVar("limpyd_jobs_asked", default=None)


@contextmanager
def asking_once() -> Iterator[None]:
    """Inside the block, read what processes wrote of their classes once from each database: for one look at it."""
    token = _asked.set({})
    try:
        yield
    finally:
        _asked.reset(token)


def _written(database: JobsDatabase | None, imported: Sequence[Any]) -> Written:
    asked, database = _asked.get(), database_of(database)
    if asked is None:
        return read_written(connection_to(database), imported)
    if database not in asked:
        asked[database] = read_written(connection_to(database), _all_imported(database))
    return asked[database]


def classes_of(database: JobsDatabase | None) -> dict[str, KnownClass]:
    """Return the job classes of a database by path: those that are written there, or imported here, if this user of
    Redis may read their jobs."""
    imported = _imported_classes(database)
    written = _written(database, imported)
    return written.without_unread(classes_in(written, imported))


def unread_names(database: JobsDatabase | None) -> list[str]:
    """Return the beginnings of the keys of classes and models, written or imported, that this user of Redis may not
    read. What is in them is left out wherever jobs, queues or errors are looked for."""
    return sorted(_written(database, _all_imported(database)).unread)


def names_of_classes(database: JobsDatabase | None) -> dict[str, str]:
    """Return the beginnings of the keys of job classes by path, also of those that may not be read."""
    known = classes_in(_written(database, ()), _imported_classes(database))
    return {path: each.name for path, each in known.items()}


def masked_fields(database: JobsDatabase | None) -> MaskedFields:
    """Return the names of secret fields that the job classes of a database name, by the path of the class."""
    return masked_by_path(connection_to(database), _imported_classes(database))


def _imported_classes(database: JobsDatabase | None) -> list[Any]:
    database = database_of(database)
    imported = [*concrete(roots.job), *bound_models(database, roots.job)]
    return [each for each in imported if each.database is database]


def queue_models_of(database: JobsDatabase | None, only: Any = None) -> list[KnownClass]:
    """Return the models of queues: the given one, or all that are known and may be read, sorted by the beginning of
    their keys."""
    return _models_of(database, QUEUES, roots.queue, only)


def error_models_of(database: JobsDatabase | None, only: Any = None) -> list[KnownClass]:
    """Return the models of errors in the same way."""
    return _models_of(database, ERRORS, roots.error, only)


def standing_of(queue_models: Iterable[KnownClass], paths: Sequence[str]) -> dict[str, str]:
    """Return what scripts need to find where jobs of a class of these paths stand, in queues of some models: see
    ``finding.lua``."""
    queues = [(model.name, model.indexes.get("priority", f"{model.name}:priority:")) for model in queue_models]
    return {"standing": json.dumps({"paths": paths, "queues": queues})}


def unread_text(names: Sequence[str], most: int) -> str:
    """Say which keys these are, naming so many of them at most."""
    keys = ", ".join(f"{one_line(name)}:*" for name in names[:most])
    return f"{keys}{' and others' * (len(names) > most)}, which this user of Redis may not read"


def imported_error_models(database: JobsDatabase | None, only: Any = None) -> list[Any]:
    """Return the given model of errors, or all that this process imported."""
    return [on(only, database)] if only else _imported(database, roots.error)


def imported_queue_model(database: JobsDatabase | None, name: str) -> Any:
    """Return the model of queues whose keys begin so; raise `ValueError` if it is not imported."""
    for model in _imported(database, roots.queue):
        if model._name == name:
            return model
    path = next((known.path for known in queue_models_of(database) if known.name == name), name)
    raise naming(ValueError, f"{path}, the model of that queue, is not imported: ", ("queue_model", "import it"))


def _models_of(database: JobsDatabase | None, kind: str, base: Any, only: Any) -> list[KnownClass]:
    if only is not None and not isinstance(only, KnownClass):
        return [KnownClass.of(on(only, database))]
    if only and only.name.startswith(database_of(database).prefix):
        return [only]
    imported = _imported(database, base)
    written = _written(database, imported)
    known = written.without_unread(models_in(written, kind, imported)).values()
    if only:  # of another shard of a cluster
        return [each for each in known if without_tag(each.name) == without_tag(only.name)]
    return sorted(known, key=attrgetter("name"))


def _all_imported(database: JobsDatabase | None) -> list[Any]:
    return [*_imported_classes(database), *_imported(database, roots.queue), *_imported(database, roots.error)]


def _imported(database: JobsDatabase | None, base: Any) -> list[Any]:
    database = database_of(database)
    models = [on(base, database), *concrete(base), *bound_models(database, base)]
    return [each for each in models if each.database is database]


def replies_to(connection: Any, commands: Iterable[Sequence[Any]]) -> list[Any]:
    """Return the replies to some commands; None for a command that Redis refuses because of a key of a wrong type."""
    pipeline = connection.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return [None if isinstance(reply, Exception) else reply for reply in pipeline.execute(raise_on_error=False)]
