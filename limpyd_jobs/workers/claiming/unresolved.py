"""The jobs whose class a worker cannot resolve: they are deferred, with one warning for all jobs of a class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from redis import Redis

from limpyd_jobs import transitions
from limpyd_jobs.classes.imports import (
    DJANGO,
    NotAllowed,
    how_to_allow,
    is_not_found,
    lacks_django,
    where_to_look,
    why_not_imported,
)
from limpyd_jobs.exceptions import ClassUnresolved
from limpyd_jobs.idents import Ident
from limpyd_jobs.models import Error, Job, Queue, defer_unresolved, job_classes
from limpyd_jobs.records import records
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.texts import MESSAGE, one_line

# How many deferred jobs are read at once.
CHUNK = 1000

# The most classes that are remembered as told.
LIMIT = 1000


class UnresolvedClasses:
    """Defers the jobs of classes that cannot be resolved, and lets them be tried once their class can be resolved."""

    def __init__(
        self, queue_model: type[Queue], error_model: type[Error] | None, log: Callable[[str, str, str], None]
    ) -> None:
        self._queue_model = queue_model
        self._error_model = error_model  # where to record that a job is dead-lettered; None to record nothing
        self._log = log  # takes the kind of a message, the message, and its level
        self._logged: dict[str, None] = {}
        self.known: Mapping[str, type[Job]] | None = None  # the classes that were known at the last `retry_deferred`
        self._looked_for: set[str] | None = None
        # Why the class of the job that was deferred last could not be resolved. It is logged already.
        self.last: Exception | None = None

    def defer(self, key: str, ident: str, error: Exception) -> None:
        """Defer a job of a waiting list whose class cannot be resolved; dead-letter it if it was deferred too often."""
        reported = defer_unresolved(self._queue_model, key, ident, error, self._error_model)
        self.last = error
        if isinstance(reported, ClassUnresolved):
            self._log("jobs of unknown classes are dead-lettered", one_line(reported, MESSAGE), "error")
        else:
            self._log_once(ident, error)

    def paths(self) -> list[str]:
        """Return the paths of classes that could not be resolved so far. Any thread may ask."""
        return list(self._logged.copy())

    def _log_once(self, ident: str, error: Exception) -> None:
        path = Ident.of(ident).path
        if path in self._logged:
            return
        if len(self._logged) == LIMIT:
            del self._logged[next(iter(self._logged))]
        self._logged[path] = None
        self._log(
            "classes cannot be imported",
            f"[{one_line(ident)}] deferred, because this worker cannot import its class: "
            f"{one_line(why_not_imported(error), MESSAGE)}. {_remedy(path, error)} All jobs of the class are tried "
            f"again every {transitions.DEFERRAL_SECONDS} seconds, or once a worker that knows it starts; after "
            f"{transitions.MAX_DEFERRALS} times each is an error. Logged once per class.",
            "warning",
        )

    def retry_deferred(self, queue_keys: Sequence[str], known: Mapping[str, type[Job]]) -> bool:
        """Make the deferred jobs of the known classes due at once; the first time, try to resolve those of all.

        Return whether there are such jobs.
        """
        new = None if self._looked_for is None else {*known} - self._looked_for
        found = 0
        if new is None or new:
            for queue_key, idents in self._deferred(queue_keys):
                found += self._retry(queue_key, idents, new)
        self.known, self._looked_for = known, {*known, *job_classes.known, *(self._looked_for or ())}
        return found > 0

    def _retry(self, queue_key: str, idents: Iterable[str], paths: set[str] | None) -> int:
        by_path: dict[str, list[str]] = {}
        for ident in idents:
            by_path.setdefault(Ident.of(ident).path, []).append(ident)
        found = 0
        for path, group in by_path.items():
            job_class = self._resolve(path, group[0]) if paths is None or path in paths else None
            if job_class:
                self._logged.pop(path, None)
                found += transitions.retry_deferred(self._queue_model, queue_key, job_class, group)
        return found

    def _resolve(self, path: str, ident: str) -> type[Job] | None:
        try:
            job_class = job_classes.resolve(path)
            layout_of(job_class)
        except Exception as error:
            self._log_once(ident, error)
            return None
        return job_class

    def _deferred(self, queue_keys: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the idents of jobs that were deferred lately, with the beginning of the keys of their queue."""
        client: Redis = records.redis_of(self._queue_model)
        counts = [f"{queue_key}:_deferrals" for queue_key in queue_keys]
        if not (counts and client.exists(*counts)):
            return
        pipe: Any = client.pipeline(transaction=False)
        for key in counts:
            pipe.type(key)
        for queue_key, key, kind in zip(queue_keys, counts, pipe.execute(), strict=True):
            idents = client.hscan_iter(key, count=CHUNK) if kind == "hash" else iter(())
            while chunk := [ident for ident, _ in islice(idents, CHUNK)]:
                yield queue_key, chunk


def _remedy(path: str, error: Exception) -> str:
    """Say what to do about a class that cannot be resolved."""
    module = path.rpartition(".")[0]
    if lacks_django(error):
        return f"{DJANGO}."
    if module == "__main__":
        return "Move the class from the program to a module that workers can import."
    if isinstance(error, NotAllowed):
        return f"{how_to_allow(error)}."
    if is_not_found(error, module):
        return f"{where_to_look()}."
    if isinstance(error, (AttributeError, ValueError)):
        return (
            "If it is a newer class than this worker's code, restart the worker; if it is made in another way than "
            f"by a class statement, name {one_line(module)} in --job-modules; if there is none, delete the job."
        )
    return f"Try `python -c 'import {one_line(module)}'`, mend what it says, and restart the worker."
