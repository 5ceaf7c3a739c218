"""A filter of jobs, by what is in them: to count them, list them, and count them by a field."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from limpyd_jobs.fingerprints import is_fingerprint
from limpyd_jobs.models import BaseJobsModel, Error, Job, job_classes
from limpyd_jobs.query.actions import Action, Cancel, Delay, DelayUntil, Delete, Move, Promote, Requeue, Tally
from limpyd_jobs.query.classes import classes_of, connection_to, error_models_of, on
from limpyd_jobs.query.conditions import Condition, limited
from limpyd_jobs.query.errors import ErrorFilter
from limpyd_jobs.query.found import FIELDS, Count, Facets, FoundJob, Page, cursor_of, name_of_status, positions_of
from limpyd_jobs.query.walk import MissingIndex, Progress, Source, Step, Walk
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.store.audit import Entry, audited
from limpyd_jobs.store.calls import listed
from limpyd_jobs.store.database import JobsDatabase
from limpyd_jobs.store.known_classes import KnownClass
from limpyd_jobs.utils import is_meant, not_imported

# Names that can be asked for, but are not fields of a job.
OTHERS = frozenset({"class", "error", "fingerprint", "owner", "pk", "queue"})

# What is asked of the errors of a job.
_OF_ERRORS = ("error", "fingerprint")

# The indexes by which the errors of a job are found.
_LOOKED_AT = {"job_pk", "job_model_repr", "type", "_fingerprint"}

# Up to this number of errors is read first, to look at no jobs but theirs.
FEW_ERRORS = 5_000

# How many different values facets keep at the most.
MOST_VALUES = 10_000


class JobFilter:
    """The jobs that meet some conditions, of all classes of a database, whether this process can import them or not.

    A class is known once a process of version 3 added a job of it, or if it is imported here.

    >>> failed = JobFilter("class=shop.jobs.*", status="error", to="ann@example.com", added__gt="-1h")
    >>> print(failed.count())
    17

    Parameters
    ----------
    *words: str or type of Job
        Conditions as on the command line: ``status=error``, ``status!=error``, ``added>-1h`` or, the same,
        ``added__gt=-1h``. A job has to meet all of them. A class stands for its own jobs, not for those of its
        subclasses.
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

    def __init__(
        self,
        *words: str | type[Job],
        database: JobsDatabase | None = None,
        error_model: type[Error] | None = None,
        **conditions: Any,
    ) -> None:
        self._database = database or BaseJobsModel.database
        self._error_model = error_model
        given = [Condition.parse(word) if isinstance(word, str) else _of_class(word) for word in words]
        if sum(not isinstance(word, str) for word in words) > 1:
            raise ValueError("A job has one class only: give one, or a pattern, as class=shop.jobs.*")
        self.conditions = limited([*given, *(Condition.named(name, value) for name, value in conditions.items())])
        self.pks: Sequence[int] | None = None  # if only some jobs are meant, of one class
        self.unseen = 0

    def __repr__(self) -> str:
        return f"JobFilter({', '.join(repr(str(each)) for each in self.conditions)})"

    def __str__(self) -> str:
        return " ".join(map(str, self.conditions))

    def count(self, timeout: float | None = None, progress: Progress | None = None) -> Count:
        """Count the jobs: at once if at most one indexed field is asked for; else by looking at them, in steps.

        Parameters
        ----------
        timeout: float
            After how many seconds to return what was counted by then; None to look at all.
        progress: callable
            Called after each step with the number of jobs that were looked at, and the number to look at, at the most.

        Raises
        ------
        ValueError
            If no class of the database has a field that is asked for.
        """
        number, is_exact = 0, True
        search = _Search(self, timeout, progress)
        for source in search.sources:
            if source.is_exact:
                number += source.size
            else:
                number += sum(step.number for step in search.steps(source))
        self.unseen = search.unseen
        return Count(number, is_exact and not (search.is_cut or search.unseen))

    def facets(
        self, field: str, most: int = 50, timeout: float | None = None, progress: Progress | None = None
    ) -> Facets:
        """Count the jobs by the values of a field: ``class``, ``queue``, ``status``, or any other.

        Parameters
        ----------
        field: str
            ``error`` and ``fingerprint`` stand for the type and the fingerprint of the last error of a job.
        most: int
            How many values to return: those with the most jobs.

        The other parameters and exceptions: see `count`.
        """
        if field in ("owner", "pk"):
            raise ValueError(f"{field} is not a field of a job, so jobs are not counted by it")
        search = _Search(self, timeout, progress, field)
        if field == "status" and all(source.is_whole for source in search.sources):
            return Facets(*self._statuses(), is_exact=True)
        counts: Counter[str] = Counter()
        beyond = 0
        for source in search.sources:
            if field == "class":
                counts[source.known.path] += (
                    source.size if source.is_exact else sum(step.number for step in search.steps(source))
                )
                continue
            errors = json.dumps(search.errors_of(source.known)) if field in _OF_ERRORS else ""
            for step in search.steps(source, by=field, errors=errors):
                for value, number in step.counts.items():
                    if value in counts or len(counts) < MOST_VALUES:
                        counts[name_of_status(value) if field == "status" else value] += number
                    else:
                        beyond += number
        self.unseen = search.unseen
        told = {value: number for value, number in counts.most_common(most) if number}
        return Facets(told, beyond + counts.total() - sum(told.values()), not (search.is_cut or search.unseen))

    def _statuses(self) -> tuple[Mapping[str, int], int]:
        """Count the jobs of some classes by their status. Each number is the size of a set."""
        known = {name.lower(): self._and(Condition("status", "=", letter)) for name, letter in STATUSES.items()}
        counts = Counter({name: each.count().number for name, each in known.items()})
        return {name: number for name, number in counts.most_common() if number}, self.count().number - counts.total()

    def _and(self, condition: Condition) -> JobFilter:
        narrower = JobFilter(database=self._database, error_model=self._error_model)
        narrower.pks = self.pks
        narrower.conditions = (*self.conditions, condition)
        return narrower

    def page(
        self, limit: int = 50, after: str | None = None, *, newest_first: bool = True, timeout: float | None = None
    ) -> Page:
        """Return some jobs, the newest first, or the oldest. Jobs of several classes are in the order in which they
        were added.

        Parameters
        ----------
        limit: int
            How many jobs at the most.
        after: str
            The `following` of the previous page.
        timeout: float
            After how many seconds to return the jobs that were found by then; None to look at all if need be.

        Raises
        ------
        ValueError
            If no class of the database has a field that is asked for, `after` is not the `following` of a page, or
            `limit` is less than 1.
        """
        if limit < 1:
            raise ValueError(f"A page has 1 job or more, not {limit!r}")
        search = _Search(self, timeout)
        positions = positions_of(after) if after else {}
        shown = [
            _Shown(search, source, positions.get(source.known.path), newest_first, limit) for source in search.sources
        ]
        jobs: list[FoundJob] = []
        while len(jobs) < limit:
            rest = [each for each in shown if each.fill()]
            if not rest:
                break
            best = max if newest_first else min
            jobs.append(best(rest, key=lambda each: each.pending[0][1].added or "").take())
        is_over = not any(each.fill() for each in shown) and not search.is_cut
        self.unseen = search.unseen
        here = {each.path: each.position for each in shown if each.position is not None}
        return Page(jobs, None if is_over else cursor_of(here), not search.is_cut)

    def missing_indexes(self) -> list[MissingIndex]:
        """Return the indexes that the classes lack. Without them, jobs are looked at one by one: see :ref:`Indexes`.

        Raises
        ------
        ValueError
            If no class of the database has a field that is asked for.
        """
        return [missing for source in _Search(self).sources for missing in source.missing_indexes]

    def requeue_all(
        self,
        queue_name: str | None = None,
        priority: int | None = None,
        delayed_for: Delay = None,
        delayed_until: datetime | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
        unaudited: bool = False,
    ) -> Tally:
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
        dry_run: bool
            True to change nothing, and to return what would be done.
        progress: callable
            Called after each step with the number of jobs that were looked at, and the number to look at, at the most.
        unaudited: bool
            True to do it even if Redis refuses to write it to the audit, because it is full for example.

        Raises
        ------
        TypeError, ValueError
            If an argument is not one of the above, or no class of the database has a field that is asked for.
        NotAudited
            If Redis refuses to write it to the audit: nothing was done, or no more is done.
        """
        return self._do(Requeue(queue_name, priority, delayed_for, delayed_until), dry_run, progress, unaudited)

    def cancel_all(self, *, dry_run: bool = False, progress: Progress | None = None, unaudited: bool = False) -> Tally:
        """Cancel the jobs, as `Job.cancel` does. Running jobs are told. For more see `requeue_all`."""
        return self._do(Cancel(), dry_run, progress, unaudited)

    def delete_all(self, *, dry_run: bool = False, progress: Progress | None = None, unaudited: bool = False) -> Tally:
        """Delete the jobs that do not run, and take them out of their queues. For more see `requeue_all`.

        Their errors stay.
        """
        return self._do(Delete(), dry_run, progress, unaudited)

    def move_all(
        self,
        queue_name: str | None = None,
        priority: int | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
        unaudited: bool = False,
    ) -> Tally:
        """Move the jobs that wait or are delayed to another queue, or priority, or both. For more see `requeue_all`."""
        return self._do(Move(queue_name, priority), dry_run, progress, unaudited)

    def delay_all(
        self,
        delayed_for: Delay = None,
        delayed_until: datetime | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
        unaudited: bool = False,
    ) -> Tally:
        """Delay the jobs that wait or are delayed. For more see `requeue_all`."""
        return self._do(DelayUntil(delayed_for, delayed_until), dry_run, progress, unaudited)

    def promote_all(self, *, dry_run: bool = False, progress: Progress | None = None, unaudited: bool = False) -> Tally:
        """Put the delayed jobs in their waiting lists, to be run now. For more see `requeue_all`."""
        return self._do(Promote(), dry_run, progress, unaudited)

    def _do(self, action: Action, dry_run: bool, progress: Progress | None, unaudited: bool = False) -> Tally:
        search, outcomes = _Search(self, None, progress), Counter[str]()
        if dry_run or not search.sources:
            self._act(action, search, outcomes, None)
            return Tally.of(outcomes)
        with audited(
            search.connection, unaudited=unaudited, verb=action.verb, filter=f"{self}", how=action.how
        ) as entry:
            try:
                self._act(action, search, outcomes, entry)
            finally:
                entry.numbers = Tally.of(outcomes).numbers
        return Tally.of(outcomes)

    def _act(self, action: Action, search: _Search, outcomes: Counter[str], entry: Entry | None) -> None:
        """Do it, or without an entry of the audit only count the outcomes."""
        for source in search.sources:
            try:
                job_class = on(job_classes.resolve(source.known.path), self._database)
            except Exception as error:  # whatever its module raises
                number = sum(step.number for step in search.timed(source.steps()))
                outcomes[not_imported(source.known.path, error)] += number
                continue
            for step in search.timed(action.steps(source, job_class, entry)):
                outcomes.update(step.outcomes)
        self.unseen = search.unseen
        if search.unseen:
            outcomes["the pk is not a number"] += search.unseen

    def __iter__(self) -> Iterator[FoundJob]:
        """Yield all the jobs, class by class, the newest of each first. A round trip reads some hundreds of jobs."""
        search = _Search(self)
        for source in search.sources:
            for step in search.steps(source, names=listed(FIELDS)):
                for pk, values in step.found:
                    yield FoundJob.of(source.known.path, pk, values)
        self.unseen = search.unseen

    def records(self, progress: Progress | None = None) -> Iterator[dict[str, str]]:
        """Yield the stored values of each job, in the order of `__iter__`.

        These are its ``ident``, the name of its ``queue``, its ``status`` as a word, and all other fields that have a
        value, without the library's own.
        """
        search = _Search(self, None, progress)
        for source in search.sources:
            names = ["queue", *sorted(name for name in source.known.fields if not name.startswith("_"))]
            for step in search.steps(source, names=listed(names)):
                for pk, values in step.found:
                    stored = {name: value for name, value in zip(names, values, strict=True) if value is not None}
                    status = name_of_status(stored.get("status"))
                    yield {"ident": f"{source.known.path}:{pk}", **stored, "status": status}
        self.unseen = search.unseen


def _of_class(job_class: Any) -> Condition:
    if not (isinstance(job_class, type) and issubclass(job_class, Job)):
        raise TypeError(f"A filter is made of texts and job classes, not of {job_class!r}")
    return Condition.of("class", "=", job_class)


class _Search(Walk):
    """One look at the jobs of a filter: each class that may have some is a source."""

    def __init__(
        self,
        asked: JobFilter,
        timeout: float | None = None,
        progress: Progress | None = None,
        by: str | None = None,
    ) -> None:
        super().__init__(timeout, progress)
        self._database, self._error_model = asked._database, asked._error_model
        self.connection = connection_to(self._database)
        self._indexes_of_errors: list[tuple[str, Mapping[str, str]]] = []
        self.measure(self.connection, self._sources(asked, by))

    def _sources(self, meant: JobFilter, by: str | None) -> list[Source]:
        conditions = meant.conditions
        known = [
            known
            for path, known in classes_of(self._database).items()
            if all(condition.is_met_by_class(path) for condition in conditions)
        ]
        asked = [condition for condition in conditions if condition.field != "class"]
        names = {*(condition.field for condition in asked), *([by] if by else [])} - OTHERS
        self._check_fields(known, names)
        able = [each for each in known if names <= each.fields]
        few = self._jobs_of_few_errors(asked) if meant.pks is None else None
        sources = []
        for each in able:
            pks = meant.pks if few is None else sorted(few.get(each.path, ()))
            sources.append(Source(self.connection, each, asked, self._tests(each, asked), pks))
        return sources

    def _jobs_of_few_errors(self, conditions: Sequence[Condition]) -> Mapping[str, set[int]] | None:
        """Return the pks of the jobs with an error that is asked for, by the path of the class. No other jobs can be
        meant.

        None if no error is asked for, or there are many.
        """
        for condition in conditions:
            if condition.field in _OF_ERRORS and condition.is_equality:
                word = f"{condition.field}={condition.value}"
                asked = ErrorFilter(word, error_model=self._error_model, database=self._database)
                few = asked.jobs(FEW_ERRORS)
                if few is not None:
                    return few
        return None

    def _check_fields(self, known: Sequence[KnownClass], names: set[str]) -> None:
        fields = frozenset[str]().union(*(each.fields for each in known))
        if known and names - fields:
            own = sorted(name for name in fields | OTHERS if not name.startswith("_"))
            unknown = min(names - fields)
            near = is_meant(unknown, own)
            there = f"{near} There are: " if near else "; there are: "
            raise ValueError(f"None of these classes has a field {unknown!r}{there}{', '.join(own)}")

    def _tests(self, known: KnownClass, conditions: Sequence[Condition]) -> list[Mapping[str, Any]]:
        return [
            self._error_test(known, each)
            if each.field in _OF_ERRORS
            else each.as_test(is_date=each.field in known.dates)
            for each in conditions
        ]

    def errors_of(self, known: KnownClass) -> list[dict[str, str]]:
        """Return where scripts find the errors of the jobs of a class, for each model of errors."""
        return [
            {
                "of_job": indexes["job_pk"],
                "of_class": f"{indexes['job_model_repr']}{known.path}",
                "errors": name,
            }
            for name, indexes in self._models_of_errors()
        ]

    def _models_of_errors(self) -> list[tuple[str, Mapping[str, str]]]:
        """Return the beginnings of the keys, and of the indexes, of the models of errors."""
        if not self._indexes_of_errors:
            models = error_models_of(self._database, self._error_model)
            self._indexes_of_errors = [
                (each.name, each.indexes) for each in models if each.indexes.keys() >= _LOOKED_AT
            ]
        return self._indexes_of_errors

    def _error_test(self, known: KnownClass, condition: Condition) -> Mapping[str, Any]:
        has_fingerprint = condition.field == "fingerprint" and is_fingerprint(condition.value)
        field = "_fingerprint" if has_fingerprint else "type"
        models = [
            {**where, "of_kind": f"{indexes[field]}{condition.value}"}
            for where, (_, indexes) in zip(self.errors_of(known), self._models_of_errors(), strict=True)
        ]
        test = {"models": models, "test": "error", "is_negated": condition.is_negated}
        if condition.field == "fingerprint" and not has_fingerprint:  # errors without one: by their type
            return {**test, "without": "_fingerprint"}
        return test

    def steps(self, source: Source, start: int | None = None, **options: Any) -> Iterator[Step]:
        """Look at the jobs of a source until there is no time left."""
        return self.timed(source.steps(start, **options))


class _Shown:
    """The jobs of a class that are not yet on a page."""

    def __init__(self, search: _Search, source: Source, start: int | None, newest_first: bool, limit: int) -> None:
        self.path = source.known.path
        self.position = start
        self.pending: deque[tuple[int, FoundJob]] = deque()
        self._steps = search.steps(
            source, start, is_upwards=not newest_first, names=listed(FIELDS), most=min(limit + 1, 200)
        )

    def fill(self) -> bool:
        """Find the next job, if there is one; return whether there is."""
        while not self.pending:
            step = next(self._steps, None)
            if step is None:
                return False
            self.pending += [(pk, FoundJob.of(self.path, pk, values)) for pk, values in step.found]
            if not self.pending:
                self.position = step.seen
        return True

    def take(self) -> FoundJob:
        """Return the next job."""
        self.position, job = self.pending.popleft()
        return job
