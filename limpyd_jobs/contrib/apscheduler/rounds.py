"""What a scheduler was handed out, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from math import inf

from apscheduler.job import Job
from limpyd.exceptions import DoesNotExist
from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.contrib.apscheduler.context import StoreContext
from limpyd_jobs.contrib.apscheduler.reading import JobReader
from limpyd_jobs.contrib.apscheduler.records import Stored, StoredJob, is_of_foreign_key
from limpyd_jobs.contrib.apscheduler.serializing import Serializer
from limpyd_jobs.integration import one_line

# The fields by which a scheduler sees whether a job was changed since it was handed out.
WATCHED = ("next_run_time", "trigger", "timezone")

# The part of a lease in which a scheduler may give a job to its executor.
LAST_MOMENT = 0.9


class HandedOut(list[StoredJob]):
    """The jobs of a round. `goes_on` takes the next one, None at the end, and returns whether it is to be run."""

    def __init__(self, jobs: Iterable[StoredJob], goes_on: Callable[[StoredJob | None], bool]) -> None:
        super().__init__(jobs)
        self._goes_on = goes_on

    def __iter__(self) -> Iterator[StoredJob]:
        for job in super().__iter__():
            if not self._goes_on(job):
                return
            yield job
        self._goes_on(None)


class Round:
    """The jobs that a scheduler was handed out, at most `most`, until it asks when to look again.

    Once half of the lease is gone, or it is shut down, the rest is released: what is slow runs no job of another.
    """

    def __init__(self, context: StoreContext, reader: JobReader, serializer: Serializer, most: int) -> None:
        self._context, self._reader, self._serializer = context, reader, serializer
        self.is_open = False
        self._jobs: dict[str, StoredJob] = {}
        self._current: StoredJob | None = None
        self._recorded: dict[str, StoredJob] = {}
        self._refused: dict[str, float] = {}
        self._unrecorded: dict[str, Callable[[], object]] = {}
        self._moment = datetime.now(timezone.utc)
        self._halfway = self._end = inf
        self.most = self._most = most

    def begin(self, jobs: Sequence[StoredJob], moment: datetime, leased_at: float) -> list[StoredJob]:
        """Hand out the jobs that are due at a moment, and leased since `leased_at`, by the monotonic clock."""
        self._moment, self._halfway = moment, leased_at + self._context.lease / 2
        is_slow = time.monotonic() > self._halfway  # to restore so many jobs takes too long
        self.most = max(1, self.most // 2) if is_slow else min(self._most, 2 * self.most)
        self._end = leased_at + self._context.lease * LAST_MOMENT
        self._jobs = {job.id: job for job in jobs}
        self.is_open = True
        return HandedOut(jobs, self._goes_on)

    def _goes_on(self, job: StoredJob | None) -> bool:
        """Whether a job may be run now: each round runs one at least, if there is some of the lease left."""
        is_late = time.monotonic() > (self._end if self._current is None else self._halfway)
        self._current = None if self._context.is_stopped or is_late else job
        return self._current is not None

    def end(self) -> list[str]:
        """End the round; return the jobs that were handed out and not run."""
        returned, self._jobs, self._current, self.is_open = [*self._jobs], {}, None, False
        self._recorded.clear()
        return returned

    def stop(self) -> list[str]:
        """End the round because the scheduler is shut down; return the jobs that were not run.

        A job that it was about to give to its executor counts as run: APScheduler does not record that any more.
        """
        job = self._current
        if job is not None and self._jobs.get(job.id) is job and not job.is_refused:
            job.next_run_time = self._time_after(job, self._moment)
            if job.next_run_time:
                self.advance(job)
            else:
                self.remove(job.id)
        recorded, returned = self._recorded.copy(), self.end()
        self._recorded.update(recorded)  # for the update that APScheduler may still make
        return returned

    def has_recorded(self, pk: str) -> bool:
        """Whether what became of a job of this id is recorded: it may be removed by now."""
        return pk in self._recorded

    def advance(self, job: Job) -> bool:
        """Record that a job has run, and when it is to run next; return False if this object was not handed out."""
        if self._recorded.get(job.id) is job:
            return True
        found = self._jobs.get(job.id)
        if found is not job:
            return False
        if self._was_run(found):
            self._record_or_later(found, self._serializer.dump_advance(found))
        return True

    def remove(self, pk: str) -> bool:
        """Record that a job has run, and is not to run again; return False if it was not handed out."""
        job = self._jobs.get(pk)
        if job is None:
            if pk not in self._recorded:  # then APScheduler removes no job that it has just run, but a user does
                self._unrecorded.pop(pk, None)
            return pk in self._unrecorded
        if self._reader.has_executor(job) and self._was_run(job):
            self._record_or_later(job, None)
        return True

    def skipped(self) -> list[str]:
        """Return the jobs that could not be submitted a moment ago, or recorded yet."""
        now = time.monotonic()
        self._refused = {pk: until for pk, until in self._refused.items() if until > now}
        return [*self._refused, *self._unrecorded]

    @property
    def has_left_something(self) -> bool:
        """Whether something is to be done soon: jobs that could not be submitted, or recorded."""
        return bool(self._unrecorded or self._refused)

    def record_all(self) -> None:
        """Record what could not be recorded before, unless a foreign key prevents that."""
        for pk, record in [*self._unrecorded.items()]:
            try:
                with suppress(DoesNotExist):
                    record()
                del self._unrecorded[pk]
            except ResponseError as error:
                if not is_of_foreign_key(error):
                    raise
                self._context.logger.debug("What became of the job %r is not recorded yet: %s", one_line(pk), error)

    def _was_run(self, job: StoredJob) -> bool:
        """Take a job out of the round, unless it could not be submitted: then it is handed out again after a pause."""
        if job.is_refused:
            self._refused[job.id] = time.monotonic() + self._context.scheduler.jobstore_retry_interval
        else:
            self._recorded[job.id] = self._jobs.pop(job.id)
        return not job.is_refused

    def _record_or_later(self, job: StoredJob, advance: Stored | None) -> None:
        """Record what became of a job. If Redis fails, which would end the scheduler, do it later."""
        record = partial(self._record, job, advance, self._moment)
        try:
            with suppress(DoesNotExist):  # then it was removed, which is as well
                record()
        except RedisError as error:
            self._context.logger.error("What became of the job %r is not recorded yet: %s", one_line(job.id), error)
            self._unrecorded[job.id] = record

    def _record(self, job: StoredJob, advance: Stored | None, moment: datetime) -> None:
        """Advance a job, or remove it. If its trigger was changed meanwhile, and not its run time, ask the new one."""
        while not self._is_recorded(job, advance):
            found = self._reader.lookup(job.id)
            if found is None or found.as_read.get("next_run_time") != job.as_read.get("next_run_time"):
                return
            found.next_run_time = self._time_after(found, moment)
            job, advance = found, self._serializer.dump_advance(found) if found.next_run_time else None

    def _time_after(self, job: StoredJob, moment: datetime) -> datetime | None:
        times = job._get_run_times(moment)
        return job.trigger.get_next_fire_time(times[-1], moment) if times else job.next_run_time

    def _is_recorded(self, job: StoredJob, advance: Stored | None) -> bool:
        model, watched = self._context.model, {name: job.as_read.get(name) for name in WATCHED}
        if advance is None:
            return model.remove(job.id, watched, self._context.owner)
        return model.change(job.id, advance, watched, self._context.owner)
