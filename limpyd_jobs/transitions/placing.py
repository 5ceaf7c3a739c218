"""Adding, moving and canceling jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from limpyd.model import RedisModel

from limpyd_jobs.arguments import is_servable
from limpyd_jobs.classes.binding import check_database
from limpyd_jobs.exceptions import AlreadyClaimed, ClaimLost, JobGone, LimpydJobsException
from limpyd_jobs.records.known_classes import unwritten, was_written
from limpyd_jobs.records.layout import layout_of, layout_to_add
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.records.records import creating, creating_with, due_key, get_queue, unique
from limpyd_jobs.redis.calls import Call, Procedure, Requests, Steps, Verb, finish, given, listed
from limpyd_jobs.redis.database import sender_of, sender_to_add
from limpyd_jobs.redis.replication import CopyingSender
from limpyd_jobs.redis.scripting import Script

_add = Script("placing/add")
_add_many = Script("placing/add_many")
_add_once = Script("placing/add_once")
_enqueue_due = Script("timed/enqueue_due")
_move = Script("placing/move")
_cancel = Script("placing/cancel")


def preparing(
    queue_model: type[RedisModel], name: str, priority: str, job: RedisModel | None = None
) -> Callable[[], object] | None:
    """Return a function that creates the queue beforehand, by default with the priority of the job; None if a script
    can write all of a new queue."""
    return partial(_prepare, queue_model, name, priority, job) if layout_of(queue_model).needs_limpyd else None


def asking_for(
    queue_model: type[RedisModel], name: str, priority: str, job: RedisModel | None = None
) -> Callable[[], object] | None:
    """Return what to do before a job is put in a queue that the application names: to `preparing` it adds that a new
    queue is refused if no worker could serve it."""
    if is_servable(name) and not layout_of(queue_model).needs_limpyd:
        return None
    return partial(_prepare, queue_model, name, priority, job)


def _prepare(queue_model: type[RedisModel], name: str, priority: str, job: RedisModel | None) -> None:
    get_queue(queue_model, name, priority or (job and job.priority.hget()) or "0", {})


class Standing(NamedTuple):
    """Where a job was put: its status (a letter; RUNNING if it is not put yet), its priority, until when it is delayed
    (a date as text)."""

    status: str
    priority: str
    delayed_until: str


@Procedure
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
    once: str = "",
    replaces: str = "",
) -> Requests[tuple[str, str]]:
    """Add a job, or find the queued one of that identifier and move it up, or replace it; return the outcome,
    ``outranked`` if the caller has to move the job, ``running`` if it cannot be replaced, and its pk. Without `place`,
    the caller has to put the job in a queue, and to call `await_copies`. With the key of `Once`, it is done once.
    Exceptions: as `Job.add_job`."""
    if job_class.database is not queue_model.database:
        check_database(job_class, queue_model)
    layout, registry = layout_to_add(job_class), unwritten((job_class,), queue_model)
    sender = sender_to_add(job_class) if place else sender_of(job_class)
    plain: Mapping[str, str] = {}
    others: Mapping[str, Any] = {}
    if fields or layout.other_defaults:
        plain, others = layout.split(fields or {}, layout.plain)
    # in the order of the header of add.lua
    words = [layout.json, identifier, layout_of(queue_model).json, queue_name, priority, delay]
    words += ["1" if prepend else "", "" if place else "1", "1" if others else "", "", registry, replaces]
    words += chain.from_iterable(plain.items())

    def read(reply: dict[str, Any]) -> tuple[str, str]:
        if reply["outcome"] == "not unique":
            unique(job_class, reply)
        if registry:
            was_written((job_class,), queue_model)
        if isinstance(sender, CopyingSender):
            sender.check([_ident_of(job_class, reply["pk"])])
        return reply["outcome"], reply["pk"]

    # A job must be found by all its fields before a worker can see it.
    before = asking_for(queue_model, queue_name, priority)
    script, keys = (_add_once, (once,)) if once else (_add, ())
    call = Call(sender, script, words, read, (job_class,), keys, before)
    return _adding_with(others, job_class, call) if others else call


def _adding_with(
    others: Mapping[str, Any], job_class: type[RedisModel], call: Call[tuple[str, str]]
) -> Steps[tuple[str, str]]:
    reply = yield from creating_with(others, job_class, call.reading(partial(unique, job_class)))
    return call.read(reply)


def await_copies(job: RedisModel) -> None:
    """Wait for the replicas, if the settings of the database ask for it, after the caller put a job in a queue."""
    sender = sender_to_add(type(job))
    if isinstance(sender, CopyingSender):
        sender.wait()
        sender.check([_ident_of(type(job), pk_of(job))])


def _ident_of(job_class: type[RedisModel], pk: str) -> str:
    return f"{job_class.get_model_repr()}:{pk}"


@Verb
def add_many(
    job_class: type[RedisModel],
    jobs: Sequence[tuple[str, Mapping[str, str]]],
    queue_model: type[RedisModel],
    queue_name: str,
    priority: str,
    *,
    prepend: bool = False,
    delay: str = "",
    replaces: str = "",
) -> Call[list[tuple[str, str]]]:
    """Add several jobs in one step, in their order, given their identifiers and other fields as they are stored; return
    of each the outcome, as `add` does, and its pk. The fields have to be plain (see `Layout.plain`), and not unique."""
    check_database(job_class, queue_model)
    where = where_to(queue_model, queue_name, priority, delay, prepend=bool(prepend))
    job_model, registry = layout_to_add(job_class).json, unwritten((job_class,), queue_model)
    request = {"job_model": job_model, "jobs": listed(jobs), "registry": registry, "replaces": replaces, **where}
    before, sender = asking_for(queue_model, queue_name, priority), sender_to_add(job_class)

    def read(reply: dict[str, Any]) -> list[tuple[str, str]]:
        if registry:
            was_written((job_class,), queue_model)
        if isinstance(sender, CopyingSender):
            sender.check([_ident_of(job_class, pk) for pk in reply["pks"]])
        others = reply.get("outcomes", {})
        return [(others.get(str(number), "added"), pk) for number, pk in enumerate(reply["pks"], 1)]

    return Call(sender, _add_many, request, read, [job_class], before=before)


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
    """Add the job of a schedule that is due, and set the next time, unless another worker did so; return the outcome,
    and the pk if there is a job. What the caller has `seen` of the schedule is its next_run, trigger and timezone."""
    check_database(job_class, queue_model)
    check_database(job_class, schedule_model)
    layout = layout_of(job_class)
    next_run, trigger, timezone = occurrence["seen"]
    registry = unwritten((job_class,), queue_model)
    request = {
        "model": layout_of(schedule_model).json,
        "pk": pk,
        "next_run": next_run,
        "trigger": trigger,
        "timezone": timezone,
        "run": occurrence["run"],
        "following": occurrence["following"],
        "score": occurrence["score"],
        "job_model": layout.json,
        "identifier": identifier,
        **where_to(queue_model, queue_name, priority, occurrence.get("delay", "")),
        "registry": registry,
    }
    options = {"keys": [due_key(schedule_model)], "before": asking_for(queue_model, queue_name, priority)}
    reply = finish(creating(job_class, fields, layout.plain, _enqueue_due, request, **options))
    if registry and reply["outcome"] not in ("not due", "passed over"):
        was_written((job_class,), queue_model)
    return reply["outcome"], reply.get("pk", "")


@Verb
def move(
    job: RedisModel,
    queue_model: type[RedisModel],
    queue_name: str,
    priority: str = "",
    *,
    prepend: bool = False,
    delay: str = "",
    place: bool = True,
) -> Call[Standing]:
    """Put a job in the waiting list, or the delayed set, of a queue, wherever it stands now."""
    return moving_by(_move, job, queue_model, queue_name, priority, delay, place, prepend, **_spared(job))


@Verb
def cancel(job: RedisModel, queue_model: type[RedisModel], queue_name: str = "") -> Call[bool]:
    """Cancel a job that waits or is delayed; tell a running job that it is canceled. Return False, and change nothing,
    if the job ended before. A job that version 2 added is looked for in the given queue."""
    check_database(type(job), queue_model)

    def read(reply: dict[str, Any]) -> bool:
        return accept(job.ident, reply)["outcome"] != "ended"

    request = {"job_model": layout_of(type(job)).json, "ident": job.ident, **where_to(queue_model, queue_name)}
    request |= _spared(job)
    return Call(sender_of(type(job)), _cancel, request, read, [type(job)])


def moving_by(
    script: Script,
    job: RedisModel,
    queue_model: type[RedisModel],
    queue_name: str,
    priority: str,
    delay: str,
    place: bool,
    prepend: bool = False,
    **options: bool,
) -> Call[Standing]:
    """Return the call of a script that puts a job in a queue."""
    check_database(type(job), queue_model)
    where = where_to(queue_model, queue_name, priority, delay, prepend=bool(prepend), custom=not place)
    models = (type(job),), queue_model
    registry = unwritten(*models)
    named = {"job_model": layout_of(type(job)).json, "ident": job.ident, "registry": registry}

    def read(reply: dict[str, Any]) -> Standing:
        accept(job.ident, reply)
        if registry:
            was_written(*models)
        return Standing(reply["status"], reply["priority"], reply["delayed_until"])

    before = asking_for(queue_model, queue_name, priority, job)
    return Call(sender_of(type(job)), script, {**named, **where, **options}, read, [type(job)], before=before)


def spare_if_claimed(job: RedisModel) -> None:
    """Let no method of this object change the job while it is run: they raise `AlreadyClaimed` instead."""
    job.__dict__["_is_spared"] = True


def _spared(job: RedisModel) -> dict[str, Any]:
    return given(unclaimed=job.__dict__.get("_is_spared"))


def where_to(
    queue_model: type[RedisModel], queue_name: str, priority: str = "", delay: str = "", **options: str | bool
) -> dict[str, Any]:
    """Return the part of a request that says where to put a job."""
    where = given(queue_name=queue_name, priority=priority, delay=delay, **options)
    return {"queue_model": layout_of(queue_model).json, **where}


def accept(ident: str, reply: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the reply of a script. If it is a refusal, raise its exception."""
    outcome = reply["outcome"]
    if outcome == "already queued":
        raise LimpydJobsException(f"{ident} cannot be queued: job {reply['pk']}, of the same identifier, is queued")
    if outcome == "not in error":
        raise LimpydJobsException(f"Job cannot be requeued if not in ERROR status: {ident}")
    if outcome == "gone":
        raise JobGone(ident)
    if outcome == "claimed":
        raise AlreadyClaimed(ident, None, None)
    if outcome == "refused":
        raise ClaimLost(f"The claim on {ident} is lost: what became of it is recorded by the owner of another claim")
    return reply
