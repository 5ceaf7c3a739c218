"""Bringing jobs back that are due, whose worker died, that got lost, or that this worker cannot run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from limpyd.model import RedisModel

from limpyd_jobs.arguments import is_servable
from limpyd_jobs.records.layout import classes_argument, layout_of
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import Call, Verb, listed, outcome_of
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.transitions.claiming import UNCLAIMED_LEASE, ClaimRequest, Delivery, held_or_unclaimed
from limpyd_jobs.transitions.placing import where_to

# How many due jobs one call of promote() moves at most, to keep the script short.
PROMOTE_LIMIT = 1000

# How many of those that the application's own `enqueue_job` places: they are in no list if the process dies meanwhile.
PLACE_LIMIT = 10

# How many lapsed leases one call of rescue() looks at in each queue, at most.
RESCUE_LIMIT = 100

# How long a job whose class cannot be resolved waits before it is tried again.
DEFERRAL_SECONDS = 60

# How many idents one call of reconcile() looks at: it may have to search a long list for each.
RECONCILE_LIMIT = 100

# How often a job is deferred before it is dead-lettered: for about an hour.
MAX_DEFERRALS = 60

Pairs = list[tuple[str, str]]

_defer_unresolved = Script("recovering/defer_unresolved")
_force_release = Script("recovering/force_release")
_reconcile = Script("recovering/reconcile")
_rescue = Script("recovering/rescue")
_retry_deferred = Script("recovering/retry_deferred")
_promote = Script("recovering/promote")


class Promoted(NamedTuple):
    """What became of the jobs that are due, see ``recovering/promote.lua``."""

    has_more: bool
    failures: Pairs
    unknown: Pairs
    ready: Pairs


class Rescue(NamedTuple):
    """What became of lapsed leases, see ``recovering/rescue.lua``."""

    rescued: list[Delivery]
    unknown: list[str]
    exhausted: Delivery | None
    has_to_reconcile: bool
    broken: Sequence[tuple[str, str]] = ()
    spared: int = 0
    next_lapse: float = inf
    lost: Sequence[tuple[str, str]] = ()  # the token of each claim, and the name of the queue
    has_flows: bool = False


@Verb
def promote(
    queue_model: type[RedisModel],
    queue_keys: Sequence[str],
    classes: Mapping[str, type[RedisModel]],
    limit: int = PROMOTE_LIMIT,
    *,
    is_custom: bool = False,
) -> Call[Promoted]:
    """Move the delayed jobs that are due, up to a limit, to their waiting lists; or leave that to the caller."""
    limit = min(limit, PLACE_LIMIT) if is_custom else limit
    request = {"limit": limit, "custom": is_custom, "classes": classes_argument(classes)}

    def read(reply: dict[str, Any]) -> Promoted:
        return Promoted(reply["has_more"], *(_pairs(reply[name]) for name in ("failures", "unknown", "ready")))

    return Call(redis_of(queue_model), _promote, request, read, list(classes.values()), queue_keys)


def _pairs(rows: Iterable[Any]) -> Pairs:
    return [(one, other) for one, other in rows]


@Verb
def rescue(
    queue_model: type[RedisModel],
    queue_keys: Sequence[str],
    max_rescues: int,
    request: ClaimRequest,
    is_starting: bool = False,
) -> Call[Rescue]:
    """Put jobs whose lease lapsed back to the front of their waiting lists. The request claims a job that was rescued
    too often. A worker `is_starting` if it has to reconcile soon, and Redis may have been away."""
    limits = {"limit": RESCUE_LIMIT, "max_rescues": max_rescues}
    names = {"token": request.token, "lease": request.lease, "classes": classes_argument(request.classes)}
    whole = {**limits, **names, "is_starting": is_starting}
    return Call(redis_of(queue_model), _rescue, whole, _rescued, request.models, queue_keys)


def _rescued(reply: dict[str, Any]) -> Rescue:
    rescued = [Delivery("rescued", status="w", **details) for details in reply["rescued"]]
    exhausted = Delivery(*reply["exhausted"]) if "exhausted" in reply else None
    broken = tuple(_pairs(reply["broken"]))
    known = rescued, list(reply["unknown"]), exhausted, reply["has_to_reconcile"], broken, reply["spared"]
    lost = tuple(_pairs(reply.get("lost", ())))
    return Rescue(*known, float(reply.get("next_lapse", inf)), lost, reply["has_flows"])


@Verb
def reconcile(
    queue_model: type[RedisModel], job_class: type[RedisModel], idents: Sequence[str], lease: float
) -> Call[tuple[list[tuple[str, str, str]], list[str]]]:
    """Put queued jobs of a class, at most `RECONCILE_LIMIT`, where their status says; return (ident, status, queue key)
    of those that were put back, and the idents of jobs whose queue is not known, which are jobs of version 2 only.
    Jobs that name no queue are left alone if their class has another queue model."""
    leases = {"lease": lease, "unclaimed_lease": UNCLAIMED_LEASE}
    name = getattr(job_class, "queue_name", None) or ""
    is_home = getattr(job_class, "queue_model", queue_model)._name == queue_model._name
    where = where_to(queue_model, name, is_servable=is_servable(name), is_home=is_home)
    request = {"job_model": layout_of(job_class).json, "idents": listed(idents), **where, **leases}

    def read(reply: dict[str, Any]) -> tuple[list[tuple[str, str, str]], list[str]]:
        return [tuple(row) for row in reply["repaired"]], list(reply["unplaceable"])

    return Call(redis_of(queue_model), _reconcile, request, read, [job_class])


@Verb
def defer_unresolved(
    queue_model: type[RedisModel],
    key: str,
    ident: str,
    seconds: float = DEFERRAL_SECONDS,
    max_deferrals: int = MAX_DEFERRALS,
) -> Call[tuple[str, str]]:
    """Delay a job whose class cannot be resolved; if that happened too often, move it to the list of errors. Return
    ``deferred`` or ``dead lettered``, and the name of the queue."""
    request = {"ident": ident, "seconds": seconds, "limit": max_deferrals}
    return Call(redis_of(queue_model), _defer_unresolved, request, itemgetter("outcome", "queue_name"), keys=[key])


@Verb
def force_release(
    job_class: type[RedisModel], ident: str, token: str, queue_key: str, audit: Mapping[str, str]
) -> Call[str]:
    """Release a running job in place of its worker, to the front of its list; return ``done``, ``refused``, ``gone``,
    ``not running`` or ``no queue``."""
    request = {**held_or_unclaimed(job_class, ident, token, queue_key), **audit}
    return Call(redis_of(job_class), _force_release, request, outcome_of, [job_class])


@Verb
def retry_deferred(
    queue_model: type[RedisModel], queue_key: str, job_class: type[RedisModel], idents: Sequence[str]
) -> Call[int]:
    """Make some thousand deferred jobs of a queue, whose class no worker could resolve, due at once; return how many
    there were."""
    request = {"job_model": layout_of(job_class).json, "idents": listed(idents)}
    return Call(redis_of(queue_model), _retry_deferred, request, itemgetter("number"), keys=[queue_key])
