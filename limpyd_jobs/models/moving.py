"""Moving, requeuing and canceling a job, in steps; reading and writing one of its fields."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from limpyd_jobs import transitions
from limpyd_jobs.arguments import delay_argument, stored_priority
from limpyd_jobs.classes.roots import has_custom_queues, roots
from limpyd_jobs.dates import compute_delayed_until, parse_datetime
from limpyd_jobs.fields.new_fields import check_fields
from limpyd_jobs.fields.own_fields import stored_name
from limpyd_jobs.functions import overrides
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.lazy_fields import hash_key_of
from limpyd_jobs.records.records import setting
from limpyd_jobs.redis.calls import Requests, Steps, commanded
from limpyd_jobs.redis.database import redis_of
from limpyd_jobs.statuses import STATUSES


def enqueued(
    job: Any,
    queue_name: str | None = None,
    priority: Any = None,
    delayed_until: Any = None,
    prepend: bool = False,
    queue_model: Any = None,
) -> Steps[None]:
    """Do what `Job.enqueue_or_delay` says."""
    queue_name = job._get_queue_name(queue_name)
    queue_model = queue_model or job.queue_model
    until = _parse_delayed_until(delayed_until)
    is_custom = has_custom_queues(queue_model)
    placed: transitions.Standing = yield transitions.move.call(
        job,
        queue_model,
        queue_name,
        "" if priority is None else stored_priority(priority),
        prepend=prepend,
        delay=delay_argument(delayed_until=until),
        place=not is_custom,
    )
    if is_custom and placed.status != STATUSES.RUNNING:
        priority = placed.priority if priority is None else priority
        yield partial(_enter, job, queue_model, queue_name, priority, placed.status, until, prepend)


def requeued(
    job: Any,
    queue_name: str | None = None,
    priority: Any = None,
    delayed_for: Any = None,
    delayed_until: Any = None,
    queue_model: Any = None,
    restart: bool = False,
) -> Steps[None]:
    """Do what `Job.requeue` says."""
    if queue_name is None and job.queue_name is None:
        queue_name = yield from _last_queue_name(job)
    queue_name = job._get_queue_name(queue_name)
    given_model, queue_model = queue_model, queue_model or job.queue_model
    delay = delay_argument(delayed_for, delayed_until)
    is_custom = overrides(type(job), roots.job, "enqueue_or_delay")
    is_custom_queue = has_custom_queues(queue_model)
    placed: transitions.Standing = yield transitions.requeue.call(
        job,
        queue_model,
        queue_name,
        "" if priority is None else stored_priority(priority),
        delay=delay,
        place=not (is_custom or is_custom_queue),
        restart=bool(restart),
    )
    job._cached_priority, job._cached_delayed_until = placed.priority, placed.delayed_until
    until = compute_delayed_until(delayed_for, delayed_until)
    if priority is None:
        priority = placed.priority
    if is_custom:
        yield partial(job.enqueue_or_delay, queue_name, priority, until, queue_model=given_model)
    elif is_custom_queue:
        yield partial(_enter, job, queue_model, queue_name, priority, placed.status, until)


def canceled(job: Any) -> Requests[bool]:
    """Do what `Job.cancel` says."""
    return transitions.cancel.call(job, job.queue_model, job.queue_name or "")


def value_of(job: Any, name: str) -> Steps[Any]:
    """Do what `Job.aget` says."""
    field = job.get_field(stored_name(type(job), name))
    layout = layout_of(type(job))
    if field.name not in layout.plain | layout.special:
        return (yield field.proxy_get)
    known = vars(job).get("_arguments", {})
    if field.name in known:
        text = known[field.name]
    else:
        text = yield from commanded(redis_of(job), "HGET", hash_key_of(job), field.name)
    codec = getattr(field, "codec", None)
    return text if codec is None or text is None else codec.load(text)


def value_set(job: Any, name: str, value: Any) -> Steps[None]:
    """Do what `Job.aset` says."""
    check_fields(type(job), {name: value})
    field = job.get_field(name)
    if name in layout_of(type(job)).plain and not getattr(field, "is_fixed", False):
        yield from setting(job, {name: field.stored(value) if hasattr(field, "stored") else value})
    else:
        yield partial(field.proxy_set, value)


def _parse_delayed_until(delayed_until: datetime | str | None) -> datetime | None:
    if not isinstance(delayed_until, str):
        return delayed_until or None
    until = parse_datetime(delayed_until)
    if delayed_until and until is None:
        raise ValueError(f"Invalid delayed_until argument: not the text of a datetime: {delayed_until!r}")
    return until


def _enter(
    job: Any,
    queue_model: Any,
    queue_name: str,
    priority: Any,
    status: str,
    delayed_until: datetime | None,
    prepend: bool = False,
) -> None:
    queue = queue_model.get_queue(queue_name, priority)
    if status == STATUSES.DELAYED and delayed_until:
        queue.delay_job(job, delayed_until)
    else:
        queue.enqueue_job(job, prepend)


def _last_queue_name(job: Any) -> Steps[str | None]:
    connection = redis_of(job)
    key = yield from commanded(connection, "HGET", hash_key_of(job), "_queue_key")
    if not key:
        return None
    name: str | None = yield from commanded(connection, "HGET", f"{key}:hash", "name")
    return name
