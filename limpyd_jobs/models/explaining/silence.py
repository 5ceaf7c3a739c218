"""Sentences about workers, and other owners of claims, that give no sign of life."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import cache
from typing import Any

from limpyd_jobs.dates import EPOCH, parse_datetime, span
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models.presence import SILENT, AlivePresence, AliveWorker, Presence, WorkerPresence
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import connection_to, database_of, on, replies_to
from limpyd_jobs.transitions import owner_of

# The statuses of workers that do not look after the jobs of others.
_AWAY = {SILENT, "stopping"}

# What happens when the lease ends, for how many seconds it still holds.
_TAKEN_OVER = "another worker takes over in {}"
_ONCE_FREE = "its lease ends in {}, and another worker takes over once it has ended its own job"
_PUT_BACK = "its lease ends in {}, and a quiet worker puts its jobs back, to wait for another one"
_LEFT = "its lease ends in {}, and no other worker of its queues is there"
_CLAIMABLE = "its claim ends in {}"

# The owner of the claims of a worker; and after how many seconds a worker is surely registered.
_OWNER_OF_WORKER = re.compile(r"[^:]+:\d+:[0-9a-f]{12}")
_REGISTERED = 5


def silences(workers: Sequence[AliveWorker]) -> dict[str, str]:
    """Say of all workers that are there which are silent, by their pk: for how long, and what comes next.

    When the lease of a worker ends, so do those of its jobs, except of one that it began after its last sign of life.
    """
    statuses: dict[tuple[str, frozenset[str]], set[str]] = {}  # of those that may take over, by their queues
    for each in workers:
        if each.status not in _AWAY:
            statuses.setdefault((each.queue_model, frozenset(each.queues)), set()).add(each.status)

    @cache
    def then(model: str, queues: frozenset[str]) -> str:
        serving = (found for (its_model, served), found in statuses.items() if its_model == model and queues <= served)
        return _then(set[str]().union(*serving))

    return {
        each.pk: _said(each, each.lease_left, then(each.queue_model, frozenset(each.queues)))
        for each in workers
        if each.silent_for
    }


def silence_of_owner(stored: Mapping[str, str], ident: str, namespace: str, database: JobsDatabase | None) -> str:
    """Say the same of the owner of the claim on a job, by the hash of the job and the namespace of its model."""
    owner, key = owner_of(stored.get("_claim_token")), stored.get("_queue_key", "")
    lease, queue, time = replies_to(
        connection_to(database), [("ZSCORE", f"{key}:_running", ident), ("HGET", f"{key}:hash", "name"), ("TIME",)]
    )
    left = float(lease or 0) - time[0] - time[1] / 1e6
    if owner is None or not 0 <= left < float("inf"):
        return ""
    model = key.rpartition(":")[0]
    workers = [each for each in on(WorkerPresence, database).alive() if each.queue_model == model]
    worker = next((each for each in workers if each.name == owner), None)
    then = _then({each.status for each in workers if each is not worker and queue in each.queues} - _AWAY)
    if worker:
        return _said(worker, left, then)
    if _OWNER_OF_WORKER.fullmatch(owner):  # it began the job after its last sign of life, or cannot register
        began = parse_datetime(stored.get("start"))
        is_new = began and (began - EPOCH).total_seconds() > time[0] - _REGISTERED
        return "" if is_new else f"not among the workers that are there; if it died, {then.format(span(left))}"
    return next((_said(each, left, _CLAIMABLE) for each in alive(database, namespace) if each.name == owner), "")


def alive(database: JobsDatabase | None, namespace: str) -> Iterable[AlivePresence]:
    """Yield who is there, beside workers: those of the namespace of an integration, then all others."""
    with suppress(ConfigurationException):  # the namespace has another model of that name
        yield from Presence.bound_to(database_of(database), namespace).alive()
    yield from on(Presence, database).alive()


def silence_of_claim(owner: AlivePresence, lease_left: float) -> str:
    """Say for how long the owner of a claim has been silent, and when the claim ends; empty if it is not silent."""
    return _said(owner, lease_left, _CLAIMABLE)


def _then(statuses: Set[str]) -> str:
    """Say what comes next, by what other workers of the queues do. A worker looks after them between two jobs."""
    if not statuses:
        return _LEFT
    if statuses == {"quiet"}:
        return _PUT_BACK
    return _ONCE_FREE if statuses <= {"busy", "quiet"} else _TAKEN_OVER


def _said(owner: Any, lease_left: float, what: str) -> str:
    return f"silent for {span(owner.silent_for)}; {what.format(span(max(lease_left, 0.0)))}" if owner.silent_for else ""
