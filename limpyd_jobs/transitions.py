"""Every change of a job's state, each one script and one round trip.

A function per verb: models, queues and plain values in, what the worker or the model needs out. What a script
refuses becomes an exception. The scripts, with their arguments and replies, are the files of ``lua/``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Any, NamedTuple, cast

from limpyd.exceptions import DoesNotExist
from limpyd.model import RedisModel
from redis import Redis
from redis.exceptions import RedisError

from limpyd_jobs.arguments import retention_arguments
from limpyd_jobs.exceptions import ClaimLost, ConfigurationException, LimpydJobsException, NotRecorded
from limpyd_jobs.layout import check_found_by, class_arguments, layout_of
from limpyd_jobs.lazy_fields import pk_of
from limpyd_jobs.records import (
    attached,
    create,
    due_key,
    flat,
    get_queue,
    mapping_of,
    queue_key_of,
    redis_of,
    reindexed,
)
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
_add_many = Script("add_many")
_cancel = Script("cancel")
_claim = Script("claim")
_delay = Script("delay")
_disown = Script("disown")
_fail = Script("fail")
_fire = Script("fire")
_move = Script("move")
_prune = Script("prune")
_put_off = Script("put_off")
_reconcile = Script("reconcile")
_release = Script("release")
_renew = Script("renew")
_requeue = Script("requeue")
_rescue = Script("rescue")
_skip = Script("skip")
_succeed = Script("succeed")
_succeed_many = Script("succeed_many")
_wake = Script("wake")
_withdraw = Script("withdraw")


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
        return [self.token, self.lease, *between, *class_arguments(self.classes)]


@dataclass(slots=True)  # not frozen, as that takes three times as long to make
class Fetched:
    """What came out of a waiting list.

    Attributes
    ----------
    outcome: str
        ``claimed``; ``found`` for a job that does not wait, so was not claimed; ``unknown`` for one of a class that
        was not among those of the request, still in its list unless it was given; ``gone`` for one that has no
        hash, dropped; ``garbage`` for no ident at all, and ``broken`` for one with records of a wrong type, both set
        aside; ``no queue`` for one from the list of no queue, and ``paused`` for one of a paused queue, put back.
    key: str
        The waiting list.
    ident: str
        The class path and pk of the job.
    status, identifier, queue_name, queue_priority, start, tries: str
        Of a claimed or found job, the status being the one before the claim.
    job_timeout: str
        The field of a claimed job.
    retry: tuple of str
        Of a claimed job, what matters if it fails: its field ``retry_policy``; how many of its tries do not count;
        when it was added, or put back in its queue by hand.
    queues: str
        The last pk of a queue, told with a claimed job: see `Outlook`.
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
    retry: Sequence[str] = ("", "", "")
    queues: str = field(default="", compare=False)
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


class Outlook(NamedTuple):
    """What a worker that found no job has to know to wait for one.

    Attributes
    ----------
    paused: frozenset of str
        Those of its waiting lists that are of paused queues.
    queues: str
        The last pk of a queue: another one than before says that there are new queues.
    moment: float
        When this was so, by the clock of Redis.
    overdue: float
        Up to that moment, when the last delayed job became due; None if none is.
    due: float
        When the next one will be; None if none is delayed.
    missed, scheduled: float
        The same of schedules.
    news: str
        All this in short, for the next claim.
    """

    paused: frozenset[str] = frozenset()
    queues: str = ""
    moment: float = 0
    overdue: float | None = None
    due: float | None = None
    missed: float | None = None
    scheduled: float | None = None
    news: str = ""


class Success(NamedTuple):
    """A job that ran, and whose end is to be recorded with others.

    Attributes
    ----------
    job, queue
    fetched: Fetched
        Its claim.
    result: object
        What its code returned.
    began, ended: float
        When its code did so, by the clock of `monotonic`.
    """

    job: Any
    queue: Any
    fetched: Fetched
    result: Any
    began: float
    ended: float

    @property
    def duration(self) -> timedelta:
        """How long it ran, as its stored dates say."""
        return timedelta(microseconds=_microseconds(self.ended - self.began))


class Placed(NamedTuple):
    """Where a job was put: its status (a letter; RUNNING if it was not yet), its priority, until when it is delayed (a
    date as text)."""

    status: str
    priority: str
    delayed_until: str


class Rescue(NamedTuple):
    """What became of lapsed leases: the jobs that wait again; the idents of those of unknown classes, left where they
    are; and one job that was rescued too often, claimed for the caller to fail it. Then the registrations that lapsed,
    for the caller to reconcile; and the idents, with a reason, of broken jobs, which are in quarantine now."""

    rescued: list[Fetched]
    unknown: list[str]
    exhausted: Fetched | None
    lapsed: list[str]
    broken: Sequence[tuple[str, str]] = ()


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
    layout = layout_of(job_class)

    def call(pk: str, plain: Mapping[str, str], reserve: bool) -> Any:
        mode = " ".join(word for word in ("reserve" if reserve else "", "" if place else "bare") if word)
        options = _options(prepend=prepend, delay=delay, mode=mode, pk=pk)
        args = [layout.json, layout_of(queue_model).json, identifier, queue_name, priority, options, *flat(plain)]
        return _add(redis_of(job_class), args=args)

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
    _check_database(job_class, queue_model)
    _prepare_queue(queue_model, queue_name, priority)
    models = [layout_of(job_class).json, layout_of(queue_model).json]
    texts = json.dumps(jobs, ensure_ascii=False, separators=(",", ":"))
    args = [*models, queue_name, priority, _options(prepend=prepend, delay=delay), texts]
    return list(json.loads(_add_many(redis_of(job_class), args=args)))


def fire(
    schedule_model: type[RedisModel],
    pk: str,
    firing: Mapping[str, Any],
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
    firing: mapping
        The third argument of ``fire.lua``.

    For the other parameters, and the exceptions, see `add`.

    Returns
    -------
    tuple of str
        ``added``, ``existing`` or ``moved``, with the pk of the job; ``passed over`` or ``not due``, without.
    """
    _check_database(job_class, queue_model)
    _check_database(job_class, schedule_model)
    _prepare_queue(queue_model, queue_name, priority)
    layout = layout_of(job_class)

    def call(job_pk: str, plain: Mapping[str, str], reserve: bool) -> Any:
        options = json.dumps({**firing, "mode": "reserve" if reserve else "", **({"pk": job_pk} if job_pk else {})})
        models = [layout.json, layout_of(queue_model).json]
        args = [layout_of(schedule_model).json, pk, options, *models, identifier, queue_name, priority, *flat(plain)]
        reply = _fire(redis_of(job_class), keys=[due_key(schedule_model)], args=args)
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
    _check_database(type(job), queue_model)
    _prepare_queue(queue_model, queue_name, priority, job)
    args = [layout_of(type(job)).json, job.ident, layout_of(queue_model).json, queue_name, priority]
    reply = _move(redis_of(job), args=[*args, "1" if prepend else "", delay, "place" if place else "bare"])
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
    reply = _requeue(redis_of(job), args=[*args, delay, "place" if place else "bare"])
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
        None if the lists are empty, or of paused queues.
    """
    return claim_or_look(queue_model, request, ident, worker, wait)[0]


def claim_or_look(
    queue_model: type[RedisModel],
    request: ClaimRequest,
    ident: str = "",
    worker: str = "",
    wait: float | None = None,
    heard: str = "",
    news: str = "",
    schedules: str = "",
) -> tuple[Fetched | None, Outlook]:
    """Claim a job as `claim` does, and tell what is to be known if there is none.

    Parameters
    ----------
    heard: str
        The signal that ended the last wait, if one did: it is passed on if there is other news than `news`.
    schedules: str
        The key of the schedules to tell of; empty for none.
    """
    is_again, until = "1" if request.is_again else "", "" if wait is None else str(wait)
    args = request.arguments(ident, is_again, worker, until, heard, news, schedules)
    reply = _claim(redis_of(queue_model), keys=request.keys, args=args)
    return _fetched(request, reply), _outlook(reply) if reply[0] == "nothing" else Outlook()


def _outlook(reply: Any) -> Outlook:
    _, paused, queues, moment, *dates, news = reply
    overdue, due, missed, scheduled = (float(date) if date else None for date in dates)
    return Outlook(frozenset(paused), queues, float(moment), overdue, due, missed, scheduled, news)


def unregister(queue_model: type[RedisModel], workers: Iterable[str]) -> None:
    """End the registrations of blocked workers."""
    redis_of(queue_model).zrem(f"{queue_model._name}:blocked", *workers)


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


def succeed_many(
    connection: Redis, successes: Sequence[Success], upcoming: ClaimRequest, limit: int = 0
) -> tuple[list[Any], list[Fetched]]:
    """Record the success of several jobs in one step, and claim several in it.

    Parameters
    ----------
    connection: Redis
        With one that threads share, any thread may do so, as long as it claims none.
    successes: sequence of Success
        None of jobs that nobody claimed.
    upcoming: ClaimRequest
        What to claim, each job with a token of its own.
    limit: int
        How many jobs at the most.

    Returns
    -------
    tuple
        What became of each, for `accept_success`; and what came out of the waiting lists. Only the last one may be no
        claimed job.

    Raises
    ------
    NotRecorded
        If Redis fails.
    """
    now = monotonic()
    rows = [_row(success, now) for success in successes]
    texts = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    classes = {**upcoming.classes, **{each.fetched.path: type(each.job) for each in successes}}
    again = "1" if upcoming.is_again else ""
    args = [texts, limit, upcoming.token, upcoming.lease, again, *class_arguments(classes)]
    try:
        reply = json.loads(_succeed_many(connection, keys=upcoming.keys if limit else (), args=args))
    except RedisError as error:
        raise NotRecorded(f"How {len(successes)} jobs ended is not recorded: {error}") from error
    endings, claims = reply
    return list(endings), [_out_of_list(token, classes, details) for token, details in claims]


def _row(success: Success, now: float) -> tuple[str, str, str, int, int]:
    """A success as the script takes it: how long it took is the same whenever it is told."""
    _, _, claim, _, began, ended = success
    ended_ago = int((now - ended) * 1_000_000)
    return claim.ident, claim.token, claim.queue_key, ended_ago + _microseconds(ended - began), ended_ago


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def accept_success(job: RedisModel, reply: Any) -> Ending:
    """Return how a job ended, as `succeed` does, with the same exceptions, given what `succeed_many` found.

    It has not to be ``failed``: then one of the records is broken, and nothing of the job is changed.
    """
    if reply[0] == "done":
        if reply[2]:
            reindexed(type(job), pk_of(job), reply[2])
        return Ending("done", reply[1])
    return Ending(_accept(job, reply)[0])


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
    *,
    priority: str = "",
    uncounted: bool = False,
) -> Ending:
    """Delay a job that asked for it while it ran, in the queue of that name and of a priority, else of its own.

    Parameters
    ----------
    uncounted: bool
        True for a try that its retry policy does not count, of a job that is not canceled; if it is, the outcome is
        ``canceled``.

    The other parameters and exceptions: see `succeed`.
    """
    _prepare_queue(type(queue), queue_name, priority, job)
    args = (layout_of(type(queue)).json, queue_name, delay, priority, "uncounted" if uncounted else "")
    return _finish(_delay, job, queue, token, args, upcoming)


def fail(
    job: RedisModel,
    queue: RedisModel,
    token: str,
    requeue_times: int | None = 0,
    queue_name: str = "",
    priority: str = "",
    delay: str = "",
    *,
    hold: bool = False,
    heed_field: bool = True,
    began: float | None = None,
    upcoming: ClaimRequest | None = None,
) -> Ending:
    """Record the failure of a job, and put it back in a queue if it may run again.

    Parameters
    ----------
    requeue_times: int
        How often a job is put back at the most; None to put it back whatever its tries are.
    queue_name, priority, delay: str
        Where to put it back.
    hold: bool
        True to hold a job that may run again in error, still claimed and queued, until the caller calls `requeue` or
        `disown`. The outcome is then ``held``.
    heed_field: bool
        False, with `hold`, not to look at the field `cancel_on_error` of the job.
    began: float
        When its code began, by the clock of `monotonic`, if that was not when it was claimed.

    The other parameters and exceptions: see `succeed`.
    """
    mode = "place" if not hold else "hold" if heed_field else "hold anyway"
    if requeue_times != 0 and not hold:
        _prepare_queue(type(queue), queue_name, priority)
    args = (
        "" if requeue_times is None else str(requeue_times),
        layout_of(type(queue)).json,
        queue_name,
        priority,
        delay,
        mode,
        "" if began is None else str(_microseconds(monotonic() - began)),
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
    return reply[0] in ("done", "canceled")


def renew_all(connection: Redis, claims: Sequence[tuple[type[RedisModel], Fetched]], lease: float) -> list[str]:
    """Extend the leases of some claims as `renew` does, in one round trip.

    Returns
    -------
    list of str
        For each, ``done``; ``canceled`` if it is done, but somebody canceled the job; ``refused`` if somebody else
        holds the claim; ``gone`` if the job was deleted; ``failed`` if Redis could not tell.
    """
    calls = [[layout_of(cls).json, job.ident, job.token, job.queue_key, lease] for cls, job in claims]
    return ["failed" if isinstance(reply, RedisError) else reply[0] for reply in _renew.each(connection, calls)]


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
    rescued, unknown, exhausted, lapsed, broken = _rescue(redis_of(queue_model), keys=queue_keys, args=args)
    found = []
    for key, ident, identifier, name, priority, number, reindex in rescued:
        fetched = Fetched("rescued", key, ident, "w", identifier, name, priority, rescues=int(number))
        reindexed(request.classes[fetched.path], fetched.pk, reindex)
        found.append(fetched)
    claimed = _fetched(request, exhausted) if exhausted else None
    return Rescue(found, unknown, claimed, lapsed, tuple((ident, reason) for ident, reason in broken))


def reconcile(
    queue_model: type[RedisModel], job_class: type[RedisModel], idents: Sequence[str], lease: float
) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Put live jobs of a class that are not where their status says there: in a list, a delayed set or under a lease.
    Those that ended no longer count as queued.

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
    mended, homeless, freed = _reconcile(redis_of(queue_model), args=args)
    for ident, reindex in freed:
        reindexed(job_class, ident.rpartition(":")[2], reindex)
    return [tuple(row) for row in mended], homeless


def release(job_class: type[RedisModel], ident: str, token: str, queue_key: str, delay: str = "") -> None:
    """Give a claimed job back, unharmed, to the front of its waiting list; or for later, with a delay.

    One that was deleted is no more to be given back.

    Raises
    ------
    ClaimLost
        If the claim is not (or no longer) the one on the job.
    """
    reply = _release(redis_of(job_class), args=[layout_of(job_class).json, ident, token, queue_key, delay])
    _accept_release(job_class, ident, reply)


def release_all(claims: Sequence[tuple[type[RedisModel], Fetched]]) -> list[Exception]:
    """Give claimed jobs back as `release` does, in one round trip, so that they are run in this order; return what
    failed."""
    claims, failures = claims[::-1], []
    calls = [[layout_of(cls).json, job.ident, job.token, job.queue_key, ""] for cls, job in claims]
    for (job_class, job), reply in zip(claims, _release.each(redis_of(claims[0][0]), calls), strict=True):
        try:
            if isinstance(reply, RedisError):
                raise reply
            _accept_release(job_class, job.ident, reply)
        except Exception as error:
            failures.append(error)
    return failures


def _accept_release(job_class: type[RedisModel], ident: str, reply: Any) -> None:
    if reply[0] == "refused":
        raise ClaimLost(f"The claim on {ident} is lost: it was not released")
    if reply[0] == "done":
        reindexed(job_class, ident.rpartition(":")[2], reply[2])


def skip(job: RedisModel) -> bool:
    """Let a finished job that was found in a waiting list no longer count as queued.

    Returns
    -------
    bool
        False if it is not finished, and so was left alone.
    """
    reply = _skip(redis_of(job), args=[layout_of(type(job)).json, job.ident])
    if reply[0] == "done":
        reindexed(type(job), pk_of(job), reply[2])
    return bool(reply[0] == "done")


def disown(job_class: type[RedisModel], ident: str, token: str, queue_key: str) -> bool:
    """End the claim on a job, and leave its state to whatever its hooks made of it, be it deleted.

    Returns
    -------
    bool
        False if the job is delayed, so still has to be put where its status says: nothing was changed.
    """
    reply = _disown(redis_of(job_class), args=[layout_of(job_class).json, ident, token, queue_key])
    if reply[0] == "done":
        reindexed(job_class, ident.rpartition(":")[2], reply[2])
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
    reply = _accept(job, _withdraw(redis_of(job), args=args))
    if reply[0] == "done":
        reindexed(type(job), pk_of(job), reply[2])
    return bool(reply[0] != "ended")


def status_and_claim(job: RedisModel) -> tuple[str | None, str | None]:
    """Return the status of a job, and the token of the claim on it; None for what it does not have."""
    status, token = cast("list[str | None]", redis_of(job).hmget(job.key, ["status", "claim_token"]))
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
    outcome, queue_name = _put_off(redis_of(queue_model), keys=[key], args=[ident, seconds, max_put_offs])
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
    reply = _wake(redis_of(queue_model), keys=queue_keys, args=[limit, *class_arguments(classes)])
    _done, more, failures, unknown, reindexes = reply
    for ident, reindex in reindexes:
        path, _, pk = ident.rpartition(":")
        reindexed(classes[path], pk, reindex)
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
    reply = _prune(redis_of(queue_model), keys=[list_key], args=[*args, *class_arguments(classes)])
    deleted, next_start, more, begun, unknown, failures = reply
    left = [
        Begun(ident, mapping_of(values), [(pk, mapping_of(of_error)) for pk, of_error in errors])
        for ident, values, errors in begun
    ]
    return Pruning(deleted, next_start, bool(more), left, unknown, [tuple(failure) for failure in failures])


def clear(model: type[RedisModel], pk: str, values: Mapping[str, str]) -> None:
    """Do what a script cannot when it deletes a record: what only limpyd, or the model's own ``delete``, can."""
    record = attached(model, pk)
    if not _is_erasable(model):
        record.delete()
        return
    reindexed(model, pk, [(name, value, None) for name, value in values.items()])
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


def _placed(job: RedisModel, reply: Any) -> Placed:
    _, status, priority, delayed_until, reindex = reply
    reindexed(type(job), pk_of(job), reindex)
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
        reply = script(redis_of(job), keys=upcoming.keys if upcoming else (), args=args)
    except RedisError as error:
        raise NotRecorded(f"How {job.ident} ended is not recorded: {error}") from error
    if isinstance(reply, str):
        reply = json.loads(reply)
    _accept(job, reply)
    if len(reply) == 1:
        return Ending(reply[0])
    outcome, end, delayed_until, reindex, next_reply = reply
    reindexed(type(job), pk_of(job), reindex)
    return Ending(outcome, end, delayed_until, _fetched(upcoming, next_reply) if upcoming else None)


def _fetched(request: ClaimRequest, reply: Any) -> Fetched | None:
    return None if reply[0] == "nothing" else _out_of_list(request.token, request.classes, reply)


def _out_of_list(token: str, classes: Mapping[str, type[RedisModel]], reply: Any) -> Fetched:
    if reply[0] != "claimed":
        return Fetched(*reply[:7])
    *details, reindex = reply
    details.append(token)
    fetched = Fetched(*details)
    if reindex:
        reindexed(classes[fetched.path], fetched.pk, reindex)
    return fetched
