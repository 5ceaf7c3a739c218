"""Which keys of a database are those of the jobs, and their names in another one, also where values name them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from limpyd_jobs.check.catalogue import INTEGRATIONS
from limpyd_jobs.classes.binding import bound_models, concrete
from limpyd_jobs.classes.roots import roots
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.records import flows
from limpyd_jobs.records.known_classes import (
    ERRORS,
    QUEUES,
    UNREADABLE,
    KnownClass,
    classes_in,
    models_in,
    read_written,
)
from limpyd_jobs.records.known_classes import KEY as CLASSES
from limpyd_jobs.redis.cluster.tags import prefix_of
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import connection_to
from limpyd_jobs.texts import one_line

# The keys that belong to no model.
SHARED = "limpyd-jobs"

# The fields of hashes, and of the entries of streams, whose values are names of keys, by the end of the key.
NAMING = {":hash": ("_queue_key", "queue_model"), ":changes": ("queue",)}


def namespaces_of(database: JobsDatabase) -> set[str]:
    """Return the namespaces of the jobs, queues, errors, schedules and integrations of a database, without its tag."""
    connection, prefix = connection_to(database), database.prefix
    written = read_written(connection)
    known = [*classes_in(written).values(), *models_in(written, QUEUES).values(), *models_in(written, ERRORS).values()]
    imported = [model for model in concrete(roots.base) if model.database is database]
    names = {each.name for each in known} | {each._name for each in (*imported, *bound_models(database, roots.base))}
    found = {name.removeprefix(prefix).rpartition(":")[0] or name.removeprefix(prefix) for name in names}
    used = (
        namespace
        for _, _, namespaces, key in INTEGRATIONS.values()
        for namespace in namespaces
        if connection.exists(f"{prefix}{namespace}:{key}")
    )
    return {*found, *used, roots.job.namespace, SHARED}


class Renaming:
    """What the keys of some namespaces are in another database."""

    def __init__(self, source: JobsDatabase, target: JobsDatabase, prefixes: Iterable[str]) -> None:
        self._from, self._to = (prefix_of(each.connection_settings.get("tag", "")) for each in (source, target))
        self.prefixes = tuple(sorted(prefixes))
        odd = [each for each in self.prefixes if self._to and {"{", "}"} & {*each}]
        if odd:
            raise ConfigurationException(
                f"Keys that begin with {one_line(odd[0])!r} cannot be moved to a cluster, where only the tag is in "
                "braces: rename them, or delete them, first"
            )
        self._olds = tuple(f"{self._from}{each}" for each in self.prefixes)
        self._news = tuple(f"{self._to}{each}" for each in self.prefixes)

    def is_meant(self, key: str) -> bool:
        """Whether a key of the source is to be moved."""
        return key.startswith(self._olds)

    def is_moved(self, key: str) -> bool:
        """Whether a key of the target has such a name."""
        return key.startswith(self._news)

    def new(self, name: str) -> str:
        """Return the name of a key in the target. A text that is none stays as it is."""
        return f"{self._to}{name[len(self._from) :]}" if self.is_meant(name) else name

    def old(self, name: str) -> str:
        """Return the name that a key of the target has in the source."""
        return f"{self._from}{name[len(self._to) :]}"

    def plain(self, key: str) -> str:
        """Return the name of a key of the source without its tag."""
        return key.removeprefix(self._from)

    def values(self, key: str, values: Mapping[str, str]) -> Mapping[str, str]:
        """Return the fields of a hash, or of an entry of a stream, as they are in the target."""
        if self._from == self._to:
            return values
        if key == f"{self._from}{CLASSES}":
            return {self._of_class(field): self._class(text) for field, text in values.items()}
        if key == f"{self._from}{flows.CLASSES}":
            return {self.new(name): self._layout(text) for name, text in values.items()}
        of_flow = key.startswith(f"{self._from}{flows.FLOW}") and key.endswith(":nodes")
        if of_flow or key == f"{self._from}{flows.SPAWNERS}":
            return {number: self.new(text) for number, text in values.items()}
        if key.startswith(f"{self._from}{flows.FLOW}") and "spawner" in values:
            return {**values, "spawner": self.new(values["spawner"])}
        names: Sequence[str] = next((names for end, names in NAMING.items() if key.endswith(end)), ())
        renamed = {name: self.new(values[name]) for name in names if name in values}
        if "_slots" in values and names:
            renamed["_slots"] = "\n".join(map(self._of_slot, values["_slots"].split("\n")))
        return {**values, **renamed} if renamed else values

    def _of_slot(self, line: str) -> str:
        """Return a line of what a running job holds of its limits: its last word is a key, which may have spaces."""
        words = line.split(" ", 3 if line.startswith("r ") else 1)
        return " ".join([*words[:-1], self.new(words[-1])])

    def _layout(self, text: str) -> str:
        """Return a layout as scripts take it, with the names of its keys."""
        with suppress(*UNREADABLE):
            return json.dumps(self._renamed(json.loads(text)), separators=(",", ":"))
        return text

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.new(name): self._renamed(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._renamed(each) for each in value]
        return self.new(value) if isinstance(value, str) else value

    def _of_class(self, field: str) -> str:
        first, space, name = field.rpartition(" ")
        return f"{first}{space}{self.new(name)}"

    def _class(self, text: str) -> str:
        with suppress(*UNREADABLE):
            known = KnownClass.parse(text)
            indexes, ranges = (
                {field: self.new(name) for field, name in names.items()} for names in (known.indexes, known.ranges)
            )
            return known._replace(name=self.new(known.name), indexes=indexes, ranges=ranges).as_json()
        return text


def foreign_name(key: str) -> str:
    """Return how the keys begin that are told of together: up to the first colon."""
    return "".join(key.partition(":")[:2])
