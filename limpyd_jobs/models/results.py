"""The results of jobs. They are kept beside the jobs for a time, for others to read or to wait for."""

from __future__ import annotations

import json
from typing import Any

from limpyd.model import RedisModel

from limpyd_jobs.arguments import check_size
from limpyd_jobs.exceptions import ConfigurationException, JobCanceled, JobFailed, JobGone, NoResult, ResultTimeout
from limpyd_jobs.models.changes import wait_for_end
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.store.codecs import codec_of, dump_compact
from limpyd_jobs.store.layout import RESULT_KEY, kept_for
from limpyd_jobs.store.lazy_fields import pk_of
from limpyd_jobs.store.records import redis_of
from limpyd_jobs.transitions import KeptResult
from limpyd_jobs.utils import MESSAGE, one_line

# The text of one result: a script has to hold it.
MAX_BYTES = 512 * 1024


def kept_result(job_class: type[RedisModel], result: Any) -> KeptResult | None:
    """Return what to store of a result; None if the class of the job keeps no results.

    Raises
    ------
    TypeError, ValueError
        If JSON cannot hold it, or it is too long.
    """
    seconds = kept_for(job_class)
    if seconds is None:
        return None
    try:
        text = dump_compact(result)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"JSON cannot hold it: {one_line(error, MESSAGE)}") from None
    check_size("A result", text, MAX_BYTES)
    return KeptResult(text, max(int(seconds * 1000), 1))


def result_of(job: Any, timeout: float | None, error_model: Any) -> Any:
    """Do what `Job.result` says."""
    if kept_for(type(job)) is None:
        raise ConfigurationException(f"{type(job).__name__} keeps no results: set keep_result = True on the class")
    ident = job.ident
    if timeout != 0 and not wait_for_end(job, timeout):
        raise ResultTimeout(f"{ident} has not ended after {timeout} seconds")
    client, key = redis_of(job), f"{type(job)._name}:{pk_of(job)}"
    pipeline: Any = client.pipeline(transaction=True)
    pipeline.hget(f"{key}:hash", "status").get(f"{key}:{RESULT_KEY}").exists(f"{key}:hash")
    status, text, exists = pipeline.execute()
    if not exists:
        raise JobGone(ident)
    if status == STATUSES.SUCCESS:
        return _read(ident, text)
    if status == STATUSES.ERROR:
        raise _failure_of(job, error_model)
    if status == STATUSES.CANCELED:
        raise JobCanceled(f"{ident} was canceled")
    raise ResultTimeout(f"{ident} has not ended: its status is {STATUSES.by_value(status, 'none')}")


def _read(ident: str, text: str | None) -> Any:
    if text is None:
        raise NoResult(f"{ident} succeeded, but there is no result: it expired, could not be kept, or was never kept")
    try:
        return codec_of(json).load(text)
    except (ValueError, RecursionError):
        raise NoResult(f"{ident} succeeded, but what is stored as its result is no JSON") from None


def _failure_of(job: Any, error_model: Any) -> JobFailed:
    """The last error that is recorded of a job."""
    pks = error_model.collection_for_job(job).sort(desc=True)[:1]
    fields = dict(next(iter(error_model.read_many(list(pks))), ("", {}))[1])
    told = (fields.get(name, "") for name in ("type", "message", "traceback"))
    return JobFailed(job.ident, *told)
