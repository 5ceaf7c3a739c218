"""How the run of a job ends, whatever becomes of it: each ends the claim on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from time import monotonic
from typing import Any, NamedTuple, cast

from limpyd.model import RedisModel
from redis import Redis
from redis.exceptions import RedisError

from limpyd_jobs.exceptions import LimpydJobsException, NotRecorded
from limpyd_jobs.store.connections import PinnedConnection
from limpyd_jobs.store.layout import layout_of
from limpyd_jobs.store.lazy_fields import pk_of
from limpyd_jobs.store.records import queue_key_of, redis_of, reindexed
from limpyd_jobs.store.scripting import Script
from limpyd_jobs.transitions.claiming import UNCLAIMED_LEASE, ClaimRequest, Delivery, as_delivery, out_of_list
from limpyd_jobs.transitions.placing import Placed, accept, arguments_to_place, as_placed, prepare_queue

_finish_canceled = Script("finish_canceled")
_delay = Script("delay")
_abandon = Script("abandon")
_fail = Script("fail")
_requeue = Script("requeue")
_skip = Script("skip")
_succeed = Script("succeed")
_succeed_many = Script("succeed_many")


class Success(NamedTuple):
    """A job that ran, and whose end is to be recorded with others.

    Attributes
    ----------
    job, queue
    fetched: Delivery
        Its claim.
    result: object
        What its code returned.
    began, ended: float
        When its code did so, by the clock of `monotonic`.
    """

    job: Any
    queue: Any
    fetched: Delivery
    result: Any
    began: float
    ended: float

    @property
    def duration(self) -> timedelta:
        """How long it ran, as its stored dates say."""
        return timedelta(microseconds=_microseconds(self.ended - self.began))


class Ending(NamedTuple):
    """How a job ended.

    Attributes
    ----------
    outcome: str
        ``done``; ``error``, ``requeued`` or ``held`` after a failure; or the status it was given while it ran, if that
        forbids a success: ``canceled``, ``delayed``.
    end, delayed_until: str
        When it ended, and until when it is delayed: dates as text, empty for none.
    prefetched: Delivery
        What the next claim, made in the same step, took out of a waiting list.
    """

    outcome: str
    end: str = ""
    delayed_until: str = ""
    prefetched: Delivery | None = None


def succeed(job: RedisModel, queue: RedisModel, token: str, next_claim: ClaimRequest | None = None) -> Ending:
    """Record the success of a job, unless its status was set to canceled or delayed while it ran.

    Parameters
    ----------
    token: str
        The claim on the job; empty if nobody claimed it.
    next_claim: ClaimRequest
        The next job to claim in the same step, if any.

    Raises
    ------
    ClaimLost, DoesNotExist, NotRecorded
        If the claim is not (or no longer) the one on the job; if the job was deleted; if Redis fails.
    """
    return _finish(_succeed, job, queue, token, (), next_claim)


def succeed_many(
    connection: Redis | PinnedConnection, successes: Sequence[Success], next_claim: ClaimRequest, limit: int = 0
) -> tuple[list[Any], list[Delivery]]:
    """Record the success of several jobs in one step, and claim several in it.

    Parameters
    ----------
    connection: Redis or PinnedConnection
        With a client, which threads share, any thread may do so, as long as it claims none.
    successes: sequence of Success
        None of jobs that nobody claimed.
    next_claim: ClaimRequest
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
    classes = {**next_claim.classes, **{each.fetched.path: type(each.job) for each in successes}}
    again = "1" if next_claim.is_again else ""
    args = [texts, limit, *replace(next_claim, classes=classes).arguments(again)]
    try:
        reply = json.loads(_succeed_many(connection, args=args))
    except RedisError as error:
        raise NotRecorded(f"How {len(successes)} jobs ended is not recorded: {error}") from error
    endings, claims = reply
    return list(endings), [out_of_list(token, classes, details) for token, details in claims]


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
    return Ending(accept(job, reply)[0])


def finish_canceled(job: RedisModel, queue: RedisModel, token: str, next_claim: ClaimRequest | None = None) -> Ending:
    """Record that a job was canceled while it ran. Parameters and exceptions: see `succeed`."""
    return _finish(_finish_canceled, job, queue, token, (), next_claim)


def delay(
    job: RedisModel,
    queue: RedisModel,
    token: str,
    queue_name: str,
    delay: str,
    next_claim: ClaimRequest | None = None,
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
    prepare_queue(type(queue), queue_name, priority, job)
    args = (layout_of(type(queue)).json, queue_name, delay, priority, "uncounted" if uncounted else "")
    return _finish(_delay, job, queue, token, args, next_claim)


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
    next_claim: ClaimRequest | None = None,
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
        `abandon`. The outcome is then ``held``.
    heed_field: bool
        False, with `hold`, not to look at the field `cancel_on_error` of the job.
    began: float
        When its code began, by the clock of `monotonic`, if that was not when it was claimed.

    The other parameters and exceptions: see `succeed`.
    """
    mode = "place" if not hold else "hold" if heed_field else "hold anyway"
    if requeue_times != 0 and not hold:
        prepare_queue(type(queue), queue_name, priority)
    args = (
        "" if requeue_times is None else str(requeue_times),
        layout_of(type(queue)).json,
        queue_name,
        priority,
        delay,
        mode,
        "" if began is None else str(_microseconds(monotonic() - began)),
    )
    return _finish(_fail, job, queue, token, args, next_claim)


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
    args = arguments_to_place(job, queue_model, queue_name, priority)
    reply = _requeue(redis_of(job), args=[*args, delay, "place" if place else "custom"])
    if reply[0] == "not in error":
        raise LimpydJobsException(f"Job cannot be requeued if not in ERROR status: {job.ident}")
    return as_placed(job, accept(job, reply))


def skip(job: RedisModel, queue: RedisModel, lease: float) -> bool:
    """Let a finished job that was found in a waiting list no longer count as queued; give one that is running without a
    claim a lease, so that it is rescued if nobody runs it.

    Parameters
    ----------
    queue: RedisModel
        Where it was found.
    lease: float
        The one of a job with a claim, in seconds.

    Returns
    -------
    bool
        False if it is not finished.
    """
    args = [layout_of(type(job)).json, job.ident, queue_key_of(queue), lease, UNCLAIMED_LEASE]
    reply = _skip(redis_of(job), args=args)
    if reply[0] == "done":
        reindexed(type(job), pk_of(job), reply[2])
    return bool(reply[0] == "done")


def abandon(
    job_class: type[RedisModel], ident: str, token: str, queue_key: str, delay: str = "", keys: Sequence[str] = ()
) -> bool:
    """End the claim on a job, and leave its state to whatever its hooks made of it, be it deleted.

    Parameters
    ----------
    delay: str
        For how long to delay a job in hand (see `ClaimRequest`) that stands in no queue.
    keys: sequence of str
        The waiting lists of the queues where it may stand.

    Returns
    -------
    bool
        False if the job is delayed, so still has to be put where its status says: nothing was changed.
    """
    args = [layout_of(job_class).json, ident, token, queue_key, delay, "\n".join(keys)]
    reply = _abandon(redis_of(job_class), args=args)
    if reply[0] == "done":
        reindexed(job_class, ident.rpartition(":")[2], reply[2])
    return bool(reply[0] != "delayed")


def _finish(
    script: Script,
    job: RedisModel,
    queue: RedisModel,
    token: str,
    args: Sequence[str],
    next_claim: ClaimRequest | None,
) -> Ending:
    connection = (next_claim and next_claim.connection) or redis_of(job)
    claim_args = next_claim.arguments() if next_claim else ()
    args = [layout_of(type(job)).json, job.ident, token, queue_key_of(queue), *args, *claim_args]
    try:
        reply = script(connection, args=args)
    except RedisError as error:
        raise NotRecorded(f"How {job.ident} ended is not recorded: {error}") from error
    if isinstance(reply, str):
        reply = json.loads(reply)
    accept(job, reply)
    if len(reply) == 1:
        return Ending(reply[0])
    outcome, end, delayed_until, reindex, next_reply = reply
    reindexed(type(job), pk_of(job), reindex)
    return Ending(outcome, end, delayed_until, as_delivery(next_claim, next_reply) if next_claim else None)


def status_and_claim(job: RedisModel) -> tuple[str | None, str | None]:
    """Return the status of a job, and the token of the claim on it; None for what it does not have."""
    status, token = cast("list[str | None]", redis_of(job).hmget(job.key, ["status", "_claim_token"]))
    return status, token
