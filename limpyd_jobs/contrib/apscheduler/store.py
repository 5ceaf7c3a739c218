"""A job store of APScheduler, for any number of schedulers."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4
from weakref import WeakSet

from apscheduler.job import Job
from apscheduler.jobstores.base import BaseJobStore, ConflictingIdError, JobLookupError
from limpyd.exceptions import DoesNotExist, UniquenessError
from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.contrib.apscheduler.context import StoreContext
from limpyd_jobs.contrib.apscheduler.events import StoreEvents
from limpyd_jobs.contrib.apscheduler.functions import AllowedFunctions
from limpyd_jobs.contrib.apscheduler.reading import UNPARKED, JobReader
from limpyd_jobs.contrib.apscheduler.records import ScheduledJob, Stored, StoredJob, is_of_foreign_key, run_time_of
from limpyd_jobs.contrib.apscheduler.rounds import Round
from limpyd_jobs.contrib.apscheduler.serializing import Serializer
from limpyd_jobs.contrib.settings import checked_seconds, database_of
from limpyd_jobs.integration import JobsDatabase, described, one_line

# The last moment of the year 9999, which is the last one of a datetime, in seconds since the epoch.
LAST_MOMENT = 253402300799

# After how many seconds to look again at the latest.
MAX_LAPSE_WAIT = 86_400


class LimpydJobStore(BaseJobStore):
    """Stores jobs in Redis, as records of `ScheduledJob`. Any number of schedulers may share them, each with a store
    object of its own.

    Parameters
    ----------
    url: str
        Where Redis is, as ``--database`` takes it. Without a `url`, a `database` and a `client`, it is the database of
        `limpyd_jobs`.
    database: JobsDatabase
    client: redis.Redis
        A client whose settings to take.
    namespace: str
        The beginning of the keys. Schedulers with the same namespace share their jobs.
    serializer: str
        ``json``, or ``pickle`` for what JSON cannot hold: see `Serializer`.
    pickle_protocol: int
    allowed: iterable of str
        The modules, or packages, in which functions have to be defined to be scheduled. If it is None, JSON lets none
        be scheduled; with ``pickle`` it is any, because a pickle runs any code anyway.
    lease: float
        For how many seconds due jobs belong to the scheduler that looked first. If it dies before it has submitted
        them, another scheduler runs them after that time, if their `misfire_grace_time` is longer.
    look_again: float
        After how many seconds a scheduler that waits looks again for jobs that others have added, and for parked jobs
        that it can restore. Their `misfire_grace_time` should be longer.
    **settings
        Other settings of the database: ``host``, ``port``, ``db``, ``password``… They go with a `url`, or alone.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.
    """

    # How many jobs a scheduler is handed out at once. It is handed out others as soon as it is done with these.
    most = 1_000

    def __init__(
        self,
        url: str | None = None,
        *,
        database: JobsDatabase | None = None,
        client: Any = None,
        namespace: str = "apscheduler",
        serializer: str = "json",
        pickle_protocol: int = pickle.HIGHEST_PROTOCOL,
        allowed: Iterable[str] | None = None,
        lease: float | str = 30,
        look_again: float | str = 30,
        **settings: Any,
    ) -> None:
        super().__init__()
        if not namespace:
            raise ValueError("The namespace must not be empty")
        found = database_of(url, database, client, settings, ScheduledJob.database)
        self.model = ScheduledJob.bound_to(found, namespace)
        self.lease, self.look_again = checked_seconds("lease", lease), checked_seconds("look_again", look_again)
        self.serializer = Serializer(serializer, pickle_protocol)
        self.functions = AllowedFunctions(allowed, "the job store", is_open=self.serializer.is_pickle)
        self._start_anew()
        _stores.add(self)

    def _start_anew(self) -> None:
        """Begin without leases: in a forked child, those, and the thread that listens, are of the parent."""
        owner = f"{socket.gethostname()}:{os.getpid()} {uuid4().hex[:8]}"
        self.context = StoreContext(self.model, owner, self.lease, self._logger, self._scheduler, self._alias)
        self._is_started = False
        self._planned: datetime | None = None
        self.reader = JobReader(self.context, self.functions, self.serializer)
        self.round = Round(self.context, self.reader, self.serializer, self.most)
        self.events = StoreEvents(self.context, self._is_early, self.reader.waits_for)

    @property
    def jobs(self) -> Any:
        """The jobs, as a collection of limpyd: ``store.jobs.filter(next_run_time__lt=time.time())``."""
        return self.model.collection()

    # -- What schedulers call

    def start(self, scheduler: Any, alias: str) -> None:
        """Begin to listen to the changes by other processes, so that a job that is added there is run in time."""
        if self._is_started and scheduler is not self._scheduler:
            raise ValueError(
                "This job store serves another scheduler: give each one a store of its own, or shut this one down first"
            )
        super().start(scheduler, alias)
        self.context.scheduler, self.context.alias, self.context.logger = scheduler, alias, self._logger
        self._is_started = True
        self.events.listen()

    def shutdown(self) -> None:
        """Release the leases. May be called twice."""
        self.events.close()
        with suppress(RedisError):
            self.round.record_all()
            self.model.next_due(self.context.owner, self.round.stop())
        self.model.database.close_idle()
        self._is_started = False

    def lookup_job(self, job_id: str) -> StoredJob | None:
        """Return a job; None if there is no such job, or it cannot be restored here."""
        return self.reader.lookup(job_id)

    def get_due_jobs(self, now: datetime) -> list[Job]:
        """Lease jobs that are due and that no other scheduler has; return them, the earliest first."""
        if self.context.is_stopped:
            return []
        self.round.record_all()
        self.events.listen()
        self.reader.look_again(self.look_again)
        leased_at = time.monotonic()
        rows = self.model.lease_due(self.context.owner, self.lease, now.timestamp(), self.round.most, self._skipped())
        return self.round.begin(sorted(self.reader.due(rows), key=_place), now, leased_at)

    def get_next_run_time(self) -> datetime | None:
        """Release the leases of jobs that were handed out and not run, and return when to look again."""
        self._planned = None  # what changes from now on may be due before what is planned here
        returned, now = self.round.end(), datetime.now(timezone.utc)
        try:
            due, lapse = self.model.next_due(self.context.owner, returned, [*self._skipped(), *self.reader.unread])
        except RedisError as error:  # it would end the thread of the scheduler
            self._logger.warning("The next run time is not known, and asked for again: %s", error)
            return now + timedelta(seconds=self._scheduler.jobstore_retry_interval if self._scheduler else 1)
        moments = [datetime.fromtimestamp(max(due, 0), timezone.utc)] if due is not None and due < LAST_MOMENT else []
        moments += [now + timedelta(seconds=pause) for pause in self._pauses(lapse)]
        self._planned = min(moments, default=None)
        return self._planned

    def _pauses(self, lapse: float | None) -> Iterator[float]:
        """Yield after how many seconds to look again, though no job is due."""
        if lapse is not None:
            yield min(lapse, MAX_LAPSE_WAIT)
        if self.round.has_left_something:
            yield 1
        if self._scheduler is not None:
            yield self.look_again

    def _is_early(self, changed: set[str]) -> bool:
        """Whether the scheduler is to look earlier than planned, because some jobs were changed."""
        if self.reader.forget(changed):
            return True
        if self.round.is_open:  # at its end, the scheduler looks what is due next
            return False
        due = self.model.next_due(skipped=self.reader.skipped()).due
        return due is not None and (self._planned is None or due < self._planned.timestamp())

    def get_all_jobs(self) -> list[Job]:
        """Return all jobs, by their next run time; paused jobs last."""
        return sorted(self.reader.jobs(self.model.read_many(self.model.collection())), key=_place)

    def add_job(self, job: Job) -> None:
        try:
            self.model.make(job.id, self._new(job))
        except UniquenessError:
            raise ConflictingIdError(job.id) from None

    def update_job(self, job: Job) -> None:
        """Store the changes of a job since it was read.

        If another process has changed the next run time of a job, or removed it, an update by the scheduler that ran it
        changes nothing. If it has another trigger now, that one says when it runs next.
        """
        if self.round.advance(job):
            return
        changes = self._dumped(job, getattr(job, "as_read", None))
        try:
            self._change(job.id, changes)
        except DoesNotExist:
            raise JobLookupError(job.id) from None
        if isinstance(job, StoredJob):
            job.as_read = {**job.as_read, **{name: value or "" for name, value in changes.items()}}

    def remove_job(self, job_id: str) -> None:
        if self.round.remove(job_id):
            return
        try:
            self.model.remove(job_id)
        except DoesNotExist:
            if not self.round.has_recorded(job_id):  # APScheduler removes what it ran, also if that is gone
                raise JobLookupError(job_id) from None

    def remove_all_jobs(self) -> None:
        self.model.delete_many(self.model.collection())

    def import_jobs(self, jobs_key: str = "apscheduler.jobs", run_times_key: str = "apscheduler.run_times") -> int:
        """Take over the jobs of APScheduler's own store in the same database, which are pickles; return how many.

        Each job is deleted there once it is here. A job whose id is known here already is only deleted there. A job
        that cannot be restored stays. Several processes may do this at the same time.
        """
        number = 0
        for job_id, pickled in self._their_jobs(jobs_key).items():
            try:
                job = Job.__new__(Job)
                job.__setstate__(pickle.loads(pickled.encode(errors="surrogateescape")))
                number += self._takes_over(job, job_id, jobs_key, run_times_key)
            except Exception as error:
                if isinstance(error, RedisError) and not is_of_foreign_key(error):
                    raise
                self._logger.error(
                    "The job %r of %s is not taken over: %s", one_line(job_id), jobs_key, described(error)
                )
        return number

    def _their_jobs(self, jobs_key: str) -> Mapping[str, str]:
        try:
            return dict(self.model.get_connection().hgetall(jobs_key))
        except ResponseError as error:
            if not is_of_foreign_key(error):
                raise
            self._logger.error("No job is taken over from %s: %s", jobs_key, error)
            return {}

    def _takes_over(self, job: Job, job_id: str, jobs_key: str, run_times_key: str) -> bool:
        """Take over a job, unless another process has done so, or its id is known here; return whether it was done."""
        client, is_new = self.model.get_connection(), True
        try:
            self.model.make(job.id, self._new(job), replaced=(jobs_key, job_id))
        except DoesNotExist:
            return False
        except UniquenessError:
            is_new = False
            client.hdel(jobs_key, job_id)
        client.zrem(run_times_key, job_id)
        return is_new

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.model._name}>"

    # -- Records

    def _skipped(self) -> list[str]:
        return [*self.reader.skipped(), *self.round.skipped()]

    def _new(self, job: Job) -> dict[str, Any]:
        return self._dumped(job) | {"position": time.time_ns()}

    def _dumped(self, job: Job, as_read: Stored | None = None) -> dict[str, str | None]:
        """Return the fields of a job that changed since it was read."""
        fields = self.serializer.dump(job)
        if as_read is not None:
            before = {**as_read, "next_run_time": run_time_of(as_read)}
            fields = {name: value for name, value in fields.items() if value != before.get(name, "")}
        if "func" in fields:
            self.functions.check(fields["func"])
        return {name: value or None for name, value in fields.items()}

    def _change(self, pk: str, changes: Mapping[str, str | None]) -> None:
        """Change a job. If it is parked, unpark it, with the run time that it had."""
        while not self.model.change(pk, changes, {"parked": None}):
            stored = dict(self.model.read_many([pk])).get(pk, {})
            before = {name: stored.get(name) for name in ("parked", "parked_run_time")}
            unparked = {"next_run_time": before["parked_run_time"], **changes, **UNPARKED}
            if before["parked"] and self.model.change(pk, unparked, before):
                return


# The stores of this process.
_stores: WeakSet[LimpydJobStore] = WeakSet()


def _start_all_anew() -> None:
    for store in _stores:
        store._start_anew()


os.register_at_fork(after_in_child=_start_all_anew)


def _place(job: StoredJob) -> tuple[float, int, str]:
    """The place of a job in the order of all: by its next run time, then by when it was added."""
    position = job.as_read.get("position", "")
    return float(run_time_of(job.as_read) or "inf"), len(position), position
