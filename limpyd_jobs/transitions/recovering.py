"""Jobs that come back: whose time has come, whose worker died, which got lost, or which nobody here can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from limpyd.model import RedisModel

from limpyd_jobs.store.layout import classes_argument, layout_of
from limpyd_jobs.store.records import redis_of, reindexed
from limpyd_jobs.store.scripting import Script
from limpyd_jobs.transitions.claiming import UNCLAIMED_LEASE, ClaimRequest, Delivery, as_delivery
from limpyd_jobs.utils import printable

# How many due jobs one call of promote() moves at the most, to keep the script short.
PROMOTE_LIMIT = 1000

# How many lapsed leases one call of rescue() looks at in each queue, at the most.
RESCUE_LIMIT = 100

# How long a job of a class that cannot be resolved rests before it is tried again.
DEFERRAL_SECONDS = 60

# How many idents one call of reconcile() looks at: each may be looked for in a long list.
RECONCILE_LIMIT = 100

# How often one is deferred before it is dead-lettered: for about an hour.
MAX_DEFERRALS = 60

Place = Callable[[str, str], None]

_defer_unresolved = Script("defer_unresolved")
_reconcile = Script("reconcile")
_rescue = Script("rescue")
_retry_deferred = Script("retry_deferred")
_promote = Script("promote")


class Rescue(NamedTuple):
    """What became of lapsed leases: the jobs that wait again; the idents of those of unknown classes, left where they
    are; and one job that was rescued too often, claimed for the caller to fail it. Then whether the caller has to
    reconcile; the idents, with a reason, of broken jobs, which are in quarantine now; and how many jobs have half a
    lease more, as Redis was just started."""

    rescued: list[Delivery]
    unknown: list[str]
    exhausted: Delivery | None
    has_to_reconcile: bool
    broken: Sequence[tuple[str, str]] = ()
    spared: int = 0


def promote(
    queue_model: type[RedisModel],
    queue_keys: Sequence[str],
    classes: Mapping[str, type[RedisModel]],
    limit: int = PROMOTE_LIMIT,
    place: Place | None = None,
) -> tuple[bool, list[tuple[str, str]], list[tuple[str, str]]]:
    """Move the delayed jobs that are due, up to a limit, to their waiting lists.

    Parameters
    ----------
    place: callable
        Is called with the queue key and the ident of each job to put it in the waiting list; what it raises is told.
        None to do that at once. A job that does not come to be in a list is put there by `reconcile`.

    Returns
    -------
    tuple
        Whether more are due; the (ident, reason) of those that were dropped; the (queue key, ident) of those of a
        class that is not among the given ones, which stay where they are.
    """
    args = [limit, classes_argument(classes), "custom" if place else "place"]
    _done, more, failures, unknown, reindexes, ready = _promote(redis_of(queue_model), keys=queue_keys, args=args)
    for ident, reindex in reindexes:
        path, _, pk = ident.rpartition(":")
        reindexed(classes[path], pk, reindex)
    if place:
        failures += _failures_to_place(place, ready)
    return bool(more), [tuple(failure) for failure in failures], [tuple(pair) for pair in unknown]


def _failures_to_place(place: Place, ready: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for queue_key, ident in ready:
        try:
            place(queue_key, ident)
        except Exception as error:  # whatever the application's own way to do so raises
            yield ident, printable(error)


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
        Whether the worker just began, so that somebody has to reconcile soon, and Redis may have been away.
    """
    claim = [request.token, request.lease, "1" if is_starting else "", classes_argument(request.classes)]
    rescued, unknown, exhausted, has_to_reconcile, broken, spared = _rescue(
        redis_of(queue_model), keys=queue_keys, args=[RESCUE_LIMIT, max_rescues, *claim]
    )
    found = []
    for key, ident, identifier, name, priority, number, reindex in rescued:
        fetched = Delivery("rescued", key, ident, "w", identifier, name, priority, rescues=int(number))
        reindexed(request.classes[fetched.path], fetched.pk, reindex)
        found.append(fetched)
    claimed = as_delivery(request, exhausted) if exhausted else None
    failures = tuple((ident, reason) for ident, reason in broken)
    return Rescue(found, unknown, claimed, bool(has_to_reconcile), failures, int(spared))


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
    repaired, unplaceable, freed = _reconcile(redis_of(queue_model), args=args)
    for ident, reindex in freed:
        reindexed(job_class, ident.rpartition(":")[2], reindex)
    return [tuple(row) for row in repaired], unplaceable


def defer_unresolved(
    queue_model: type[RedisModel],
    key: str,
    ident: str,
    seconds: float = DEFERRAL_SECONDS,
    max_deferrals: int = MAX_DEFERRALS,
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
        ``deferred`` or ``dead lettered``; and the name of the queue.
    """
    outcome, queue_name = _defer_unresolved(redis_of(queue_model), keys=[key], args=[ident, seconds, max_deferrals])
    return outcome, queue_name


def retry_deferred(
    queue_model: type[RedisModel], queue_key: str, job_class: type[RedisModel], idents: Sequence[str]
) -> int:
    """Let jobs that rest in a queue, as nobody could resolve their class, be due at once; return how many did.

    Parameters
    ----------
    queue_key: str
        The beginning of the keys of the queue.
    idents: sequence of str
        Of jobs of that class, at most some thousand.
    """
    reply: int = _retry_deferred(redis_of(queue_model), keys=[queue_key], args=[layout_of(job_class).json, *idents])
    return reply
