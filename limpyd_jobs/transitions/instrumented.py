"""The transitions that add jobs, with the instruments around them. Without instruments, none of this is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from limpyd.model import RedisModel

from limpyd_jobs.observing.instruments import Adding, Around
from limpyd_jobs.redis.calls import Procedure, Steps, stepped
from limpyd_jobs.transitions import placing


@Procedure
def add(
    job_class: type[RedisModel],
    identifier: str,
    queue_model: type[RedisModel],
    queue_name: str,
    priority: str,
    *,
    fields: Mapping[str, Any],
    **options: Any,
) -> Steps[tuple[str, str]]:
    """Do as `placing.add`."""
    adding = Adding(job_class, queue_name)
    with Around(adding):
        where = queue_model, queue_name, priority
        fields = adding.with_context(fields)
        outcome, pk = yield from stepped(placing.add.steps(job_class, identifier, *where, fields=fields, **options))
        adding.ended([pk], outcome)
    return outcome, pk


@Procedure
def add_many(
    job_class: type[RedisModel],
    jobs: Sequence[tuple[str, Mapping[str, str]]],
    queue_model: type[RedisModel],
    queue_name: str,
    priority: str,
    **options: Any,
) -> Steps[list[tuple[str, str]]]:
    """Do as `placing.add_many`."""
    adding = Adding(job_class, queue_name, len(jobs))
    with Around(adding):
        jobs = [(identifier, adding.with_context(fields)) for identifier, fields in jobs]
        call = placing.add_many.call(job_class, jobs, queue_model, queue_name, priority, **options)
        added: list[tuple[str, str]] = yield call
        adding.ended([pk for _, pk in added])
    return added


def enqueue_due(
    name: str,
    schedule_model: type[RedisModel],
    pk: str,
    occurrence: Mapping[str, Any],
    job_class: type[RedisModel],
    identifier: str,
    queue_model: type[RedisModel],
    queue_name: str,
    priority: str,
    fields: Mapping[str, Any],
) -> tuple[str, str]:
    """Do as `placing.enqueue_due`, for a schedule of that name."""
    adding = Adding(job_class, queue_name, schedule=name)
    with Around(adding):
        where = queue_model, queue_name, priority, adding.with_context(fields)
        outcome, job_pk = placing.enqueue_due(schedule_model, pk, occurrence, job_class, identifier, *where)
        adding.ended([job_pk], outcome)
    return outcome, job_pk
