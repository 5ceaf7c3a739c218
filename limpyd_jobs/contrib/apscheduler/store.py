"""A job store of APScheduler, for any number of schedulers."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from inspect import signature
from math import inf
from threading import Thread
from typing import Any
from uuid import uuid4
from weakref import WeakSet

from apscheduler.job import Job
from apscheduler.jobstores.base import BaseJobStore, ConflictingIdError, JobLookupError
from apscheduler.schedulers.base import STATE_RUNNING
from limpyd.exceptions import DoesNotExist, UniquenessError
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.contrib.apscheduler.records import ScheduledJob, Serializer, StoredJob, run_time_of
from limpyd_jobs.contrib.settings import seconds
from limpyd_jobs.store.database import JobsDatabase

Stored = Mapping[str, str]

# The fields by which a scheduler sees whether somebody changed a job since it was handed out.
WATCHED = ("next_run_time", "trigger", "timezone")

# The fields that decide whether it can be restored.
CONTENT = ("func", "trigger", "timezone", "state")

UNPARKED = {"parked": None, "reason": None, "parked_run_time": None}

# The last moment of the year 9999, which is the last one of a datetime, in seconds since the epoch.
LAST = 253402300799

# How many jobs a scheduler is handed out at once. It is handed out others as soon as it is done with these.
ROUND = 200

# For how many seconds to gather changes after each look at what is due, so that many changes are few looks.
PAUSE = 0.02


class LimpydJobStore(BaseJobStore):
    """Stores jobs in Redis, as records of `ScheduledJob`. Any number of schedulers may share it.

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
        The modules whose functions may be scheduled; None for any.
    lease: float
        For how many seconds due jobs belong to the scheduler that looked first. If it dies before it has submitted
        them, another scheduler runs them after that time, if their `misfire_grace_time` is longer.
    look_again: float
        After how many seconds a scheduler that waits looks again for jobs that others have added, and for parked jobs
        that it can restore. Their `misfire_grace_time` should be longer.
    **settings
        Other settings of the database: ``host``, ``port``, ``db``, ``password``…

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.
    """

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
        self.model = ScheduledJob.bound_to(database_of(url, database, client, settings), namespace)
        self.lease, self.look_again = seconds("lease", lease), seconds("look_again", look_again)
        self._serializer = Serializer(serializer, pickle_protocol, allowed)
        self._start_anew()
        _stores.add(self)

    def _start_anew(self) -> None:
        """Begin as a process that holds no leases. In a forked child, those, and the thread that listens, belong to the
        parent."""
        self.owner = f"{socket.gethostname()}:{os.getpid()} {uuid4().hex[:8]}"
        self._changes: Any = None
        self._round: dict[str, StoredJob] = {}
        self._handed_out: list[Job] = []
        self._moment = datetime.now(timezone.utc)
        self._halfway = inf
        self._removed: set[str] = set()
        self._refused: dict[str, float] = {}
        self._unsettled: list[Callable[[], object]] = []
        self._unloadable: dict[str, Stored] = {}
        self._elsewhere: dict[str, str] = {}
        self._unread: set[str] = set()  # what could not be restored when somebody looked: it is parked once it is due
        self._planned: datetime | None = None
        self._is_in_round = False
        self._tried = -inf

    @property
    def jobs(self) -> Any:
        """The jobs, as a collection of limpyd: ``store.jobs.filter(next_run_time__lt=time.time())``."""
        return self.model.collection()

    # -- What schedulers call

    def start(self, scheduler: Any, alias: str) -> None:
        """Begin to listen to the changes by other processes, so that a job that is added there is run in time."""
        super().start(scheduler, alias)
        self._begin_to_listen()

    def shutdown(self) -> None:
        """Give the leases back. May be called twice."""
        if self._changes is not None:
            self._changes.close()
            self._changes = None
        with suppress(RedisError):
            self._settle_all()
            self.model.next_due(self.owner, [*self._round])
        self._round = {}
        self.model.database.close_idle()

    def lookup_job(self, job_id: str) -> Job | None:
        """Return a job; None if there is no such job, or it cannot be restored here."""
        return next(self._restored(self.model.read_many([job_id])), None)

    def get_due_jobs(self, now: datetime) -> list[Job]:
        """Lease jobs that are due and that no other scheduler has; return them, the earliest first."""
        if self._scheduler is not None and self._scheduler.state != STATE_RUNNING:
            return []
        self._settle_all()
        self._try_again()
        self._moment, self._halfway = now, time.monotonic() + self.lease / 2
        rows = self.model.lease_due(self.owner, self.lease, now.timestamp(), ROUND, self._skipped())
        jobs = [job for job in self._restored(rows, are_due=True) if self._has_executor(job)]
        self._round = {job.id: job for job in jobs}
        self._handed_out = sorted(jobs, key=_place)
        self._is_in_round = True
        return self._handed_out

    def get_next_run_time(self) -> datetime | None:
        """Give back the leases of jobs that were handed out and not run, and return when to look again."""
        returned, self._round = [*self._round], {}
        self._removed.clear()
        # what changes from now on may be due before what is planned here
        self._planned, self._is_in_round = None, False
        now = datetime.now(timezone.utc)
        try:
            due, lapse = self.model.next_due(self.owner, returned, [*self._skipped(), *self._unread])
        except RedisError as error:  # it would end the thread of the scheduler
            self._logger.warning("The next run time is not known, and asked for again: %s", error)
            return now + timedelta(seconds=self._scheduler.jobstore_retry_interval if self._scheduler else 1)
        moments = [datetime.fromtimestamp(max(due, 0), timezone.utc)] if due is not None and due < LAST else []
        if lapse is not None:
            moments.append(now + timedelta(seconds=lapse))
        if self._unsettled or self._refused:
            moments.append(now + timedelta(seconds=1))
        if self._scheduler is not None:
            moments.append(now + timedelta(seconds=self.look_again))
        self._planned = min(moments, default=None)
        return self._planned

    def get_all_jobs(self) -> list[Job]:
        """Return all jobs, by their next run time; paused jobs last."""
        return sorted(self._restored(self.model.read_many(self.model.collection())), key=_place)

    def add_job(self, job: Job) -> None:
        """Add a job.

        Raises
        ------
        ConflictingIdError
            If there is a job of its id.
        TypeError, ValueError
            If it cannot be stored.
        """
        try:
            self.model.make(job.id, self._dumped(job) | {"position": time.time_ns()})
        except UniquenessError:
            raise ConflictingIdError(job.id) from None

    def update_job(self, job: Job) -> None:
        """Store the changes of a job since it was read.

        If somebody else has changed the next run time of a job, or removed it, an update by the scheduler that ran it
        changes nothing. If it has another trigger now, that one says when it runs next.

        Raises
        ------
        JobLookupError
            If it was removed.
        TypeError, ValueError
            If it cannot be stored.
        """
        if job.id in self._removed and isinstance(job, StoredJob):
            return
        handed_out = self._round.get(job.id)
        if handed_out is not None and handed_out is job:
            if not self._was_run(handed_out):
                return
            self._settle(partial(self._record, job, self._serializer.dump_advance(job), self._moment))
            return
        changes = self._dumped(job, getattr(job, "as_read", None))
        with self._lookup_error(job.id):
            self._change(job.id, changes)

    def remove_job(self, job_id: str) -> None:
        """Remove a job.

        Raises
        ------
        JobLookupError
            If there is no such job.
        """
        if job_id in self._removed:
            return
        handed_out = self._round.get(job_id)
        if handed_out is not None:
            if not self._was_run(handed_out):
                return
            self._removed.add(job_id)
            self._settle(partial(self._record, handed_out, None, self._moment))
            return
        with self._lookup_error(job_id):
            self.model.remove(job_id)

    def remove_all_jobs(self) -> None:
        """Remove all jobs."""
        self.model.delete_many(self.model.collection())

    def import_jobs(self, jobs_key: str = "apscheduler.jobs", run_times_key: str = "apscheduler.run_times") -> int:
        """Take over the jobs of APScheduler's own store in the same database, which are pickles; return how many.

        Each job is deleted there once it is here. A job whose id is known here already is only deleted there. A job
        that cannot be restored stays. Several processes may do this at the same time.
        """
        client, number = self.model.get_connection(), 0
        for job_id, pickled in client.hgetall(jobs_key).items():
            try:
                job = Job.__new__(Job)
                job.__setstate__(pickle.loads(pickled.encode(errors="surrogateescape")))
                if not client.hexists(jobs_key, job_id):  # another process has taken it over, and maybe run it
                    continue
                with suppress(ConflictingIdError):
                    self.add_job(job)
                    number += 1
            except RedisError:
                raise
            except Exception as error:
                self._logger.error("The job %r of %s is not taken over: %s", job_id, jobs_key, error)
            else:
                client.zrem(run_times_key, job_id)
                client.hdel(jobs_key, job_id)
        return number

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.model._name}>"

    # -- Records

    def _dumped(self, job: Job, as_read: Stored | None = None) -> dict[str, str | None]:
        """Return the fields of a job that changed since it was read."""
        fields = self._serializer.dump(job)
        if as_read is not None:
            before = {**as_read, "next_run_time": run_time_of(as_read)}
            fields = {name: value for name, value in fields.items() if value != before.get(name, "")}
        return {name: value or None for name, value in fields.items()}

    def _change(self, pk: str, changes: Mapping[str, str | None]) -> None:
        """Change a job. If it is parked, unpark it, with the run time that it had."""
        while not self.model.change(pk, changes, {"parked": None}):
            stored = dict(self.model.read_many([pk])).get(pk, {})
            before = {name: stored.get(name) for name in ("parked", "parked_run_time")}
            unparked = {"next_run_time": before["parked_run_time"], **changes, **UNPARKED}
            if before["parked"] and self.model.change(pk, unparked, before):
                return

    def _restored(self, rows: Iterable[tuple[str, Stored]], *, are_due: bool = False) -> Iterator[StoredJob]:
        """Yield the jobs of some records. A job that cannot be restored is left out, and parked if it is due."""
        zone = getattr(self._scheduler, "timezone", None) or timezone.utc
        for pk, stored in rows:
            try:
                job = self._serializer.load(pk, stored, zone)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
                if are_due:
                    self._park(pk, stored, reason)
                elif pk not in self._unloadable:
                    self._unread.add(pk)
                    self._logger.warning("The job %r cannot be restored here: %s", pk, reason)
            else:
                job._scheduler, job._jobstore_alias = self._scheduler, self._alias
                yield job

    def _park(self, pk: str, stored: Stored, reason: str) -> None:
        """Set aside a job that cannot be restored here, until it is changed, or another process can restore it."""
        if pk not in self._unloadable:
            self._logger.error("The job %r cannot be restored, and is parked: %s", pk, reason)
        self._unloadable[pk] = stored
        moment = stored.get("next_run_time")
        if moment:
            changes = {"parked": "1", "reason": reason, "parked_run_time": moment, "next_run_time": None}
            with suppress(DoesNotExist):
                self.model.change(pk, changes, {**_content(stored), "next_run_time": moment}, self.owner)

    def _has_executor(self, job: StoredJob) -> bool:
        """Whether a job that is due can be run here. If not, leave it to others: APScheduler would delete it."""
        if self._scheduler is None or job.executor in self._scheduler._executors:
            return True
        self._logger.error("The job %r is left to others, as there is no executor %r here", job.id, job.executor)
        self._elsewhere[job.id] = job.executor
        self.model.next_due(self.owner, [job.id])
        return False

    def _try_again(self) -> None:
        """Now and then, look at jobs that others parked, or that could not be restored here; and listen again, if that
        failed."""
        if time.monotonic() < self._tried + self.look_again:
            return
        self._tried = time.monotonic()
        self._begin_to_listen()
        self._unread.clear()
        known, self._unloadable = self._unloadable, {}
        left, self._elsewhere = self._elsewhere, {}
        for pk, stored in self.model.read_many([*left], "executor"):
            if stored.get("executor") == left[pk]:
                self._elsewhere[pk] = left[pk]
        for pk, stored in self.model.read_many({*known, *self.model.collection(parked="1")}):
            if pk in known and _content(known[pk]) == _content(stored):
                self._unloadable[pk] = stored
            elif stored.get("parked") and any(self._restored([(pk, stored)], are_due=True)):
                changes = {**UNPARKED, "next_run_time": stored.get("parked_run_time")}
                with suppress(DoesNotExist):
                    self.model.change(pk, changes, {**_content(stored), "parked": "1"})

    @contextmanager
    def _lookup_error(self, job_id: str) -> Iterator[None]:
        try:
            yield
        except DoesNotExist:
            raise JobLookupError(job_id) from None

    # -- What a scheduler did to the jobs it was handed out

    def _was_run(self, job: StoredJob) -> bool:
        """Take a job out of the round, unless it could not be submitted: then it is handed out again after a pause.

        If half of the lease is gone, the round ends. The scheduler goes through the list that it was handed out, so it
        runs nothing that is not in it any more. These jobs are given back, and are due at once: a scheduler that is
        slow runs no job that another one may have.
        """
        if time.monotonic() > self._halfway:
            self._handed_out.clear()
        if job.is_refused:
            self._refused[job.id] = time.monotonic() + self._scheduler.jobstore_retry_interval
        else:
            del self._round[job.id]
        return not job.is_refused

    def _skipped(self) -> list[str]:
        """Return the jobs that are not to be handed out now."""
        now = time.monotonic()
        self._refused = {pk: until for pk, until in self._refused.items() if until > now}
        return [*self._unloadable, *self._refused, *self._left()]

    def _left(self) -> list[str]:
        """Return the jobs whose executor this scheduler does not have by now."""
        executors = self._scheduler._executors if self._scheduler else {}
        return [pk for pk, executor in dict(self._elsewhere).items() if executor not in executors]

    def _record(self, job: StoredJob, advance: Stored | None, moment: datetime) -> None:
        """Record that a job has run: advance it, or remove it if it has no next time.

        If somebody has given it another trigger meanwhile, but no other run time, the new trigger says when it is next.
        """
        while not self._is_recorded(job, advance):
            found = next(self._restored(self.model.read_many([job.id])), None)
            if found is None or found.as_read.get("next_run_time") != job.as_read.get("next_run_time"):
                return
            last = found._get_run_times(moment)[-1]
            found.next_run_time = found.trigger.get_next_fire_time(last, moment)
            job, advance = found, self._serializer.dump_advance(found) if found.next_run_time else None

    def _is_recorded(self, job: StoredJob, advance: Stored | None) -> bool:
        watched = {name: job.as_read.get(name) for name in WATCHED}
        if advance is None:
            return self.model.remove(job.id, watched, self.owner)
        return self.model.change(job.id, advance, watched, self.owner)

    def _settle(self, action: Callable[[], object]) -> None:
        """Record what the scheduler did with a job that is due. If Redis fails, which would end the scheduler, do it
        later."""
        try:
            with suppress(DoesNotExist):  # then somebody removed it, which is as well
                action()
        except RedisError as error:
            self._logger.error("What became of a job is not recorded yet: %s", error)
            self._unsettled.append(action)

    def _settle_all(self) -> None:
        """Record what could not be recorded before."""
        while self._unsettled:
            try:
                with suppress(DoesNotExist):
                    self._unsettled[0]()
            except ResponseError as error:
                if "WRONGTYPE" not in str(error):
                    raise
                self._logger.error("What became of a job cannot be recorded, as a key is foreign: %s", error)
            del self._unsettled[0]

    def _begin_to_listen(self) -> None:
        """Start a thread that listens, if there is none. If Redis fails, try again later."""
        if self._scheduler is None or self._changes is not None:
            return
        try:
            self._changes = self.model.changes()
        except RedisError as error:
            self._logger.warning("Redis fails, so changes are not heard of, but looked for: %s", error)
            return
        Thread(target=self._listen, args=(self._changes,), name=f"jobstore {self._alias}", daemon=True).start()

    def _listen(self, changes: Any) -> None:
        """Wake the scheduler up if a job is to be run before it would look again. Called by a thread."""
        try:
            while found := changes.read():
                if self._is_early({change.pk for change in found}):
                    self._scheduler.wakeup()
                time.sleep(PAUSE)
        except Exception as error:  # such as the error of a connection that is closed as the process ends
            self._logger.debug("Changes are not heard of any more, so the scheduler looks as planned: %s", error)
        if changes is not self._changes:
            self.model.database.close_idle()

    def _is_early(self, changed: set[str]) -> bool:
        """Whether to look earlier than planned, as some jobs were changed."""
        self._unread.difference_update(changed)
        if not changed.isdisjoint([*self._unloadable, *self._elsewhere]):  # they may be others now
            self._tried = -inf
            return True
        if self._is_in_round:  # at its end, the scheduler looks what is due next
            return False
        try:
            due = self.model.next_due(skipped=[*self._unloadable, *self._left()]).due
        except RedisError as error:
            self._logger.debug("A change is not heard of, so the scheduler looks as planned: %s", error)
            return False
        return due is not None and (self._planned is None or due < self._planned.timestamp())


# The stores of this process.
_stores: WeakSet[LimpydJobStore] = WeakSet()


def _start_all_anew() -> None:
    for store in _stores:
        store._start_anew()


os.register_at_fork(after_in_child=_start_all_anew)


class RedisJobStore(LimpydJobStore):
    """A `LimpydJobStore` with the arguments of APScheduler's own `RedisJobStore`. When it starts, it takes over the
    jobs of that store."""

    def __init__(
        self,
        db: int = 0,
        jobs_key: str = "apscheduler.jobs",
        run_times_key: str = "apscheduler.run_times",
        pickle_protocol: int = pickle.HIGHEST_PROTOCOL,
        **connect_args: Any,
    ) -> None:
        if db is None:
            raise ValueError('The "db" parameter must not be empty')
        if not jobs_key:
            raise ValueError('The "jobs_key" parameter must not be empty')
        if not run_times_key:
            raise ValueError('The "run_times_key" parameter must not be empty')
        if "serializer" in connect_args:
            raise TypeError("RedisJobStore stores pickles: for JSON, take LimpydJobStore, and its import_jobs()")
        if "namespace" in connect_args:
            raise TypeError("RedisJobStore has no namespace: its jobs_key is the beginning of its keys")
        ours = {name: connect_args.pop(name) for name in ("allowed", "lease", "look_again") if name in connect_args}
        super().__init__(
            namespace=jobs_key, serializer="pickle", pickle_protocol=pickle_protocol, db=db, **ours, **connect_args
        )
        self.jobs_key, self.run_times_key = jobs_key, run_times_key
        self._has_taken_over = False

    def start(self, scheduler: Any, alias: str) -> None:
        """Take over the jobs of APScheduler's own store, then begin."""
        super().start(scheduler, alias)
        try:
            self._take_over()
        except RedisError as error:
            self._logger.warning("The jobs of APScheduler's own store are taken over later: %s", error)

    def get_due_jobs(self, now: datetime) -> list[Job]:
        """Do as `LimpydJobStore` does, once the jobs of APScheduler's own store are taken over."""
        self._take_over()
        return super().get_due_jobs(now)

    def _take_over(self) -> None:
        if not self._has_taken_over:
            self.import_jobs(self.jobs_key, self.run_times_key)
            self._has_taken_over = True


def database_of(
    url: str | None, database: JobsDatabase | None, client: Any, settings: Mapping[str, Any]
) -> JobsDatabase:
    """Return the database that is named; without a name, the database of `limpyd_jobs`."""
    if client is not None:
        return JobsDatabase.of_client(client)
    for name in {"db", "port"} & settings.keys():
        if not str(settings[name]).isdecimal():  # it may be text, from a file of settings
            raise ValueError(f"{name} must be an integer of 0 or more, not {settings[name]!r}")
    if url is not None and not isinstance(url, str):
        raise TypeError(f"url must be a text, as redis://localhost:6379/0, not {url!r}")
    unknown = settings.keys() - signature(Redis).parameters.keys()
    if unknown:
        raise TypeError(f"{min(unknown)!r} is no option of a job store, nor of redis.Redis")
    if url or settings:
        return JobsDatabase(**({"url": url} if url else {}), **settings)
    return database or ScheduledJob.database


def _place(job: StoredJob) -> tuple[float, int, str]:
    """The place of a job in the order of all: by its next run time, then by when it was added."""
    position = job.as_read.get("position", "")
    return float(run_time_of(job.as_read) or "inf"), len(position), position


def _content(stored: Stored) -> dict[str, str | None]:
    """The values of a record that decide whether the job can be restored."""
    return {name: stored.get(name) for name in CONTENT}
