"""The models to check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

from redis.exceptions import NoPermissionError

from limpyd_jobs.classes.binding import bound_models, is_same_database
from limpyd_jobs.classes.imports import hint_for
from limpyd_jobs.classes.job_classes import concrete, imported_job_class
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.idents import Ident
from limpyd_jobs.models import BaseJobsModel, Error, Job, Presence, Queue, TimedRecord, job_classes
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.schedules.model import Schedule
from limpyd_jobs.texts import kind_of, printable

Model = Any  # a class of jobs, queues, errors or schedules
Found = tuple[Model, str, str, tuple[Any, ...]]  # the model, pk or key, kind of problem, details

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
        imports: bool,
    ) -> None:
        self.imports = imports
        self.refused: dict[str, None] = {}
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
                by_name[model._name] = model
        return list(by_name.values())

    @property
    def all(self) -> list[Model]:
        return [*self.jobs.values(), *self.queues, *self.errors, *self.schedules, *self.timed]

    @property
    def database(self) -> Any:
        return self.queues[0].database

    @property
    def other_queues(self) -> list[Model]:
        """The models of queues that are not asked for: jobs may stand there, too."""
        return [model for model in self._imported(Queue) if model not in self.queues]

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
        return (each for each in concrete(base) if _is_same(each, self.queues[0]))

    def job_class(self, path: str) -> Model | None:
        """Return the job class of a path, imported if need be and allowed; None if it cannot be resolved."""
        if path not in self._paths:
            self._paths[path] = self._resolve(path)
        return self._paths[path]

    def is_unresolved(self, ident: str) -> bool:
        """Return whether a text is the ident of a job whose class cannot be resolved."""
        parsed = Ident.parse(ident)
        return parsed is not None and self.job_class(parsed.path) is None

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
        Catalogue(*([each for each in models if _is_same(first, each)] for models in all_models), imports=imports)
        for first in firsts
    ]
    for catalogue in found:
        catalogue.takes_all_queues, catalogue.takes_all_errors = queue_models is None, error_models is None
    return found


def _is_same(one: Model, other: Model) -> bool:
    return is_same_database(one.database, other.database)


def path_of_model(model: Model) -> str:
    return f"{model.__module__}.{model.__name__}"


def import_used_integrations() -> list[str]:
    """Import the models of the integrations that have records in the database, if they can be imported. Return which
    cannot be looked at, because this user of Redis may not read their keys."""
    client: Any = BaseJobsModel.get_connection()
    unread = []
    for module, name, namespaces, key in INTEGRATIONS.values():
        for namespace in namespaces:
            try:
                is_used = client.exists(at(client, f"{namespace}:{key}"))
            except NoPermissionError:
                unread.append(f"{at(client, namespace)}:*, which this user of Redis may not read")
                continue
            with suppress(ImportError):
                if is_used:
                    model = getattr(import_module(module), name)
                    model.bound_to(model.database, namespace)
    return unread
