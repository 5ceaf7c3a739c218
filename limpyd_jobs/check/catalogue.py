"""The models to check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

from redis.exceptions import NoPermissionError

from limpyd_jobs.classes.binding import bound_models, concrete, is_same_database
from limpyd_jobs.classes.imports import hint_for
from limpyd_jobs.classes.job_classes import imported_job_class
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.idents import Ident
from limpyd_jobs.models import BaseJobsModel, Error, Job, Presence, Queue, TimedRecord, job_classes
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.schedules.model import Schedule
from limpyd_jobs.texts import kind_of, printable

Model = Any  # a class of jobs, queues, errors or schedules
Symptom = tuple[Model, str, str, tuple[Any, ...]]  # the model, pk or key, kind of problem, details

# The namespaces of LimpydJobStore and of RedisJobStore, unless they are given others.
JOB_STORES = ("apscheduler", "apscheduler.jobs")

# By name: the module, the model, the namespaces, and a key that exists if it was used.
INTEGRATIONS = {
    "apscheduler": ("limpyd_jobs.contrib.apscheduler", "ScheduledJob", JOB_STORES, "scheduledjob:collection"),
    "taskflow": ("limpyd_jobs.contrib.taskflow", "Posting", ("taskflow",), "posting:max_pk"),
}


class Catalogue:
    """The models of one database whose records are checked, and those that cannot be, with the reason."""

    takes_all_queues = takes_all_errors = False

    def __init__(
        self,
        jobs: Iterable[Model],
        queues: Iterable[Model],
        errors: Iterable[Model],
        schedules: Iterable[Model],
        timed: Iterable[Model],
        *,
        database: Any,
        imports: bool,
    ) -> None:
        self.database = database
        self.imports = imports
        self.refused: dict[str, None] = {}
        self.unread: set[str] = set()  # the beginnings of keys that this user of Redis may not read
        self._unread_paths: set[str] = set()  # of job classes
        self.unknown: dict[str, str] = {}
        self.jobs = {cls.get_model_repr(): cls for cls in self._sound(jobs)}
        self.queues = self._sound(queues)
        self.errors = self._sound(errors)
        self.schedules = self._sound(schedules)
        self.timed = self._sound(timed)
        self._paths: dict[str, Model | None] = dict(self.jobs)

    def _sound(self, models: Iterable[Model]) -> list[Model]:
        by_name = {}
        for model in models:
            try:
                layout_of(model)
            except ConfigurationException as error:
                self.refused[f"{path_of_model(model)}: {error}"] = None
            else:
                if self._may_read(model):
                    by_name[model._name] = model
        return list(by_name.values())

    def _may_read(self, model: Model) -> bool:
        """Whether this user of Redis may read the records of a model, and where its jobs stand."""
        if _exists(model) is None:
            self.note_unread(model._name)
        elif issubclass(model, Job) and _exists(model.queue_model) is None:
            self.unread.add(model._name)
            self.refused[f"jobs of {path_of_model(model)}, whose queues this user of Redis may not read"] = None
        return model._name not in self.unread

    def note_unread(self, name: str) -> None:
        """Note the beginning of keys that Redis does not let this user read."""
        self.unread.add(name)
        self.refused[unread_text(name)] = None

    def is_unread(self, path: str) -> bool:
        """Whether the jobs of a class cannot be looked at, because this user of Redis may not read them."""
        return self.job_class(path) is None and path in self._unread_paths

    @property
    def all(self) -> list[Model]:
        return [*self.jobs.values(), *self.queues, *self.errors, *self.schedules, *self.timed]

    @property
    def other_queues(self) -> list[Model]:
        """The models of queues that are not asked for: jobs may stand there, too."""
        return [model for model in self._imported(Queue) if model not in self.queues and self._may_read(model)]

    def look_for_models(self) -> None:
        """Take the models that were imported meanwhile; those of queues and errors if all are asked for."""
        if self.takes_all_queues:
            self._take(Queue, self.queues)
        if self.takes_all_errors:
            self._take(Error, self.errors)
        for base in (TimedRecord, Presence):
            self._take(base, self.timed)
        jobs = [*self.jobs.values()]
        self._take(Job, jobs)
        self.jobs.update((cls.get_model_repr(), cls) for cls in jobs)

    def _take(self, base: Model, models: list[Model]) -> None:
        names = {model._name for model in models}
        models += self._sound(each for each in self._imported(base) if each._name not in names)

    def _imported(self, base: Model) -> Iterator[Model]:
        return (each for each in concrete(base) if is_same_database(each.database, self.database))

    def job_class(self, path: str) -> Model | None:
        """Return the job class of a path, imported if need be and allowed; None if it cannot be resolved."""
        if path not in self._paths:
            self._paths[path] = self._resolve(path)
        return self._paths[path]

    def is_unresolved(self, ident: str) -> bool:
        """Return whether a text is the ident of a job whose class cannot be resolved."""
        parsed = Ident.parse(ident)
        return parsed is not None and self.job_class(parsed.path) is None

    def may_be_given_up(self, ident: str) -> bool:
        """Whether the class of a job cannot be resolved, rather than that this user of Redis may not read the job."""
        return self.is_unresolved(ident) and not self.is_unread(Ident.of(ident).path)

    def _resolve(self, path: str) -> Model | None:
        if not self.imports and imported_job_class(path) is None:
            self.unknown[path] = "it is not imported here, and this check imports nothing"
            return None
        try:
            found: Model = job_classes.resolve(path)
            layout_of(found)
        except Exception as error:  # its module may raise any exception
            self.unknown[path] = f"{kind_of(error)}: {printable(error)}{hint_for(error, path)}"
            return None
        if not self._may_read(found):
            self._unread_paths.add(path)
            return None
        return self.jobs.setdefault(found.get_model_repr(), found)


def catalogues(
    queue_models: Iterable[Model] | None,
    error_models: Iterable[Model] | None,
    database: Any = None,
    *,
    imports: bool = True,
) -> list[Catalogue]:
    """Return the models that are imported, or those that are given, a catalogue for each database. Unless one
    `imports`, classes of jobs that are not imported stay so."""
    queues = list(concrete(Queue)) if queue_models is None else list(queue_models)
    errors = list(concrete(Error)) if error_models is None else list(error_models)
    bound = {model: None for queue in queues for model in bound_models(queue.database, (TimedRecord, Presence))}
    others = [*concrete(TimedRecord), *concrete(Presence), *bound]
    all_models = (list(concrete(Job)), queues, errors, [Schedule], others)
    firsts: list[Model] = []  # one of each database
    for queue in queues:
        is_meant = database is None or is_same_database(queue.database, database)
        if is_meant and not any(_is_same(first, queue) for first in firsts):
            firsts.append(queue)
    found = [
        Catalogue(
            *([each for each in models if _is_same(first, each)] for models in all_models),
            database=first.database,
            imports=imports,
        )
        for first in firsts
    ]
    for catalogue in found:
        catalogue.takes_all_queues, catalogue.takes_all_errors = queue_models is None, error_models is None
    return found


def _is_same(one: Model, other: Model) -> bool:
    return is_same_database(one.database, other.database)


def path_of_model(model: Model) -> str:
    return f"{model.__module__}.{model.__name__}"


def unread_text(name: str) -> str:
    return f"{name}:*, which this user of Redis may not read"


def _exists(model: Model) -> bool | None:
    """Whether a model has records; None if this user of Redis may not read its keys."""
    return _exists_key(redis_of(model), f"{model._name}:collection")


def _exists_key(client: Any, key: str) -> bool | None:
    try:
        return bool(client.exists(key))
    except NoPermissionError as error:
        if "to access" not in str(error):  # but to run the command
            raise
        return None


def import_used_integrations() -> list[str]:
    """Import the models of the integrations that have records in the database, if they can be imported. Return which
    cannot be looked at, because this user of Redis may not read their keys."""
    client: Any = BaseJobsModel.get_connection()
    unread = []
    for module, name, namespaces, key in INTEGRATIONS.values():
        for namespace in namespaces:
            is_used = _exists_key(client, at(client, f"{namespace}:{key}"))
            if is_used is None:
                unread.append(unread_text(at(client, namespace)))
            with suppress(ImportError):
                if is_used:
                    model = getattr(import_module(module), name)
                    model.bound_to(model.database, namespace)
    return unread
