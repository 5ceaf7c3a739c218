"""The errors of jobs; and jobs whose class cannot be resolved, which are deferred, and dead-lettered in the end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from types import NoneType
from typing import Any, Self, TypeVar

from limpyd import fields
from limpyd.contrib.indexes import SimpleDateTimeIndex
from limpyd.indexes import EqualIndex
from limpyd.model import RedisModel
from redis.exceptions import ResponseError

from limpyd_jobs import transitions
from limpyd_jobs.arguments import as_indexed, own_size
from limpyd_jobs.classes.roots import roots
from limpyd_jobs.dates import as_naive_utc, parse_datetime, utcnow
from limpyd_jobs.exceptions import ClassUnresolved
from limpyd_jobs.fields.atomic_fields import AtomicHashField
from limpyd_jobs.fields.new_fields import check_fields
from limpyd_jobs.fields.own_fields import OwnField, with_own_fields
from limpyd_jobs.functions import overrides
from limpyd_jobs.idents import Ident
from limpyd_jobs.models.base import BaseJobsModel
from limpyd_jobs.models.job_record import JobRecord
from limpyd_jobs.records import records
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.records.records import NewError
from limpyd_jobs.records.sizes import shortened_value
from limpyd_jobs.search.fingerprints import cause_of
from limpyd_jobs.texts import one_line, printable

Failure = BaseException | type[BaseException]
# The environment variable that says which version of the application runs.
VERSION_VARIABLE = "LIMPYD_JOBS_APP_VERSION"

# The fields whose length depends on the error.
TEXTS = {"type", "code", "message", "traceback"}

AnError = TypeVar("AnError", bound="Error")


@with_own_fields
class Error(BaseJobsModel):
    """A failure of a job.

    Attributes
    ----------
    fingerprint: field
        The same text for all errors of one cause: see `limpyd_jobs.search.fingerprints`.
    raised_in: field
        The place where the application raised it: module, function and the text of the line, at most 300 characters.
        Not set if no code of the application did.
    message_pattern: field
        The message without what differs from job to job, at most 300 characters.
    app_version: field
        The version of the application that the worker ran, if the environment variable LIMPYD_JOBS_APP_VERSION says so.
    max_error_bytes: int
        How many bytes the type, code, message, traceback, and each additional field have at most, as UTF-8. Of a longer
        text the middle is left out, of many members or values those at the end. None for no limit.
    """

    __module__ = "limpyd_jobs.models"  # what is stored of a class is its path

    job_model_repr: Any = fields.InstanceHashField(indexable=True)
    job_pk: Any = fields.InstanceHashField(indexable=True)
    identifier: Any = fields.InstanceHashField(indexable=True)
    queue_name: Any = fields.InstanceHashField(indexable=True)
    date_time: Any = fields.InstanceHashField(indexable=True, indexes=[SimpleDateTimeIndex])
    date: Any = fields.InstanceHashField(indexable=True)
    time: Any = fields.InstanceHashField()
    type: Any = fields.InstanceHashField(indexable=True)
    code: Any = fields.InstanceHashField(indexable=True)
    message: Any = fields.InstanceHashField()
    traceback: Any = fields.InstanceHashField()
    fingerprint = OwnField(AtomicHashField(indexable=True, indexes=[EqualIndex]))
    raised_in = OwnField(AtomicHashField())
    message_pattern = OwnField(AtomicHashField())
    app_version = OwnField(AtomicHashField())

    max_error_bytes: int | None = 64 * 1024

    @classmethod
    def add_error(
        cls,
        queue_name: str,
        job: JobRecord,
        error: Failure,
        when: datetime | None = None,
        trace: str | None = None,
        **additional_fields: Any,
    ) -> Self:
        """Record a failure.

        If Redis did not answer, you may repeat the call with the same arguments: one failure is recorded.

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
            Fields of a subclass; indexed ones of at most 64 kB each. Longer ones among the library's own fields are cut
            off. See `max_error_bytes`.

        Raises
        ------
        TypeError
            If `job` is not a job, or `when` not a datetime.
        AttributeError
            If the model has no such field.
        UniquenessError
            If another error has the value of a unique field.
        """
        if not isinstance(job, JobRecord):
            raise TypeError(f"The job of an error must be a job, not {job!r}")
        if not isinstance(when, (datetime, NoneType)):
            raise TypeError(f"The when of an error must be a datetime, not {when!r}")
        check_fields(cls, additional_fields)
        moment = as_naive_utc(when) if when else utcnow()
        values = _values_of(cls, queue_name, job, error, moment, trace)
        return _add_error_once(cls, {**values, **_bounded(cls, additional_fields)}, job, when)

    @classmethod
    def add_unresolved_error(cls, queue_name: str, ident: str, error: BaseException) -> Self:
        """Record that a job was dead-lettered because its class could not be resolved. Its identifier is unknown, so
        left empty.

        Parameters
        ----------
        ident: str
            The class path and pk of the job.
        error: exception
            Why the class could not be resolved. Its class is stored as type. Its text, and what to do, are the message.
        """
        return add_unresolved_error(cls, queue_name, ident, error)

    @property
    def datetime(self) -> datetime | None:
        """When it happened, as a naive UTC datetime."""
        return parse_datetime(self.date_time.hget())

    @classmethod
    def collection_for_job(cls, job: JobRecord) -> Any:
        """Return the collection of the errors of all jobs with the class and the identifier of this one."""
        return cls.collection(
            job_model_repr=job.get_model_repr(), identifier=as_indexed(printable(job.identifier.hget() or ""))
        )


def defer_unresolved(
    queue_model: type[RedisModel], key: str, ident: str, error: Exception, error_model: type[Error] | None = Error
) -> Exception:
    """Send a job whose class cannot be resolved back to its queue for a while; return the error, to be reported. If
    that happened too often, give the job up, record that, if there is an error model, and return a `ClassUnresolved`.
    """
    outcome, queue_name = transitions.defer_unresolved(queue_model, key, ident)
    if outcome == "deferred":
        return error
    text = f"{one_line(ident)} is dead-lettered, after {transitions.MAX_DEFERRALS} tries: {printable(error)}"
    try:
        if error_model:
            add_unresolved_error(error_model, queue_name, ident, error)
    except ResponseError as failure:
        text += f". Its error is not recorded: {failure}"
    return ClassUnresolved(text)


roots.error = Error


def new_error(
    error_model: type[Error], queue_name: str, job: JobRecord, error: BaseException, trace: str | None
) -> NewError:
    """Return the error that `Error.add_error` would add, to be created in the step that records the failure."""
    return NewError(error_model, _values_of(error_model, queue_name, job, error, utcnow(), trace))


def is_created_with_failure(error_model: type[Error], job_class: type[JobRecord]) -> bool:
    """Whether `new_error` can be used: the model has no code of its own for that, nor fields that scripts cannot
    write."""
    known = layout_of(Error)
    return not overrides(error_model, Error, "add_error") and NewError.is_possible(
        error_model, job_class, known.plain | known.special
    )


def add_unresolved_error(error_model: type[AnError], queue_name: str, ident: str, error: BaseException) -> AnError:
    """Do what `Error.add_unresolved_error` says."""
    path, pk = Ident.of(printable(ident))
    values = {"job_model_repr": path, "job_pk": pk, "identifier": "", "queue_name": queue_name}
    described = _described(error, utcnow())
    described["message"] += (
        f" (Its class could not be resolved, {transitions.MAX_DEFERRALS} times, so the job is in no list any more. "
        "Let a worker import that class: see --pythonpath and --job-modules. Then the job is put back in its "
        "queue.)"
    )
    described.update(_bounded(error_model, {"message": described["message"]}))
    values = {**values, **described, **_version()}
    return _add_error(error_model, _as_indexed(error_model, {**values, **_cause(values, None)}))


def _values_of(
    error_model: type[Error], queue_name: str, job: JobRecord, error: Failure, moment: datetime, trace: str | None
) -> dict[str, Any]:
    """Return the values of the library's own fields."""
    values = {
        "job_model_repr": job.get_model_repr(),
        "job_pk": pk_of(job),
        "identifier": getattr(job, "_cached_identifier", None) or job.identifier.hget() or "",
        "queue_name": queue_name,
        **_described(error, moment),
        **_version(),
    }
    if trace:
        values["traceback"] = printable(trace)
    values = {**values, **_bounded(error_model, {name: values[name] for name in TEXTS & values.keys()})}
    values.update(_cause(values, error if getattr(error, "__traceback__", None) else trace))
    return _as_indexed(error_model, values)


def _bounded(error_model: type[Error], values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out a part of what is longer than an error may hold."""
    most: Any = own_size(error_model.max_error_bytes, Error.max_error_bytes)
    if most is None:
        return dict(values)
    scored = {name for name in values if isinstance(error_model.get_field(name), fields.SortedSetField)}
    return {name: shortened_value(value, most, is_scored=name in scored) for name, value in values.items()}


def _as_indexed(error_model: type[Error], values: Mapping[str, Any]) -> dict[str, Any]:
    """Cut off a value that is too long to be indexed, and escape what is not text: a failure must be recorded
    anyway."""

    def stored(name: str, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        text = printable(value)
        return as_indexed(text) if getattr(error_model.get_field(name), "indexable", False) else text

    return {name: stored(name, value) for name, value in values.items()}


def _add_error_once(
    error_model: type[AnError], fields: dict[str, Any], job: JobRecord, when: datetime | None
) -> AnError:
    """Add an error, unless the same call did so before: the job remembers that this call failed."""
    model, before = vars(job).get("_unsure_error", (None, {}))
    moment = {name: before[name] for name in ("date_time", "date", "time") if name in before}
    is_again = model is error_model and before == {**fields, **({} if when else moment)}
    if is_again:
        fields = before
    job._unsure_error = error_model, fields
    error = _add_error(error_model, fields, again=is_again)
    del job._unsure_error
    return error


def _add_error(error_model: type[AnError], fields: Mapping[str, Any], *, again: bool = False) -> AnError:
    error: AnError = records.attached(error_model, records.add_error(error_model, fields, again=again))
    return error


def _cause(values: Mapping[str, str], raised: Any) -> dict[str, str]:
    known = raised if isinstance(raised, (str, BaseException)) else None  # a class has no traceback
    cause = cause_of(values["type"], values["message"], known, values["job_model_repr"], values["identifier"])
    fields = {"_fingerprint": cause.fingerprint, "_raised_in": cause.place, "_message_pattern": cause.pattern}
    return {name: value for name, value in fields.items() if value}


def _version() -> dict[str, str]:
    version = os.environ.get(VERSION_VARIABLE)
    return {"_app_version": printable(version)} if version else {}


def _described(error: Failure, moment: datetime) -> dict[str, Any]:
    values = {
        "date_time": str(moment),
        "date": str(moment.date()),
        "time": str(moment.time()),
        "type": (error if isinstance(error, type) else type(error)).__name__,
        "message": printable(error),
    }
    with suppress(BaseException):  # of code of the application, which is no reason not to record the failure
        code = getattr(error, "code", None)
        if code is not None and not hasattr(code, "__get__"):  # which a class has for its instances
            values["code"] = printable(code)
    return values
