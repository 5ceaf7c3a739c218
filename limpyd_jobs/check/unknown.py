"""The job classes, and the models of queues and errors, that have records, but that this process does not know."""

from __future__ import annotations

from collections.abc import Iterator

from limpyd_jobs.check.catalogue import Catalogue, Found
from limpyd_jobs.check.reader import Reader
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.store.known_classes import ERRORS, QUEUES, KnownClass, known_classes, known_models

# The index that each model of jobs has, of any version.
INDEX = ":status:"

# The fields that each job has.
FIELDS = ("identifier", "status", "priority")


class Unknown:
    """Finds the classes and models that the check does not look at.

    They are known from the database, or, as version 2 notes none, by the names of their keys.
    """

    def __init__(self, reader: Reader, catalogue: Catalogue) -> None:
        self._reader = reader
        self._catalogue = catalogue
        self._classes = known_classes(reader.connection)
        self._names: set[str] = {known.name for known in self._classes.values()}

    def discover(self) -> None:
        """Resolve the job classes that have jobs."""
        for known in self._classes.values():
            if self._number(known.name):
                self._catalogue.job_class(known.path)

    def note(self, key: str) -> None:
        """Note a key that belongs to none of the models."""
        name, found, status = key.rpartition(INDEX)
        if found and status in STATUSES.values():
            self._names.add(name)

    @property
    def is_suspicious(self) -> bool:
        return any(self.look_again())

    def look_again(self, repair: bool = False) -> Iterator[Found]:
        """Yield the classes and the models, with how many records each has."""
        known = {model._name for model in self._catalogue.all}
        paths = {each.name: path for path, each in self._classes.items()}
        for name in sorted(self._names - known):
            number = self._number(name)
            if number and self._has_jobs(name):
                path = paths.get(name)
                why = self._catalogue.unknown.get(path or "", "the class is not imported")
                yield None, path or f"{name}:*", "class not known", (number, why)
        for kind, problem in ((QUEUES, "queues not known"), (ERRORS, "errors not known")):
            for model in self._models(kind):
                number = self._number(model.name)
                if number and model.name not in known:
                    yield None, model.path, problem, (number,)

    def _models(self, kind: str) -> list[KnownClass]:
        is_asked = self._catalogue.takes_all_queues if kind == QUEUES else self._catalogue.takes_all_errors
        return [*known_models(self._reader.connection, kind).values()] if is_asked else []

    def _number(self, name: str) -> int:
        (number,) = self._reader.all([("SCARD", f"{name}:collection")])
        return number if isinstance(number, int) else 0

    def _has_jobs(self, name: str) -> bool:
        """Whether a record is one of a job: other programs may have an index of that name."""
        (pk,) = self._reader.all([("SRANDMEMBER", f"{name}:collection")])
        (values,) = self._reader.all([("HMGET", f"{name}:{pk}:hash", *FIELDS)])
        return isinstance(values, list) and None not in values
