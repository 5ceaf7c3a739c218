"""A job as a record: its stored fields, and how its class is found again; and collections of jobs."""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, overload

from limpyd import fields
from limpyd.contrib.collection import ExtendedCollectionManager
from limpyd.indexes import EqualIndex

from limpyd_jobs import transitions
from limpyd_jobs.classes.job_classes import job_classes, path_of
from limpyd_jobs.dates import parse_datetime
from limpyd_jobs.fields.atomic_fields import AtomicHashField
from limpyd_jobs.fields.own_fields import OwnField, OwnSetting, with_own_fields
from limpyd_jobs.idents import read_pk
from limpyd_jobs.models.base import BaseJobsModel
from limpyd_jobs.records.layout import found_by, layout_of
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.retrying import Retry
from limpyd_jobs.statuses import STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal, SupportsIndex

    from typing_extensions import TypeVar

    from limpyd_jobs.models.following.awaited_changes import AwaitedChanges
    from limpyd_jobs.models.following.changes import Changes, JobChange
    from limpyd_jobs.search.actions import Tally
    from limpyd_jobs.search.jobs import JobFilter

    Record = TypeVar("Record", bound="JobRecord", default=Any)
    Item = TypeVar("Item", default=str)

    class Manager(Generic[Record, Item]):
        """What the collections of limpyd have, which has no types."""

        model: type[Record]
        _lazy_collection: Any
        _store: Any
        stored_key: Any

        def __init__(self, model: type[Record]) -> None: ...
        def __bool__(self) -> bool: ...
        def __call__(self, **filters: Any) -> Self: ...
        def __iter__(self) -> Iterator[Item]: ...
        def __len__(self) -> int: ...
        @overload
        def __getitem__(self, place: SupportsIndex) -> Item: ...
        @overload
        def __getitem__(self, place: slice) -> Self: ...
        def __getitem__(self, place: Any) -> Any: ...
        def clone(self) -> Self: ...
        def filter(self, **filters: Any) -> Self: ...
        def from_stored(self, key: str) -> Self: ...
        def instances(self, lazy: bool = False) -> JobCollection[Record, Record]: ...
        def intersect(self, *sets: Any) -> Self: ...
        def primary_keys(self) -> JobCollection[Record, str]: ...
        def sort(self, **parameters: Any) -> Self: ...
        def store(self, key: str | None = None, ttl: int = 60) -> Self: ...
        def stored_key_exists(self) -> bool: ...
        def values(self, *fields: str) -> JobCollection[Record, dict[str, Any]]: ...
        @overload
        def values_list(self, *fields: str, flat: Literal[True]) -> JobCollection[Record, Any]: ...
        @overload
        def values_list(self, *fields: str, flat: bool = False) -> JobCollection[Record, tuple[Any, ...]]: ...
        def values_list(self, *fields: str, flat: bool = False) -> Any: ...

else:
    from typing import TypeVar

    Record, Item = TypeVar("Record"), TypeVar("Item")

    class Manager(ExtendedCollectionManager, Generic[Record, Item]):
        """The collections of limpyd: those of jobs name the model, and what they yield."""


class JobCollection(Manager[Record, Item]):
    """The jobs of a class that fit. The verbs are those of `JobFilter`.

    The step that changes a job looks again at the fields that the collection asks for. Other filters, such as ranges
    and intersections, count as they are when the verb begins.

    >>> SendMail.collection(status=STATUSES.ERROR, to="ann@example.com").requeue_all()
    Tally(done=3, skipped=0, refused=0, reasons={})
    """

    def requeue_all(self, *args: Any, **options: Any) -> Tally:
        """Put the jobs that are in error back in a queue."""
        return self._filter().requeue_all(*args, **options)

    def cancel_all(self, **options: Any) -> Tally:
        """Cancel the jobs that wait, are delayed or run."""
        return self._filter().cancel_all(**options)

    def delete_all(self, **options: Any) -> Tally:
        """Delete the jobs that do not run."""
        return self._filter().delete_all(**options)

    def move_all(self, *args: Any, **options: Any) -> Tally:
        """Move the jobs that wait or are delayed."""
        return self._filter().move_all(*args, **options)

    def delay_all(self, *args: Any, **options: Any) -> Tally:
        """Delay the jobs that wait or are delayed."""
        return self._filter().delay_all(*args, **options)

    def promote_all(self, **options: Any) -> Tally:
        """Let the jobs that are delayed wait."""
        return self._filter().promote_all(**options)

    def _filter(self) -> JobFilter[Any]:
        """The same jobs as a filter, which needs their pks unless it can ask for all itself."""
        from limpyd_jobs.search.conditions import Condition
        from limpyd_jobs.search.jobs import JobFilter  # not at the start of each process
        from limpyd_jobs.search.look import OnlyJobs

        parts, fields = self._lazy_collection, layout_of(self.model)
        asked = [each for each in parts["sets"] if _asks_for_a_value(each) and each.index.field.name in fields.plain]
        found = JobFilter(self.model, database=self.model.database)
        found.conditions += tuple(Condition(each.index.field.name, "=", str(each.value)) for each in asked)
        if len(asked) < len(parts["sets"]) or parts["pks"] or parts["intersects"] or self._store or self.stored_key:
            numbers = map(read_pk, self.clone().primary_keys())
            pks = [number for number in numbers if number is not None]
            found.only = OnlyJobs({self.model.get_model_repr(): pks})
        return found


def _asks_for_a_value(asked: Any) -> bool:
    """Whether a filter of a collection is that a field has a value."""
    index = getattr(asked, "index", None)
    is_plain = type(index) is EqualIndex and not getattr(asked, "related_filters", None)
    return is_plain and asked.suffix in (None, "eq") and not asked.extra_field_parts


@with_own_fields
@found_by("identifier", "queued")
class JobRecord(BaseJobsModel):
    """The fields of a job, and what can be read from them. Subclass `Job`, not this."""

    abstract = True
    collection_manager = JobCollection

    identifier: Any = fields.InstanceHashField(indexable=True)
    status: Any = fields.InstanceHashField(indexable=True)
    priority: Any = fields.InstanceHashField(indexable=True, default=0)
    added: Any = fields.InstanceHashField()
    start: Any = fields.InstanceHashField()
    end: Any = fields.InstanceHashField()
    tries: Any = fields.InstanceHashField()
    delayed_until: Any = fields.InstanceHashField()
    queued: Any = fields.InstanceHashField(indexable=True)
    cancel_on_error: Any = fields.InstanceHashField()
    claim_token = OwnField(AtomicHashField())
    rescues = OwnField(AtomicHashField())
    last_claim = OwnField(AtomicHashField())
    queue_key = OwnField(AtomicHashField())
    job_timeout = OwnField(AtomicHashField())
    retry_policy = OwnField(AtomicHashField())
    start_within = OwnSetting(AtomicHashField())
    retry_for = OwnSetting(AtomicHashField())
    unique_for = OwnSetting(AtomicHashField())
    uncounted_tries = OwnField(AtomicHashField())
    quick_returns = OwnField(AtomicHashField())
    requeued_at = OwnField(AtomicHashField())
    first_priority = OwnField(AtomicHashField())
    failing_since = OwnField(AtomicHashField())
    follows = OwnField(AtomicHashField())
    followed_by = OwnField(AtomicHashField())
    cancel_reason = OwnField(AtomicHashField())
    flow = OwnField(AtomicHashField())
    after = OwnField(AtomicHashField())
    waits = OwnField(AtomicHashField())
    signals = OwnField(AtomicHashField())
    spawned = OwnField(AtomicHashField())
    progress_state = OwnField(AtomicHashField())
    cursor = OwnField(AtomicHashField())
    emitted = OwnField(AtomicHashField())
    trace_context = OwnField(AtomicHashField())
    slots = OwnField(AtomicHashField())
    place = OwnField(AtomicHashField())

    # what came with the claim of a job, or is known since a call; not always there
    _cached_identifier: Any
    _cached_status: Any
    _cached_priority: Any
    _cached_delayed_until: Any
    _cached_start: Any
    _cached_end: Any
    _cached_duration: Any
    _cached_reason: Any
    _unsure_error: Any
    _progress_state: Any

    always_cancel_on_error = False
    default_retry_policy: Retry | None = None

    if TYPE_CHECKING:

        @classmethod
        def changes(cls, timeout: float | None = None, since: str | None = None) -> Changes[JobChange]: ...

        @classmethod
        def achanges(cls, timeout: float | None = None, since: str | None = None) -> AwaitedChanges[JobChange]: ...

    @classmethod
    @overload
    def collection(cls, manager: None = None, **filters: Any) -> JobCollection[Self, str]: ...

    @classmethod
    @overload
    def collection(cls, manager: Any, **filters: Any) -> Any: ...

    @classmethod
    def collection(cls, manager: Any = None, **filters: Any) -> Any:
        """Return the jobs that fit, as any collection of limpyd. It warns if a status is given by its name."""
        name = str(filters.get("status")).upper()
        if name in STATUSES:
            warnings.warn(
                f"{filters['status']!r} is not a status, no job has it: filter by STATUSES.{name}, {STATUSES[name]!r}",
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

    @property
    def must_be_cancelled_on_error(self) -> Any:
        """Whether the job must not be put back in a queue after an error: any true value, such as the text of its
        field."""
        return self.always_cancel_on_error or self.cancel_on_error.hget()

    def claim_owner(self) -> str | None:
        """Return who holds the claim on the job; None if it is not claimed, or a worker of version 2.

        The name of a worker is its host, the pid of its process, and a code that tells it from others there.
        """
        return transitions.owner_of(transitions.status_and_claim(self)[1])

    def claim_state(self) -> transitions.ClaimState:
        """Return the status of the job, who holds the claim on it, and for how long, all of one moment."""
        return transitions.claim_state(self)

    @property
    def duration(self) -> timedelta | None:
        """How long the job ran; None if it did not begin or end yet."""
        start, end = map(parse_datetime, self.hmget("start", "end"))
        return end - start if start and end else None


def job_modules() -> tuple[str, ...] | None:
    """Return the modules and packages whose jobs this process runs, as ``--job-modules`` names them; None for any."""
    return job_classes.modules
