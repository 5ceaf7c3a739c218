"""Queues whose tries fail, or failed lately: the causes, since when, and whether it has stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from limpyd_jobs.dates import parse_datetime, span
from limpyd_jobs.query.attention.evidence import Glance
from limpyd_jobs.query.attention.remedies import pause, requeue, resume
from limpyd_jobs.query.attention.spells import (
    MINUTE,
    Numbers,
    Spell,
    errors_of,
    numbers_of,
    spell_of,
    spell_of_all,
    spells_by_cause,
    without,
)
from limpyd_jobs.query.attention.values import ERROR, OVER, WARNING, Fact, Incident, Remedy
from limpyd_jobs.query.queues import QueueState
from limpyd_jobs.search.classes import is_board
from limpyd_jobs.search.errors import RecentError
from limpyd_jobs.texts import count_of, one_line

# In how many minutes those fail "now" that are the last ones.
MINUTES = 10

# Within which time after the first sight of a version of the application failures began with it; and how much earlier
# than that sight they may have been: workers write their metrics for some seconds before.
AFTER_VERSION, BEFORE_VERSION = timedelta(minutes=15), timedelta(minutes=1)


def failing(seen: Glance, states: Mapping[str, QueueState]) -> Iterator[Incident]:
    """Yield the queues whose tries fail, or failed and left jobs to requeue. The states of queues are by their name.

    What has stopped is an incident for each cause. All other failures of a queue are one."""
    if not seen.periods:
        return
    errors = errors_of(seen)
    for queue, numbers in numbers_of(seen).items():
        yield from _of_queue(_Queue(seen, queue, states.get(queue)), numbers, errors.get(queue, []))


def last_failure(seen: Glance) -> datetime | None:
    """Return when the last minute ended in which a try failed; None if there was none."""
    return max((period.start + MINUTE for period in seen.periods if period.total.failed), default=None)


def causes_that_go_on(seen: Glance) -> int:
    """Return by how many causes tries fail now, again and again, whether or not a retry helped each of their jobs."""
    numbers, found = numbers_of(seen), set[str]()
    for queue, errors in errors_of(seen).items() if numbers else ():
        spells = spells_by_cause(seen, numbers[queue], errors)
        found |= {cause for cause, each in spells.items() if each.goes_on(seen.at)}
    return len(found)


class _Queue(NamedTuple):
    seen: Glance
    name: str
    state: QueueState | None


def _of_queue(queue: _Queue, numbers: Numbers, errors: Sequence[RecentError]) -> Iterator[Incident]:
    by_cause, found = spells_by_cause(queue.seen, numbers, errors), list[Incident | None]()
    go_on = {cause: each for cause, each in by_cause.items() if each.goes_on(queue.seen.at)}
    if len({each.fingerprint for each in errors}) > 1:  # the only one has those whose cause is not known as well
        over = {cause: each for cause, each in by_cause.items() if each.spell.is_over}
        found += [_incident(queue, over[cause].spell, _by(errors, [cause])) for cause in over]
        errors, numbers = _by(errors, {each.fingerprint for each in errors} - {*over}), without(numbers, over.values())
    spell = spell_of(numbers)
    if go_on and (not spell or spell.is_over):
        spell = spell_of_all(numbers, go_on.values())
        found.append(_incident(queue, spell, _by(errors, go_on), is_rare=True))
    elif spell:
        found.append(_incident(queue, spell, errors))
    yield from filter(None, found)


def _by(errors: Sequence[RecentError], causes: Collection[str]) -> list[RecentError]:
    return [each for each in errors if each.fingerprint in causes]


class _Causes(NamedTuple):
    """The errors of a queue in a spell: the most frequent cause, and the jobs that are in error by it, and by all."""

    first: RecentError | None = None
    number: int = 0
    jobs: int = 0
    all_jobs: int = 0
    errors: int = 0
    paths: Sequence[str] = ()


def _causes(seen: Glance, errors: Sequence[RecentError], since: datetime) -> _Causes:
    known = [each for each in errors if (at := parse_datetime(each.date_time)) and at >= since]
    if not known:
        return _Causes()
    numbers = Counter(each.fingerprint for each in known)
    fingerprint = numbers.most_common(1)[0][0]
    last_of_job: dict[str, str] = {}
    for each in known:  # the newest first
        last_of_job.setdefault(each.ident, each.fingerprint)
    in_error = Counter(cause for ident, cause in last_of_job.items() if ident in seen.recent.in_error)
    first = next(each for each in known if each.fingerprint == fingerprint)
    paths = [*dict.fromkeys(each.path for each in known)]
    return _Causes(first, len(numbers), in_error[fingerprint], in_error.total(), len(known), paths)


def _incident(of: _Queue, spell: Spell, errors: Sequence[RecentError], *, is_rare: bool = False) -> Incident | None:
    """Return what is said of a spell; None if there is nothing to do. If failures are rare, but go on, nothing is said
    of those that a retry helped, and no queue is to be paused."""
    seen, queue, state = of
    since, ended = seen.periods[spell.first].start, seen.periods[spell.last].start + MINUTE
    causes = _causes(seen, errors, since)
    if causes.errors > spell.failed:  # workers write their metrics some seconds later than errors
        spell = spell._replace(began=max(spell.began, causes.errors + spell.succeeded), failed=causes.errors)
    is_failing = not spell.is_over and spell.last >= len(seen.periods) - MINUTES
    if (spell.is_over and not causes.jobs) or (is_rare and not causes.all_jobs):
        return None
    first = causes.first
    last = parse_datetime(first.date_time) if first else None
    numbers = {
        "began": spell.began,
        "succeeded": spell.succeeded,
        "failed": spell.failed,
        "succeeded_since": spell.since,
        "jobs": causes.all_jobs,
    }
    incident = Incident(
        code="failures",
        gravity=OVER if spell.is_over else ERROR if is_failing and not is_rare else WARNING,
        title=_title_if_rare(seen, queue, causes) if is_rare else _title(seen, queue, spell, causes),
        text=_text(seen, queue, spell, ended, is_failing),
        queues=[queue] if queue else [],
        since=since,
        is_older=spell.first == 0,
        last=last or ended,
        is_failing=is_failing,
        job_class=causes.paths[0] if len(causes.paths) == 1 else "",
        app_version=_began_with(seen, since) or (first.app_version if first else ""),
        ended_by=_ended_by(seen, ended) if spell.is_over else "",
        fingerprint=first.fingerprint if first else "",
        type=first.type if first else "",
        raised_in=first.raised_in if first else "",
        message=first.message if first else "",
        causes=causes.number,
        numbers=numbers,
    )
    incident = incident._replace(facts=[*_facts(seen, incident, spell, state)])
    return incident if is_rare else incident._replace(remedy=_remedy(seen, incident, spell, causes, state))


def _named(queue: str) -> str:
    return one_line(queue) if queue else "queues beyond the rows of metrics"


def _title(seen: Glance, queue: str, spell: Spell, causes: _Causes) -> str:
    """Return how many jobs failed; or, if not all errors were looked at, how many tries: all of these are counted,
    whatever other queues fail."""
    if not causes.all_jobs or (spell.failed and not seen.recent.is_exact):
        what = f"{spell.failed:,} of {count_of(spell.ended, 'try', 'tries')} of {_named(queue)} failed"
    else:
        at_least = "" if seen.recent.is_exact else "At least "
        what = f"{at_least}{count_of(causes.all_jobs, 'job')} of {_named(queue)} failed"
        if not (spell.succeeded or spell.is_over):
            what += ", and none succeeded"
    return f"{what}; that is over" if spell.is_over else what


def _title_if_rare(seen: Glance, queue: str, causes: _Causes) -> str:
    at_least, is_one = "" if seen.recent.is_exact else "at least ", causes.all_jobs == 1
    jobs = f"{at_least}{count_of(causes.all_jobs, 'job')} {'is' if is_one else 'are'} in error"
    return f"Some tries of {_named(queue)} still fail, {jobs}"


def _text(seen: Glance, queue: str, spell: Spell, ended: datetime, is_failing: bool) -> str:
    failed, name = count_of(spell.failed, "try", "tries"), _named(queue)
    if spell.is_over:
        since = count_of(spell.since, "try has", "tries have")
        return f"{failed} of {name} failed, the last {_ago(seen, ended)}; {since} succeeded since."
    if is_failing:
        minutes = "minute" if spell.minutes == 1 else f"{spell.minutes} minutes"
        return f"{spell.failed:,} of {count_of(spell.ended, 'try', 'tries')} of {name} failed in the last {minutes}."
    return (
        f"{failed} of {name} failed, the last {_ago(seen, ended)}; too few ended since to say whether they still fail."
    )


def _ago(seen: Glance, moment: datetime) -> str:
    return f"{span(max((seen.at - moment).total_seconds(), 0.0))} ago"


def _began_with(seen: Glance, since: datetime) -> str:
    """Return the version of the application that was first seen shortly before; empty if none was."""
    before = (each for each in reversed(seen.versions) if each.first_seen <= since + BEFORE_VERSION)
    version = next(before, None)
    return version.version if version and version.first_seen >= since - AFTER_VERSION else ""


def _ended_by(seen: Glance, ended: datetime) -> str:
    """Return the version that was first seen about when the failures ended, or later; empty if none was."""
    after = (each for each in seen.versions if ended - 2 * MINUTE <= each.first_seen <= ended + AFTER_VERSION)
    version = next(after, None)
    return version.version if version else ""


def _facts(seen: Glance, incident: Incident, spell: Spell, state: QueueState | None) -> Iterator[Fact]:
    if incident.ended_by:
        yield Fact("Over since", incident.ended_by)
    elif (version := _began_with(seen, incident.since)) if incident.since else "":
        yield Fact("Began with", one_line(version))
    elif incident.app_version:
        yield Fact("Version", one_line(incident.app_version))
    failed = "all" if spell.failed == spell.ended else f"{spell.failed:,} of"
    yield Fact("Tries", f"{failed} {spell.ended:,} failed")
    if incident.causes:
        function = incident.raised_in.partition(", in ")[2].partition(":")[0]
        place = f", in {one_line(function)}" if function else ""
        yield Fact("Cause" if incident.causes == 1 else "Causes", f"{incident.causes:,}{place}")
    if state and state.waiting:
        first = f", {span(state.latency)}" if state.latency is not None else ""
        yield Fact("Waiting behind", f"{count_of(state.waiting, 'job')}{first}")


def _remedy(seen: Glance, incident: Incident, spell: Spell, causes: _Causes, state: QueueState | None) -> Remedy | None:
    """Return what helps now: to pause what fails, to requeue what is left of what has stopped to fail."""
    if spell.is_over:
        note = f"none of the last {spell.since:,} failed"
        return requeue(incident.queues, incident.fingerprint, causes.jobs, is_exact=seen.recent.is_exact, note=note)
    if state and state.is_paused:
        return resume([state], "once it is repaired")
    if incident.is_failing and state and not is_board(state.model):
        return pause([state])
    return None
