"""What needs attention first, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import reduce
from typing import NamedTuple

from limpyd_jobs.dates import span
from limpyd_jobs.models.explaining.silence import silences
from limpyd_jobs.models.presence import SILENT, AliveWorker
from limpyd_jobs.query.overview import Overview
from limpyd_jobs.query.queues import QueueState, together
from limpyd_jobs.query.series import Series
from limpyd_jobs.redis.cluster.tags import without_tag
from limpyd_jobs.search.classes import is_board, unread_text
from limpyd_jobs.texts import one_line

# After how many seconds a job has waited for long, and of how many minutes failures are counted.
LONG_WAIT, MINUTES = 60.0, 10

# From which part of the jobs on, and from how many, failures are worth a sentence.
MANY_FAILURES, SOME_FAILURES = 0.1, 3

# How many shards are named at most.
MAX_SHOWN = 10

# From which part of the memory on Redis is nearly full.
NEARLY_FULL = 0.9

NO_SERIES = Series([], [])


class Attention(NamedTuple):
    """Something that needs attention.

    Attributes
    ----------
    code: str
        For programs: ``memory``, ``unserved``, ``no_home``, ``lapsed``, ``worker_silent``, ``failures``, ``waiting``,
        ``late_schedule``, ``quarantine``, ``deferred``, ``paused``, ``unread`` or ``unknown_class``.
    text: str
        A sentence for people.
    is_grave: bool
        Whether jobs are not run, or fail, because of it.
    queue: str
        The queue that it is about; empty if it is about none.
    """

    code: str
    text: str
    is_grave: bool
    queue: str = ""


def attention(seen: Overview, last: Series = NO_SERIES) -> list[Attention]:
    """Return what needs attention in a database, the gravest first, as it was when it was looked at. Of failures it
    knows by the series of the last minutes."""
    served = _served(seen.workers)
    found = [
        *_memory(seen),
        *_workers(seen),
        *_homes(seen),
        *_unread(seen),
        *_pauses(seen),
        *_schedules(seen),
        *_failures(last),
        *(each for it in _by_name(seen.queues) for each in _queue(it, served)),
    ]
    return sorted(found, key=lambda each: not each.is_grave)


def _memory(seen: Overview) -> Iterator[Attention]:
    used, most = seen.totals.memory, seen.totals.max_memory
    if used and most and used > most * NEARLY_FULL:
        yield Attention("memory", f"Redis is nearly full: {used / most:.0%} of its memory is used.", True)


def _workers(seen: Overview) -> Iterator[Attention]:
    silent = silences(seen.workers)
    for worker in seen.workers:
        if said := silent.get(worker.pk):
            yield Attention("worker_silent", f"The worker {one_line(worker.name)} has been {said}.", True)


def _unread(seen: Overview) -> Iterator[Attention]:
    if seen.unread:
        yield Attention("unread", f"Not looked at: {unread_text(seen.unread, MAX_SHOWN)}.", False)


def _homes(seen: Overview) -> Iterator[Attention]:
    """Yield the queues with jobs in shards where no worker serves them at home. Others take those that wait only."""
    without: dict[str, list[int]] = {}
    for number, part in seen.parts.items():
        served = _served(part.workers)
        for queue in _by_name(part.queues):
            if queue.is_in_use and not is_board(queue.model) and (without_tag(queue.model), queue.name) not in served:
                without.setdefault(queue.name, []).append(number)
    for name, numbers in without.items():
        what = "delayed jobs, schedules and jobs of dead workers wait there"
        text = f"No worker of {one_line(name)} is at home in {_shown(numbers)}: {what}."
        yield Attention("no_home", text, True, name)


def _pauses(seen: Overview) -> Iterator[Attention]:
    """Yield the queues that are paused in some shards only, such as those that could be used then."""
    paused: dict[str, dict[int, bool]] = {}
    for number, part in seen.parts.items():
        for queue in part.queues:
            paused.setdefault(queue.name, {})[number] = queue.is_paused
    for name, by_shard in paused.items():
        numbers = [number for number, is_paused in by_shard.items() if is_paused]
        if numbers and len(numbers) < len(by_shard):
            text = f"{one_line(name)} is paused in {_shown(numbers)}, but not in the others."
            yield Attention("paused", text, False, name)


def _shown(shards: Sequence[int]) -> str:
    many = "…" if len(shards) > MAX_SHOWN else ""
    return f"shard{'s' * (len(shards) > 1)} {', '.join(map(str, shards[:MAX_SHOWN]))}{many}"


def _schedules(seen: Overview) -> Iterator[Attention]:
    if seen.late_schedules:
        number = seen.late_schedules
        what = "1 schedule is late" if number == 1 else f"{number:,} schedules are late, one"
        yield Attention("late_schedule", f"{what} by {span(seen.lateness)}.", True)


def _failures(last: Series) -> Iterator[Attention]:
    for queue in last.queues:
        begun, failed = sum(queue.started[-MINUTES:]), sum(queue.failed[-MINUTES:])
        if failed >= SOME_FAILURES and failed >= begun * MANY_FAILURES:
            text = f"{failed:,} tries of {one_line(queue.name)} failed in the last {MINUTES} minutes; {begun:,} began."
            yield Attention("failures", text, True, queue.name)


def _by_name(states: Iterable[QueueState]) -> Iterator[QueueState]:
    """Yield one state for the priorities of each name together."""
    by_name: dict[tuple[str, str], list[QueueState]] = {}
    for state in states:
        by_name.setdefault((state.model, state.name), []).append(state)
    for first, *others in by_name.values():
        yield reduce(together, others, first)


def _queue(state: QueueState, served: Set[tuple[str, str]]) -> Iterator[Attention]:
    name = one_line(state.name)
    first = f"the first for {span(state.latency)}" if state.latency is not None else "it is not known for how long"
    jobs = "1 job waits" if state.waiting == 1 else f"{state.waiting:,} jobs wait"
    waiting = f"{jobs} in {name}, {first}"
    is_late = state.latency is not None and state.latency > LONG_WAIT
    if state.waiting and state.is_paused and not is_board(state.model):
        yield Attention("paused", f"{name} is paused: {waiting}.", False, state.name)
    elif state.waiting and not is_board(state.model) and not _is_served(state, served):
        yield Attention("unserved", f"No worker serves {name}: {waiting}.", True, state.name)
    elif is_late:
        yield Attention("waiting", f"{waiting}.", True, state.name)
    if state.lapsed and not is_board(state.model):
        is_served = _is_served(state, served)
        jobs = "1 job" if state.running == 1 else f"{state.running:,} jobs"
        what = (
            "A worker puts such jobs back between two others"
            if is_served
            else "No worker is there to put such jobs back"
        )
        text = f"Of {jobs} recorded as running in {name}, the lease of {state.lapsed:,} ended. {what}."
        yield Attention("lapsed", text, not is_served, state.name)
    if state.quarantine:
        entries = "entry" if state.quarantine == 1 else "entries"
        text = f"In quarantine of {name}: {state.quarantine:,} {entries} that no worker can do anything with."
        yield Attention("quarantine", text, False, state.name)
    if state.deferred:
        jobs = "1 job waits" if state.deferred == 1 else f"{state.deferred:,} jobs wait"
        text = f"In {name}, {jobs} for a worker that can import the class: none could yet. Workers try again and again."
        text += " Until one can, the queue counts such jobs as delayed, whatever their status."
        yield Attention("deferred", text, False, state.name)
    for path in state.unknown_classes:
        remedy = "a class that is not known here: name its module in --job-modules"
        text = f"In {name} are jobs of {one_line(path)}, {remedy}."
        yield Attention("unknown_class", text, False, state.name)


def _served(workers: Iterable[AliveWorker]) -> set[tuple[str, str]]:
    """Return the models and the names of the queues that workers serve."""
    return {(without_tag(each.queue_model), name) for each in workers if each.status != SILENT for name in each.queues}


def _is_served(state: QueueState, served: Set[tuple[str, str]]) -> bool:
    """Whether a worker serves a queue. Workers of version 2 are not seen, but by the jobs that they run."""
    return (without_tag(state.model), state.name) in served or state.running > state.lapsed
