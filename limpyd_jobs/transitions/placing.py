"""Where jobs are put: added, moved, canceled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from limpyd.model import RedisModel

from limpyd_jobs.exceptions import ClaimLost, JobGone, LimpydJobsException
from limpyd_jobs.store.layout import layout_of, layout_to_add
from limpyd_jobs.store.lazy_fields import pk_of
from limpyd_jobs.store.records import check_database, create, due_key, flat, get_queue, redis_of, reindexed, sender_of
from limpyd_jobs.store.scripting import Script

_add = Script("add")
_add_many = Script("add_many")
_enqueue_due = Script("enqueue_due")
_move = Script("move")
_cancel = Script("cancel")


def prepare_queue(queue_model: type[RedisModel], name: str, priority: str, job: RedisModel | None = None) -> None:
    """Create the queue beforehand if a new one would need what only limpyd can write.

    Without a priority it is the one of the job.
    """
    if layout_of(queue_model).needs_limpyd:
        get_queue(queue_model, name, priority or (job and job.priority.hget()) or "0", {})


class Placed(NamedTuple):
    """Where a job was put: its status (a letter; RUNNING if it was not yet), its priority, until when it is delayed (a
    date as text)."""

    status: str
    priority: str
    delayed_until: str


def add(
    job_class: type[RedisModel],
    identifier: str,
    queue_model: type[RedisModel],
    queue_name: str,
    priority: str,
    *,
    prepend: bool = False,
    delay: str = "",
    fields: Mapping[str, Any] | None = None,
    place: bool = True,
) -> tuple[str, str]:
    """Add a job, or find the queued one of that identifier and move it up.

    Parameters
    ----------
    delay: str
        As `arguments.delay_argument` makes it.
    fields: mapping
        The other fields of the job, written only if it is a new one.
    place: bool
        False to leave it to the caller to put the job in a queue.

    Returns
    -------
    tuple of str
        ``added``, ``existing``, ``moved``, or, if it is left to the caller to do so, ``outranked``; and the pk.

    Raises
    ------
    UniquenessError
        If another job has the value of a unique field.
    ConfigurationException
        If the models of the job and of the queue are on different databases.
    """
    check_database(job_class, queue_model)
    prepare_queue(queue_model, queue_name, priority)
    layout = layout_to_add(job_class)

    def call(pk: str, plain: Mapping[str, str], reserve: bool) -> Any:
        mode = f"{'reserve' if reserve else ''} {'' if place else 'custom'}".strip()
        options = _options(prepend=prepend, delay=delay, mode=mode, pk=pk)
        args = [layout.json, layout_of(queue_model).json, identifier, queue_name, priority, options, *flat(plain)]
        return json.loads(_add(sender_of(job_class), args=args))

    # A job must be found by all its fields before a worker can see it.
    reply = create(job_class, fields or {}, layout.plain, call)
    if reply[0] == "moved":
        reindexed(job_class, reply[1], reply[2])
    return reply[0], reply[1]


def add_many(
    job_class: type[RedisModel],
    jobs: Sequence[tuple[str, Mapping[str, str]]],
    queue_model: type[RedisModel],
    queue_name: str,
    priority: str,
    *,
    prepend: bool = False,
    delay: str = "",
) -> list[str]:
    """Add several jobs in one step, in their order; return their pks.

    Parameters
    ----------
    jobs: sequence of (str, mapping of str to str)
        Their identifiers, with the other fields of new jobs, as they are stored: plain ones (see `Layout.plain`), none
        of which is unique.

    For the other parameters, and the exceptions, see `add`.
    """
    check_database(job_class, queue_model)
    prepare_queue(queue_model, queue_name, priority)
    models = [layout_to_add(job_class).json, layout_of(queue_model).json]
    texts = json.dumps(jobs, ensure_ascii=False, separators=(",", ":"))
    args = [*models, queue_name, priority, _options(prepend=prepend, delay=delay), texts]
    return list(json.loads(_add_many(redis_of(job_class), args=args)))


def enqueue_due(
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
    """Add the job of a schedule that is due, and set its next time, unless somebody else did.

    Parameters
    ----------
    occurrence: mapping
        The third argument of ``enqueue_due.lua``.

    For the other parameters, and the exceptions, see `add`.

    Returns
    -------
    tuple of str
        ``added``, ``existing`` or ``moved``, with the pk of the job; ``passed over`` or ``not due``, without.
    """
    check_database(job_class, queue_model)
    check_database(job_class, schedule_model)
    prepare_queue(queue_model, queue_name, priority)
    layout = layout_of(job_class)

    def call(job_pk: str, plain: Mapping[str, str], reserve: bool) -> Any:
        options = json.dumps({**occurrence, "mode": "reserve" if reserve else "", **({"pk": job_pk} if job_pk else {})})
        models = [layout.json, layout_of(queue_model).json]
        args = [layout_of(schedule_model).json, pk, options, *models, identifier, queue_name, priority, *flat(plain)]
        reply = _enqueue_due(redis_of(job_class), keys=[due_key(schedule_model)], args=args)
        return [*reply, ""] if reply[0] in ("passed over", "not due") else reply

    reply = create(job_class, fields, layout.plain, call)
    if reply[0] == "moved":
        reindexed(job_class, reply[1], reply[2])
    return reply[0], reply[1]


def _options(**options: Any) -> str:
    given = {name: value for name, value in options.items() if value}
    return json.dumps(given) if given else ""


def move(
    job: RedisModel,
    queue_model: type[RedisModel],
    queue_name: str,
    priority: str = "",
    *,
    prepend: bool = False,
    delay: str = "",
    place: bool = True,
) -> Placed:
    """Put a job in the waiting list, or the delayed set, of a queue, wherever it stands now.

    Returns
    -------
    Placed
        Its new status, priority and, if delayed, date.

    Raises
    ------
    DoesNotExist
        If the job was deleted.
    LimpydJobsException
        If another job of its identifier is queued.
    """
    args = arguments_to_place(job, queue_model, queue_name, priority)
    reply = _move(redis_of(job), args=[*args, "1" if prepend else "", delay, "place" if place else "custom"])
    return as_placed(job, accept(job, reply))


def cancel(job: RedisModel, queue_model: type[RedisModel], queue_name: str = "") -> bool:
    """Cancel a job that waits or is delayed; tell a running one that it is canceled.

    Parameters
    ----------
    queue_model, queue_name
        Where a job most likely stands that does not say so itself, as it was added by version 2.

    Returns
    -------
    bool
        False if it ended before, in success or error: nothing was changed.

    Raises
    ------
    DoesNotExist
        If the job was deleted.
    """
    check_database(type(job), queue_model)
    args = [layout_of(type(job)).json, job.ident, layout_of(queue_model).json, queue_name]
    reply = accept(job, _cancel(redis_of(job), args=args))
    if reply[0] == "done":
        reindexed(type(job), pk_of(job), reply[2])
    return bool(reply[0] != "ended")


def arguments_to_place(job: RedisModel, queue_model: type[RedisModel], queue_name: str, priority: str) -> list[str]:
    """Return what scripts need to know to put a job in a queue, which exists if only limpyd could make it.

    Raises
    ------
    ConfigurationException
        If the models of the job and of the queue are on different databases.
    """
    check_database(type(job), queue_model)
    prepare_queue(queue_model, queue_name, priority, job)
    return [layout_of(type(job)).json, job.ident, layout_of(queue_model).json, queue_name, priority]


def as_placed(job: RedisModel, reply: Any) -> Placed:
    _, status, priority, delayed_until, reindex = reply
    reindexed(type(job), pk_of(job), reindex)
    return Placed(status, priority, delayed_until)


def accept(job: RedisModel, reply: Any) -> Any:
    """Return the reply of a script, unless it is a refusal: then raise what it stands for."""
    if reply[0] == "already queued":
        raise LimpydJobsException(f"{job.ident} cannot be queued: job {reply[1]}, of the same identifier, is queued")
    if reply[0] == "gone":
        raise JobGone(job.ident)
    if reply[0] == "refused":
        raise ClaimLost(f"The claim on {job.ident} is lost: what became of it is recorded by somebody else")
    return reply
