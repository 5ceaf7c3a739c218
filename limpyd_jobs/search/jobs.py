"""A filter of jobs, by what is in them: to count them, list them, and count them by a field."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol

from limpyd.model import RedisModel

from limpyd_jobs.classes.awaitable import awaited, by_steps
from limpyd_jobs.classes.imports import not_imported
from limpyd_jobs.classes.job_classes import job_class_of, job_classes
from limpyd_jobs.classes.roots import roots
from limpyd_jobs.idents import Ident, read_pk
from limpyd_jobs.records.known_classes import KnownClass
from limpyd_jobs.records.lazy_fields import attached
from limpyd_jobs.redis.calls import Steps, finish, listed
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.actions import (
    ACTIONS,
    CancelMany,
    Delay,
    DelayMany,
    DeleteMany,
    MoveMany,
    PromoteMany,
    RequeueMany,
    Tally,
)
from limpyd_jobs.search.classes import database_of, on
from limpyd_jobs.search.conditions import Condition
from limpyd_jobs.search.filter import Filter, Plan
from limpyd_jobs.search.found import FIELDS, Facets, FoundJob, name_of_status
from limpyd_jobs.search.look import OF_ERRORS, OnlyJobs, Search, hides_none, listed_jobs
from limpyd_jobs.search.pace import Pace
from limpyd_jobs.search.walk import MissingIndex, OnStep
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.transitions.many import Found

# How many different values facets keep at most.
MAX_VALUES = 10_000

# How many entries of the lists of a queue are read, to look only at their jobs.
MAX_LISTED = 20_000


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    AJob = TypeVar("AJob", default=Any)
else:
    from typing import TypeVar

    AJob = TypeVar("AJob")


class OfFunction(Protocol[AJob]):
    """What type checkers know of a function that is a job: it has a class of jobs."""

    job_class: type[AJob]


class JobFilter(Filter[FoundJob], Generic[AJob]):
    """The jobs that meet some conditions, of all classes of a database, whether this process can import them or not.

    A class is known once a process of version 3 added a job of it, or if it is imported here.

    >>> failed = JobFilter("class=shop.jobs.*", status="error", to="ann@example.com", added__gt="-1h")
    >>> print(failed.count())
    17

    Parameters
    ----------
    *words: str, type of Job, or JobFunction
        Conditions as on the command line: ``status=error``, ``status!=error``, ``added>-1h`` or, the same,
        ``added__gt=-1h``. A job has to meet all of them. A class stands for its own jobs, not for those of its
        subclasses. A word without a comparison, ``ann@example.com``, is met by the job that has it as its ident, and by
        jobs that have it as their identifier, or as the value of an indexed field of the application.
    database: JobsDatabase
        The database of `BaseJobsModel` by default.
    error_model: type of Error
        The model of the errors that ``error`` and ``fingerprint`` are about; None for all models.
    **conditions
        The same as in Python: ``status="error"``, ``status__ne="error"``, ``added__gt=timedelta(hours=-1)``, with
        ``gt, gte, lt, lte, ne``.

    Attributes
    ----------
    unseen: int
        How many jobs the last look left out, because their pk is not a number of at most 18 digits: this library makes
        no such pks. A count without them is a lower bound.

    Raises
    ------
    ValueError
        If a word is not a condition, or a field cannot have a value or be compared so.
    TypeError
        If a value is neither a text, a number, a datetime nor a timedelta.
    """

    _record, _fields, _date = FoundJob, FIELDS, "added"

    def __init__(
        self,
        *words: str | type[AJob] | OfFunction[AJob],
        database: JobsDatabase | None = None,
        error_model: type[RedisModel] | None = None,
        **conditions: Any,
    ) -> None:
        parsed = [Condition.of_jobs(word) if isinstance(word, str) else _of_class(word) for word in words]
        if sum(not isinstance(word, str) for word in words) > 1:
            raise ValueError("A job has one class only: give one, or a pattern, as class=shop.jobs.*")
        super().__init__(parsed, conditions, database_of(database))
        self._error_model = error_model
        self.only: OnlyJobs | None = None  # if only some jobs are meant
        self._idents: Sequence[str] = ()  # if they were named one by one
        self.is_hidden: Callable[[str], bool] = hides_none  # whether a field is not one that a word alone may mean

    @classmethod
    def of_jobs(cls, idents: Iterable[str], database: JobsDatabase | None = None) -> JobFilter:
        """Return the filter of some jobs, given by their idents. Those that are gone are not among them.

        >>> JobFilter.of_jobs(["shop.jobs.SendMail:12", "shop.jobs.SendMail:17"]).requeue_all()

        Raises
        ------
        ValueError
            If one of them is no ident, or its pk is not a number.
        """
        found, pks = cls(database=database), defaultdict[str, list[int]](list)
        found._idents = tuple(dict.fromkeys(idents))
        for ident in found._idents:
            each = Ident.parse(ident)
            pk = read_pk(each.pk) if each else None
            if each is None or pk is None:
                raise ValueError(f"{ident!r} is not the ident of a job, as myapp.jobs.SendMail:12")
            pks[each.path].append(pk)
        found.only = OnlyJobs(pks)
        return found

    def __str__(self) -> str:
        return " ".join([*([", ".join(self._idents)] if self._idents else []), *map(str, self.conditions)])

    def _begun(
        self, timeout: float | None = None, progress: OnStep | None = None, by: str | None = None
    ) -> Steps[Search]:
        search = Search(self._database, self._connection, self._error_model, timeout, progress, self.is_hidden)
        yield from search.begin(self.conditions, by, self.only)
        return search

    @by_steps
    def facets(
        self, field: str, most: int = 50, timeout: float | None = None, progress: OnStep | None = None
    ) -> Steps[Facets]:
        """Count the jobs by the values of a field: ``class``, ``queue``, ``status``, or any other.

        Parameters
        ----------
        field: str
            ``error`` and ``fingerprint``, or ``last_fingerprint``, stand for the type and the fingerprint of the last
            error of a job.
        most: int
            How many values to return: those with the most jobs.

        The other parameters and exceptions: see `count`.
        """
        if field in ("last_app_version", "owner", "pk"):
            raise ValueError(f"{field} is not a field of a job, so jobs are not counted by it")
        search = yield from self._begun(timeout, progress, field)
        if field == "status" and all(source.is_whole for source in search.sources):
            return Facets(*(yield from self._statuses()), is_exact=True)
        pinned = next((each.value for each in self.conditions if each.field == field and each.is_equality), None)
        if pinned is not None and field in ("queue", "status"):  # all have the same
            name = name_of_status(pinned) if field == "status" else pinned
            number, is_exact = yield from self.counting(timeout, progress)
            return Facets({name: number} if number else {}, 0, is_exact)
        values = _Values()
        for source in search.sources:
            if field == "class":
                values.add(source.known.path, (yield from search.number_in(source)))
                continue
            errors = json.dumps(search.errors_of(source.known)) if field in OF_ERRORS else ""
            add = partial(values.add_step, name_of_status if field == "status" else str)
            yield from search.each(source, partial(source.find, by=field, errors=errors), add)
        self.unseen = search.unseen
        return Facets(*values.most_common(most), search.is_complete)

    afacets = awaited(facets)

    def _statuses(self) -> Steps[tuple[Mapping[str, int], int]]:
        """Count the jobs of some classes by their status. Each number is the size of a set."""
        counts: Counter[str] = Counter()
        for name, letter in STATUSES.items():
            counts[name.lower()] = (yield from self._and(Condition("status", "=", letter)).counting()).number
        number = (yield from self.counting()).number
        others = max(number - counts.total(), 0)  # a job may change meanwhile, and be counted twice
        return {name: number for name, number in counts.most_common() if number}, others

    def _and(self, *conditions: Condition) -> JobFilter[AJob]:
        narrower: JobFilter[AJob] = JobFilter(database=self._database, error_model=self._error_model)
        narrower.only, narrower.is_hidden = self.only, self.is_hidden
        narrower.conditions, narrower._idents = (*self.conditions, *conditions), self._idents
        return narrower

    def jobs(self) -> Iterator[AJob]:
        """Yield the jobs themselves, in the order of `__iter__`.

        >>> for job in JobFilter(SendMail, status="error").jobs():
        ...     print(job.arguments.to)

        A job may be deleted, or changed, once it is yielded.

        Raises
        ------
        LookupError
            If this process cannot import the class of a job.
        """
        models: dict[str, Any] = {}
        for found in self:
            path, pk = found.ident.rsplit(":", 1)
            if path not in models:
                try:
                    models[path] = on(job_classes.resolve(path), self._database)
                except Exception as error:  # whatever its module raises
                    raise LookupError(not_imported(path, error)) from error
            yield attached(models[path], pk)

    @property
    def left_out(self) -> int:
        """How many entries of the lists were not read, if `listed` returned this filter."""
        return self.only.left_out if self.only else 0

    def listed(self, most: int = MAX_LISTED, *, newest_first: bool = True) -> JobFilter[AJob] | None:
        """Return the filter of those of the jobs that are found at once: with ``queue=``, those that the lists of the
        queue have now; and those that run or are canceled, of all queues, unless there are too many.

        These are most often all jobs of the queue, but not if its lists were cut by hand, for example, or have more
        than `most` entries. Then the filter has what was added to each list last, or, without `newest_first`, first: in
        a waiting list, what is run next. Of delayed jobs, it has those that are due first. `left_out` says how many
        entries were not read. Counts are then lower bounds.

        Return None if no ``queue=`` is asked for, or canceled jobs, which are in no list, and there are too many.

        >>> few = JobFilter("queue=mails").listed()
        >>> page = few.page() if few else JobFilter("queue=mails").page(timeout=0.1)
        """
        found = listed_jobs(self._database, self.conditions, most, newest_first)
        if found is None:
            return None
        narrower = self._and()
        narrower.only = found
        return narrower

    def missing_indexes(self) -> list[MissingIndex]:
        """Return the indexes that the classes lack. Without them, jobs are looked at one by one: see :ref:`Indexes`.

        Raises
        ------
        ValueError
            If no class of the database has a field that is asked for.
        """
        return [missing for source in finish(self._begun()).sources for missing in source.missing_indexes]

    @by_steps
    def requeue_all(
        self,
        queue_name: str | None = None,
        priority: int | None = None,
        delayed_for: Delay = None,
        delayed_until: datetime | None = None,
        *,
        spread: float | timedelta | None = None,
        rate: float | None = None,
        restart: bool = False,
        dry_run: bool = False,
        progress: OnStep | None = None,
        unaudited: bool = False,
    ) -> Steps[Tally]:
        """Put the jobs that are in error back in a queue, as `Job.requeue` does: by default, each in the queue in which
        it was.

        It goes in steps of 100 jobs, a round trip each. The step that changes a job looks at its conditions again. If
        the call is interrupted, what was done stays: call it again for the rest. Jobs that are added meanwhile are left
        alone. If a class has its own way to put a job in a queue, that is called, job by job.

        Parameters
        ----------
        queue_name: str
            None for the queue of each job.
        priority: int
            None for the priority of each job.
        delayed_for: int, float or timedelta
        delayed_until: datetime
            See `Job.add_job`.
        spread: int, float or timedelta
            In how many seconds, unless a timedelta, all are due, one after the other. The first one waits at once, or
            after the delay. The others are delayed, by the clock of Redis. They are counted before. If the call is
            interrupted, even killed, the same call goes on with the rest as it began, not over the whole time again.
        rate: float
            How many jobs are due per second, instead of a spread. The same call with a filter of the same conditions,
            because one was interrupted for example, goes on behind the last job that is due.
        restart: bool
            True to let the loops and steps of the jobs begin anew, instead of going on where they were.
        dry_run: bool
            True to change nothing, and to return what would be done.
        progress: callable
            Called after each step with how many jobs were looked at, and how many at most there are to look at. It may
            raise `limpyd_jobs.query.Enough`, to end that with what was done, or counted, by then.
        unaudited: bool
            True to do it even if Redis refuses to write it to the audit, because it is full for example.

        Raises
        ------
        TypeError, ValueError
            If an argument is not one of the above, or no class of the database has a field that is asked for.
        NotAudited
            If Redis refuses to write it to the audit: nothing was done, or no more is done.
        """
        pace = self._pace(spread, rate)
        action = RequeueMany(queue_name, priority, delayed_for, delayed_until, pace, restart)
        return self._acting(action, dry_run, progress, unaudited)

    arequeue_all = awaited(
        requeue_all,
        about="Between two steps, others go on. If the task is canceled, what was done stays, and the audit says so.",
    )

    @by_steps
    def cancel_all(
        self, *, dry_run: bool = False, progress: OnStep | None = None, unaudited: bool = False
    ) -> Steps[Tally]:
        """Cancel the jobs, as `Job.cancel` does. Running jobs are notified. For more see `requeue_all`."""
        return self._acting(CancelMany(), dry_run, progress, unaudited)

    acancel_all = awaited(cancel_all)

    @by_steps
    def delete_all(
        self, *, dry_run: bool = False, progress: OnStep | None = None, unaudited: bool = False
    ) -> Steps[Tally]:
        """Delete the jobs that do not run, and take them out of their queues. For more see `requeue_all`.

        Their errors stay.
        """
        return self._acting(DeleteMany(), dry_run, progress, unaudited)

    adelete_all = awaited(delete_all)

    @by_steps
    def move_all(
        self,
        queue_name: str | None = None,
        priority: int | None = None,
        *,
        dry_run: bool = False,
        progress: OnStep | None = None,
        unaudited: bool = False,
    ) -> Steps[Tally]:
        """Move the jobs that wait or are delayed to another queue, or priority, or both. For more see `requeue_all`."""
        return self._acting(MoveMany(queue_name, priority), dry_run, progress, unaudited)

    amove_all = awaited(move_all)

    @by_steps
    def delay_all(
        self,
        delayed_for: Delay = None,
        delayed_until: datetime | None = None,
        *,
        dry_run: bool = False,
        progress: OnStep | None = None,
        unaudited: bool = False,
    ) -> Steps[Tally]:
        """Delay the jobs that wait or are delayed. For more see `requeue_all`."""
        return self._acting(DelayMany(delayed_for, delayed_until), dry_run, progress, unaudited)

    adelay_all = awaited(delay_all)

    @by_steps
    def promote_all(
        self, *, dry_run: bool = False, progress: OnStep | None = None, unaudited: bool = False
    ) -> Steps[Tally]:
        """Put the delayed jobs in their waiting lists, to be run now. For more see `requeue_all`."""
        return self._acting(PromoteMany(), dry_run, progress, unaudited)

    apromote_all = awaited(promote_all)

    def planning(self, verb: str, **arguments: Any) -> Steps[Plan]:
        """Return the steps to what a verb does, ``requeue`` for `requeue_all`, with its arguments: to be counted, then
        done."""
        if verb == "requeue":
            arguments["pace"] = self._pace(arguments.pop("spread", None), arguments.pop("rate", None))
        return self._planned(ACTIONS[verb](**arguments))

    def _pace(self, spread: float | timedelta | None, rate: float | None) -> Pace | None:
        pace = None if spread is rate is None else Pace.of(spread, rate, self)
        return pace and pace._replace(key=at(self._connection, pace.key))

    def _model_of(self, known: KnownClass) -> Any:
        try:
            return on(job_classes.resolve(known.path), self._database)
        except Exception as error:  # whatever its module raises
            return LookupError(not_imported(known.path, error))

    def records(self, progress: OnStep | None = None) -> Iterator[dict[str, str]]:
        """Yield the stored values of each job, in the order of `__iter__`.

        These are its ``ident``, the name of its ``queue``, its ``status`` as a word, and all other fields that have a
        value, without the library's own.
        """
        search = finish(self._begun(None, progress))
        for source in search.sources:
            names = ["queue", *sorted(name for name in source.known.fields if not name.startswith("_"))]
            for step in search.look(source, names=listed(names)):
                for pk, values in step.records:
                    stored = {name: value for name, value in zip(names, values, strict=True) if value is not None}
                    status = name_of_status(stored.get("status"))
                    yield {"ident": f"{source.known.path}:{pk}", **stored, "status": status}
        self.unseen = search.unseen


class _Values:
    """How many jobs have each value: of too many values, the numbers are added up."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._beyond = 0

    def add(self, value: str, number: int) -> None:
        if value in self._counts or len(self._counts) < MAX_VALUES:
            self._counts[value] += number
        else:
            self._beyond += number

    def add_step(self, name: Callable[[str], str], step: Found) -> None:
        for value, number in step.counts.items():
            self.add(name(value), number)

    def most_common(self, most: int) -> tuple[Mapping[str, int], int]:
        """Return the most frequent values, and how many jobs have another one."""
        told = {value: number for value, number in self._counts.most_common(most) if number}
        return told, self._beyond + self._counts.total() - sum(told.values())


def _of_class(given: Any) -> Condition:
    job_class = job_class_of(given)
    if not (isinstance(job_class, type) and issubclass(job_class, roots.job)):
        raise TypeError(f"A filter is made of texts and job classes, not of {job_class!r}")
    return Condition.of("class", "=", job_class)
