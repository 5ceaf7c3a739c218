"""The job classes, and the models of queues and errors, that have records, but that this process does not know."""

from __future__ import annotations

from collections.abc import Iterator

from redis.exceptions import NoPermissionError

from limpyd_jobs.check.catalogue import Catalogue, Symptom, path_of_model
from limpyd_jobs.check.reader import Reader
from limpyd_jobs.classes.binding import bound_models
from limpyd_jobs.models import Job
from limpyd_jobs.records import audit, flows, known_classes, relocations
from limpyd_jobs.records.known_classes import (
    ERRORS,
    QUEUES,
    KnownClass,
    models_in,
    paths_by_name,
    read_written,
)
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import one_line

# The index that each model of jobs has, of any version.
INDEX = ":status:"

# The fields that each job has.
FIELDS = ("identifier", "status", "priority")

# What all models share.
SHARED = {
    known_classes.KEY: "hash",
    audit.KEY: "stream",
    audit.BEGUN: "hash",
    relocations.KEY: "hash",
    **dict.fromkeys((flows.LIVE, flows.BUILDING, flows.TODO, flows.ENDED), "zset"),
    **dict.fromkeys((flows.CLASSES, flows.SPAWNERS), "hash"),
}


class Unknown:
    """Finds the classes and models that the check does not look at, by what is noted and by the names of their keys."""

    def __init__(self, reader: Reader, catalogue: Catalogue) -> None:
        self._reader = reader
        self._catalogue = catalogue
        self._written = read_written(reader.connection)
        self._paths = paths_by_name(self._written)
        self._names = set(self._paths)

    def discover(self) -> None:
        """Resolve the job classes that have jobs."""
        for name, path in self._paths.items():
            if self._number(name):
                self._catalogue.job_class(path)

    def note(self, key: str) -> None:
        """Note a key that belongs to none of the models."""
        name, found, status = key.rpartition(INDEX)
        if found and status in STATUSES.values():
            self._names.add(name)

    @property
    def is_suspicious(self) -> bool:
        return any(self.look_again())

    def look_again(self, repair: bool = False) -> Iterator[Symptom]:
        """Yield the classes and the models, with how many records each has."""
        for name, number in self._numbers():
            path = self._paths.get(name)
            if not self._is_elsewhere(name):
                why = self._catalogue.unknown.get(path or "", "the class is not imported")
                yield None, path or f"{name}:*", "class not known", (number, why)
        shared = {at(self._reader.connection, key): kind for key, kind in SHARED.items()}
        kinds = self._reader.all(("TYPE", key) for key in shared)
        for (key, wanted), found in zip(shared.items(), kinds, strict=True):
            if found not in ("none", wanted):
                yield None, key, "wrong type of what is shared", (found, wanted)
        ahead = audit.last_id_ahead(self._reader.connection)
        if ahead:
            if repair:
                audit.redate(self._reader.connection)
            yield None, at(self._reader.connection, audit.KEY), "audit ahead", (ahead,)
        note = relocations.read_note(self._reader.connection)
        if note and note.state != relocations.MOVED:
            yield None, at(self._reader.connection, relocations.KEY), "being moved", (note.how_far, note.line)
        for kind, problem in ((QUEUES, "queues not known"), (ERRORS, "errors not known")):
            for model, number in self._models(kind):
                if model.path not in self._paths_of_models():
                    yield None, model.path, problem, (number,)

    def warnings(self) -> Iterator[str]:
        """Say whether the jobs were moved, which stored classes cannot be read, and which jobs are not looked at,
        because their class is bound to another namespace."""
        note = relocations.read_note(self._reader.connection)
        if note and note.state == relocations.MOVED:
            yield f"{note.refusal}. Delete {at(self._reader.connection, relocations.KEY)} to use it for other jobs."
        for field in sorted(known_classes.unreadable_fields(self._written)):
            yield f"{known_classes.KEY} has a field that cannot be read, so it is not used: {one_line(field)}"
        if left_out := self._written.left_out:
            yield f"{known_classes.KEY} has {left_out:,} fields too many, or that are too long: they are not used"
        for name, number in self._numbers():
            if self._is_elsewhere(name):
                yield f"{number:,} jobs are not looked at, because their class is bound to another namespace: {name}:*"
        for kind in (QUEUES, ERRORS):
            for model, number in self._models(kind):
                if model.path in self._paths_of_models():
                    told = f"{number:,} {kind} are not looked at, because their model is bound to another namespace"
                    yield f"{told}: {model.name}:*"

    def _numbers(self) -> Iterator[tuple[str, int]]:
        """Yield the beginnings of the keys of the jobs that are not looked at, and how many jobs there are."""
        for name in sorted(self._names - {model._name for model in self._catalogue.all} - self._catalogue.unread):
            number = self._number(name)
            if number and self._has_jobs(name):
                yield name, number

    def _is_elsewhere(self, name: str) -> bool:
        """Whether these are jobs of a class that is looked at, bound to another namespace than its own."""
        bound = {model._name for model in bound_models(self._catalogue.database, Job)}
        return name in bound or self._paths.get(name) in self._catalogue.jobs

    def _models(self, kind: str) -> list[tuple[KnownClass, int]]:
        """Return the models that are not looked at, with the numbers of their records."""
        is_asked = self._catalogue.takes_all_queues if kind == QUEUES else self._catalogue.takes_all_errors
        looked_at = {model._name for model in self._catalogue.all} | self._catalogue.unread
        known = models_in(self._written, kind).values() if is_asked else ()
        numbers = [(each, self._number(each.name)) for each in known if each.name not in looked_at]
        return [(each, number) for each, number in numbers if number]

    def _paths_of_models(self) -> set[str]:
        return {path_of_model(model) for model in (*self._catalogue.queues, *self._catalogue.errors)}

    def _number(self, name: str) -> int:
        (number,) = self._reader.all([("SCARD", f"{name}:collection")])
        if isinstance(number, NoPermissionError):
            self._catalogue.note_unread(name)
        return number if isinstance(number, int) else 0

    def _has_jobs(self, name: str) -> bool:
        """Whether a record is one of a job: other programs may have an index of that name."""
        (pk,) = self._reader.all([("SRANDMEMBER", f"{name}:collection")])
        (values,) = self._reader.all([("HMGET", f"{name}:{pk}:hash", *FIELDS)])
        return isinstance(values, list) and None not in values
