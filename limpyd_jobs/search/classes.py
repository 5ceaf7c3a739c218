"""The models and the job classes of the database that is asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any

from limpyd_jobs.classes.binding import bound, bound_models, concrete
from limpyd_jobs.classes.roots import roots
from limpyd_jobs.exceptions import naming
from limpyd_jobs.records.known_classes import (
    ERRORS,
    QUEUES,
    KnownClass,
    MaskedFields,
    Written,
    classes_in,
    masked_in,
    models_in,
    reading_written,
)
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import Steps, finish
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
    database = database_of(database)
    return database.client if isinstance(database, JobsDatabase) else redis_of(on(roots.job, database))


class KnownModels:
    """The job classes of a database, and its models of queues and errors: what processes wrote there of each, and what
    this process imported, which it knows better. What this user of Redis may not read is left out, unless said so."""

    def __init__(self, written: Written, jobs: Sequence[Any], queues: Sequence[Any], errors: Sequence[Any]) -> None:
        self._written = written
        self._jobs, self._queues, self._errors = jobs, queues, errors

    @cached_property
    def all_classes(self) -> Mapping[str, KnownClass]:
        """The job classes, by path, also those whose jobs may not be read."""
        return classes_in(self._written, self._jobs)

    @cached_property
    def classes(self) -> Mapping[str, KnownClass]:
        """The job classes, by path."""
        return self._written.without_unread(self.all_classes)

    @cached_property
    def queue_models(self) -> Sequence[KnownClass]:
        """The models of queues, sorted by the beginning of their keys."""
        return self._models(QUEUES, self._queues)

    @cached_property
    def error_models(self) -> Sequence[KnownClass]:
        """The models of errors in the same way."""
        return self._models(ERRORS, self._errors)

    @property
    def masked(self) -> MaskedFields:
        """The names of secret fields that the job classes name, by the path of the class."""
        return masked_in(self._written, self._jobs)

    @property
    def unread(self) -> Sequence[str]:
        """The beginnings of the keys of classes and models that this user of Redis may not read."""
        return sorted(self._written.unread)

    def _models(self, kind: str, imported: Sequence[Any]) -> Sequence[KnownClass]:
        known = self._written.without_unread(models_in(self._written, kind, imported)).values()
        return sorted(known, key=attrgetter("name"))


# What is known of the databases that were looked at inside `asking_once`.
_asked: ContextVar[dict[JobsDatabase, KnownModels] | None] = ContextVar("limpyd_jobs_asked", default=None)


@contextmanager
def asking_once(*, anew: bool = False) -> Iterator[None]:
    """Inside the block, ask each database for its classes once, and take what is imported as it was then: for one look
    at it. A block inside another one is part of that look, unless it begins one `anew`."""
    known = _asked.get()
    token = _asked.set({} if anew or known is None else known)
    try:
        yield
    finally:
        _asked.reset(token)


def reading_models(database: JobsDatabase | None) -> Steps[KnownModels]:
    """Return the steps of `models_of`."""
    asked, database = _asked.get(), database_of(database)
    if asked and database in asked:
        return asked[database]
    models = [_imported(database, base) for base in (roots.job, roots.queue, roots.error)]
    written = yield from reading_written(connection_to(database), chain(*models))
    known = KnownModels(written, *models)
    if asked is not None:
        asked[database] = known
    return known


def models_of(database: JobsDatabase | None) -> KnownModels:
    """Return the classes and models of a database."""
    known = (_asked.get() or {}).get(database_of(database))
    return known or finish(reading_models(database))


def masked_fields(database: JobsDatabase | None) -> MaskedFields:
    """Return the names of secret fields that the job classes of a database name, by the path of the class."""
    return models_of(database).masked


def classes_of(database: JobsDatabase | None) -> Mapping[str, KnownClass]:
    """Return the job classes of a database by path: those that are written there, or imported here, if this user of
    Redis may read their jobs."""
    return models_of(database).classes


def queue_models_of(database: JobsDatabase | None, only: Any = None) -> Sequence[KnownClass]:
    """Return the models of queues: the given one, or all that are known and may be read, sorted by the beginning of
    their keys."""
    return _one(database, only) or _some(models_of(database).queue_models, only)


def error_models_of(
    database: JobsDatabase | None, only: Any = None, known: KnownModels | None = None
) -> Sequence[KnownClass]:
    """Return the models of errors in the same way, of those that are known already, if they are given."""
    return _one(database, only) or _some((known or models_of(database)).error_models, only)


def _one(database: JobsDatabase | None, only: Any) -> Sequence[KnownClass]:
    """Return a model that is given; none if it is one of another shard of a cluster."""
    if only is not None and not isinstance(only, KnownClass):
        return [KnownClass.of(on(only, database))]
    return [only] if only and only.name.startswith(database_of(database).prefix) else []


def _some(models: Sequence[KnownClass], only: KnownClass | None) -> Sequence[KnownClass]:
    return [each for each in models if without_tag(each.name) == without_tag(only.name)] if only else models


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
    return [on(only, database)] if only else _imported(database_of(database), roots.error)


def imported_queue_model(database: JobsDatabase | None, name: str) -> Any:
    """Return the model of queues whose keys begin so; raise `ValueError` if it is not imported."""
    for model in _imported(database_of(database), roots.queue):
        if model._name == name:
            return model
    path = next((known.path for known in queue_models_of(database) if known.name == name), name)
    raise naming(ValueError, f"{path}, the model of that queue, is not imported: ", ("queue_model", "import it"))


def _imported(database: JobsDatabase, base: Any) -> list[Any]:
    """Return the models of a kind that are imported, on a database."""
    models = dict.fromkeys((on(base, database), *concrete(base), *bound_models(database, base)))
    return [each for each in models if each.database is database]


def replies_to(connection: Any, commands: Iterable[Sequence[Any]]) -> list[Any]:
    """Return the replies to some commands; None for a command that Redis refuses because of a key of a wrong type."""
    pipeline = connection.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return [None if isinstance(reply, Exception) else reply for reply in pipeline.execute(raise_on_error=False)]
