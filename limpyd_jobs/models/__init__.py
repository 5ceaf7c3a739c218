"""The models: what jobs, queues and errors are, and the documented ways to work with them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, TypeVar

from limpyd import fields
from limpyd.contrib.collection import ExtendedCollectionManager
from limpyd.contrib.database import PipelineDatabase
from limpyd.contrib.indexes import SimpleDateTimeIndex
from limpyd_extensions import related
from redis.exceptions import RedisError

from limpyd_jobs import transitions
from limpyd_jobs.arguments import (
    as_indexed,
    delay_argument,
    read_priority,
    stored_identifier,
    stored_priority,
    stored_queue_name,
)
from limpyd_jobs.exceptions import ClassUnresolved, LimpydJobsException
from limpyd_jobs.models import adding, pruning
from limpyd_jobs.models.pruning import Retention
from limpyd_jobs.retrying import Retry
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.store import records
from limpyd_jobs.store.atomic_fields import AtomicHashField, AtomicModel
from limpyd_jobs.store.database import JobsDatabase
from limpyd_jobs.store.job_classes import JobClasses, path_of
from limpyd_jobs.store.layout import found_by, layout_of
from limpyd_jobs.store.lazy_fields import LazyModel, pk_of
from limpyd_jobs.store.new_fields import check_fields, checked_fields, default_priority, stored_names
from limpyd_jobs.store.own_fields import Alias, OwnField, with_own_fields
from limpyd_jobs.utils import (
    as_naive_utc,
    compute_delayed_until,
    datetime_to_score,
    import_class,
    one_line,
    overrides,
    parse_datetime,
    printable,
    utcnow,
)

if TYPE_CHECKING:
    from typing_extensions import Self

Failure = BaseException | type[BaseException]
AQueue = TypeVar("AQueue", bound="Queue")
AnError = TypeVar("AnError", bound="Error")

# How long `Job.is_cancelled` relies on its last answer, in seconds.
QUESTION_INTERVAL = 1

__all__ = ["BaseJobsModel", "Error", "Job", "Queue", "compute_delayed_until", "datetime_to_score", "import_class"]


class BaseJobsModel(related.RelatedModel, AtomicModel, LazyModel):
    """The base of all models of this library. Its database is that of all its subclasses, unless they have another."""

    database = JobsDatabase()
    collection_manager = ExtendedCollectionManager
    namespace = "jobs"
    cacheable = False
    abstract = True

    @classmethod
    def use_database(cls, database: PipelineDatabase) -> list[type[BaseJobsModel]]:
        """Move the class, and its subclasses that are on the same database, to another one; return all of them.

        limpyd's own version fails if some of them have relations to other models and some have none.
        """
        relations = getattr(cls.database, "_relations", {})
        moved: list[type[BaseJobsModel]] = super(related.RelatedModel, cls).use_database(database)
        names = {model._name for model in moved if not model.abstract}
        target = vars(database).setdefault("_relations", {})
        for related_name, entries in relations.items():
            for relation in [entry for entry in entries if entry[0] in names]:
                entries.remove(relation)
                target.setdefault(related_name, []).append(relation)
        return moved

    def set_fields(self, **fields: Any) -> None:
        """Set several fields, each through its own ``proxy_set``.

        Raises
        ------
        AttributeError
            If the model has no such field.
        ValueError
            If the value of an indexed field is over 64 kB.
        """
        check_fields(type(self), fields)
        for name, value in fields.items():
            self.get_field(name).proxy_set(value)


@with_own_fields
@found_by("name", "priority")
class Queue(BaseJobsModel):
    """The jobs of one name and one priority. Queues of the same name are served by priority, the highest first.

    The lists and sorted sets hold the idents of jobs. `running` scores those that run by the end of their lease.
    `quarantine` holds what was found in a list and is no job that can be run. `deferrals` counts, by ident, how often
    the class of a job could not be resolved. `error` is another name of `errors`.
    """

    name = fields.InstanceHashField(indexable=True)
    priority = fields.InstanceHashField(indexable=True, default=0)
    waiting = fields.ListField()
    success = fields.ListField()
    errors = fields.ListField()
    delayed = fields.SortedSetField()
    running = OwnField(fields.SortedSetField())
    quarantine = OwnField(fields.ListField())
    deferrals = OwnField(fields.HashField())
    error = Alias("errors")

    # How many finished jobs to keep (an int), or for how long (a timedelta); None for all.
    keep_success: int | timedelta | None = None
    keep_errors: int | timedelta | None = None

    @classmethod
    def get_queue(cls, name: str, priority: int | str | None = 0, **fields_if_new: Any) -> Self:
        """Return the queue of a name and a priority, created with the given fields if there is none yet.

        Raises
        ------
        TypeError, ValueError
            If the name or the priority cannot be one.
        AttributeError
            If the model has no such field.
        UniquenessError
            If another queue has the value of a unique field.
        """
        name, priority = stored_queue_name(name), default_priority(cls, priority)
        check_fields(cls, fields_if_new, reserved=("name", "priority"))
        return attached_queue(cls, records.get_queue(cls, name, priority, fields_if_new), name, priority)

    @staticmethod
    def _get_iterable_for_names(names: str | Iterable[str]) -> Iterable[str]:
        return (names,) if isinstance(names, str) else names

    @classmethod
    def get_all(cls, names: str | Iterable[str]) -> list[Self]:
        """Return the queues of a name, or of several, in the order of the names."""
        rows = records.list_queues(cls, cls._get_iterable_for_names(names))
        return [attached_queue(cls, pk, name, priority) for pk, name, priority, *_ in rows]

    @classmethod
    def get_all_by_priority(cls, names: str | Iterable[str]) -> list[Self]:
        """Return the queues of a name, or of several: the highest priority first, then in the order of the names."""
        return sorted(cls.get_all(names), key=_rank)

    @classmethod
    def get_waiting_keys(cls, names: str | Iterable[str]) -> list[str]:
        """Return the keys of the waiting lists of the queues of some names, in the order of `get_all_by_priority`."""
        return [queue.waiting.key for queue in cls.get_all_by_priority(names)]

    @classmethod
    def count_jobs(cls, names: str | Iterable[str]) -> tuple[int, int]:
        """Return how many jobs wait, and how many are delayed, in the queues of some names, in one round trip."""
        return records.count_jobs(cls, cls._get_iterable_for_names(names))

    @classmethod
    def count_waiting_jobs(cls, names: str | Iterable[str]) -> int:
        """Return how many jobs wait in the queues of some names, all priorities together."""
        return records.count_jobs(cls, cls._get_iterable_for_names(names))[0]

    @classmethod
    def count_delayed_jobs(cls, names: str | Iterable[str]) -> int:
        """Return how many jobs are delayed in the queues of some names, all priorities together."""
        return records.count_jobs(cls, cls._get_iterable_for_names(names))[1]

    @classmethod
    def pause(cls, name: str) -> bool:
        """Let the jobs of a name wait until `resume`: they can be added, but no worker begins one.

        That goes for all queues of that name, whatever their priority, be they created later. What runs goes on.
        Delayed jobs that are due move to the waiting list. Workers of version 2 take no notice.

        Returns
        -------
        bool
            False if they were paused already.

        Raises
        ------
        TypeError, ValueError
            If the name cannot be one.
        """
        return records.pause(cls, stored_queue_name(name))

    @classmethod
    def resume(cls, name: str) -> bool:
        """Let workers run the jobs of a name again: those that are idle begin at once.

        Returns
        -------
        bool
            False if they were not paused.

        Raises
        ------
        TypeError, ValueError
            If the name cannot be one.
        """
        return records.resume(cls, stored_queue_name(name))

    @classmethod
    def get_paused_names(cls) -> set[str]:
        """Return the names that are paused."""
        return records.paused_names(cls)

    @property
    def first_delayed(self) -> tuple[str, float] | None:
        """The ident of the first job to be ready, with the epoch of that moment in seconds; None if none is delayed."""
        first = self.delayed.zrange(0, 0, withscores=True)
        return tuple(first[0]) if first else None

    @property
    def first_delayed_time(self) -> float | None:
        """The epoch, in seconds, of the moment when the first delayed job will be ready; None if none is delayed."""
        first = self.first_delayed
        return first[1] if first else None

    def delay_job(self, job: Job, delayed_until: datetime) -> None:
        """Put a job in the delayed set, without changing the job itself.

        Parameters
        ----------
        job: Job
        delayed_until: datetime
            When to put it in the waiting list: naive UTC, or aware.
        """
        self.delayed.zadd({job.ident: datetime_to_score(delayed_until)})

    def enqueue_job(self, job: Job, prepend: bool = False) -> None:
        """Put a job at the end of the waiting list, or at its beginning, without changing the job itself."""
        push = self.waiting.lpush if prepend else self.waiting.rpush
        push(job.ident)
        records.notify_one(self)

    def requeue_delayed_jobs(self) -> list[tuple[str, str]]:
        """Move the delayed jobs that are due to the waiting list.

        The status of a job changes only if it is still DELAYED, so that one can be canceled before.

        Returns
        -------
        list of tuple of str
            The ident of each job that could not be moved, and why.
        """
        return promote(type(self), [records.queue_key_of(self)])

    def prune(
        self,
        keep_success: int | timedelta | None = None,
        keep_errors: int | timedelta | None = None,
        error_model: type[Error] | None = None,
    ) -> int:
        """Delete jobs that succeeded, and that failed, beyond what is to be kept, the oldest first, with their errors.

        Jobs that were put in a queue again stay, as do those of classes that cannot be imported here, and those whose
        records are broken.

        Parameters
        ----------
        keep_success, keep_errors: int or timedelta
            How many to keep, or for how long after their end. None for what the attribute of the class says.
        error_model: type of Error
            `Error` by default.

        Returns
        -------
        int
            How many were deleted.

        Raises
        ------
        ConfigurationException
            If what is to be kept is none of the above, or the errors of a job cannot be found.
        """
        retention = Retention.of(type(self), keep_success, keep_errors)
        lists = retention.lists([records.queue_key_of(self)])
        steps = (
            step
            for key, keep in lists.items()
            for step in pruning.prune(type(self), error_model or Error, key, keep, job_classes)
        )
        return sum(step.deleted for step in steps)


@with_own_fields
@found_by("identifier", "queued")
class Job(BaseJobsModel):
    """Something to run. Subclasses, at the top level of a module, add fields and a `run` method.

    Attributes
    ----------
    queue_model: type of Queue
        The model of the queues its jobs are put in.
    queue_name: str
        The name of the queue its jobs are put in if none is given; None to always need one.
    schedules: mapping
        The schedules of its jobs, each a name with the arguments of `Schedule.add`: workers make them when they start.
    always_cancel_on_error: bool
        Whether none of its jobs is put back in a queue after an error.
    default_job_timeout: float
        After how many seconds one of its jobs that runs is an error, of type `JobTimeout`, unless its field
        `job_timeout` says something else. None to leave it to the worker, 0 for no limit.
    default_retry_policy: Retry
        When to try again one of its jobs that failed, unless its field `retry_policy` says something else. None to
        leave it to the worker.
    """

    identifier = fields.InstanceHashField(indexable=True)
    status = fields.InstanceHashField(indexable=True)
    priority = fields.InstanceHashField(indexable=True, default=0)
    added = fields.InstanceHashField()
    start = fields.InstanceHashField()
    end = fields.InstanceHashField()
    tries = fields.InstanceHashField()
    delayed_until = fields.InstanceHashField()
    queued = fields.InstanceHashField(indexable=True)
    cancel_on_error = fields.InstanceHashField()
    claim_token = OwnField(AtomicHashField())
    rescues = OwnField(AtomicHashField())
    last_claim = OwnField(AtomicHashField())
    queue_key = OwnField(AtomicHashField())
    job_timeout = OwnField(AtomicHashField())
    retry_policy = OwnField(AtomicHashField())
    uncounted_tries = OwnField(AtomicHashField())
    requeued_at = OwnField(AtomicHashField())
    first_priority = OwnField(AtomicHashField())

    queue_model: type[Queue] = Queue
    queue_name: str | None = None
    schedules: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    always_cancel_on_error = False
    default_job_timeout: float | None = None
    default_retry_policy: Retry | None = None

    @classmethod
    def collection(cls, manager: Any = None, **filters: Any) -> Any:
        """Return the jobs that fit, as any collection of limpyd; a status that is the name of one is warned of."""
        name = str(filters.get("status")).upper()
        if name in STATUSES:
            warnings.warn(
                f"{filters['status']!r} is no status, so no job has it: filter by STATUSES.{name}, {STATUSES[name]!r}",
                UserWarning,
                stacklevel=2,
            )
        return super().collection(manager, **filters)

    @property
    def ident(self) -> str:
        """The class path and pk of the job, ``'myapp.jobs.MyJob:12'``: what the lists of a queue hold."""
        return f"{self.get_model_repr()}:{pk_of(self)}"

    @classmethod
    def get_model_repr(cls) -> str:
        """Return the path of the class, ``'myapp.jobs.MyJob'``."""
        return path_of(cls)

    @classmethod
    def get_from_ident(cls, ident: str) -> Job:
        """Return the job of an ident.

        Raises
        ------
        ValueError
            If it is not an ident, or not that of a job.
        ImportError, AttributeError
            If there is no such module, or no such class in it, or not one that jobs may come from (see
            `JobClasses`).
        DoesNotExist
            If the job was deleted.
        """
        path, pk = ident.split(":")
        return job_classes.resolve(path).get(pk)

    @property
    def must_be_cancelled_on_error(self) -> Any:
        """Whether the job must not be put back in a queue after an error: something true, as what its field holds."""
        return self.always_cancel_on_error or self.cancel_on_error.hget()

    @property
    def duration(self) -> timedelta | None:
        """How long the job ran, or None if it did not begin or end yet."""
        start, end = map(parse_datetime, self.hmget("start", "end"))
        return end - start if start and end else None

    @classmethod
    def _get_queue_name(cls, queue_name: str | None = None) -> str:
        if queue_name is None:
            queue_name = cls.queue_name
        if queue_name is None:
            raise LimpydJobsException("Queue's name not defined")
        return stored_queue_name(queue_name)

    @classmethod
    def add_job(
        cls,
        identifier: str,
        queue_name: str | None = None,
        priority: int | str | None = 0,
        queue_model: type[Queue] | None = None,
        prepend: bool = False,
        delayed_for: float | timedelta | None = None,
        delayed_until: datetime | None = None,
        **fields_if_new: Any,
    ) -> Self:
        """Add a job to a queue, unless one of the same identifier is queued already.

        That one is then returned; it is moved to where the new one would stand if the priority is higher than its
        own, or with ``prepend``, but never while it runs.

        Parameters
        ----------
        identifier: str
            What the job is about; at most 64 kB as UTF-8.
        queue_name: str
            By default the one of the class; at most 1 kB.
        priority: int
            The higher, the sooner.
        queue_model: type of Queue
            By default the one of the class.
        prepend: bool
            True for the beginning of the waiting list instead of its end.
        delayed_for: int, float or timedelta
            How long to wait before the job may run, in seconds unless a timedelta.
        delayed_until: datetime
            When the job may run: naive UTC, or aware.
        **fields_if_new
            Other fields, for a new job only; indexed ones of at most 64 kB each.

        Raises
        ------
        LimpydJobsException
            If no queue name is given.
        TypeError, ValueError
            If an argument is none of the above.
        AttributeError
            If the model has no such field.
        UniquenessError
            If another job has the value of a unique field.
        """
        queue_name = cls._get_queue_name(queue_name)
        given_model, queue_model = queue_model, queue_model or cls.queue_model
        delay = delay_argument(delayed_for, delayed_until)
        is_custom = has_custom_placement(cls, queue_model)
        outcome, pk = transitions.add(
            cls,
            stored_identifier(identifier),
            queue_model,
            queue_name,
            default_priority(cls, priority),
            prepend=prepend,
            delay=delay,
            fields=stored_names(cls, checked_fields(cls, fields_if_new)),
            place=not is_custom,
        )
        job: Self = records.attached(cls, pk)
        if is_custom and outcome != "existing":
            until = compute_delayed_until(delayed_for, delayed_until)
            try:  # the arguments are those that an override was given by version 2
                job.enqueue_or_delay(
                    queue_name, priority, until, prepend, given_model if outcome == "added" else queue_model
                )
            except BaseException:
                if outcome == "added":
                    job.queued.delete()
                raise
        return job

    @classmethod
    def add_jobs(
        cls,
        jobs: Iterable[str | Mapping[str, Any]],
        queue_name: str | None = None,
        priority: int | str | None = 0,
        queue_model: type[Queue] | None = None,
        prepend: bool = False,
        delayed_for: float | timedelta | None = None,
        delayed_until: datetime | None = None,
        progress: Callable[[int], object] | None = None,
        **fields_if_new: Any,
    ) -> list[Self]:
        """Add many jobs, one after the other, each as `add_job` does: in steps of up to 250, a round trip each.

        Nobody ever sees half of a step. If an argument of one is wrong, nothing of that step is added; the steps before
        it stay. Jobs that follow each other and go to the same queue, with the same delay, share a step; those of a
        class with unique fields, with fields outside of its hash that have defaults, or with a way of its own to put a
        job in a queue, are added one by one.

        Parameters
        ----------
        jobs: iterable of str or mapping
            Identifiers; or arguments of `add_job` by name, for what is particular to a job:
            ``{"identifier": "page:1", "priority": 3}``. It is read as the jobs are added, so may be endless.
        progress: callable
            Is called after each step with the number of jobs added so far.

        For the other parameters, which are those of each job that has none of its own, and the exceptions, see
        `add_job`.

        Returns
        -------
        list of Job
            In the order of `jobs`.
        """
        common: dict[str, Any] = {
            "queue_name": queue_name,
            "priority": priority,
            "queue_model": queue_model,
            "prepend": prepend,
            "delayed_for": delayed_for,
            "delayed_until": delayed_until,
            **fields_if_new,
        }
        added: list[Self] = []
        for step in adding.steps(cls, jobs, common, has_custom_placement):
            added += step()
            if progress:
                progress(len(added))
        return added

    def enqueue_or_delay(
        self,
        queue_name: str | None = None,
        priority: int | str | None = None,
        delayed_until: datetime | str | None = None,
        prepend: bool = False,
        queue_model: type[Queue] | None = None,
    ) -> None:
        """Put the job in a queue: delayed if `delayed_until` is in the future, else waiting.

        A job that stands in a queue already is moved. One that is running is put there once it ends, unless by an
        error, and in the queue it came from.

        Parameters
        ----------
        priority: int
            None to keep its own.
        delayed_until: datetime or str
            Naive UTC or aware; or its text.

        The other parameters and exceptions: see `add_job`.
        """
        queue_name = self._get_queue_name(queue_name)
        queue_model = queue_model or self.queue_model
        until = _parse_delayed_until(delayed_until)
        is_custom = has_custom_queues(queue_model)
        placed = transitions.move(
            self,
            queue_model,
            queue_name,
            "" if priority is None else stored_priority(priority),
            prepend=prepend,
            delay=delay_argument(delayed_until=until),
            place=not is_custom,
        )
        if is_custom and placed.status != STATUSES.RUNNING:
            queue = queue_model.get_queue(queue_name, placed.priority if priority is None else priority)
            _enter(queue, self, placed.status, until, prepend)

    def requeue(
        self,
        queue_name: str | None = None,
        priority: int | str | None = None,
        delayed_for: float | timedelta | None = None,
        delayed_until: datetime | None = None,
        queue_model: type[Queue] | None = None,
    ) -> None:
        """Put the job back in a queue after an error. Its tries are kept, but its retry policy begins anew.

        Parameters
        ----------
        priority: int
            None for its own, or, if its retry policy changed that, for the one it had before.

        The other parameters: see `add_job`.

        Raises
        ------
        LimpydJobsException
            If its status is not ERROR, another job of its identifier is queued, or no queue name is given.
        TypeError, ValueError
            If an argument is invalid.
        """
        queue_name = self._get_queue_name(queue_name)
        given_model, queue_model = queue_model, queue_model or self.queue_model
        delay = delay_argument(delayed_for, delayed_until)
        is_custom = overrides(type(self), Job, "enqueue_or_delay")
        is_custom_queue = has_custom_queues(queue_model)
        placed = transitions.requeue(
            self,
            queue_model,
            queue_name,
            "" if priority is None else stored_priority(priority),
            delay=delay,
            place=not (is_custom or is_custom_queue),
        )
        self._cached_priority, self._cached_delayed_until = placed.priority, placed.delayed_until
        until = compute_delayed_until(delayed_for, delayed_until)
        if priority is None:
            priority = placed.priority
        if is_custom:
            self.enqueue_or_delay(queue_name, priority, until, queue_model=given_model)
        elif is_custom_queue:
            _enter(queue_model.get_queue(queue_name, priority), self, placed.status, until)

    def cancel(self) -> bool:
        """Cancel the job: one that waits or is delayed at once, so that its identifier is free again.

        One that is running is told so: its code is not interrupted, but may ask `is_cancelled`. It ends as canceled,
        or in error if it raises, and is not run again.

        Returns
        -------
        bool
            False if it ended before, in success or error: nothing was changed.

        Raises
        ------
        DoesNotExist
            If the job was deleted.
        """
        return transitions.cancel(self, self.queue_model, self.queue_name or "")

    def is_cancelled(self) -> bool:
        """Return whether the code that runs the job should end, as it is canceled, or no longer that of its worker.

        Redis is asked once per second at the most, so this may be called in every round of a loop. While Redis does
        not answer it is False; once it was True, it remains so.
        """
        known = vars(self)
        if known.get("_is_told_to_end") or known.get("_claim_lost"):
            return True
        if monotonic() < known.get("_next_question", 0):
            return False
        self._next_question = monotonic() + QUESTION_INTERVAL
        try:
            status, token = transitions.status_and_claim(self)
        except RedisError:
            return False
        claim = known.get("_held_token")
        self._is_told_to_end = status == STATUSES.CANCELED or bool(claim and claim != token)
        return self._is_told_to_end

    def run(self, queue: Queue) -> Any:
        """Do what the job is for; a subclass must define it, unless its worker has a callback.

        Parameters
        ----------
        queue: Queue
            Where the job was fetched from.

        Returns
        -------
        object
            Anything, passed on to the worker's ``job_success`` and to ``on_success``.
        """
        raise NotImplementedError("You must implement your own action")


class Error(BaseJobsModel):
    """A failure of a job."""

    job_model_repr = fields.InstanceHashField(indexable=True)
    job_pk = fields.InstanceHashField(indexable=True)
    identifier = fields.InstanceHashField(indexable=True)
    queue_name = fields.InstanceHashField(indexable=True)
    date_time = fields.InstanceHashField(indexable=True, indexes=[SimpleDateTimeIndex])
    date = fields.InstanceHashField(indexable=True)
    time = fields.InstanceHashField()
    type = fields.InstanceHashField(indexable=True)
    code = fields.InstanceHashField(indexable=True)
    message = fields.InstanceHashField()
    traceback = fields.InstanceHashField()

    @classmethod
    def add_error(
        cls,
        queue_name: str,
        job: Job,
        error: Failure,
        when: datetime | None = None,
        trace: str | None = None,
        **additional_fields: Any,
    ) -> Self:
        """Record a failure.

        A call that failed, as Redis did not answer, may be repeated with the same arguments: one failure is recorded.

        Parameters
        ----------
        queue_name: str
            The queue the job came from.
        job: Job
        error: exception, or class of one
            Its class is stored as type, its text as message, and its ``code``, if it has one, as code.
        when: datetime
            Naive UTC or aware; now by default.
        trace: str
            The traceback.
        **additional_fields
            Fields of a subclass; indexed ones of at most 64 kB each. What is longer among the others is cut off.

        Raises
        ------
        TypeError
            If `job` is not a job, or `when` not a datetime.
        AttributeError
            If the model has no such field.
        UniquenessError
            If another error has the value of a unique field.
        """
        if not isinstance(job, Job):
            raise TypeError(f"The job of an error must be a job, not {job!r}")
        if not isinstance(when, (datetime, NoneType)):
            raise TypeError(f"The when of an error must be a datetime, not {when!r}")
        check_fields(cls, additional_fields)
        values = {
            "job_model_repr": job.get_model_repr(),
            "job_pk": pk_of(job),
            "identifier": getattr(job, "_cached_identifier", None) or job.identifier.hget() or "",
            "queue_name": queue_name,
            **_described(error, as_naive_utc(when) if when else utcnow()),
        }
        if trace:
            values["traceback"] = printable(trace)
        return _add_error_once(cls, {**_as_indexed(cls, values), **additional_fields}, job, when)

    @classmethod
    def add_unresolved_error(cls, queue_name: str, ident: str, error: BaseException) -> Self:
        """Record that a job was dead-lettered, as its class could not be resolved: its identifier is unknown, so empty.

        Parameters
        ----------
        ident: str
            The class path and pk of the job.
        error: exception
            Why the class could not be resolved. Its class is stored as type, its text, and what to do, as message.
        """
        return add_unresolved_error(cls, queue_name, ident, error)

    @property
    def datetime(self) -> datetime | None:
        """When it happened, as a naive UTC datetime."""
        return parse_datetime(self.date_time.hget())

    @classmethod
    def collection_for_job(cls, job: Job) -> Any:
        """Return the collection of the errors of all jobs with the class and the identifier of this one."""
        return cls.collection(job_model_repr=job.get_model_repr(), identifier=as_indexed(job.identifier.hget() or ""))


# The classes of the jobs this process has met.
job_classes = JobClasses(Job)


def defer_unresolved(
    queue_model: type[Queue], key: str, ident: str, error: Exception, error_model: type[Error] | None = Error
) -> Exception:
    """Send a job whose class cannot be resolved back to its queue for a while, or, after too often, give it up.

    Parameters
    ----------
    key: str
        The waiting list of the queue.
    error: exception
        Why the class cannot be resolved.
    error_model: type of Error
        Where to record that the job is dead-lettered; None not to.

    Returns
    -------
    exception
        What to report: the given one, or a `ClassUnresolved` if the job is dead-lettered.
    """
    outcome, queue_name = transitions.defer_unresolved(queue_model, key, ident)
    if outcome == "deferred":
        return error
    if error_model:
        add_unresolved_error(error_model, queue_name, ident, error)
    return ClassUnresolved(
        f"{one_line(ident)} is dead-lettered, after {transitions.MAX_DEFERRALS} tries: {printable(error)}"
    )


def promote(
    queue_model: type[Queue], queue_keys: Sequence[str], error_model: type[Error] | None = Error
) -> list[tuple[str, str]]:
    """Move the delayed jobs of some queues that are due to their waiting lists.

    Parameters
    ----------
    queue_keys: sequence of str
        The beginnings of the keys of the queues, as `records.queue_key_of` returns them.
    error_model: type of Error
        Where to record that a job is dead-lettered, as its class cannot be resolved; None not to.

    Returns
    -------
    list of tuple of str
        The ident of each job that could not be moved, and why.
    """
    failures: list[tuple[str, str]] = []
    more, defer = bool(queue_keys), partial(defer_unresolved, queue_model, error_model=error_model)
    while more:
        more, found = promote_some(queue_model, queue_keys, defer)
        failures += found
    return failures


def promote_some(
    queue_model: type[Queue], queue_keys: Sequence[str], defer: Callable[[str, str, Exception], Exception | None]
) -> tuple[bool, list[tuple[str, str]]]:
    """Do one step of `promote`; return whether there is more to do, and the failures.

    Parameters
    ----------
    defer: callable
        Takes the waiting list and the ident of a job whose class cannot be resolved, and why, and puts it off. It
        returns what to report, if that is to be among the failures.
    """
    is_custom = overrides(queue_model, Queue, "enqueue_job")
    place = partial(_enqueue_customly, queue_model) if is_custom else None
    more, failures, unknown = transitions.promote(queue_model, queue_keys, job_classes.known, place=place)
    for queue_key, ident in unknown:
        more = True
        try:
            layout_of(job_classes.resolve(ident.rpartition(":")[0]))
        except Exception as error:
            reported = defer(f"{queue_key}:waiting", ident, error)
            if reported:
                failures.append((ident, printable(reported)))
    return more, failures


def _enqueue_customly(queue_model: type[Queue], queue_key: str, ident: str) -> None:
    """Put a delayed job that is due in its queue the way that has of its own; if that fails, in ours."""
    path, _, pk = ident.rpartition(":")
    queue: Queue = records.attached(queue_model, queue_key.rpartition(":")[2])
    job: Job = records.attached(job_classes.resolve(path), pk)
    try:
        queue.enqueue_job(job)
    except Exception:
        Queue.enqueue_job(queue, job)
        raise


def has_custom_queues(queue_model: type[Queue]) -> bool:
    """Whether a queue model has its own way to find a queue or to put a job in it, which then must be called."""
    return overrides(queue_model, Queue, "get_queue", "enqueue_job", "delay_job")


def has_custom_placement(job_class: type[Job], queue_model: type[Queue]) -> bool:
    """Whether a job class, or a queue model, has its own way to put a job in a queue, which then must be called."""
    return overrides(job_class, Job, "enqueue_or_delay") or has_custom_queues(queue_model)


def attached_queue(queue_model: type[AQueue], pk: str, name: str, priority: str) -> AQueue:
    """Return the object of a queue that is known to exist."""
    queue: AQueue = records.attached(queue_model, pk)
    queue.__dict__.update(_cached_name=name, _cached_priority=priority)
    return queue


def add_unresolved_error(error_model: type[AnError], queue_name: str, ident: str, error: BaseException) -> AnError:
    """Do what `Error.add_unresolved_error` says."""
    path, _, pk = printable(ident).rpartition(":")
    values = {"job_model_repr": path, "job_pk": pk, "identifier": "", "queue_name": queue_name}
    described = _described(error, utcnow())
    described["message"] += (
        f" (Its class could not be resolved, {transitions.MAX_DEFERRALS} times, so the job is in no list any more. "
        "Let a worker import that class: see --pythonpath and --job-modules. Then the job is put back in its "
        "queue.)"
    )
    return _add_error(error_model, _as_indexed(error_model, {**values, **described}))


def _as_indexed(error_model: type[Error], values: Mapping[str, Any]) -> dict[str, Any]:
    """Cut off what is too long to be indexed: what we know of a failure is to be recorded anyway."""
    return {
        name: as_indexed(value)
        if isinstance(value, str) and getattr(error_model.get_field(name), "indexable", False)
        else value
        for name, value in values.items()
    }


def _add_error_once(error_model: type[AnError], fields: dict[str, Any], job: Job, when: datetime | None) -> AnError:
    """Add an error, unless the same call before, of which the job remembers that it failed, did so."""
    model, before = vars(job).get("_unsure_error", (None, {}))
    is_again = model is error_model and before == {**fields, **({} if when else _moment_of(before))}
    if is_again:
        fields = before
    job._unsure_error = error_model, fields
    error = _add_error(error_model, fields, again=is_again)
    del job._unsure_error
    return error


def _add_error(error_model: type[AnError], fields: Mapping[str, Any], *, again: bool = False) -> AnError:
    error: AnError = records.attached(error_model, records.add_error(error_model, fields, again=again))
    return error


def _moment_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in ("date_time", "date", "time") if name in fields}


def _described(error: Failure, moment: datetime) -> dict[str, Any]:
    values = {
        "date_time": str(moment),
        "date": str(moment.date()),
        "time": str(moment.time()),
        "type": (error if isinstance(error, type) else type(error)).__name__,
        "message": printable(error),
    }
    with suppress(Exception):  # of code of the application, which is no reason not to record the failure
        code = getattr(error, "code", None)
        if code is not None and not hasattr(code, "__get__"):  # which a class has for its instances
            values["code"] = printable(code)
    return values


def _rank(queue: Queue) -> float:
    """Sort the highest priority first, and last one that is no number, which somebody else wrote."""
    priority = read_priority(queue._cached_priority)
    return float("inf") if priority is None else -priority


def _parse_delayed_until(delayed_until: datetime | str | None) -> datetime | None:
    if not isinstance(delayed_until, str):
        return delayed_until or None
    until = parse_datetime(delayed_until)
    if delayed_until and until is None:
        raise ValueError(f"Invalid delayed_until argument: not the text of a datetime: {delayed_until!r}")
    return until


def _enter(queue: Queue, job: Job, status: str, delayed_until: datetime | None, prepend: bool = False) -> None:
    if status == STATUSES.DELAYED and delayed_until:
        queue.delay_job(job, delayed_until)
    else:
        queue.enqueue_job(job, prepend)
