"""A filter of errors, to count them, list them, and group them by their cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from limpyd.model import RedisModel

from limpyd_jobs.classes.roots import roots
from limpyd_jobs.idents import read_pk
from limpyd_jobs.records.audit import Entry
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import delete_many
from limpyd_jobs.redis.calls import Call, listed
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.search.actions import JOBS_PER_STEP, Acted, Tally, audited_tally
from limpyd_jobs.search.causes import ErrorGroup, ErrorGroups, Grouping, Step
from limpyd_jobs.search.classes import connection_to, error_models_of, imported_error_models, replies_to
from limpyd_jobs.search.conditions import Condition, check_fields, limited, time_of
from limpyd_jobs.search.fingerprints import is_fingerprint
from limpyd_jobs.search.found import Count
from limpyd_jobs.search.pages import read_page
from limpyd_jobs.search.walk import PER_STEP, Progress, Source, Walk
from limpyd_jobs.texts import one_line

_delete_errors = Script("errors/delete_errors")
_group_errors = Script("errors/group_errors")

# Names in a filter of jobs that differ from the fields of an error.
_STORED = {
    "app_version": "_app_version",
    "class": "job_model_repr",
    "error": "type",
    "fingerprint": "_fingerprint",
    "queue": "queue_name",
}

_FIELDS = (
    "date_time",
    "type",
    "message",
    "_fingerprint",
    "job_model_repr",
    "job_pk",
    "identifier",
    "queue_name",
    "_app_version",
)


class FoundError(NamedTuple):
    """An error, as it is stored.

    Attributes
    ----------
    model: str
        What the keys of its model begin with: ``jobs:error``, or those of a model of your own.
    pk: str
        Errors of several models may have the same.
    date_time: str
        When it happened, in UTC.
    type, message: str
    fingerprint: str
        The type, if the error has no fingerprint, as errors of version 2.
    ident: str
        The ident of the job.
    identifier: str
    queue: str
    app_version: str
        The version of the application; None if it did not say one.
    """

    model: str
    pk: str
    date_time: str
    type: str
    message: str
    fingerprint: str
    ident: str
    identifier: str | None
    queue: str | None
    app_version: str | None

    @classmethod
    def of(cls, model: str, pk: int, values: Sequence[str | None]) -> FoundError:
        """Make an error from the values of `_FIELDS`."""
        date_time, kind, message, fingerprint, path, job_pk, *others = values
        kind = kind or ""
        ident = f"{path or ''}:{job_pk or ''}"
        return cls(model, f"{pk}", date_time or "", kind, message or "", fingerprint or kind, ident, *others)


class ErrorPage(NamedTuple):
    """Some errors, in order.

    Attributes
    ----------
    errors: list of FoundError
    following: str
        The value of `after` for the next page; None if there is no next page.
    is_complete: bool
        False if there was no time to find as many as were asked for: go on with `following`.
    """

    errors: list[FoundError]
    following: str | None
    is_complete: bool


class ErrorFilter:
    """The errors that meet some conditions. It works as `JobFilter` does.

    >>> ErrorFilter("class=shop.jobs.*", date_time__gt="-1d").groups()

    Parameters
    ----------
    *words: str
        Conditions, such as ``type=KeyError`` or ``date_time>-1h``, of any field of an error, ``class``, ``queue`` and
        ``fingerprint``. All of them must be met.
    error_model: type of Error
        Errors of this model only, of any database; None for all models.
    database: JobsDatabase
        The database of `BaseJobsModel`, or of the `error_model`, by default.
    **conditions
        The same as in Python: ``type="KeyError"``, ``date_time__gt=timedelta(hours=-1)``.

    Raises
    ------
    ValueError
        If a word is not a condition, no model has such a field, or it cannot have that value or be compared so.
    TypeError
        If a value is neither a text, a number, a datetime nor a timedelta.
    """

    def __init__(
        self,
        *words: str,
        error_model: type[RedisModel] | None = None,
        database: JobsDatabase | None = None,
        **conditions: Any,
    ) -> None:
        self._database = database or (error_model or roots.base).database
        self._connection = connection_to(self._database)
        self._error_model = error_model
        given = [Condition.parse(word) for word in words]
        self.conditions = limited([*given, *(Condition.named(name, value) for name, value in conditions.items())])
        self._stored = [stored for condition in self.conditions for stored in _stored(condition)]
        names = {each.field for each in self._stored} - {"class", "pk"}
        models = error_models_of(self._database, error_model)
        fields = {*_STORED, "pk"}.union(*(model.fields for model in models))
        check_fields("An error has no field", names, fields)
        self._models = [model for model in models if names <= model.fields]

    def __repr__(self) -> str:
        return f"ErrorFilter({', '.join(repr(str(each)) for each in self.conditions)})"

    def __str__(self) -> str:
        return " ".join(map(str, self.conditions))

    def count(self, timeout: float | None = None, progress: Progress | None = None) -> Count:
        """Count the errors: at once if at most one indexed field is asked for. Parameters: see `JobFilter.count`."""
        walk, number = self._walk(timeout, progress), 0
        for source in walk.sources:
            number += source.size if source.is_exact else sum(step.number for step in walk.timed(source.steps()))
        return Count(number, not walk.is_cut)

    def page(self, limit: int = 50, after: str | None = None, timeout: float | None = None) -> ErrorPage:
        """Return some errors, the newest first.

        Parameters
        ----------
        limit: int
            How many errors at most.
        after: str
            The `following` of the previous page.
        timeout: float
            After how many seconds to return the errors that were found by then; None to look at all if need be.

        Raises
        ------
        ValueError
            If `after` is not the `following` of a page.
        """
        walk = self._walk(timeout)
        errors, following = read_page(
            walk,
            after,
            limit,
            name_of=attrgetter("name"),
            fields=_FIELDS,
            make=FoundError.of,
            date_of=attrgetter("date_time"),
        )
        return ErrorPage(errors, following, not walk.is_cut)

    def groups(
        self, most: int = 50, timeout: float | None = None, progress: Progress | None = None, messages: int = 5
    ) -> ErrorGroups:
        """Count the errors by their cause, in steps of 500 errors. A million errors take some ten seconds.

        Parameters
        ----------
        most: int
            How many groups to return: those with the most errors.
        timeout: float
            After how many seconds to return what was counted by then, the newest errors first; None to look at all.
        progress: callable
            Called after each step with the number of errors that were looked at, and at most how many there are
            to look at.
        messages: int
            How many messages of each group to return: those with the most errors.
        """
        walk, grouping = self._walk(timeout, progress), Grouping()
        for source in walk.sources:
            for step in walk.timed(self._grouped(source)):
                grouping.add(source.known.name, step)
        groups, others = grouping.told(most, messages, self._messages)
        return ErrorGroups(groups, others, not walk.is_cut, walk.looked, walk.size)

    def _messages(self, places: Iterable[str]) -> dict[str, str]:
        keys = [*places]
        replies = replies_to(self._connection, (("HGET", f"{key}:hash", "message") for key in keys))
        return {key: reply or "" for key, reply in zip(keys, replies, strict=True)}

    def last_of(self, group: ErrorGroup) -> dict[str, str]:
        """Return the stored fields of the last error of a group, without the library's own; none if it is deleted."""
        (stored,) = replies_to(self._connection, [("HGETALL", f"{group.model}:{group.last}:hash")])
        return {name: value for name, value in (stored or {}).items() if not name.startswith("_")}

    def jobs(self, most: int) -> dict[str, set[int]] | None:
        """Return the pks of the jobs with these errors, by the path of the class; None if there are more errors than
        `most`."""
        walk = self._walk(None)
        if sum(source.size for source in walk.sources) > most:
            return None
        found: dict[str, set[int]] = {}
        for source in walk.sources:
            for step in source.steps(names=listed(["job_model_repr", "job_pk"])):
                for _, (path, pk) in step.found:
                    number = read_pk(pk or "")
                    if path and number is not None:
                        found.setdefault(path, set()).add(number)
        return found

    def delete_all(self, *, dry_run: bool = False, progress: Progress | None = None, unaudited: bool = False) -> Tally:
        """Delete the errors, the oldest first, in steps of 100. Their jobs stay. For more see `JobFilter.requeue_all`.

        Errors of a model that is not imported are refused.
        """
        walk = self._walk(None, progress)
        return audited_tally(
            self._connection,
            partial(self._delete, walk),
            only_counts=dry_run or not walk.sources,
            unaudited=unaudited,
            verb="delete errors",
            filter=f"{self}",
        )

    def _delete(self, walk: Walk, outcomes: Counter[str], entry: Entry | None) -> None:
        """Delete them, or without an entry of the audit only count them."""
        imported = {each._name: each for each in imported_error_models(self._database, self._error_model)}
        for source in walk.sources:
            model = imported.get(source.known.name)
            if model is None:
                number = sum(step.number for step in walk.timed(source.steps()))
                outcomes[f"their model {source.known.path} is not imported: name it with --error-model"] += number
                continue
            for step in walk.timed(self._deleted(source, model, entry)):
                outcomes.update(step.outcomes)

    def _deleted(self, source: Source, model: type[RedisModel], entry: Entry | None) -> Iterator[Acted]:
        layout = layout_of(model)
        if entry and (not layout.erasable or layout.outside):
            return _deleted_one_by_one(source, model, entry)
        call: Callable[..., Call[Acted]] = partial(
            Call, self._connection, _delete_errors, read=Acted.of, models=[model]
        )
        asked = {"model": layout.json, **(entry.names if entry else {"dry": "1"})}
        return source.run(call, asked, JOBS_PER_STEP, is_upwards=True)

    def _grouped(self, source: Source) -> Iterator[Step]:
        call: Callable[..., Call[Step]] = partial(Call, self._connection, _group_errors, read=Step.of)
        return source.run(call, {"model": source.model}, PER_STEP)

    def _walk(self, timeout: float | None, progress: Progress | None = None) -> Walk:
        walk, tests = Walk(timeout, progress), [_test(condition) for condition in self._stored]
        sources = [Source(self._connection, model, self._stored, tests) for model in self._models]
        walk.measure(self._connection, sources)
        return walk


def _deleted_one_by_one(source: Source, model: type[RedisModel], entry: Entry) -> Iterator[Acted]:
    """Delete errors of a model that has its own way to do so, or fields that a script cannot delete."""
    for step in source.steps(is_upwards=True, names=listed(["type"]), most=JOBS_PER_STEP):
        number = delete_many(model, [f"{pk}" for pk, _ in step.found])
        entry.note(number)
        yield Acted({"done": number}, step.looked, step.seen)


def _stored(condition: Condition) -> list[Condition]:
    """Return a condition in terms of the stored fields of an error."""
    field, _, value = condition
    if field == "fingerprint" and not is_fingerprint(value):
        if condition.is_negated:
            raise ValueError(f"{one_line(value)!r} is not a fingerprint: ask for a type, as type!=KeyError")
        return [Condition("type", "=", value), Condition("_fingerprint", "=", "")]
    if field == "class" and (set("*?") & set(value) or "." not in value):
        return [condition]
    if field == "date_time":
        return [condition._replace(value=time_of(field, value))]
    return [condition._replace(field=_STORED.get(field, field))]


def _test(condition: Condition) -> Mapping[str, Any]:
    if condition.field != "class":
        return condition.as_test()
    test = {"test": "class", "field": "job_model_repr", "is_negated": condition.is_negated}
    return {**test, "pattern": condition.value, "is_path": "." in condition.value}
