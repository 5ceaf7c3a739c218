"""A queue: the jobs of one name and one priority, and how due jobs and finished jobs leave it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from limpyd import fields

from limpyd_jobs.arguments import read_priority, stored_queue_name
from limpyd_jobs.classes.binding import bound_like, origin_of
from limpyd_jobs.classes.job_classes import job_classes
from limpyd_jobs.classes.roots import roots
from limpyd_jobs.dates import datetime_to_score
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.fields.atomic_fields import AtomicHashField
from limpyd_jobs.fields.new_fields import check_fields, default_priority
from limpyd_jobs.fields.own_fields import Alias, OwnField, with_own_fields
from limpyd_jobs.models.base import BaseJobsModel
from limpyd_jobs.models.error import Error, defer_unresolved
from limpyd_jobs.models.following.changes import Changes, ChangesOf, JobChange, does_notify
from limpyd_jobs.models.job_record import JobRecord
from limpyd_jobs.models.promoting import promote
from limpyd_jobs.models.pruning import Retention, prune
from limpyd_jobs.records import records
from limpyd_jobs.records.layout import found_by
from limpyd_jobs.redis.calls import finish

if TYPE_CHECKING:
    from limpyd.model import RedisModel

    from limpyd_jobs.models.following.awaited_changes import AwaitedChanges

AQueue = TypeVar("AQueue", bound="Queue")


@with_own_fields
@found_by("name", "priority")
class Queue(BaseJobsModel):
    """The jobs of one name and one priority. Queues of the same name are served by priority, the highest first.

    The lists and sorted sets hold the idents of jobs. The scores of `running` are the ends of the leases. `quarantine`
    holds entries that were found in a list and are not jobs that can be run. `deferrals` counts, by ident, how often
    the class of a job could not be resolved. `parked` are the jobs that wait for a limit, by their place; `turns`,
    `later` and `lanes` are how they are found. `error` is another name of `errors`.
    """

    __module__ = "limpyd_jobs.models"  # what is stored of a class is its path

    name: Any = fields.InstanceHashField(indexable=True)
    priority: Any = fields.InstanceHashField(indexable=True, default=0)
    waiting: Any = fields.ListField()
    success: Any = fields.ListField()
    errors: Any = fields.ListField()
    delayed: Any = fields.SortedSetField()
    running = OwnField(fields.SortedSetField())
    quarantine = OwnField(fields.ListField())
    deferrals = OwnField(fields.HashField())
    parked = OwnField(fields.SortedSetField())
    turns = OwnField(fields.SortedSetField())
    later = OwnField(fields.SortedSetField())
    lanes = OwnField(AtomicHashField())
    error = Alias("errors")

    # what came along with the queue; not always there
    _cached_name: Any
    _cached_priority: Any

    # How many finished jobs to keep (an int), or for how long (a timedelta); None for all.
    keep_success: int | timedelta | None = None
    keep_errors: int | timedelta | None = None

    @classmethod
    def get_queue(cls, name: str, priority: int | str | None = 0, **fields_if_new: Any) -> Self:
        """Return the queue of a name and a priority. It is created, with the given fields, if it does not exist.

        Raises
        ------
        TypeError, ValueError
            If the name or the priority is not valid.
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
    def read_all(cls, names: str | Iterable[str], *, lapsed: bool = False) -> list[QueueContents]:
        """Return what stands in the queues of some names, the highest priority first, all of one moment.

        It is one round trip, in which Redis reads whole lists: 10,000 jobs take some milliseconds. To read the jobs
        themselves in pages, give their pks to `read_many` of their class.

        Parameters
        ----------
        names: str, or iterable of str
        lapsed: bool
            True to leave out running jobs whose lease holds.
        """
        rows = records.read_queues(cls, cls._get_iterable_for_names(names), lapsed=lapsed)
        found = [QueueContents(attached_queue(cls, *row[:3]), *row[1:]) for row in rows]
        return sorted(found, key=lambda each: _rank(each.queue))

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
    def pause(cls, name: str, *, unaudited: bool = False) -> bool:
        """Let the jobs of a name wait until `resume`: they can be added, but no worker begins one.

        That goes for all queues of that name and any priority, also if they are created later. Running jobs go on.
        Delayed jobs that are due move to the waiting list. Workers of version 2 take no notice.

        Parameters
        ----------
        name: str
        unaudited: bool
            True to do it even if Redis refuses to write it to the audit.

        Returns
        -------
        bool
            False if they were paused already.

        Raises
        ------
        TypeError, ValueError
            If the name is not valid.
        NotAudited
            If Redis refuses to write it to the audit.
        """
        return _change_pause(cls, name, pauses=True, unaudited=unaudited)

    @classmethod
    def resume(cls, name: str, *, unaudited: bool = False) -> bool:
        """Let workers run the jobs of a name again: idle workers begin at once.

        For the parameters and exceptions see `pause`.

        Returns
        -------
        bool
            False if they were not paused.
        """
        return _change_pause(cls, name, pauses=False, unaudited=unaudited)

    @classmethod
    def get_paused_names(cls) -> set[str]:
        """Return the names that are paused."""
        return records.paused_names_of(records.redis_of(cls), cls._name)

    @classmethod
    def changes(  # type: ignore[override]
        cls, names: str | Iterable[str] | None = None, timeout: float | None = None, since: str | None = None
    ) -> Changes[JobChange]:
        """Return an iterator over the changes of the jobs in the queues of some names, each a `JobChange`.

        The jobs are those of all classes that are imported, or known, when this is called, and that notify of changes.

        Parameters
        ----------
        names: str, or iterable of str
            None for all.

        The other parameters and exceptions: see `BaseJobsModel.changes`.

        Raises
        ------
        ConfigurationException
            If no class that is known notifies of its changes.
        """
        return Changes(_notifying(cls), timeout, since, ChangesOf(cls, _wanted_names(cls, names)))

    @classmethod
    def achanges(  # type: ignore[override]
        cls, names: str | Iterable[str] | None = None, timeout: float | None = None, since: str | None = None
    ) -> AwaitedChanges[JobChange]:
        """Return an asynchronous iterator over the same changes: see `BaseJobsModel.achanges`."""
        from limpyd_jobs.models.following.awaited_changes import AwaitedChanges  # not at the start of each process

        return AwaitedChanges(_notifying(cls), timeout, since, ChangesOf(cls, _wanted_names(cls, names)))

    @property
    def first_delayed(self) -> tuple[str, float] | None:
        """The ident of the next delayed job that is due, and when, as an epoch in seconds; None if no job is
        delayed."""
        first = self.delayed.zrange(0, 0, withscores=True)
        return tuple(first[0]) if first else None

    @property
    def first_delayed_time(self) -> float | None:
        """When the next delayed job is due, as an epoch in seconds; None if no job is delayed."""
        first = self.first_delayed
        return first[1] if first else None

    def delay_job(self, job: JobRecord, delayed_until: datetime) -> None:
        """Put a job in the delayed set, without changing the job itself.

        Parameters
        ----------
        job: Job
        delayed_until: datetime
            When to put it in the waiting list: naive UTC, or aware.
        """
        self.delayed.zadd({job.ident: datetime_to_score(delayed_until)})

    def enqueue_job(self, job: JobRecord, prepend: bool = False) -> None:
        """Put a job at the end of the waiting list, or at its beginning, without changing the job itself."""
        push = self.waiting.lpush if prepend else self.waiting.rpush
        push(job.ident)
        records.notify_one(records.redis_of(self), records.queue_key_of(self))

    def requeue_delayed_jobs(self) -> list[tuple[str, str]]:
        """Move the delayed jobs that are due to the waiting list.

        The status of a job changes only if it is still DELAYED, so a job can be canceled before.

        Returns
        -------
        list of tuple of str
            The ident of each job that could not be moved, and why.
        """
        defer = partial(defer_unresolved, type(self), error_model=bound_like(Error, type(self)))
        return finish(promote(type(self), [records.queue_key_of(self)], defer))[1]

    def prune(
        self,
        keep_success: int | timedelta | None = None,
        keep_errors: int | timedelta | None = None,
        error_model: type[Error] | None = None,
    ) -> int:
        """Delete the jobs that succeeded or failed and are not to be kept, the oldest first, with their errors.

        Jobs that were put in a queue again stay, as do those of classes that cannot be imported here, and those whose
        records are broken.

        Parameters
        ----------
        keep_success, keep_errors: int or timedelta
            How many to keep, or for how long after their end. None for the attribute of the class.
        error_model: type of Error
            `Error` by default.

        Returns
        -------
        int
            How many were deleted.

        Raises
        ------
        ConfigurationException
            If what is to be kept is not one of the above, or the errors of a job cannot be found.
        """
        error_model = error_model or bound_like(Error, type(self))
        retention = Retention.of(type(self), keep_success, keep_errors)
        lists = retention.lists([records.queue_key_of(self)])
        return finish(prune(type(self), error_model, lists, job_classes.like(type(self)))).deleted


class QueueContents(NamedTuple):
    """What stands in a queue.

    Attributes
    ----------
    queue: Queue
    name, priority: str
    running: list of str
        The idents of the jobs that run. The job whose lease ends first is the first.
    waiting: list of str
        The idents of the jobs that wait, the next one first.
    """

    queue: Queue
    name: str
    priority: str
    running: list[str]
    waiting: list[str]


roots.queue = Queue


def _wanted_names(queue_model: type[Queue], names: str | Iterable[str] | None) -> set[str] | None:
    return names if names is None else {stored_queue_name(name) for name in queue_model._get_iterable_for_names(names)}


def _notifying(queue_model: type[Queue]) -> list[type[RedisModel]]:
    """Return the job classes on the database of the queues that notify of their changes."""
    notifying = [each for each in job_classes.all() if does_notify(each)]
    models = [bound_like(each, queue_model) for each in notifying if each.database is origin_of(queue_model).database]
    if not models:
        raise ConfigurationException("No job class notifies of its changes: set notify_changes = True on one")
    return models


def attached_queue(queue_model: type[AQueue], pk: str, name: str, priority: str) -> AQueue:
    """Return the object of a queue that is known to exist."""
    queue: AQueue = records.attached(queue_model, pk, _cached_name=name, _cached_priority=priority)
    return queue


def queue_name(queue: Queue) -> str:
    """Return the name of a queue, without asking Redis if it is known."""
    name: str = getattr(queue, "_cached_name", None) or queue.name.hget()
    return name


def _change_pause(queue_model: type[Queue], name: str, **how: bool) -> bool:
    return records.change_pause(records.redis_of(queue_model), queue_model._name, stored_queue_name(name), **how)


def _rank(queue: Queue) -> float:
    """Sort the highest priority first. A priority that is not a number, which another program wrote, comes last."""
    priority = read_priority(queue._cached_priority)
    return float("inf") if priority is None else -priority
