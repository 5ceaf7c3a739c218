"""How jobs are restored from their records, and set aside if they cannot be restored, or run, here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timezone
from functools import partial
from math import inf

from limpyd.exceptions import DoesNotExist
from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.contrib.apscheduler.context import StoreContext
from limpyd_jobs.contrib.apscheduler.functions import AllowedFunctions
from limpyd_jobs.contrib.apscheduler.records import Stored, StoredJob, is_of_foreign_key
from limpyd_jobs.contrib.apscheduler.serializing import Serializer
from limpyd_jobs.integration import described, one_line

# The fields that decide whether a job can be restored.
CONTENT = ("func", "trigger", "timezone", "state")

# How many characters are kept of a next run time that is parked: no time has more.
MAX_MOMENT = 100

UNPARKED = {"parked": None, "reason": None, "parked_run_time": None}


class JobReader:
    """Restores the jobs of a store, and knows which to pass over: those that cannot be restored, or run, here."""

    def __init__(self, context: StoreContext, functions: AllowedFunctions, serializer: Serializer) -> None:
        self._context, self._functions, self._serializer = context, functions, serializer
        self._model = context.model
        self._parked: dict[str, Stored] = {}  # as they were when they could not be restored
        self._unread: set[str] = set()  # could not be restored when a process looked: they are parked once they are due
        self._executors: dict[str, str] = {}  # of the jobs that are left to others
        self._looked = -inf

    def lookup(self, pk: str) -> StoredJob | None:
        """Return a job; None if there is no such job, or it cannot be restored here."""
        return next(self.jobs(self._model.read_many([pk])), None)

    def jobs(self, rows: Iterable[tuple[str, Stored]]) -> Iterator[StoredJob]:
        """Yield the jobs of some records. A job that cannot be restored is left out."""
        return self._restored(rows, self._note)

    def due(self, rows: Iterable[tuple[str, Stored]]) -> list[StoredJob]:
        """Return the jobs of some records that are leased here because they are due.

        A job that cannot be restored is parked. One that cannot be run here is left to others.
        """
        return [job for job in self._restored(rows, self._park) if self.has_executor(job) and _has_time(job)]

    def skipped(self) -> list[str]:
        return [*self._parked, *self.left_to_others]

    @property
    def unread(self) -> list[str]:
        """The jobs that could not be restored when a process looked, so that it does not matter when they are due."""
        return [*self._unread]

    def waits_for(self, executor: str) -> bool:
        """Whether jobs are left to others for want of an executor."""
        return executor in self._executors.values()

    @property
    def left_to_others(self) -> list[str]:
        """The jobs whose executor this scheduler does not have by now."""
        return [pk for pk, executor in dict(self._executors).items() if not self._context.has_executor(executor)]

    def forget(self, changed: set[str]) -> bool:
        """Look at changed jobs anew; return whether they were set aside. Called by another thread."""
        self._unread.difference_update(changed)
        was_set_aside = not changed.isdisjoint([*self._parked, *self._executors])
        if was_set_aside:
            self._looked = -inf
        return was_set_aside

    def look_again(self, interval: float) -> None:
        """Look again at the jobs that were set aside, here or by others, at most every `interval` seconds."""
        if time.monotonic() < self._looked + interval:
            return
        self._looked = time.monotonic()
        self._unread.clear()
        self._look_at_those_left()
        self._look_at_those_parked()

    def _look_at_those_left(self) -> None:
        left, self._executors = self._executors, {}
        for pk, stored in self._model.read_many([*left], "executor"):
            if stored.get("executor") == left[pk]:
                self._executors[pk] = left[pk]

    def _look_at_those_parked(self) -> None:
        known, self._parked = self._parked, {}
        for pk, stored in self._model.read_many({*known, *self._all_parked()}):
            if pk in known and _content(known[pk]) == _content(stored):
                self._parked[pk] = stored
            elif stored.get("parked") and any(self._restored([(pk, stored)], self._park)):
                changes = {**UNPARKED, "next_run_time": stored.get("parked_run_time")}
                with suppress(DoesNotExist):
                    self._model.change(pk, changes, {**_content(stored), "parked": "1"})

    def _all_parked(self) -> list[str]:
        try:
            return [*self._model.collection(parked="1")]
        except ResponseError as error:
            if not is_of_foreign_key(error):
                raise
            return []

    def _restored(
        self, rows: Iterable[tuple[str, Stored]], set_aside: Callable[[str, Stored, Exception], None]
    ) -> Iterator[StoredJob]:
        scheduler = self._context.scheduler
        zone = getattr(scheduler, "timezone", None) or timezone.utc
        for pk, stored in rows:
            try:
                self._functions.check(stored["func"])
                job = self._serializer.load(pk, stored, zone)
            except Exception as error:
                set_aside(pk, stored, error)
            else:
                job._scheduler, job._jobstore_alias = scheduler, self._context.alias
                job.set_aside = partial(self._park, pk, stored)
                yield job

    def _note(self, pk: str, stored: Stored, error: Exception) -> None:
        if pk not in self._parked:
            self._unread.add(pk)
            self._context.logger.warning("The job %r cannot be restored here: %s", one_line(pk), described(error))

    def _park(self, pk: str, stored: Stored, error: Exception) -> None:
        """Set aside a job that cannot be restored here, until it is changed, or another process can restore it."""
        reason = described(error)
        if pk not in self._parked:
            self._context.logger.error("The job %r cannot be restored, and is parked: %s", one_line(pk), reason)
        self._parked[pk] = stored
        moment = stored.get("next_run_time")
        if moment:
            valid = (
                moment[:MAX_MOMENT].encode(errors="backslashreplace").decode()
            )  # another program may have written it
            changes = {"parked": "1", "reason": reason, "parked_run_time": valid, "next_run_time": None}
            with suppress(DoesNotExist, RedisError):  # then it is set aside here only
                self._model.change(pk, changes, {**_content(stored), "next_run_time": moment}, self._context.owner)

    def has_executor(self, job: StoredJob) -> bool:
        """Whether a job can be run here. If not, leave it to others: APScheduler would delete it."""
        if self._context.has_executor(job.executor):
            return True
        id_, executor = one_line(job.id), one_line(job.executor)
        self._context.logger.error("The job %r is left to others, because there is no executor %r here", id_, executor)
        self._executors[job.id] = job.executor
        with suppress(RedisError):  # then the lease lapses
            self._model.next_due(self._context.owner, [job.id])
        return False


def _has_time(job: StoredJob) -> bool:
    if job.next_run_time is None:  # another program wrote that
        job.set_aside(ValueError("it is due, but has no next run time"))
    return job.next_run_time is not None


def _content(stored: Stored) -> dict[str, str | None]:
    return {name: stored.get(name) for name in CONTENT}
