"""What is wrong with queues, workers, schedules and Redis, as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from datetime import timedelta
from functools import reduce

from limpyd_jobs.dates import span
from limpyd_jobs.models.explaining.silence import silences
from limpyd_jobs.models.presence import SILENT, AliveWorker
from limpyd_jobs.query.attention.evidence import Glance, Pause
from limpyd_jobs.query.attention.limited import limited
from limpyd_jobs.query.attention.remedies import resume, start
from limpyd_jobs.query.attention.values import ERROR, WARNING, Fact, Incident
from limpyd_jobs.query.overview import Overview
from limpyd_jobs.query.queues import QueueState, together
from limpyd_jobs.query.workers import EndedWorker
from limpyd_jobs.redis.cluster.tags import without_tag
from limpyd_jobs.search.classes import is_board, unread_text
from limpyd_jobs.texts import count_of, one_line, size_text, some_named

# After how many seconds a job has waited for long.
LONG_WAIT = 60.0

# How many shards, and how many classes, are named at most.
MAX_SHOWN = 10

# From which part of the memory on Redis is nearly full.
NEARLY_FULL = 0.9

# The models and names of the queues that workers serve.
Served = Set[tuple[str, str]]


def by_name(states: Iterable[QueueState]) -> list[QueueState]:
    """Return one state for the priorities of each name together."""
    found: dict[tuple[str, str], list[QueueState]] = {}
    for state in states:
        found.setdefault((state.model, state.name), []).append(state)
    return [reduce(together, others, first) for first, *others in found.values()]


def conditions(seen: Glance, states: Sequence[QueueState], failing: Set[str]) -> Iterator[Incident]:
    """Yield what is wrong. States have the priorities of a name together. Of the queues whose tries fail it is said
    elsewhere how many jobs wait, but not that no worker is there."""
    overview = seen.overview
    served = served_by(overview.workers)
    silent = {(without_tag(it.queue_model), name) for it in overview.workers if it.silent_for for name in it.queues}
    yield from _memory(overview)
    yield from _workers(seen, states, served)
    yield from _homes(overview)
    yield from _unread(overview)
    yield from _pauses(overview)
    yield from _schedules(overview)
    yield from limited(seen, LONG_WAIT)
    for state in states:
        for each in _waiting(seen, state, served, silent):
            if each.code == "unserved" or state.name not in failing:
                yield each
        yield from _queue(state, served)
        if state.name in seen.lost and not _is_served(state, served) and (state.is_paused or not state.waiting):
            yield _died(seen, state.name, seen.lost[state.name])


def _died(seen: Glance, queue: str, worker: EndedWorker) -> Incident:
    """Return that no worker is there for the next job of a queue. If jobs wait, that is said with them."""
    title = f"No worker serves {one_line(queue)}, the last one died"
    text = f"{title}: {one_line(worker.name)}."
    at = worker.last_seen or worker.ended
    return Incident(
        "worker_lost", WARNING, title, text, [queue], at, facts=[_last_of(seen, worker)], remedy=start([queue])
    )


def _last_of(seen: Glance, worker: EndedWorker) -> Fact:
    ago = span(max((seen.at - (worker.last_seen or worker.ended)).total_seconds(), 0.0))
    return Fact("Last worker", f"{one_line(worker.name)} died {ago} ago")


def served_by(workers: Iterable[AliveWorker]) -> set[tuple[str, str]]:
    """Return the models and the names of the queues that workers serve."""
    return {(without_tag(each.queue_model), name) for each in workers if each.status != SILENT for name in each.queues}


def _memory(seen: Overview) -> Iterator[Incident]:
    used, most = seen.totals.memory, seen.totals.max_memory
    if used and most and used > most * NEARLY_FULL:
        text = f"Redis is nearly full: {used / most:.0%} of its memory is used."
        facts = [Fact("Used", f"{size_text(used)} of {size_text(most)}")]
        numbers = {"used_bytes": used, "max_bytes": most}
        yield Incident("memory", ERROR, text.rstrip("."), text, numbers=numbers, facts=facts)


def _workers(seen: Glance, states: Sequence[QueueState], served: Served) -> Iterator[Incident]:
    silent = silences(seen.overview.workers)
    waiting = {(without_tag(state.model), state.name) for state in states if state.waiting and not state.is_paused}
    for worker in seen.overview.workers:
        if said := silent.get(worker.pk):
            running = count_of(len(worker.running), "job")
            left = {(without_tag(worker.queue_model), name) for name in worker.queues} & waiting - served
            jobs = f", {running} with it" if worker.running else ""
            yield Incident(
                "worker_silent",
                ERROR if left else WARNING,
                f"The worker {one_line(worker.name)} is silent{jobs}",
                f"The worker {one_line(worker.name)} has been {said}.",
                queues=sorted(name for _, name in left),
                since=seen.at - timedelta(seconds=worker.silent_for),
                numbers={"running": len(worker.running), "silent_s": worker.silent_for},
                facts=[
                    Fact("Silent for", span(worker.silent_for)),
                    Fact("Running", count_of(len(worker.running), "job")),
                ],
            )


def _unread(seen: Overview) -> Iterator[Incident]:
    if seen.unread:
        text = f"Not looked at: {unread_text(seen.unread, MAX_SHOWN)}."
        yield Incident("unread", WARNING, "Not all of Redis may be read", text)
    if seen.foreign:
        keys = some_named(seen.foreign, MAX_SHOWN)
        text = f"Another program wrote to keys of this library: {keys}. What is in them is not shown."
        yield Incident("foreign", WARNING, "Not all of Redis can be read", text)


def _homes(seen: Overview) -> Iterator[Incident]:
    """Yield the queues with jobs in shards where no worker serves them at home. Others take those that wait only."""
    without: dict[str, list[int]] = {}
    for number, part in seen.parts.items():
        served = served_by(part.workers)
        for queue in by_name(part.queues):
            if queue.is_in_use and not is_board(queue.model) and (without_tag(queue.model), queue.name) not in served:
                without.setdefault(queue.name, []).append(number)
    for name, numbers in without.items():
        what = "delayed jobs, schedules and jobs of dead workers wait there"
        title = f"No worker of {one_line(name)} is at home in {_shown(numbers)}"
        yield Incident("no_home", ERROR, title, f"{title}: {what}.", [name], numbers={"shards": len(numbers)})


def _pauses(seen: Overview) -> Iterator[Incident]:
    """Yield the queues that are paused in some shards only, such as those that could be used then."""
    paused: dict[str, dict[int, bool]] = {}
    for number, part in seen.parts.items():
        for queue in part.queues:
            paused.setdefault(queue.name, {})[number] = queue.is_paused
    for name, by_shard in paused.items():
        numbers = [number for number, is_paused in by_shard.items() if is_paused]
        if numbers and len(numbers) < len(by_shard):
            title = f"{one_line(name)} is paused in {_shown(numbers)}, but not in the others"
            yield Incident("paused", WARNING, title, f"{title}.", [name], numbers={"shards": len(numbers)})


def _shown(shards: Sequence[int]) -> str:
    many = "…" if len(shards) > MAX_SHOWN else ""
    return f"shard{'s' * (len(shards) > 1)} {', '.join(map(str, shards[:MAX_SHOWN]))}{many}"


def _schedules(seen: Overview) -> Iterator[Incident]:
    if seen.late_schedules:
        number = seen.late_schedules
        what = "1 schedule is late" if number == 1 else f"{number:,} schedules are late, one"
        text = f"{what} by {span(seen.lateness)}"
        numbers = {"schedules": number, "lateness_s": seen.lateness}
        yield Incident("late_schedule", ERROR, text, f"{text}.", numbers=numbers)


def _waiting(seen: Glance, state: QueueState, served: Served, silent: Served) -> Iterator[Incident]:
    """Yield why the jobs of a queue wait, if they wait for long or no worker takes them."""
    if not state.waiting:
        return
    name, latency, is_of_board = one_line(state.name), state.latency, is_board(state.model)
    first = f"the first for {span(latency)}" if latency is not None else "it is not known for how long"
    jobs = "1 job waits" if state.waiting == 1 else f"{state.waiting:,} jobs wait"
    facts, numbers = [Fact("Waiting", count_of(state.waiting, "job"))], {"waiting": float(state.waiting)}
    if latency is not None:
        facts.append(Fact("Oldest", span(latency)))
        numbers["latency_s"] = latency
    since = None if latency is None else seen.at - timedelta(seconds=latency)
    waiting = f"{jobs} in {name}, {first}"
    told = Incident("waiting", ERROR, waiting, f"{waiting}.", [state.name], since, numbers=numbers, facts=facts)
    is_served = is_of_board or _is_served(state, served)
    if state.is_paused and not is_of_board:
        yield _paused(told, jobs, first, state, seen.pauses.get(state.name))
    elif not is_served and (without_tag(state.model), state.name) not in silent:
        title = f"No worker serves {name}, {jobs}"
        text, lost = f"{title}, {first}.", seen.lost.get(state.name)
        if lost:
            told, text = told._replace(facts=[*facts, _last_of(seen, lost)]), f"{text} {_last_of(seen, lost).text}."
        yield told._replace(code="unserved", title=title, text=text, remedy=start([state.name]))
    elif is_served and latency is not None and latency > LONG_WAIT and state.parked < state.waiting:
        remedy = None if is_of_board else start([state.name], "Start another worker")
        yield told._replace(text=f"{waiting}.{_busy(seen, state)}", remedy=remedy)


def _busy(seen: Glance, state: QueueState) -> str:
    """Say that no worker of a queue has a slot left, if so: it may run jobs of other queues, which come first."""
    key = without_tag(state.model), state.name
    alive = (each for each in seen.overview.workers if each.status != SILENT)
    found = [each for each in alive if key in {(without_tag(each.queue_model), name) for name in each.queues}]
    if not found or any(len(each.running) < each.slots for each in found):
        return ""
    return " Its worker has no slot left." if len(found) == 1 else f" Its {len(found):,} workers have no slot left."


def _paused(told: Incident, jobs: str, first: str, state: QueueState, pause: Pause | None) -> Incident:
    facts = [*told.facts, *([Fact("Paused by", one_line(pause.who))] if pause and pause.who else [])]
    name = one_line(state.name)
    return told._replace(
        code="paused",
        gravity=WARNING,
        title=f"{name} is paused, {jobs}",
        text=f"{name} is paused, {jobs}, {first}.",
        since=pause.at if pause else None,
        facts=facts,
        remedy=resume([state]),
    )


def _queue(state: QueueState, served: Served) -> Iterator[Incident]:
    """Yield what is wrong with the jobs that do not wait, and with entries that are no jobs."""
    name, queues = one_line(state.name), [state.name]
    if state.lapsed and not is_board(state.model):
        is_served = _is_served(state, served)
        jobs = "1 job" if state.running == 1 else f"{state.running:,} jobs"
        what = (
            "A worker puts such jobs back between two others"
            if is_served
            else "No worker is there to put such jobs back"
        )
        title = f"Of {jobs} recorded as running in {name}, the lease of {state.lapsed:,} ended"
        numbers, gravity = {"running": state.running, "lapsed": state.lapsed}, WARNING if is_served else ERROR
        helps = None if is_served else start(queues)
        yield Incident("lapsed", gravity, title, f"{title}. {what}.", queues, numbers=numbers, remedy=helps)
    if state.quarantine:
        entries = count_of(state.quarantine, "entry", "entries")
        title = f"{entries} in quarantine of {name}"
        text = f"{title}: no worker can do anything with {'it' if state.quarantine == 1 else 'them'}."
        yield Incident("quarantine", WARNING, title, text, queues, numbers={"entries": state.quarantine})
    yield from _unknown(state, name)


def _unknown(state: QueueState, name: str) -> Iterator[Incident]:
    """Yield the jobs whose class cannot be imported: by workers, or here. A job is in one of these sentences only."""
    unknown, queues = state.unknown_classes, [state.name]
    remedy = "a class that is not known here: name its module in --job-modules"
    if state.deferred:
        jobs = "1 job waits" if state.deferred == 1 else f"{state.deferred:,} jobs wait"
        text = f"In {name}, {jobs} for a worker that can import the class: none could yet. Workers try again and again."
        text += " Until one can, the queue counts such jobs as delayed, whatever their status."
        if unknown:
            text += f" Not known here: {', '.join(map(one_line, unknown[:MAX_SHOWN]))}."
        path = unknown[0] if len(unknown) == 1 else ""
        title, numbers = f"{jobs} in {name} for a worker that can import the class", {"deferred": state.deferred}
        yield Incident("deferred", WARNING, title, text, queues, job_class=path, numbers=numbers)
        return
    for path in unknown:
        title = f"In {name} are jobs of {one_line(path)}, {remedy.partition(':')[0]}"
        text = f"In {name} are jobs of {one_line(path)}, {remedy}."
        yield Incident("unknown_class", WARNING, title, text, queues, job_class=path)


def _is_served(state: QueueState, served: Served) -> bool:
    """Whether a worker serves a queue. Workers of version 2 are not seen, but by the jobs that they run."""
    return (without_tag(state.model), state.name) in served or state.running > state.lapsed
