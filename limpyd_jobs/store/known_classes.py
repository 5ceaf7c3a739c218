"""The job classes of a database: what a process has to know of each to read its jobs without importing it.

A class is written in the same step as the first job of it that a process adds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from limpyd.model import RedisModel

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.store.calls import passing_over_wrong_types
from limpyd_jobs.store.layout import layout_of

# A hash: the JSON of a `KnownClass` by its path.
KEY = "limpyd-jobs:classes"

# How many names a class has at the most: a script can read only so many fields of a job at once.
MOST_TEXTS = 4000

UNREADABLE = (AttributeError, KeyError, RecursionError, TypeError, ValueError)


class KnownClass(NamedTuple):
    """What other processes have to know of a job class.

    Attributes
    ----------
    path: str
        The class path, as in idents.
    name: str
        The beginning of its keys.
    fields: frozenset of str
        The fields of its hash.
    indexes: mapping of str to str
        By a field with an index of equality: the beginning of the keys, which a value follows.
    ranges: mapping of str to str
        By a field that is indexed as a number, or as a date: the key of the sorted set.
    dates: frozenset of str
        The fields that hold dates in the form of `isoformat`.
    """

    path: str
    name: str
    fields: frozenset[str]
    indexes: Mapping[str, str]
    ranges: Mapping[str, str]
    dates: frozenset[str]

    @classmethod
    def of(cls, job_class: type[RedisModel]) -> KnownClass:
        """Return what other processes have to know of a class.

        Raises
        ------
        ConfigurationException
            If no script can work with the class.
        """
        layout = layout_of(job_class)
        indexes, ranges, dates = (layout.description[name] for name in ("indexes", "ranges", "dates"))
        fitting = {
            name: [key for key in keys if (key in dates) == (name in layout.dates)] for name, keys in ranges.items()
        }
        return cls(
            layout.description["path"],
            layout.description["name"],
            layout.plain | layout.special,
            {name: keys[0] for name, keys in indexes.items() if keys},
            {name: keys[0] for name, keys in fitting.items() if keys},
            frozenset(layout.dates),
        )

    @classmethod
    def parse(cls, text: str) -> KnownClass:
        """Read a text of `as_json`; for other texts, raise one of `UNREADABLE`."""
        path, name, names, indexes, ranges, dates = json.loads(text)
        texts = (path, name, *names, *indexes.values(), *ranges.values(), *dates)
        if len(texts) > MOST_TEXTS:
            raise ValueError("no class has so many fields")
        for each in texts:
            each.encode()  # scripts take only UTF-8
        return cls(path, name, frozenset(names), indexes, ranges, frozenset(dates))

    def as_json(self) -> str:
        """Return the class as it is stored."""
        fields = (sorted(self.fields), self.indexes, self.ranges, sorted(self.dates))
        return json.dumps([self.path, self.name, *fields], separators=(",", ":"))


def unwritten(job_class: type[RedisModel]) -> str:
    """Return the JSON of a class that this process has to write; empty if it has done so."""
    is_written = job_class in vars(job_class.database).get("_written_classes", ())
    return "" if is_written else KnownClass.of(job_class).as_json()


def was_written(job_class: type[RedisModel]) -> None:
    """Note that a class is written in its database now."""
    vars(job_class.database).setdefault("_written_classes", set()).add(job_class)


def known_classes(connection: Any, imported: Iterable[type[RedisModel]] = ()) -> dict[str, KnownClass]:
    """Return the classes of a database, by path: the readable ones that are written there, and the given ones.

    Parameters
    ----------
    imported: iterable of job classes
        Classes that this process knows better.
    """
    found = {}
    for path, text in _stored(connection).items():
        try:
            known = KnownClass.parse(text)
        except UNREADABLE:
            continue
        if known.path == path:
            found[path] = known
    for job_class in imported:
        with suppress(ConfigurationException):  # jobs of this class cannot be added, so there are none
            known = KnownClass.of(job_class)
            found[known.path] = known
    return found


def _stored(connection: Any) -> dict[str, str]:
    """Return the written classes; nothing if somebody else put something else there."""
    with passing_over_wrong_types():
        return dict(connection.hgetall(KEY))
    return {}
