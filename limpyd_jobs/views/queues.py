"""Queues as they are shown: one row a name, with what is wrong with it and what was run lately, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from limpyd_jobs.dates import span
from limpyd_jobs.models.presence import AliveWorker
from limpyd_jobs.query import Glance, Incident, Metrics, QueueState, lately
from limpyd_jobs.query.attention.conditions import by_name
from limpyd_jobs.redis.cluster.tags import without_tag
from limpyd_jobs.texts import count_of, one_line

# The state of a queue without an incident: that in which always more jobs wait is not well.
WELL, GROWS = "well", "grows"

# In seconds: if what waits is done that soon, or if few jobs wait, the first one for less, it does not matter how many
# come.
SOON, FEW = 60, 20

# Of which part of the jobs the times are.
MOST_JOBS = 0.95


class QueueRow(NamedTuple):
    """A queue, with all its priorities.

    Attributes
    ----------
    name, model: str
    state: str
        ``well``, ``grows``, or the code of the worst incident that is about it, as ``failures``.
    gravity: str
        That of the incident; ``warning`` if it grows; empty if it is well.
    why: str
        What is wrong, in some words: ``all 1,731 tries failed``, ``grows by 90 a minute``.
    incident: Incident
        None if it is well.
    is_paused: bool
    waiting, delayed, running: int
    oldest: float
        For how many seconds the job that is next has waited; None if none waits, or that is not known.
    slots: int
        How many jobs the workers that serve it run at once.
    ended: float
        How many tries ended a minute, in the last five.
    failed: float
        Which part of these failed; None if none ended.
    waited: float
        Within how many seconds 95 % of these began; None if none began.
    empty_in: float
        After how many seconds it is empty at this rate: infinite if it runs none well, or as many come as end; None if
        none wait.
    grows: float
        By how many jobs a minute more wait, or less, if it is negative; None if that is not known.
    priorities: sequence of QueueState
        Each of its priorities.
    """

    name: str
    model: str
    state: str
    gravity: str
    why: str
    incident: Incident | None
    is_paused: bool
    waiting: int
    delayed: int
    running: int
    oldest: float | None
    slots: int
    ended: float
    failed: float | None
    waited: float | None
    empty_in: float | None
    grows: float | None
    priorities: Sequence[QueueState]


def queue_rows(seen: Glance, incidents: Sequence[Incident]) -> list[QueueRow]:
    """Return the queues, those with the worst incident first, then those in which most jobs wait."""
    worst: dict[str, tuple[int, Incident]] = {}
    for rank, incident in enumerate(incidents):
        for name in incident.queues:
            worst.setdefault(name, (rank, incident))
    last = lately(seen.periods, seen.at)
    rates = last.by_queue
    slots = _slots_of(seen.overview.workers)
    priorities: dict[tuple[str, str], list[QueueState]] = {}
    for state in seen.overview.queues:
        priorities.setdefault((state.model, state.name), []).append(state)
    rows = [
        _row(
            state,
            worst.get(state.name, (0, None))[1],
            rates.get(state.name, Metrics()),
            last.minutes,
            seen.waited_before.get(state.name, 0) if seen.waited_before else None,
            slots.get((without_tag(state.model), state.name), 0),
            priorities[state.model, state.name],
        )
        for state in by_name(seen.overview.queues)
    ]
    none = len(incidents)
    return sorted(rows, key=lambda row: (worst.get(row.name, (none,))[0], row.state != GROWS, -row.waiting, row.name))


def rounded(number: float) -> str:
    """Return a number as people read it: ``3,118``, ``13.6``, ``0.2``."""
    return f"{number:.1f}".removesuffix(".0") if 0 < number < 100 else f"{number:,.0f}"


def _slots_of(workers: Iterable[AliveWorker]) -> Mapping[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for worker in workers:
        for name in worker.queues if worker.slots_there else ():
            key = without_tag(worker.queue_model), name
            found[key] = found.get(key, 0) + worker.slots_there
    return found


def _row(
    state: QueueState,
    incident: Incident | None,
    rates: Metrics,
    minutes: float,
    before: int | None,
    slots: int,
    priorities: Sequence[QueueState],
) -> QueueRow:
    ended, grows = rates.succeeded + rates.failed, None if before is None else (state.waiting - before) / minutes
    empty_in = _empty_in(state, rates.succeeded / minutes, grows)
    is_growing = not incident and empty_in == inf and bool(rates.succeeded)
    told = f"grows by {rounded(grows)} a minute" if grows and grows >= 1 else "as many jobs come as end"
    return QueueRow(
        name=state.name,
        model=state.model,
        state=incident.code if incident else GROWS if is_growing else WELL,
        gravity=incident.gravity if incident else "warning" if is_growing else "",
        why=why_of(incident) if incident else told if is_growing else _parked(state),
        incident=incident,
        is_paused=state.is_paused,
        waiting=state.waiting,
        delayed=state.delayed,
        running=state.running,
        oldest=state.latency,
        slots=slots,
        ended=ended / minutes,
        failed=rates.failed / ended if ended else None,
        waited=rates.waited.quantile(MOST_JOBS),
        empty_in=empty_in,
        grows=grows,
        priorities=priorities,
    )


def _parked(state: QueueState) -> str:
    return f"{state.parked:,} kept back by limits" if state.parked else ""


def _empty_in(state: QueueState, succeeded: float, grows: float | None) -> float | None:
    if not state.waiting or state.is_paused:
        return None
    if not succeeded:
        return inf
    at_once = state.waiting / succeeded * 60  # if no other job came
    if grows is None or at_once < SOON or (state.waiting < FEW and (state.latency or 0) < SOON):
        return at_once
    return state.waiting / -grows * 60 if grows < 0 else inf


def why_of(incident: Incident) -> str:
    """Say in some words what is wrong with a queue, for the row that has its name and numbers."""
    numbers, remedy = incident.numbers, incident.remedy
    match incident.code:
        case "failures" if incident.gravity == "over":
            return f"{remedy.number:,} to requeue" if remedy else "failures are over"
        case "failures":
            failed, ended = int(numbers["failed"]), int(numbers["failed"] + numbers["succeeded"])
            return f"all {failed:,} tries failed" if failed == ended else f"{failed:,} of {ended:,} tries failed"
        case "unserved":
            return "no worker"
        case "worker_silent":
            return "its only worker is silent"
        case "worker_lost":
            return "no worker: the last one died"
        case "paused":
            who = next((fact.text for fact in incident.facts if fact.name == "Paused by"), "")
            return f"paused, by {who}" if who else "paused"
        case "waiting":
            return f"the first waits for {span(numbers['latency_s'])}" if "latency_s" in numbers else "waits for long"
        case "lapsed":
            return f"{count_of(int(numbers['lapsed']), 'lease')} ended"
        case "quarantine":
            return f"{count_of(int(numbers['entries']), 'entry', 'entries')} in quarantine"
        case "deferred":
            return f"{int(numbers['deferred']):,} of a class that no worker can import"
        case "no_home":
            return "no worker at home in some shards"
        case "unknown_class":
            return f"{one_line(incident.job_class) or 'a class'} is not known here"
        case _:
            return incident.title
