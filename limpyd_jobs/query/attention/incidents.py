"""What needs attention first: all incidents, many of a kind as one, the worst first; and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from limpyd_jobs.models.presence import SILENT
from limpyd_jobs.query.attention import failing, remedies
from limpyd_jobs.query.attention.conditions import by_name, conditions, served_by
from limpyd_jobs.query.attention.evidence import Glance
from limpyd_jobs.query.attention.values import GRAVITIES, OVER, WARNING, Fact, Incident, Verdict
from limpyd_jobs.query.queues import QueueState
from limpyd_jobs.texts import count_of, one_line

# From how many on those of a kind become one; failures of one cause, and queues whose worker died, from two on.
MANY, TWO_ARE_MANY = 3, ("failures", "worker_lost")

# How many names a sentence has at most.
MAX_NAMES = 3

# The codes, the worst first, of one gravity.
_CODES = (
    *("memory", "failures", "unserved", "no_home", "lapsed", "late_schedule", "waiting"),
    *("worker_silent", "worker_lost", "paused", "quarantine", "deferred", "unread", "foreign", "unknown_class"),
    *("limit_stuck", "limit_waits"),
)

# What is added up, by which those of a kind are sorted, the worst first.
_WEIGHTS = ("jobs", "failed", "waiting", "lapsed", "entries", "deferred", "running")

# What is said of many of a kind.
_TITLES = {
    "unserved": "No worker serves {queues}, {waiting}",
    "worker_lost": "No worker serves {queues}, whose last one died",
    "paused": "{queues} are paused, {waiting}",
    "waiting": "{waiting} in {queues}",
    "lapsed": "The leases of {lapsed} ended in {queues}",
    "quarantine": "{entries} in quarantine of {queues}",
    "deferred": "{deferred} in {queues} for a worker that can import the class",
    "no_home": "No worker of {queues} is at home in all shards",
    "unknown_class": "In {queues} are jobs of classes that are not known here",
}

# What is not added up of many of a kind, but the greatest of.
_TIMES = ("latency_s", "silent_s", "lateness_s")


def attention(seen: Glance) -> list[Incident]:
    """Return what needs attention in a database, the worst first, as it was when it was looked at.

    All queues are looked at. Three or more of a kind are one incident, and so are failures of one cause.
    """
    states = by_name(seen.overview.queues)
    fails = [*failing.failing(seen, {state.name: state for state in states})]
    failing_now = {name for each in fails if each.gravity != OVER for name in each.queues}
    return sorted(_merged(seen, states, [*fails, *conditions(seen, states, failing_now)]), key=_rank)


def verdict(seen: Glance, incidents: Sequence[Incident]) -> Verdict:
    """Return how a database is, in a few words, given its incidents."""
    problems = [each for each in incidents if each.gravity != OVER]
    bad = {name for each in problems for name in each.queues}
    names, workers = {state.name for state in seen.overview.queues}, seen.overview.workers
    queues_well, workers_well = len(names - bad), sum(each.status != SILENT for each in workers)
    text = f"{_part(queues_well, len(names), 'queue')} and {_part(workers_well, len(workers), 'worker')} are well."
    go_on = 0 if problems else failing.causes_that_go_on(seen)
    if go_on:
        by = "it" if go_on == 1 else "them"
        text = f"Tries still fail by {count_of(go_on, 'cause')}, but no job is in error by {by}."
    return Verdict(
        title=count_of(len(problems), "problem") if problems else "Some tries fail" if go_on else "All well",
        text=text,
        gravity=problems[0].gravity if problems else WARNING if go_on else OVER,
        problems=len(problems),
        since=problems[0].since if problems else failing.last_failure(seen),
        queues=len(names),
        queues_well=queues_well,
        workers=len(workers),
        workers_well=workers_well,
    )


def _part(number: int, of: int, what: str) -> str:
    return count_of(of, what) if number == of else f"{number:,} of {count_of(of, what)}"


def _rank(incident: Incident) -> tuple[int, int, float, Sequence[str]]:
    weight = next((incident.numbers[name] for name in _WEIGHTS if name in incident.numbers), 0.0)
    return GRAVITIES.index(incident.gravity), _CODES.index(incident.code), -weight, incident.queues


def _merged(seen: Glance, states: Sequence[QueueState], found: Iterable[Incident]) -> Iterator[Incident]:
    """Yield one for many of a kind."""
    kinds: dict[tuple[str, ...], list[Incident]] = {}
    for each in found:
        kinds.setdefault(_kind(each), []).append(each)
    for (code, *_), some in kinds.items():
        if code == "unserved" and _no_worker_runs(seen, states):
            yield _no_worker(some)
        elif len(some) < (2 if code in TWO_ARE_MANY else MANY):
            yield from some
        else:
            yield _together(some)


def _kind(each: Incident) -> tuple[str, ...]:
    """Return what those that become one have in common."""
    if each.code == "failures":  # those without a cause stay apart
        return each.code, each.gravity, each.fingerprint or "/".join(each.queues), "" if each.fingerprint else "none"
    return each.code, each.gravity, *(("shards",) if "shards" in each.numbers else ())


def _no_worker_runs(seen: Glance, states: Iterable[QueueState]) -> bool:
    """Whether no worker is there at all: workers of version 2 are seen by the jobs that they run."""
    return not served_by(seen.overview.workers) and not any(state.running > state.lapsed for state in states)


def _no_worker(some: Sequence[Incident]) -> Incident:
    whole = _together(some)
    jobs = _waiting(int(whole.numbers["waiting"]))
    text = f"No worker is running: {jobs} in {_named(whole.queues)}."
    if len(some) == 1:
        text = some[0].text
    return whole._replace(title=f"No worker is running: {jobs}", text=text)


def _together(some: Sequence[Incident]) -> Incident:
    if len(some) == 1:
        return some[0]
    some = sorted(some, key=_rank)
    first, numbers = some[0], _numbers(some)
    queues = [*dict.fromkeys(name for each in some for name in each.queues)]
    given = [each.remedy for each in some if each.remedy]
    remedy = remedies.of_all(given, queues) if len(given) == len(some) else None
    if given and given[0].verb == "start":
        remedy = remedies.start(queues, given[0].label)
    whole = first._replace(
        queues=queues,
        since=min((each.since for each in some if each.since), default=None),
        is_older=any(each.is_older for each in some),
        last=max((each.last for each in some if each.last), default=None),
        job_class=_if_one(each.job_class for each in some),
        app_version=_if_one(each.app_version for each in some),
        ended_by=_if_one(each.ended_by for each in some),
        numbers=numbers,
        facts=[Fact("Queues", _named(queues)), *(first.facts[:1] if first.code == "failures" else ())],
        remedy=remedy,
    )
    title = _title(whole, some)
    return whole._replace(title=title, text=f"{title}: {_named(whole.queues)}." if len(queues) > 1 else f"{title}.")


def _numbers(some: Sequence[Incident]) -> dict[str, float]:
    names = dict.fromkeys(name for each in some for name in each.numbers)
    values = {name: [each.numbers[name] for each in some if name in each.numbers] for name in names}
    return {name: max(them) if name in _TIMES else sum(them) for name, them in values.items()}


def _title(whole: Incident, some: Sequence[Incident]) -> str:
    numbers, number = whole.numbers, len(whole.queues)
    if whole.code == "worker_silent":
        jobs = int(numbers.get("running", 0))
        return f"{len(some):,} workers are silent" + (f", {count_of(jobs, 'job')} with them" if jobs else "")
    if whole.code == "failures":
        jobs, failed = int(numbers["jobs"]), int(numbers["failed"])
        what = count_of(jobs, "job") if jobs else count_of(failed, "try", "tries")
        rest = "" if numbers["succeeded"] or whole.gravity == OVER else ", and none succeeded"
        return f"{what} of {number:,} queues failed{'; that is over' if whole.gravity == OVER else rest}"
    queues = count_of(number, "queue")
    return _TITLES[whole.code].format(
        queues=queues,
        waiting=_waiting(int(numbers.get("waiting", 0))),
        lapsed=count_of(int(numbers.get("lapsed", 0)), "job"),
        entries=count_of(int(numbers.get("entries", 0)), "entry", "entries"),
        deferred=_waiting(int(numbers.get("deferred", 0))),
    )


def _waiting(number: int) -> str:
    return "1 job waits" if number == 1 else f"{number:,} jobs wait"


def _named(names: Sequence[str]) -> str:
    """Return some names as a part of a sentence: ``mails, pages and 3 others``."""
    shown = [one_line(name) for name in names[:MAX_NAMES]]
    left = len(names) - len(shown)
    if left:
        return f"{', '.join(shown)} and {count_of(left, 'other')}"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _if_one(values: Iterable[str]) -> str:
    found = {*values}
    return found.pop() if len(found) == 1 else ""
