"""What the code of a job says while it runs: how far it is, and the lines of a log."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from math import isfinite
from time import monotonic
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from limpyd_jobs.arguments import is_number
from limpyd_jobs.dates import parse_datetime, utcnow
from limpyd_jobs.records.layout import LOG_KEY, layout_of
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.records.records import list_of, redis_of, setting
from limpyd_jobs.redis.calls import Call, Steps, outcome_of
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.texts import one_line

_append_log = Script("records/append_log")

# How many seconds at least lie between two writes of the progress of a job.
PROGRESS_INTERVAL = 1.0

# How many lines are kept of a job, how many characters of each, and for how many seconds after the last one.
MAX_LINES, MAX_CHARACTERS, KEPT_FOR = 100, 1000, 7 * 86400


class Progress(NamedTuple):
    """How far a job is.

    Attributes
    ----------
    fraction: float
        From 0 to 1.
    text: str
        The text that the job told with it.
    at: datetime
        When the job told it, naive UTC.
    """

    fraction: float
    text: str
    at: datetime


def write_progress(job: Any, fraction: float, text: str = "") -> Steps[None]:
    """Do what `Job.progress` says."""
    if not is_number(fraction) or not isfinite(fraction):
        raise TypeError(f"progress must be a number from 0 to 1, not {fraction!r}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"progress must be a number from 0 to 1, not {fraction}")
    now = monotonic()
    if fraction < 1 and now < vars(job).get("_next_progress", 0.0):
        return
    vars(job)["_next_progress"] = now + PROGRESS_INTERVAL
    with suppress(RedisError):  # it is not a failure of the job if this cannot be told
        yield from setting_progress(job, progress_text(fraction, text), vars(job).get("_held_token") or "")


def setting_progress(job: Any, progress: str, token: str) -> Steps[None]:
    """Store the progress of a run, given the token of its claim, if it has one. A run that has lost its claim must not
    hide the progress of the next one."""
    return setting(job, {"_progress_state": progress}, token)


def progress_text(fraction: float, text: str) -> str:
    """Return the progress of this moment as it is stored."""
    return json.dumps([fraction, one_line(text, MAX_CHARACTERS), str(utcnow())], ensure_ascii=False)


def read_progress(text: str | None) -> Progress | None:
    """Read the stored progress; None if nothing is stored, or another program wrote it."""
    try:
        fraction, said, at = json.loads(text or "")
        moment = parse_datetime(at)
        return Progress(float(fraction), str(said), moment) if moment and isfinite(fraction) else None
    except (OverflowError, TypeError, ValueError, RecursionError):
        return None


def append_line(job: Any, message: str) -> Steps[None]:
    """Do what `Job.log` says."""
    request = {
        "model": layout_of(type(job)).json,
        "pk": pk_of(job),
        "line": one_line(message, MAX_CHARACTERS),
        "most": MAX_LINES,
        "kept_for": KEPT_FOR,
    }
    with suppress(RedisError):  # as above
        yield Call(redis_of(job), _append_log, request, outcome_of)


def log_key(name: str, pk: str) -> str:
    """Return the key of the log of a job, given the name of its model."""
    return f"{name}:{pk}:{LOG_KEY}"


def read_lines(job: Any) -> list[str]:
    """Do what `Job.read_log` says."""
    return list_of(job, log_key(type(job)._name, pk_of(job)))
