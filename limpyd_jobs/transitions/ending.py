"""The ways in which the run of a job ends. Each ends the claim on the job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, Protocol, cast

from limpyd.model import RedisModel
from redis import Redis

from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.lazy_fields import pk_of, queue_key_of
from limpyd_jobs.records.records import NewError, redis_of, sender_of
from limpyd_jobs.redis.calls import Call, Verb, listed, reindexed
from limpyd_jobs.redis.connections import PinnedConnection
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.transitions.claiming import UNCLAIMED, UNCLAIMED_LEASE, ClaimRequest, Delivery, held, held_or_unclaimed
from limpyd_jobs.transitions.placing import Standing, accept, moving_by, preparing, where_to

logger = logging.getLogger("limpyd-jobs")

_finish_canceled = Script("ending/finish_canceled")
_delay = Script("ending/delay")
_abandon = Script("ending/abandon")
_fail = Script("ending/fail")
_requeue = Script("ending/requeue")
_skip = Script("ending/skip")
_succeed = Script("ending/succeed")
_succeed_many = Script("ending/succeed_many")

# What the words of a `ClaimRequest` are called by the scripts that end a job.
_NEXT_CLAIM = ("lists", "next_token", "lease", "classes", "registry")


class KeptResult(NamedTuple):
    """The kept result of a job: its text, and for how many milliseconds to keep it."""

    text: str
    milliseconds: int


class Handler(Protocol):
    """The job that handles the last failure of another one."""

    def request(self) -> dict[str, Any]:
        """Return the names of a request."""


class SucceededRun(Protocol):
    """A job that ran, by the clock of `monotonic`, and whose end is recorded with others."""

    job: Any
    delivery: Delivery
    began: float
    ended_at: float
    is_erased: bool
    kept: KeptResult | None


class Ending(NamedTuple):
    """How a job ended, as the scripts of ``ending/`` reply.

    It has the status of the job if the caller had ended this claim before in another way; the priority with which a job
    that failed was put back, if one was asked for; for how many seconds a job waits that was put back too often; and,
    if several were recorded together, the changes to fields with indexes that only limpyd can maintain. A record that
    is broken has the outcome ``failed``, and the reason as its end.
    """

    outcome: str
    end: str = ""
    delayed_until: str = ""
    prefetched: Delivery | None = None
    status: str = ""
    priority: str = ""
    slowed: str = ""
    reindex: Sequence[Any] = ()


@Verb
def succeed(
    job: RedisModel,
    queue: RedisModel,
    token: str,
    next_claim: ClaimRequest | None = None,
    erase: str = "",
    kept: KeptResult | None = None,
) -> Call[Ending]:
    """Record the success of a job, unless its status was set to canceled or delayed while it ran.

    It, and the other ends below, may make the next claim in the same step. They raise ClaimLost, DoesNotExist or
    NotRecorded if the claim is not the one on the job, the job was deleted, or Redis fails.
    """
    job_class = type(job)
    layout = layout_of(job_class)
    ident = f"{layout.path}:{vars(job).get('_pk') or pk_of(job)}"
    if not token:
        raise ValueError(f"The token of the claim on {ident} is missing")
    claim = ("", "1") if token == UNCLAIMED else (token, "")
    queue_key = f"{queue._name}:{vars(queue).get('_pk') or pk_of(queue)}"
    words = [layout.json, ident, queue_key, *claim, erase, *(kept or ("", ""))]
    read = partial(_as_ending, ident)
    if not next_claim:
        return Call(sender_of(job_class), _succeed, words, read, [job_class], subject=ident)
    sender = next_claim.connection or sender_of(job_class)
    models = [job_class, *next_claim.classes.values()]
    return Call(sender, _succeed, words + next_claim.words(), read, models, subject=ident)


def is_erased_at_once(job_class: type[RedisModel]) -> bool:
    """Whether a script can delete a job with all its fields and indexes."""
    layout = layout_of(job_class)
    return layout.erasable and not layout.special and not layout.outside


@Verb
def succeed_many(
    connection: Redis | PinnedConnection, successes: Sequence[SucceededRun], next_claim: ClaimRequest, limit: int = 0
) -> Call[tuple[list[Ending], list[Delivery]]]:
    """Record the success of several claimed jobs in one step, and claim several in it; return the reply for each, for
    `accept_success`, and what came out of the waiting lists: only the last of these may be not claimed.

    A connection that threads share will do if no job is claimed.
    """
    now = monotonic()
    known = next_claim.classes
    others = {
        each.delivery.path: type(each.job) for each in successes if known.get(each.delivery.path) is not type(each.job)
    }
    if others:
        next_claim = replace(next_claim, classes={**known, **others}, described="")
    lists, token, lease, classes, registry = next_claim.words()
    words = [listed([_row(success, now) for success in successes]), limit, lists, lease, token]
    words += [*next_claim.words_of_room, "1" if next_claim.is_again else "", classes, registry]
    subject = f"{len(successes)} jobs"
    return Call(connection, _succeed_many, words, _as_endings, next_claim.models, subject=subject)


def _as_endings(reply: dict[str, Any]) -> tuple[list[Ending], list[Delivery]]:
    endings = [
        Ending(each["outcome"], each.get("error") or each["end"], reindex=each.get("reindex") or ())
        for each in reply["endings"]
    ]
    return endings, [Delivery(*values) for values in reply["claimed"]]


def _row(success: SucceededRun, now: float) -> Sequence[str | int]:
    """Return a success as the script takes it. The duration is the same each time that it is sent."""
    delivery, ended_ago = success.delivery, int((now - success.ended_at) * 1_000_000)
    began_ago = ended_ago + _microseconds(success.ended_at - success.began)
    erased = "1" if success.is_erased else ""
    row = (delivery.ident, delivery.token, delivery.queue_key, began_ago, ended_ago, erased)
    return (*row, *success.kept) if success.kept else row


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def duration_between(began: float, ended: float) -> timedelta:
    """Return how long a job ran, by its stored dates."""
    return timedelta(microseconds=round((ended - began) * 1_000_000))


def accept_success(job: RedisModel, ending: Ending) -> Ending:
    """Do what is left to do of a success that `succeed_many` recorded; return how the job ended, with the exceptions of
    `succeed`.

    The outcome must not be ``failed``: then a record is broken, and nothing of the job is changed.
    """
    if ending.reindex:
        reindexed(type(job), pk_of(job), (change for _model, _pk, *change in ending.reindex))
    if ending.outcome != "done":
        accept(job.ident, {"outcome": ending.outcome})
    return ending


@Verb
def finish_canceled(
    job: RedisModel, queue: RedisModel, token: str, next_claim: ClaimRequest | None = None
) -> Call[Ending]:
    """Record that a job was canceled while it ran."""
    return _ending(_finish_canceled, job, queue, token, {}, next_claim)


@Verb
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
    counted: bool = False,
    failing: bool = False,
    asked: str | None = None,
) -> Call[Ending]:
    """Delay a job that asked for it while it ran, in the queue of a given name and priority, else in its own. If it is
    put back as its code asked for, that is `uncounted` or `counted` as a try of its retry policy; it is `failing` if it
    is tried again for a limited time. If the caller puts it elsewhere afterwards, `asked` is the delay that the job
    asked for."""
    request = where_to(type(queue), queue_name, priority, delay, uncounted=uncounted, counted=counted, failing=failing)
    if asked is not None:
        request["asked"] = asked or "+0"
    return _ending(_delay, job, queue, token, request, next_claim, preparing(type(queue), queue_name, priority, job))


@Verb
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
    failing: bool = False,
    began: float | None = None,
    next_claim: ClaimRequest | None = None,
    error: NewError | None = None,
    handler: Handler | None = None,
) -> Call[Ending]:
    """Record the failure of a job, and put it back in a queue if it may run again.

    With `hold`, a job that may run again is held in error, still claimed and queued, until the caller calls `requeue`
    or `abandon`. Unless `heed_field`, the field `cancel_on_error` of the job is ignored then. It is `failing` if it is
    tried again for a limited time. Without `hold`, an `error` may be created in the same step. If the job is not put
    back, the job that handles that is added in this step.
    """
    mode = "place" if not hold else "hold" if heed_field else "hold anyway"
    request = where_to(type(queue), queue_name, priority, delay, mode=mode)
    if requeue_times is not None:
        request["requeue_times"] = requeue_times
    if failing:
        request["failing"] = True
    if began is not None:
        request["began"] = _microseconds(monotonic() - began)
    if handler:
        request |= handler.request()
    before = preparing(type(queue), queue_name, priority) if requeue_times != 0 and not hold else None
    if error:
        request |= error.request()
    call = _ending(_fail, job, queue, token, request, next_claim, before)
    if error:
        call.fields, call.read = error.fields(), partial(_read_with_error, error, call.read)
    if handler:
        call.read = partial(_read_with_handler, call.subject, call.read)
    return call


def _read_with_handler(ident: str, read: Callable[[dict[str, Any]], Ending], reply: dict[str, Any]) -> Ending:
    why = reply.get("unhandled")
    if why:
        logger.error(f"[{one_line(ident)}] its on_exhausted will not be called: {one_line(why, MESSAGE)}")
    return read(reply)


def _read_with_error(error: NewError, read: Callable[[dict[str, Any]], Ending], reply: dict[str, Any]) -> Ending:
    error.read(reply)
    return read(reply)


@Verb
def requeue(
    job: RedisModel,
    queue_model: type[RedisModel],
    queue_name: str,
    priority: str = "",
    *,
    delay: str = "",
    place: bool = True,
    restart: bool = False,
) -> Call[Standing]:
    """Put a job in error back in a queue, to begin anew if it is to restart."""
    return moving_by(_requeue, job, queue_model, queue_name, priority, delay, place, restart=restart)


@Verb
def skip(job: RedisModel, queue: RedisModel, lease: float) -> Call[bool]:
    """Let a finished job that was found in the waiting list of a queue no longer count as queued; return whether it is
    finished. A job that runs without a claim gets a lease, so that it is rescued if no worker runs it."""
    request = {
        "job_model": layout_of(type(job)).json,
        "ident": job.ident,
        "queue_key": queue_key_of(queue),
        "lease": lease,
        "unclaimed_lease": UNCLAIMED_LEASE,
    }
    return Call(sender_of(type(job)), _skip, request, lambda reply: reply["outcome"] == "done", [type(job)])


@Verb
def abandon(
    job_class: type[RedisModel],
    ident: str,
    token: str,
    queue_key: str,
    delay: str = "",
    keys: Sequence[str] = (),
    kept: Mapping[str, Any] | None = None,
) -> Call[bool]:
    """End the claim on a job, and leave the job as its hooks left it, even deleted. Return False, and change nothing,
    if the job is delayed, and still has to be put where its status says."""
    request = {**held(job_class, ident, token, queue_key), "delay": delay, "lists": "\n".join(keys)}
    request |= kept or {}
    return Call(sender_of(job_class), _abandon, request, lambda reply: reply["outcome"] != "delayed", [job_class])


def _ending(
    script: Script,
    job: RedisModel,
    queue: RedisModel,
    token: str,
    details: Mapping[str, Any],
    next_claim: ClaimRequest | None,
    before: Callable[[], object] | None = None,
) -> Call[Ending]:
    ident, sender = job.ident, None
    models: Sequence[type[RedisModel]] = (type(job),)
    request = {**held_or_unclaimed(type(job), ident, token, queue_key_of(queue)), **details}
    cursors = job.__dict__.get("_cursors")
    if cursors and script is not _succeed:
        request |= cursors.request(failed=script is _fail)
    if next_claim:
        request |= zip(_NEXT_CLAIM, next_claim.words(), strict=True)
        models, sender = (type(job), *next_claim.classes.values()), next_claim.connection
    read = partial(_as_ending, ident)
    return Call(sender or sender_of(type(job)), script, request, read, models, (), before, ident)


def _as_ending(ident: str, reply: dict[str, Any]) -> Ending:
    outcome, prefetched = reply["outcome"], reply.get("prefetched")
    if outcome != "done":
        accept(ident, reply)
    delivery = Delivery(*prefetched) if prefetched else None
    return Ending(
        outcome,
        reply.get("end", ""),
        reply.get("delayed_until", ""),
        delivery,
        reply.get("status", ""),
        "",
        reply.get("slowed", ""),
    )


def status_and_claim(job: RedisModel) -> tuple[str | None, str | None]:
    """Return the status of a job, and the token of the claim on it; None for a missing value."""
    status, token = cast("list[str | None]", redis_of(job).hmget(job.key, ["status", "_claim_token"]))
    return status, token
