"""The keys of limits that are in use, with the classes of their jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from math import inf
from typing import NamedTuple

from limpyd_jobs.classes.job_classes import job_classes
from limpyd_jobs.limiting.limit import limits_of_class
from limpyd_jobs.models import Job
from limpyd_jobs.query import LimitKey, limit_keys
from limpyd_jobs.query.attention.conditions import LONG_WAIT
from limpyd_jobs.records.known_classes import HIDDEN, SECRET
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import models_of, on

# What a value begins with that is too long to be kept whole.
DIGEST = "#"


class LimitRow(NamedTuple):
    """A key of a limit, and the class of its jobs: empty if several classes share the limit, or it is not known.
    `shared` has those that share it, as far as they are known. `is_secret` is whether its value is, or may be."""

    key: LimitKey
    job_class: str
    shared: Sequence[str] = ()
    is_secret: bool = False

    @property
    def masked(self) -> LimitKey:
        """The key without a value that is secret."""
        return self.key._replace(value=HIDDEN) if self.is_secret else self.key

    @property
    def classes(self) -> list[str]:
        """The paths of the classes whose limit it is."""
        return [self.job_class] if self.job_class else [*self.shared]

    @property
    def set_by(self) -> str:
        """The path of a class by which something can be set for it; empty if this process knows none, or not the whole
        value."""
        is_whole = not (self.key.value or "").startswith(DIGEST)
        return next((path for path in self.classes if is_whole and path in job_classes.known), "")

    @property
    def lets_none_begin(self) -> bool:
        """Whether jobs wait for it, and none of them may begin until `resume_limit`, or other numbers."""
        return bool(self.key.parked) and (self.key.rests_for == inf or self.key.allowed == 0)

    @property
    def sign(self) -> str:
        """The state whose sign it has: ``paused`` if no job may begin by order, ``late`` if one has waited for long,
        ``full`` if all slots are taken."""
        if self.key.rests_for or self.key.allowed == 0:
            return "paused"
        if (self.key.waited or 0) > LONG_WAIT:
            return "late"
        return "full" if self.key.state == "full" else "waiting" if self.key.parked else "well"


def class_with_limits(path: str, database: JobsDatabase | None = None) -> type[Job]:
    """Return a job class whose limits are to be set in a database; raise `LookupError` if this process does not know
    it."""
    found: type[Job] = on(job_classes.known[path], database)
    return found


def limit_rows(database: JobsDatabase | None = None) -> list[LimitRow]:
    """Return the keys of limits that are in use, the worst first: those that let no job begin for which some wait, then
    those whose first job has waited longest, then those of which most slots are taken."""
    models = models_of(database)
    known, secret = models.classes, {name for names in models.masked.by_path.values() for name in names}
    paths, shared = {each.name: path for path, each in known.items()}, defaultdict[str, list[str]](list)
    for path, each in sorted(known.items()):
        for limit in each.limits:
            if limit.name:
                shared[limit.name].append(path)
    rows = [
        LimitRow(key, path := paths.get(key.owner, ""), () if path else shared[key.name], _is_secret(key, secret))
        for key in limit_keys(database)
    ]
    return sorted(rows, key=lambda row: (not row.lets_none_begin, -(row.key.waited or 0.0), row.key.waited is None))


def _is_secret(key: LimitKey, names: Collection[str]) -> bool:
    if key.value is None:
        return False
    return key.field is None or key.field in names or bool(SECRET.search(key.field))


def rows_of(rows: Collection[LimitRow], paths: Collection[str]) -> list[LimitRow]:
    """Return those of some classes; also of limits that they share, as far as this process knows the classes."""
    classes = [job_classes.known[path] for path in paths if path in job_classes.known]
    shared = {limit.label for each in classes for limit in limits_of_class(each) if limit.name}
    return [each for each in rows if each.job_class in paths or (not each.job_class and each.key.name in shared)]
