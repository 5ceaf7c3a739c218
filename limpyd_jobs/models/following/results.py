"""The results of jobs. They are kept beside the jobs for a time, for others to read or to wait for."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from limpyd.model import RedisModel
from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.arguments import check_size
from limpyd_jobs.exceptions import ConfigurationException, JobCanceled, JobFailed, JobGone, NoResult, ResultTimeout
from limpyd_jobs.fields.codecs import codec_of, dump_compact
from limpyd_jobs.functions import memoized
from limpyd_jobs.idents import Ident
from limpyd_jobs.models.explaining.details import errors_of
from limpyd_jobs.models.following.changes import checked_timeout, refusing_other_keys, remedy_of
from limpyd_jobs.models.following.waiting import deadline_of, one_at_a_time, wait_for_end
from limpyd_jobs.records.layout import RESULT_KEY, kept_for
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import Commands, Steps, finish
from limpyd_jobs.search.classes import error_models_of
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.transitions import KeptResult

if TYPE_CHECKING:
    from limpyd_jobs.fields.form import Form

# The text of one result: a script has to hold it.
MAX_BYTES = 512 * 1024


def kept_result(job_class: type[RedisModel], result: Any) -> KeptResult | None:
    """Return what to store of a result, if JSON can hold it. If the class of the job keeps no results, it is for the
    jobs that come after it in a flow only: None if there is nothing to keep."""
    seconds = kept_for(job_class)
    if seconds is None and result is None:
        return None
    text = _text_of(job_class, result)
    check_size("A result", text, MAX_BYTES)
    return KeptResult(text, max(int(seconds * 1000), 1) if seconds else 0)


def _text_of(job_class: type[RedisModel], result: Any) -> str:
    """Return a result as JSON, by the type that its code is annotated to return; without one, or if it is of another
    type, as JSON alone can hold it."""
    failure, form = None, _form_of_result(job_class)
    if form is not None:
        try:
            return checked_json(dump_compact(form.dump(result)))
        except _UNFIT as error:
            failure = f"it cannot be kept as {form.name}: {one_line(error, MESSAGE)}"
    return storable(result, failure)


def storable(value: Any, failure: str | None = None, what: str = "it") -> str:
    """Return a value as JSON, or raise `TypeError` if that cannot hold it, with the message of a failure before."""
    try:
        return checked_json(dump_compact(value))
    except _UNFIT as error:
        raise TypeError(failure or f"JSON cannot hold {what}: {one_line(error, MESSAGE)}") from None


# What is raised for a value that cannot be stored.
_UNFIT = (TypeError, ValueError, ArithmeticError, RecursionError, AttributeError)


def checked_json(text: str) -> str:
    """Return a text that Redis can keep and that all programs can read: lone surrogates, NaN and infinity cannot be."""
    text.encode()
    if "NaN" in text or "Infinity" in text:
        json.loads(text, parse_constant=_refuse)
    return text


def _refuse(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


@memoized
def _form_of_result(job_class: Any) -> Form | None:
    """Return the form of what the code of a job is annotated to return, if it is a type that JSON does not have."""
    from limpyd_jobs.fields.form import ALL_SHAPES  # not at the start of each process
    from limpyd_jobs.fields.forms import form_of

    function = getattr(job_class, "_function", None)
    try:
        hints = get_type_hints(function.__wrapped__ if function else job_class.run, include_extras=True)
        form = form_of(hints.get("return", Any))
    except Exception:  # names that are only there for type checkers, types that cannot travel
        return None
    return None if form.shapes == ALL_SHAPES else form


def result_of(job: Any, timeout: float | None, error_model: Any) -> Any:
    """Do what `Job.result` says."""
    timeout = checked_wait(job, timeout)
    stored = finish(read(job, error_model)) if timeout == 0 else _read_in_time(job, error_model, timeout)
    return outcome(job, stored)


def checked_wait(job: Any, timeout: float | None) -> float | None:
    """Return the time to wait for a result, if the class of the job keeps results."""
    if kept_for(type(job)) is None:
        raise ConfigurationException(f"{type(job).__name__} keeps no results: {remedy_of(type(job), 'keep_result')}")
    return checked_timeout(timeout)


def outcome(job: Any, stored: Stored) -> Any:
    """Return the result that is stored, or raise what there is instead."""
    if not stored.exists:
        raise JobGone(job.ident)
    if stored.status == STATUSES.SUCCESS:
        return _result_in(job, stored.text)
    if stored.status == STATUSES.ERROR:
        raise JobFailed(job.ident, *stored.failure)
    if stored.status == STATUSES.CANCELED:
        raise JobCanceled(f"{job.ident} was canceled")
    raise ResultTimeout(f"{job.ident} has not ended: its status is {STATUSES.by_value(stored.status, 'none')}")


class Stored(NamedTuple):
    """What is stored of a job and its end: the text of its result, or the error if it is not a text; and the type,
    message and traceback of its last error."""

    exists: bool
    status: str | None
    text: str | ResponseError | None
    failure: list[str]


def _read_in_time(job: Any, error_model: Any, timeout: float | None) -> Stored:
    """Read what is stored once the job has ended."""
    deadline = deadline_of(timeout)
    has_ended = wait_for_end(job, timeout)
    if has_ended is False:
        raise not_ended(job, timeout)
    try:
        return one_at_a_time(type(job), lambda: finish(read(job, error_model)), deadline)
    except TimeoutError as error:
        raise not_known(job, timeout, error) from error


def not_ended(job: Any, timeout: float | None) -> ResultTimeout:
    """Return what to raise if a job has not ended in time."""
    return ResultTimeout(f"{job.ident} has not ended after {timeout} seconds")


def not_known(job: Any, timeout: float | None, error: object) -> ResultTimeout:
    """Return what to raise if Redis does not tell in time how a job ended."""
    return ResultTimeout(
        f"How {job.ident} ended is not known, because Redis did not answer within {timeout} seconds: {error}"
    )


def read(job: Any, error_model: Any) -> Steps[Stored]:
    """Read without a transaction, which a full Redis refuses: a result is stored in one step with the success."""
    key = f"{type(job)._name}:{pk_of(job)}"
    commands = [("HGET", f"{key}:hash", "status"), ("GET", f"{key}:{RESULT_KEY}"), ("EXISTS", f"{key}:hash")]
    status, text, exists = yield Commands(redis_of(job), commands)
    for reply in (status, exists):
        if isinstance(reply, RedisError):
            with refusing_other_keys("the hash of a job", f"{key}:hash"):
                raise reply
    failure: list[str] = []
    if status == STATUSES.ERROR:
        failure = yield partial(failure_of, (error_model or type(job)).database, job.ident, error_model)
    return Stored(bool(exists), status, text, failure)


def _result_in(job: Any, text: str | ResponseError | None) -> Any:
    if text is None:
        raise NoResult(
            f"{job.ident} succeeded, but there is no result: it expired, could not be kept, or was never kept"
        )
    if isinstance(text, RedisError):
        key = f"{type(job)._name}:{pk_of(job)}:{RESULT_KEY}"
        raise NoResult(f"{job.ident} succeeded, but what is stored as its result, at {key}, is not a text: {text}")
    try:
        found = codec_of(json).load(text)
    except (ValueError, RecursionError):
        raise NoResult(f"{job.ident} succeeded, but what is stored as its result is not JSON") from None
    return as_annotated(type(job), found)


def as_annotated(job_class: type[RedisModel], found: Any) -> Any:
    """Return a result, as JSON keeps it, as the type that its code is annotated to return."""
    form = _form_of_result(job_class)
    with suppress(*_UNFIT):  # it was of another type than its annotation says
        return form.load(found) if form else found
    return found


def failure_of(database: Any, ident: str, error_model: Any = None) -> list[str]:
    """Return the type, message and traceback of the last error that is recorded of a job, by reading commands only."""
    found = errors_of(database, error_models_of(database, error_model), Ident.of(ident), 1) or [{}]
    return [found[0].get(name, "") for name in ("type", "message", "traceback")]
