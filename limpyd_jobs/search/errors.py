"""A filter of errors, to count them, list them, and group them by their cause."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from limpyd.model import RedisModel

from limpyd_jobs.classes.awaitable import awaited, by_steps
from limpyd_jobs.classes.roots import roots
from limpyd_jobs.idents import read_pk
from limpyd_jobs.records.audit import Entry
from limpyd_jobs.records.known_classes import KnownClass
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import delete_many
from limpyd_jobs.redis.calls import Commands, Steps, finish, listed
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.actions import Action, Tally
from limpyd_jobs.search.causes import ErrorGroup, ErrorGroups, Grouping, Mask
from limpyd_jobs.search.classes import error_models_of, imported_error_models
from limpyd_jobs.search.conditions import Condition, check_fields, time_of
from limpyd_jobs.search.filter import Filter, Plan
from limpyd_jobs.search.fingerprints import is_fingerprint
from limpyd_jobs.search.walk import CHANGES_PER_STEP, Ask, OnStep, Source, Walk
from limpyd_jobs.texts import MESSAGE, one_line, too_long
from limpyd_jobs.transitions import many
from limpyd_jobs.transitions.many import Changed, Found, Grouped

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


# How many bytes of a message are read to be shown in a line.
MAX_READ = 65_536

# Of a recent error; the fields beside its model and pk. How many are looked at of each model, and of how many queues
# and causes the message is read.
_RECENT = ("date_time", "type", "_fingerprint", "_raised_in", "job_model_repr", "job_pk", "queue_name", "_app_version")
MAX_RECENT, MAX_MESSAGES = 500, 50


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
    def of(cls, known: KnownClass, pk: int, values: Sequence[str | None]) -> FoundError:
        date_time, kind, message, fingerprint, path, job_pk, *others = values
        kind = kind or ""
        ident = f"{path or ''}:{job_pk or ''}"
        return cls(known.name, f"{pk}", date_time or "", kind, message or "", fingerprint or kind, ident, *others)


class RecentError(NamedTuple):
    """One of the last errors.

    Attributes
    ----------
    date_time: str
        When it happened, in UTC.
    type, raised_in, path, queue, app_version: str
        Empty if that is not known.
    fingerprint: str
        The type, if the error has no fingerprint.
    ident: str
        Of the job.
    message: str
        Only of the last error of a queue and cause, in a line; else empty.
    """

    date_time: str
    type: str
    fingerprint: str
    raised_in: str
    path: str
    ident: str
    queue: str
    app_version: str
    message: str = ""

    @classmethod
    def of(cls, values: Sequence[str | None]) -> RecentError:
        date, kind, fingerprint, place, path, pk, queue, version = (value or "" for value in values)
        return cls(date, kind, fingerprint or kind, place, path, f"{path}:{pk}", queue, version)


class ErrorFilter(Filter[FoundError]):
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

    _record, _fields, _date = FoundError, _FIELDS, "date_time"

    def __init__(
        self,
        *words: str,
        error_model: type[RedisModel] | None = None,
        database: JobsDatabase | None = None,
        **conditions: Any,
    ) -> None:
        parsed = [Condition.parse(word) for word in words]
        super().__init__(parsed, conditions, database or (error_model or roots.base).database)
        self._error_model = error_model
        self._stored = [stored for condition in self.conditions for stored in _stored(condition)]
        names = {each.field for each in self._stored} - {"class", "pk"}
        models = error_models_of(self._database, error_model)
        fields = {*_STORED, "pk"}.union(*(model.fields for model in models))
        check_fields("An error has no field", names, fields)
        self._models = [model for model in models if names <= model.fields]

    @by_steps
    def groups(
        self,
        most: int = 50,
        timeout: float | None = None,
        progress: OnStep | None = None,
        messages: int = 5,
        mask: Mask = str,
    ) -> Steps[ErrorGroups]:
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
        mask: callable
            Returns what to show instead of the message of an error.
        """
        walk, grouping = (yield from self._begun(timeout, progress)), Grouping()
        for source in walk.sources:
            yield from walk.each(source, partial(self._grouped, source), partial(grouping.add, source.known.name))
        keys = [*grouping.examples(most, messages)]
        texts = yield from self._values([(f"{key}:hash", "message") for key in keys], MAX_READ)
        groups, others = grouping.told(most, messages, dict(zip(keys, texts, strict=True)), mask)
        return ErrorGroups(groups, others, not walk.is_cut, walk.looked, walk.size)

    agroups = awaited(groups)

    @by_steps
    def recent(self, mask: Mask = str) -> Steps[tuple[list[RecentError], bool]]:
        """Return the last errors, the newest first, in some round trips: up to 500 of each model are looked at. Also
        return whether these are all."""
        walk, looked = (yield from self._begun()), 0
        found: list[tuple[str, RecentError]] = []
        for source in walk.sources:
            step = yield from source.last(MAX_RECENT, names=listed(_RECENT))
            found += [(f"{source.known.name}:{pk}:hash", RecentError.of(values)) for pk, values in step.records]
            looked += step.number
        found.sort(key=lambda each: each[1].date_time, reverse=True)
        first: dict[tuple[str, str], int] = {}
        for at, (_, each) in enumerate(found):
            first.setdefault((each.queue, each.fingerprint), at)
        told = [*first.values()][:MAX_MESSAGES]
        texts = yield from self._values([(found[at][0], "message") for at in told], MAX_READ)
        errors = [each for _, each in found]
        for at, text in zip(told, texts, strict=True):
            errors[at] = errors[at]._replace(message=one_line(" ".join(mask(text).split()), MESSAGE))
        return errors, looked >= walk.size

    def _values(self, places: Sequence[tuple[str, str]], most: int) -> Steps[list[str]]:
        """Return the values of some fields of hashes; instead of one of more than `most` bytes, how many it has."""
        sizes = yield from self._replies_to("HSTRLEN", places)
        small = [place for place, size in zip(places, sizes, strict=True) if (size or 0) <= most]
        values = dict(zip(small, (yield from self._replies_to("HGET", small)), strict=True))
        return [
            values[place] or "" if place in values else too_long(size)
            for place, size in zip(places, sizes, strict=True)
        ]

    def _replies_to(self, command: str, places: Sequence[Sequence[str]]) -> Steps[list[Any]]:
        """Return the reply about each place; None where Redis refuses it, because of a key of a wrong type."""
        replies = yield Commands(self._connection, [(command, *place) for place in places])
        return [None if isinstance(reply, Exception) else reply for reply in replies]

    def last_of(self, group: ErrorGroup, most: int | None = None) -> dict[str, str]:
        """Return the stored fields of the last error of a group, without the library's own; none if it is deleted.

        Instead of a value of more than `most` bytes, it is said how many it has.
        """
        return finish(self._fields_of(f"{group.model}:{group.last}:hash", sys.maxsize if most is None else most))

    def _fields_of(self, key: str, most: int) -> Steps[dict[str, str]]:
        (names,) = yield from self._replies_to("HKEYS", [(key,)])
        places = [(key, name) for name in names or () if not name.startswith("_")]
        values = yield from self._values(places, most)
        return {name: value for (_, name), value in zip(places, values, strict=True)}

    def jobs(self, most: int) -> Steps[dict[str, set[int]] | None]:
        """Return the pks of the jobs with these errors, by the path of the class; None if there are more errors than
        `most`."""
        walk = yield from self._begun()
        if walk.size > most:
            return None
        found: defaultdict[str, set[int]] = defaultdict(set)

        def keep(step: Found) -> None:
            for _, (path, pk) in step.records:
                number = read_pk(pk or "")
                if path and number is not None:
                    found[path].add(number)

        for source in walk.sources:
            yield from walk.each(source, partial(source.find, names=listed(["job_model_repr", "job_pk"])), keep)
        return found

    @by_steps
    def delete_all(
        self, *, dry_run: bool = False, progress: OnStep | None = None, unaudited: bool = False
    ) -> Steps[Tally]:
        """Delete the errors, the oldest first, in steps of 100. Their jobs stay. For more see `JobFilter.requeue_all`.

        Errors of a model that is not imported are refused.
        """
        return self._acting(_DeleteErrors(), dry_run, progress, unaudited)

    adelete_all = awaited(delete_all)

    def _model_of(self, known: KnownClass) -> type[RedisModel] | LookupError:
        for model in imported_error_models(self._database, self._error_model):
            if model._name == known.name:
                return model
        return LookupError(f"their model {known.path} is not imported: name it as the error model")

    def planning(self, verb: str) -> Steps[Plan]:
        """Return the steps to what `delete_all` does, to be counted, then done."""
        return self._planned({"delete": _DeleteErrors}[verb]())

    def _grouped(self, source: Source, which: Mapping[str, Any]) -> Steps[Grouped]:
        found: Grouped = yield many.group_errors.call(self._connection, {"model": source.model, **which})
        return found

    def _begun(self, timeout: float | None = None, progress: OnStep | None = None) -> Steps[Walk]:
        walk, tests = Walk(timeout, progress), [_test(condition) for condition in self._stored]
        sources = [Source(self._connection, model, self._stored, tests) for model in self._models]
        yield from walk.measure(self._connection, sources)
        return walk


class _DeleteErrors(Action):
    verb = "delete errors"

    def asking(self, source: Source, model: type[RedisModel], entry: Entry | None) -> Ask[Changed]:
        layout = layout_of(model)
        if entry and (not layout.erasable or layout.outside):
            return partial(_deleted_one_by_one, source, model, entry)
        return partial(many.changed, many.delete_errors, model, entry.names if entry else {"dry": "1"})


def _deleted_one_by_one(
    source: Source, model: type[RedisModel], entry: Entry, which: Mapping[str, Any]
) -> Steps[Changed]:
    """Delete errors of a model that has its own way to do so, or fields that a script cannot delete."""
    step = yield from source.find(which, names=listed(["type"]), most=CHANGES_PER_STEP)
    number: int = yield partial(delete_many, model, [f"{pk}" for pk, _ in step.records])
    yield from entry.note(number)
    return Changed({"done": number}, step.looked, step.seen)


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
