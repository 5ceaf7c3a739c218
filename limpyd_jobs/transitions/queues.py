"""Queues as a whole: what is in them, their quarantine, and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from limpyd.model import RedisModel

from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import Call, Verb, given, listed, outcome_of
from limpyd_jobs.redis.scripting import Script

_delete_queue = Script("queues/delete_queue")
_leave_quarantine = Script("queues/leave_quarantine")
_measure_queues = Script("queues/measure_queues")


@Verb
def measure_queues(connection: Any, queue_model: str, classes: str, pks: Sequence[str]) -> Call[dict[str, Any]]:
    """Count what is in some queues of a model, which is given as JSON; the job classes, too, by their path."""
    request = {"queue_model": queue_model, "classes": classes, "pks": listed(pks)}
    return Call(connection, _measure_queues, request, dict)


@Verb
def leave_quarantine(
    connection: Any, queue_key: str, entries: Iterable[str], *, drop: bool, audit: Mapping[str, str]
) -> Call[int]:
    """Put entries of a quarantine back in the waiting list, or drop them; return how many were still there."""
    request = {**given(queue_key=queue_key, idents=listed(entries), drop=drop), **audit}
    return Call(connection, _leave_quarantine, request, lambda reply: int(reply["number"]))


@Verb
def delete_queue(queue_model: type[RedisModel], pk: str, audit: Mapping[str, Any]) -> Call[str]:
    """Delete a queue; return ``deleted``, ``gone`` or ``used``."""
    request = {"queue_model": layout_of(queue_model).json, "pk": pk, **audit}
    return Call(redis_of(queue_model), _delete_queue, request, outcome_of, [queue_model])
