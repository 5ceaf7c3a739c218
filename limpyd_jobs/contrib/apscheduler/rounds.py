"""What a scheduler was handed out, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from apscheduler.job import Job
from limpyd.exceptions import DoesNotExist
from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.contrib.apscheduler.records import Stored, StoredJob

if TYPE_CHECKING:
    from limpyd_jobs.contrib.apscheduler.store import LimpydJobStore

# The fields by which a scheduler sees whether somebody changed a job since it was handed out.
WATCHED = ("next_run_time", "trigger", "timezone")


class Round:
    """The jobs that a scheduler was handed out: from a look at what is due until it asks when to look again.

    If half of the lease is gone, the round ends. The scheduler goes through the list that it was handed out, so it runs
    nothing that is not in it any more. These jobs are given back, and are due at once: a scheduler that is slow runs no
    job that another one may have.

    Attributes
    ----------
    is_open: bool
        Whether the scheduler goes through its list now.
    """

    def __init__(self, store: LimpydJobStore) -> None:
        self._store = store
        self.is_open = False
        self._jobs: dict[str, StoredJob] = {}
        self._list: list[Job] = []
        self._removed: set[str] = set()
        self._refused: dict[str, float] = {}
        self._unrecorded: list[Callable[[], object]] = []
        self._moment = datetime.now(timezone.utc)
        self._halfway = inf

    def begin(self, jobs: Iterable[StoredJob], moment: datetime, halfway: float) -> list[Job]:
        """Hand out the jobs that are due at a moment; return the list.

        Parameters
        ----------
        halfway: float
            When half of the lease is gone, by the monotonic clock.
        """
        self._moment, self._halfway = moment, halfway
        self._list = [*jobs]
        self._jobs = {job.id: job for job in self._list}
        self.is_open = True
        return self._list

    def end(self) -> list[str]:
        """End the round; return the jobs that were handed out and not run."""
        returned, self._jobs, self.is_open = [*self._jobs], {}, False
        self._removed.clear()
        return returned

    def has(self, job: Job) -> bool:
        """Whether this is the object that was handed out."""
        return self._jobs.get(job.id) is job

    def has_removed(self, job: Job) -> bool:
        """Whether this is a job that was handed out and then removed."""
        return job.id in self._removed and isinstance(job, StoredJob)

    def update(self, job: StoredJob) -> None:
        """Record that a job has run, and when it is to run next."""
        if self._was_run(job):
            self._record_or_later(job, self._store.serializer.dump_advance(job))

    def remove(self, pk: str) -> bool:
        """Record that a job has run, and is not to run again; return False if it was not handed out."""
        if pk in self._removed:
            return True
        job = self._jobs.get(pk)
        if job is None:
            return False
        if self._was_run(job):
            self._removed.add(pk)
            self._record_or_later(job, None)
        return True

    def refused(self) -> list[str]:
        """Return the jobs that could not be submitted a moment ago."""
        now = time.monotonic()
        self._refused = {pk: until for pk, until in self._refused.items() if until > now}
        return [*self._refused]

    @property
    def has_left_something(self) -> bool:
        """Whether something is to be done soon: jobs that could not be submitted, or recorded."""
        return bool(self._unrecorded or self._refused)

    def record_all(self) -> None:
        """Record what could not be recorded before."""
        while self._unrecorded:
            try:
                with suppress(DoesNotExist):
                    self._unrecorded[0]()
            except ResponseError as error:
                if "WRONGTYPE" not in str(error):
                    raise
                self._store._logger.error("What became of a job cannot be recorded, as a key is foreign: %s", error)
            del self._unrecorded[0]

    def _was_run(self, job: StoredJob) -> bool:
        """Take a job out of the round, unless it could not be submitted: then it is handed out again after a pause."""
        if time.monotonic() > self._halfway:
            self._list.clear()
        if job.is_refused:
            self._refused[job.id] = time.monotonic() + self._store._scheduler.jobstore_retry_interval
        else:
            del self._jobs[job.id]
        return not job.is_refused

    def _record_or_later(self, job: StoredJob, advance: Stored | None) -> None:
        """Record what became of a job. If Redis fails, which would end the scheduler, do it later."""
        record = partial(self._record, job, advance, self._moment)
        try:
            with suppress(DoesNotExist):  # then somebody removed it, which is as well
                record()
        except RedisError as error:
            self._store._logger.error("What became of a job is not recorded yet: %s", error)
            self._unrecorded.append(record)

    def _record(self, job: StoredJob, advance: Stored | None, moment: datetime) -> None:
        """Advance a job, or remove it if it has no next time.

        If somebody has given it another trigger meanwhile, but no other run time, the new trigger says when it is next.
        """
        while not self._is_recorded(job, advance):
            found = self._store.lookup_job(job.id)
            if found is None or found.as_read.get("next_run_time") != job.as_read.get("next_run_time"):
                return
            last = found._get_run_times(moment)[-1]
            found.next_run_time = found.trigger.get_next_fire_time(last, moment)
            job, advance = found, self._store.serializer.dump_advance(found) if found.next_run_time else None

    def _is_recorded(self, job: StoredJob, advance: Stored | None) -> bool:
        model, watched = self._store.model, {name: job.as_read.get(name) for name in WATCHED}
        if advance is None:
            return model.remove(job.id, watched, self._store.owner)
        return model.change(job.id, advance, watched, self._store.owner)
