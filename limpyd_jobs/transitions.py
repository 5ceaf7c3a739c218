"""Every change of a job's state, each one script and one round trip.

A function per verb: models, queues and plain values in, what the worker or the model needs out. What a script
refuses becomes an exception. The scripts, with their arguments and replies, are the files of ``lua/``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple, cast

from limpyd.exceptions import DoesNotExist, UniquenessError
from limpyd.model import RedisModel
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import RedisError

from limpyd_jobs.arguments import retention_arguments
from limpyd_jobs.exceptions import ClaimLost, ConfigurationException, LimpydJobsException, NotRecorded
from limpyd_jobs.layout import check_found_by, layout_of, special_indexes
from limpyd_jobs.scripting import Script

# How many due jobs one call of wake() moves at the most, to keep the script short.
WAKE_LIMIT = 1000

# How many lapsed leases one call of rescue() looks at in each queue, at the most.
RESCUE_LIMIT = 100

# How many entries of a list one call of prune() looks at, at the most.
PRUNE_LIMIT = 100

# How long a job of a class that cannot be resolved rests before it is tried again.
PUT_OFF_SECONDS = 60

# How many idents one call of reconcile() looks at: each may be looked for in a long list.
RECONCILE_LIMIT = 100

# The lease of a running job without a claim, in seconds: its worker, of version 2, may be alive.
UNCLAIMED_LEASE = 86400

# How often one is put off before it is given up: for about an hour.
MAX_PUT_OFFS = 60

_add = Script("add")
_add_error = Script("add_error")
_audit = Script("audit")
_cancel = Script("cancel")
_claim = Script("claim")
_delay = Script("delay")
_delete_record = Script("delete_record")
_disown = Script("disown")
_fail = Script("fail")
_get_queue = Script("get_queue")
_increase_field = Script("increase_field")
_list_queues = Script("list_queues")
_merge_queues = Script("merge_queues")
_move = Script("move")
_prune = Script("prune")
_put_off = Script("put_off")
_raise_counter = Script("raise_counter")
_reconcile = Script("reconcile")
_release = Script("release")
_renew = Script("renew")
_requeue = Script("requeue")
_rescue = Script("rescue")
_set_fields = Script("set_fields")
_settle = Script("settle")
_skip = Script("skip")
_strays = Script("strays")
_succeed = Script("succeed")
_sweep = Script("sweep")
_unset_fields = Script("unset_fields")
_wake = Script("wake")
_withdraw = Script("withdraw")

Reindex = Sequence[tuple[str, "str | None", "str | None"]]


@dataclass(frozen=True)
class ClaimRequest:
    """What a worker asks for when it wants a job.

    Attributes
    ----------
    keys: sequence of str
        The waiting lists, the first to be served first.
    token: str
        The name of the claim, never used before.
    lease: float
        For how long the claim holds, in seconds.
    classes: mapping of str to RedisModel
        The job classes the worker knows, by their path.
    is_again: bool
        Whether it is sent once more, as the reply was lost.
    """

    keys: Sequence[str]
    token: str
    lease: float
    classes: Mapping[str, type[RedisModel]]
    is_again: bool = False

    def arguments(self, *between: str) -> list[Any]:
        return [self.token, self.lease, *between, *_class_arguments(self.classes)]


@dataclass(frozen=True)
class Fetched:
    """What came out of a waiting list.

    Attributes
    ----------
    outcome: str
        ``claimed``; ``found`` for a job that does not wait, so was not claimed; ``unknown`` for one of a class that
        was not among those of the request, still in its list unless it was given; ``gone`` for one that has no
        hash, dropped; ``garbage`` for no ident at all, and ``broken`` for one with records of a wrong type, both set
        aside; ``no queue`` for one from the list of no queue, put back.
    key: str
        The waiting list.
    ident: str
        The class path and pk of the job.
    status, identifier, queue_name, queue_priority, start, tries: str
        Of a claimed or found job, the status being the one before the claim.
    job_timeout: str
        The field of a claimed job.
    token: str
        The name of the claim; empty unless claimed.
    rescues: int
        How often the job was rescued, if that is how it came out of the queue's running set.
    """

    outcome: str
    key: str
    ident: str
    status: str = ""
    identifier: str = ""
    queue_name: str = ""
    queue_priority: str = ""
    start: str = ""
    tries: str = ""
    job_timeout: str = ""
    token: str = ""
    rescues: int = 0

    @property
    def path(self) -> str:
        """The class path of the job."""
        return self.ident.rpartition(":")[0]

    @property
    def pk(self) -> str:
        """The pk of the job."""
        return self.ident.rpartition(":")[2]

    @property
    def queue_key(self) -> str:
        """The beginning of the keys of the queue: its model's name and its pk."""
        return self.key.removesuffix(":waiting")

    @property
    def queue_pk(self) -> str:
        return self.queue_key.rpartition(":")[2]


NOTHING = Fetched("nothing", "", "")


class Placed(NamedTuple):
    """Where a job was put: its status (a letter; RUNNING if it was not yet), its priority, until when it is delayed (a
    date as text)."""

    status: str
    priority: str
    delayed_until: str


class Rescue(NamedTuple):
    """What became of lapsed leases: the jobs that wait again; the idents of those of unknown classes, left where they
    are; and one job that was rescued too often, claimed for the caller to fail it. Then the registrations that lapsed,
    for the caller to reconcile."""

    rescued: list[Fetched]
    unknown: list[str]
    exhausted: Fetched | None
    lapsed: list[str]


class Begun(NamedTuple):
    """A job that is being deleted, and what limpyd has to see to before: the special fields of the record with their
    values, to be taken out of their indexes; and the same of each of its errors, which come first."""

    ident: str
    values: Mapping[str, str]
    errors: list[tuple[str, Mapping[str, str]]]


class Pruning(NamedTuple):
    """What became of the oldest entries of a list: how many jobs were deleted; how many entries to pass over the next
    time; whether there is more to do; the jobs that are left to limpyd; the idents of those of unknown classes, and
    the (ident, reason) of those that cannot be deleted, left where they are."""

    deleted: int
    start: int
    more: bool
    begun: list[Begun]
    unknown: list[str]
    failures: list[tuple[str, str]]


class Cleared(NamedTuple):
    """What limpyd has seen to: by their ident, whether it could do so, of jobs; the pks of errors."""

    jobs: dict[str, bool]
    errors: set[str]


class Ending(NamedTuple):
    """How a job ended.

    Attributes
    ----------
    outcome: str
        ``done``; ``error``, ``requeued`` or ``held`` after a failure; or the status it was given while it ran, if that
        forbids a success: ``canceled``, ``delayed``.
    end, delayed_until: str
        When it ended, and until when it is delayed: dates as text, empty for none.
    upcoming: Fetched
        What the next claim, made in the same step, took out of a waiting list.
    """

    outcome: str
    end: str = ""
    delayed_until: str = ""
    upcoming: Fetched | None = None


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
    _check_database(job_class, queue_model)
    _prepare_queue(queue_model, queue_name, priority)
    path = job_class.get_model_repr()

    def call(pk: str, plain: Mapping[str, str], reserve: bool) -> Any:
        mode = ("reserve" if place else "reserve bare") if reserve else ("place" if place else "bare")
        args = [
            layout_of(job_class).json,
            path,
            layout_of(queue_model).json,
            identifier,
            queue_name,
            priority,
        ]
        return _add(_redis(job_class), args=[*args, "1" if prepend else "", delay, mode, pk, *_flat(plain)])

    # A job must be found by all its fields before a worker can see it.
    reply = _create(job_class, fields or {}, layout_of(job_class).plain, call)
    if reply[0] == "moved":
        _reindex(job_class, reply[1], reply[2])
    return reply[0], reply[1]


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
    _check_database(type(job), queue_model)
    _prepare_queue(queue_model, queue_name, priority, job)
    args = [layout_of(type(job)).json, job.ident, layout_of(queue_model).json, queue_name, priority]
    reply = _move(_redis(job), args=[*args, "1" if prepend else "", delay, "place" if place else "bare"])
    return _placed(job, _accept(job, reply))


def requeue(
    job: RedisModel,
    queue_model: type[RedisModel],
    queue_name: str,
    priority: str = "",
    *,
    delay: str = "",
    place: bool = True,
) -> Placed:
    """Put a job that rests in error back in a queue.

    Returns
    -------
    Placed
        Its new status, priority and, if delayed, date.

    Raises
    ------
    DoesNotExist
        If the job was deleted.
    LimpydJobsException
        If it is not in error, or another job of its identifier is queued.
    """
    _check_database(type(job), queue_model)
    _prepare_queue(queue_model, queue_name, priority, job)
    args = [layout_of(type(job)).json, job.ident, layout_of(queue_model).json, queue_name, priority]
    reply = _requeue(_redis(job), args=[*args, delay, "place" if place else "bare"])
    if reply[0] == "not in error":
        raise LimpydJobsException(f"Job cannot be requeued if not in ERROR status: {job.ident}")
    return _placed(job, _accept(job, reply))


def claim(
    queue_model: type[RedisModel], request: ClaimRequest, ident: str = "", worker: str = "", wait: float | None = None
) -> Fetched | None:
    """Claim the first job of the first waiting list that has one.

    Parameters
    ----------
    ident: str
        The job to claim, if it was taken already from the only list of the request.
    worker: str
        Its name: to register it as blocked if there is no job, for `wait` seconds, and else to end its registration.

    Returns
    -------
    Fetched or None
        None if the lists are empty.
    """
    args = request.arguments(ident, "1" if request.is_again else "", worker, "" if wait is None else str(wait))
    return _fetched(request, _claim(_redis(queue_model), keys=request.keys, args=args))


def unregister(queue_model: type[RedisModel], workers: Iterable[str]) -> None:
    """End the registrations of blocked workers."""
    _redis(queue_model).zrem(f"{queue_model._name}:blocked", *workers)


def succeed(job: RedisModel, queue: RedisModel, token: str, upcoming: ClaimRequest | None = None) -> Ending:
    """Record the success of a job, unless its status was set to canceled or delayed while it ran.

    Parameters
    ----------
    token: str
        The claim on the job; empty if nobody claimed it.
    upcoming: ClaimRequest
        The next job to claim in the same step, if any.

    Raises
    ------
    ClaimLost, DoesNotExist, NotRecorded
        If the claim is not (or no longer) the one on the job; if the job was deleted; if Redis fails.
    """
    return _finish(_succeed, job, queue, token, (), upcoming)


def cancel(job: RedisModel, queue: RedisModel, token: str, upcoming: ClaimRequest | None = None) -> Ending:
    """Record that a job was canceled while it ran. Parameters and exceptions: see `succeed`."""
    return _finish(_cancel, job, queue, token, (), upcoming)


def delay(
    job: RedisModel,
    queue: RedisModel,
    token: str,
    queue_name: str,
    delay: str,
    upcoming: ClaimRequest | None = None,
) -> Ending:
    """Delay a job that asked for it while it ran, in the queue of that name and of its own priority.

    Parameters and exceptions: see `succeed`.
    """
    _prepare_queue(type(queue), queue_name, "", job)
    args = (layout_of(type(queue)).json, queue_name, delay)
    return _finish(_delay, job, queue, token, args, upcoming)


def fail(
    job: RedisModel,
    queue: RedisModel,
    token: str,
    requeue_times: int = 0,
    queue_name: str = "",
    priority: str = "",
    delay: str = "",
    *,
    hold: bool = False,
    heed_field: bool = True,
    upcoming: ClaimRequest | None = None,
) -> Ending:
    """Record the failure of a job, and put it back in a queue if it may run again.

    Parameters
    ----------
    requeue_times: int
        How often a job is put back at the most.
    queue_name, priority, delay: str
        Where to put it back.
    hold: bool
        True to hold a job that may run again in error, still claimed and queued, until the caller calls `requeue` or
        `disown`. The outcome is then ``held``.
    heed_field: bool
        False, with `hold`, not to look at the field `cancel_on_error` of the job.

    The other parameters and exceptions: see `succeed`.
    """
    mode = "place" if not hold else "hold" if heed_field else "hold anyway"
    if requeue_times and not hold:
        _prepare_queue(type(queue), queue_name, priority)
    args = (
        str(requeue_times),
        layout_of(type(queue)).json,
        queue_name,
        priority,
        delay,
        mode,
    )
    return _finish(_fail, job, queue, token, args, upcoming)


def renew(connection: Redis, job_class: type[RedisModel], ident: str, token: str, queue_key: str, lease: float) -> bool:
    """Extend the lease of a claim, over a connection that any thread may use.

    Returns
    -------
    bool
        False if somebody else holds the claim, or the job was deleted.
    """
    reply = _renew(connection, args=[layout_of(job_class).json, ident, token, queue_key, lease])
    return bool(reply[0] == "done")


def rescue(
    queue_model: type[RedisModel],
    queue_keys: Sequence[str],
    max_rescues: int,
    request: ClaimRequest,
    is_starting: bool = False,
) -> Rescue:
    """Put jobs whose lease lapsed back to the front of their waiting lists.

    Parameters
    ----------
    request: ClaimRequest
        For the claim on a job that was rescued too often; its keys do not matter.
    is_starting: bool
        Whether the worker just began, so that somebody has to reconcile soon.
    """
    args = [RESCUE_LIMIT, max_rescues, *request.arguments("1" if is_starting else "")]
    rescued, unknown, exhausted, lapsed = _rescue(_redis(queue_model), keys=queue_keys, args=args)
    found = []
    for key, ident, identifier, name, priority, number, reindex in rescued:
        fetched = Fetched("rescued", key, ident, "w", identifier, name, priority, rescues=int(number))
        _reindex(request.classes[fetched.path], fetched.pk, reindex)
        found.append(fetched)
    return Rescue(found, unknown, _fetched(request, exhausted) if exhausted else None, lapsed)


def reconcile(
    queue_model: type[RedisModel], job_class: type[RedisModel], idents: Sequence[str], lease: float
) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Put live jobs of a class that are not where their status says there: in a list, a delayed set or under a lease.

    Parameters
    ----------
    idents: sequence of str
        At most `RECONCILE_LIMIT`.
    lease: float
        The one of a job that has a claim, but no lease, in seconds.

    Returns
    -------
    tuple
        The (ident, status, queue key) of the jobs that were put somewhere; and the idents of those of which nothing
        says in which queue they belong, which is so for jobs of version 2 only.
    """
    queue_name = getattr(job_class, "queue_name", None) or ""
    args = [layout_of(job_class).json, layout_of(queue_model).json, queue_name, lease, UNCLAIMED_LEASE, *idents]
    mended, homeless = _reconcile(_redis(queue_model), args=args)
    return [tuple(row) for row in mended], homeless


def release(job_class: type[RedisModel], ident: str, token: str, queue_key: str, delay: str = "") -> None:
    """Give a claimed job back, unharmed, to the front of its waiting list; or for later, with a delay.

    Raises
    ------
    ClaimLost, DoesNotExist
        See `succeed`.
    """
    reply = _release(_redis(job_class), args=[layout_of(job_class).json, ident, token, queue_key, delay])
    if reply[0] == "refused":
        raise ClaimLost(f"The claim on {ident} is lost: it was not released")
    if reply[0] == "done":
        _reindex(job_class, ident.rpartition(":")[2], reply[2])


def skip(job: RedisModel) -> bool:
    """Let a finished job that was found in a waiting list no longer count as queued.

    Returns
    -------
    bool
        False if it is not finished, and so was left alone.
    """
    reply = _skip(_redis(job), args=[layout_of(type(job)).json, job.ident])
    if reply[0] == "done":
        _reindex(type(job), job.pk.get(), reply[2])
    return bool(reply[0] == "done")


def disown(job_class: type[RedisModel], ident: str, token: str, queue_key: str) -> bool:
    """End the claim on a job, and leave its state to whatever its hooks made of it, be it deleted.

    Returns
    -------
    bool
        False if the job is delayed, so still has to be put where its status says: nothing was changed.
    """
    reply = _disown(_redis(job_class), args=[layout_of(job_class).json, ident, token, queue_key])
    if reply[0] == "done":
        _reindex(job_class, ident.rpartition(":")[2], reply[2])
    return bool(reply[0] != "delayed")


def withdraw(job: RedisModel, queue_model: type[RedisModel], queue_name: str = "") -> bool:
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
    _check_database(type(job), queue_model)
    args = [layout_of(type(job)).json, job.ident, layout_of(queue_model).json, queue_name]
    reply = _accept(job, _withdraw(_redis(job), args=args))
    if reply[0] == "done":
        _reindex(type(job), job.pk.get(), reply[2])
    return bool(reply[0] != "ended")


def status_and_claim(job: RedisModel) -> tuple[str | None, str | None]:
    """Return the status of a job, and the token of the claim on it; None for what it does not have."""
    status, token = cast("list[str | None]", _redis(job).hmget(job.key, "status", "claim_token"))
    return status, token


def put_off(
    queue_model: type[RedisModel],
    key: str,
    ident: str,
    seconds: float = PUT_OFF_SECONDS,
    max_put_offs: int = MAX_PUT_OFFS,
) -> tuple[str, str]:
    """Send a job whose class cannot be resolved back to its queue for some seconds, its hash untouched. If that
    happened so many times already, it leaves the queue for the list of errors.

    Parameters
    ----------
    key: str
        The waiting list of the queue.

    Returns
    -------
    tuple of str
        ``put off`` or ``given up``; and the name of the queue.
    """
    outcome, queue_name = _put_off(_redis(queue_model), keys=[key], args=[ident, seconds, max_put_offs])
    return outcome, queue_name


def wake(
    queue_model: type[RedisModel],
    queue_keys: Sequence[str],
    classes: Mapping[str, type[RedisModel]],
    limit: int = WAKE_LIMIT,
) -> tuple[bool, list[tuple[str, str]], list[tuple[str, str]]]:
    """Move the delayed jobs that are due, up to a limit, to their waiting lists.

    Returns
    -------
    tuple
        Whether more are due; the (ident, reason) of those that were dropped; the (queue key, ident) of those of a
        class that is not among the given ones, which stay where they are.
    """
    reply = _wake(_redis(queue_model), keys=queue_keys, args=[limit, *_class_arguments(classes)])
    _done, more, failures, unknown, reindexes = reply
    for ident, reindex in reindexes:
        path, _, pk = ident.rpartition(":")
        _reindex(classes[path], pk, reindex)
    return bool(more), [tuple(failure) for failure in failures], [tuple(pair) for pair in unknown]


def prune(
    queue_model: type[RedisModel],
    list_key: str,
    keep: int | timedelta,
    error_model: type[RedisModel],
    classes: Mapping[str, type[RedisModel]],
    start: int = 0,
    cleared: Cleared | None = None,
) -> Pruning:
    """Delete the oldest jobs of a list of finished jobs, beyond what is to be kept, with all that belongs to them.

    Parameters
    ----------
    list_key: str
        The ``success`` or the ``errors`` list of a queue.
    keep: int or timedelta
        How many entries, or for how long.
    start: int
        How many entries at the beginning to pass over.
    cleared: Cleared
        What `clear` did of what the last call left to it.
    """
    jobs, errors = cleared or ({}, ())
    limpyd = {
        "models": {model._name: True for model in (error_model, *classes.values()) if _needs_limpyd(model)},
        "jobs": jobs,
        "errors": dict.fromkeys(errors, True),
    }
    args = [*retention_arguments(keep), start, PRUNE_LIMIT, layout_of(error_model).json, json.dumps(limpyd)]
    reply = _prune(_redis(queue_model), keys=[list_key], args=[*args, *_class_arguments(classes)])
    deleted, next_start, more, begun, unknown, failures = reply
    left = [
        Begun(ident, _mapping(values), [(pk, _mapping(of_error)) for pk, of_error in errors])
        for ident, values, errors in begun
    ]
    return Pruning(deleted, next_start, bool(more), left, unknown, [tuple(failure) for failure in failures])


def clear(model: type[RedisModel], pk: str, values: Mapping[str, str]) -> None:
    """Do what a script cannot when it deletes a record: what only limpyd, or the model's own ``delete``, can."""
    record = attached(model, pk)
    if not _is_erasable(model):
        record.delete()
        return
    _reindex(model, pk, [(name, value, None) for name, value in values.items()])
    for name in layout_of(model).outside:
        record.get_field(name).delete()


def check_prunable(queue_model: type[RedisModel], error_model: type[RedisModel]) -> None:
    """Raise `ConfigurationException` if a script cannot find the errors of the jobs of some queues."""
    _check_database(error_model, queue_model)
    check_found_by(error_model, ("job_pk", "job_model_repr"))


def _needs_limpyd(model: type[RedisModel]) -> bool:
    """Whether there is something to clear in each record of a model, be it without special fields."""
    with suppress(ConfigurationException):  # no script is told of such a class
        return not _is_erasable(model) or bool(layout_of(model).outside)
    return False


def _is_erasable(model: type[RedisModel]) -> bool:
    """Whether records of a model are for a script to delete: fields of other models may point to them."""
    relations = getattr(model.database, "_relations", {}).get(model._name.lower())
    return layout_of(model).erasable and not relations


def get_queue(queue_model: type[RedisModel], name: str, priority: str, fields: Mapping[str, Any]) -> str:
    """Find the queue of a name and a priority, or create it with those fields; return its pk.

    Raises
    ------
    UniquenessError
        If another queue has the value of a unique field.
    """

    def call(pk: str, plain: Mapping[str, str], reserve: bool) -> Any:
        args = [
            layout_of(queue_model).json,
            name,
            priority,
            "reserve" if reserve else "create",
            pk,
            *_flat(plain),
        ]
        return _get_queue(_redis(queue_model), args=args)

    layout = layout_of(queue_model)
    return str(_create(queue_model, fields, layout.plain | layout.special, call)[1])


def list_queues(queue_model: type[RedisModel], names: Iterable[str]) -> list[tuple[str, str, str, int, int]]:
    """Return the pk, name, priority, number of waiting jobs and number of delayed jobs of the queues of some names."""
    reply = _list_queues(_redis(queue_model), args=[layout_of(queue_model).json, *names])
    return [tuple(row) for row in reply]


def add_error(error_model: type[RedisModel], fields: Mapping[str, Any]) -> str:
    """Create an error; return its pk.

    Raises
    ------
    UniquenessError
        If another error has the value of a unique field.
    """

    def call(pk: str, plain: Mapping[str, str], reserve: bool) -> Any:
        args = [layout_of(error_model).json, "reserve" if reserve else "create", pk, *_flat(plain)]
        return _add_error(_redis(error_model), args=args)

    layout = layout_of(error_model)
    return str(_create(error_model, fields, layout.plain | layout.special, call)[1])


def set_fields(record: RedisModel, fields: Mapping[str, Any], *, only_new: bool = False) -> Any:
    """Set plain fields (see `Layout.plain`) of a record, with their indexes.

    Parameters
    ----------
    only_new: bool
        True to set the one field only if it has no value.

    Returns
    -------
    int or Pipeline
        How many of the fields had no value before. Inside one of limpyd's pipelines, it is the pipeline, and a
        refusal stands among the results.

    Raises
    ------
    DoesNotExist
        If the record was deleted.
    UniquenessError
        If another record has the value of a unique field.
    """
    return _write(_set_fields, record, ["1" if only_new else "", *_flat(fields)])


def unset_fields(record: RedisModel, names: Iterable[str]) -> Any:
    """Unset plain fields of a record, with their indexes; return how many had a value. See `set_fields`."""
    return _write(_unset_fields, record, names)


def increase_field(record: RedisModel, name: str, amount: float, command: str) -> Any:
    """Add to a plain field of a record, with its indexes, by HINCRBY or HINCRBYFLOAT; return its new value.

    Exceptions, and pipelines: see `set_fields`.
    """
    return _write(_increase_field, record, [command, name, amount])


def delete_record(record: RedisModel) -> None:
    """Delete what a script can delete of a record: its hash and plain indexes, and its entry in the collection."""
    _write(_delete_record, record, [])


def attached(model: type[RedisModel], pk: str) -> Any:
    """Return the instance of a record that is known to exist, without asking Redis."""
    instance = model.lazy_connect(pk)
    instance._connected = True
    return instance


def queue_key_of(queue: RedisModel) -> str:
    """Return the beginning of the keys of a queue: its model's name and its pk."""
    return f"{queue._name}:{queue.pk.get()}"


def _redis(model: RedisModel | type[RedisModel]) -> Redis:
    """The connection of a model, even inside one of limpyd's pipelines: a script's reply is needed at once."""
    connection = model.get_connection()
    if isinstance(connection, Pipeline):
        return Redis(connection_pool=connection.connection_pool)
    return connection


def _mapping(flat: Sequence[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _flat(fields: Mapping[str, str]) -> list[str]:
    return [part for pair in fields.items() for part in pair]


def _class_arguments(classes: Mapping[str, type[RedisModel]]) -> list[str]:
    arguments = []
    for path, job_class in classes.items():
        with suppress(ConfigurationException):  # a class that no script can work with is as good as unknown
            arguments += [path, layout_of(job_class).json]
    return arguments


def _check_database(job_class: type[RedisModel], queue_model: type[RedisModel]) -> None:
    """A script cannot change a job here and a queue there."""
    one, other = job_class.database, queue_model.database
    if one is not other and one.connection_settings != other.connection_settings:
        raise ConfigurationException(
            f"{job_class.__name__} and {queue_model.__name__} are on different databases: "
            "call use_database on both, or on a class both inherit from"
        )


def _prepare_queue(queue_model: type[RedisModel], name: str, priority: str, job: RedisModel | None = None) -> None:
    """Create the queue beforehand if a new one would need what only limpyd can write.

    Without a priority it is the one of the job.
    """
    if layout_of(queue_model).needs_limpyd:
        get_queue(queue_model, name, priority or (job and job.priority.hget()) or "0", {})


def _create(
    model: type[RedisModel], fields: Mapping[str, Any], scripted: frozenset[str], call: Callable[..., Any]
) -> Any:
    """Create a record by a script, after the fields that only limpyd can write.

    ``call(pk, scripted fields, reserve)`` calls the script; see `lua/add.lua` for reserving.
    """
    plain, others = layout_of(model).split(fields, scripted)
    reply = _unique(model, call("", plain, bool(others)))
    if reply[0] == "reserved":
        pk = reply[1]
        record = attached(model, pk)
        try:
            record.set_fields(**others)
            reply = _unique(model, call(pk, plain, False))
        except BaseException:
            _delete_fields(record, others)
            raise
        if reply[1] != pk:
            _delete_fields(record, others)
    if reply[0] == "added":
        _reindex(model, reply[1], reply[2])
    return reply


def _write(script: Script, record: RedisModel, args: Iterable[Any]) -> Any:
    """Run a script that changes fields of a record, maybe as a command of a pipeline."""
    connection = record.get_connection()
    args = [layout_of(type(record)).json, record.pk.get(), *args]
    if isinstance(connection, Pipeline):
        reply = connection.eval(script.source, 0, *args)  # a script that is not known would fail all the commands
    else:
        reply = script(connection, args=args)
    if not isinstance(reply, list):
        return reply
    if reply[0] == "gone":
        raise DoesNotExist(f"No {type(record).__name__} found with pk {record.pk.get()}")
    return _unique(type(record), reply)


def _delete_fields(record: RedisModel, names: Iterable[str]) -> None:
    with suppress(RedisError):
        for name in names:
            record.get_field(name).delete()


def _unique(model: type[RedisModel], reply: Any) -> Any:
    if reply[0] == "not unique":
        _, field, value, pk = reply
        raise UniquenessError(
            f'Value "{value}" already indexed for unique field {model.__name__}.{field} (for instance {pk})'
        )
    return reply


def _reindex(model: type[RedisModel], pk: str, changes: Reindex) -> None:
    """Maintain the indexes that a script cannot, after it changed a field."""
    for name, old, new in changes:
        for index in special_indexes(model.get_field(name)):
            if old is not None:
                index.remove(pk, old)
            if new is not None:
                index.add(pk, new, check_uniqueness=False)
            index._reset_rollback_cache(pk)


def _placed(job: RedisModel, reply: Any) -> Placed:
    _, status, priority, delayed_until, reindex = reply
    _reindex(type(job), job.pk.get(), reindex)
    return Placed(status, priority, delayed_until)


def _accept(job: RedisModel, reply: Any) -> Any:
    if reply[0] == "already queued":
        raise LimpydJobsException(f"{job.ident} cannot be queued: job {reply[1]}, of the same identifier, is queued")
    if reply[0] == "gone":
        raise DoesNotExist(f"{job.ident} does not exist anymore")
    if reply[0] == "refused":
        raise ClaimLost(f"The claim on {job.ident} is lost: what became of it is recorded by somebody else")
    return reply


def _finish(
    script: Script,
    job: RedisModel,
    queue: RedisModel,
    token: str,
    args: Sequence[str],
    upcoming: ClaimRequest | None,
) -> Ending:
    claim_args = upcoming.arguments() if upcoming else ()
    args = [layout_of(type(job)).json, job.ident, token, queue_key_of(queue), *args, *claim_args]
    try:
        reply = script(_redis(job), keys=upcoming.keys if upcoming else (), args=args)
    except RedisError as error:
        raise NotRecorded(f"How {job.ident} ended is not recorded: {error}") from error
    _accept(job, reply)
    if len(reply) == 1:
        return Ending(reply[0])
    outcome, end, delayed_until, reindex, next_reply = reply
    _reindex(type(job), job.pk.get(), reindex)
    return Ending(outcome, end, delayed_until, _fetched(upcoming, next_reply) if upcoming else None)


def _fetched(request: ClaimRequest, reply: Any) -> Fetched | None:
    outcome, *details = reply
    if outcome == "nothing":
        return None
    if outcome != "claimed":
        return Fetched(outcome, *details[:6])
    *details, reindex = details
    fetched = replace(Fetched(outcome, *details), token=request.token)
    path, _, pk = fetched.ident.rpartition(":")
    _reindex(request.classes[path], pk, reindex)
    return fetched


# What no transition can have left behind: see `limpyd_jobs.check`.


def audit(
    connection: Redis, model: type[RedisModel], pks: Sequence[str], names: str, integers: str, repair: bool = False
) -> tuple[list[list[str]], list[list[str]]]:
    """Look at some records: hash, collection, plain indexes, values; or put them right.

    Parameters
    ----------
    names, integers: str
        As JSON: the names of the hash fields, and those of integers with what to set them to if they hold none.

    Returns
    -------
    tuple of list
        The (pk, problem, field, value) of what is wrong; the (pk, status, identifier) of jobs that are not at rest.
    """
    args = [layout_of(model).json, "1" if repair else "", names, integers, *pks]
    problems, live, reindexes = _audit(connection, args=args)
    for pk, reindex in reindexes:
        _reindex(model, pk, reindex)
    return problems, live


def strays(
    connection: Redis,
    model: type[RedisModel],
    field: str,
    prefix: str,
    members: Iterable[tuple[str, str]],
    largest: int,
    repair: bool = False,
) -> tuple[list[list[str]], list[str], list[list[str]]]:
    """Look for pks in the index of a field whose hashes have another value; or remove them.

    Parameters
    ----------
    members: iterable of tuple of str
        The (value, pk) to look at; an empty pk is for all of the value, if there are not more than `largest`.

    Returns
    -------
    tuple of list
        The (value, pk) of the strays; the values of too many pks; the (value, type) of keys that are no sets.
    """
    args = [layout_of(model).json, field, prefix, "1" if repair else "", largest]
    found, large, wrong = _strays(connection, args=[*args, *(part for member in members for part in member)])
    return found, large, wrong


def sweep(
    connection: Redis, model: type[RedisModel], keys: Iterable[tuple[str, str, str]], repair: bool = False
) -> list[list[str]]:
    """Look for keys of records that do not exist, or keys of a wrong type; or delete them.

    Parameters
    ----------
    keys: iterable of tuple of str
        The key, the pk it is of, and its type if that matters.

    Returns
    -------
    list
        Of (key, problem, type).
    """
    parts = [part for key in keys for part in key]
    found: list[list[str]] = _sweep(connection, args=[layout_of(model).json, "1" if repair else "", *parts])
    return found


def settle(
    connection: Redis,
    job_class: type[RedisModel] | None,
    ident: str,
    queue_keys: Sequence[str],
    *,
    home: str = "",
    in_no_list: bool = False,
    lease: float = 0,
    token: str = "",
    delayed_until: str = "",
    due: str = "",
    seen: str = "",
    repair: bool = False,
) -> list[list[str]]:
    """Look whether a job stands where its hash says and nowhere else; or put that right.

    Parameters
    ----------
    job_class: RedisModel
        None for what is no ident.
    queue_keys: sequence of str
        All queues it may stand in.
    home: str
        The one to put it in.

    The other parameters, in their order: see ``lua/settle.lua``.

    Returns
    -------
    list
        Of (problem, place, "1" if it can be repaired).
    """
    model = layout_of(job_class).json if job_class else ""
    args = [
        model,
        ident,
        "1" if repair else "",
        home,
        "1" if in_no_list else "",
        lease,
        token,
        delayed_until,
        due,
        seen,
    ]
    problems, reindex = _settle(connection, keys=queue_keys, args=args)
    if job_class:
        _reindex(job_class, ident.rpartition(":")[2], reindex)
    found: list[list[str]] = problems
    return found


def merge_queues(
    connection: Redis, origin: str, target: str, classes: Mapping[str, type[RedisModel]], limit: int
) -> int:
    """Move what is in a queue, up to a limit, to another one of the same name and priority; return how much it was."""
    moved: int = _merge_queues(connection, keys=[origin, target], args=[limit, *_class_arguments(classes)])
    return moved


def raise_counter(connection: Redis, model: type[RedisModel], highest: int, repair: bool = False) -> str | None:
    """Look whether the counter of a model is below its highest pk, or raise it; return what it is if so, else None."""
    counter: str | None = _raise_counter(connection, args=[layout_of(model).json, "1" if repair else "", highest])
    return counter
