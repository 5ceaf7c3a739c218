"""Spells: the time in which tries of a queue failed, in all or by one cause, and whether that has stopped."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from limpyd_jobs.dates import parse_datetime
from limpyd_jobs.query.attention.evidence import FAILS_FOR, Glance
from limpyd_jobs.search.errors import RecentError

# From which part of the tries on, and from how many, failures are worth a sentence.
MANY_FAILURES, SOME_FAILURES = 0.1, 3

# Failures have stopped if so many times the tries succeeded since that there were for each failure: if each had failed
# as before, none of them would have in one case of twenty.
SURELY = 3

# How many causes of a queue have a spell of their own: the most frequent ones.
MAX_CAUSES = 5

MINUTE = timedelta(minutes=1)

# How many tries of a queue began, succeeded and failed in each minute.
Numbers = Sequence[tuple[int, int, int]]


class Spell(NamedTuple):
    """The minutes in which tries failed, one after the other, with fewer successes in between than would tell."""

    first: int  # the positions of the periods
    last: int
    began: int
    succeeded: int
    failed: int
    since: int  # how many succeeded since
    minutes: int  # up to now
    is_over: bool

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed


class CauseSpell(NamedTuple):
    """All of the time in which a cause made tries of a queue fail, and whether it still does."""

    spell: Spell
    numbers: Numbers  # with the failures by the cause only
    last: datetime  # when the last one was

    def goes_on(self, at: datetime) -> bool:
        """Whether tries fail by it now, as far as one can say."""
        return not self.spell.is_over and at - self.last < FAILS_FOR


def errors_of(seen: Glance) -> dict[str, list[RecentError]]:
    """Return the last errors of each queue, the newest first."""
    found: defaultdict[str, list[RecentError]] = defaultdict(list)
    for each in seen.recent.errors:
        found[each.queue].append(each)
    return found


def numbers_of(seen: Glance) -> dict[str, Numbers]:
    """Return how many tries of each queue began, succeeded and failed in each period. The name of a queue is empty if
    there is no row for it. Of one that no worker counted, the errors are."""
    found: dict[str, list[tuple[int, int, int]]] = {}
    nothing = [(0, 0, 0)] * len(seen.periods)
    for at, period in enumerate(seen.periods):
        for queue, each in period.by_queue.items():
            numbers = found.setdefault(queue, nothing.copy())
            began, succeeded, failed = numbers[at]
            numbers[at] = began + each.started, succeeded + each.succeeded, failed + each.failed
    for queue, errors in errors_of(seen).items():
        if seen.periods and queue not in found:
            failed_at = Counter(at for _, at in _places(seen, errors))
            found[queue] = [(failed_at[at], 0, failed_at[at]) for at in range(len(seen.periods))]
    return {**found}


def _places(seen: Glance, errors: Iterable[RecentError]) -> Iterator[tuple[RecentError, int]]:
    """Yield the position of the period of each error that has one."""
    places = {period.start: at for at, period in enumerate(seen.periods)}
    for each in errors:
        date = parse_datetime(each.date_time)
        at = places.get(date.replace(second=0, microsecond=0)) if date else None
        if at is not None:
            yield each, at


def spell_of(numbers: Numbers) -> Spell | None:
    """Return the last spell in which many tries failed; None if there is none."""
    bad = [
        at
        for at, (_, succeeded, failed) in enumerate(numbers)
        if failed and failed >= (succeeded + failed) * MANY_FAILURES
    ]
    while bad:
        spell = _last_spell(numbers, bad)
        if spell.failed >= SOME_FAILURES and spell.failed >= spell.ended * MANY_FAILURES:
            return spell
        bad = [at for at in bad if at < spell.first]
    return None


def spells_by_cause(seen: Glance, numbers: Numbers, errors: Sequence[RecentError]) -> dict[str, CauseSpell]:
    """Return the spells of the most frequent causes of a queue, given its last errors, the newest first."""
    failed: dict[str, Counter[int]] = {}
    last: dict[str, datetime | None] = {}
    for each, at in _places(seen, errors):
        failed.setdefault(each.fingerprint, Counter())[at] += 1
        last.setdefault(each.fingerprint, parse_datetime(each.date_time))
    in_all = Counter[int]()
    for numbers_at in failed.values():
        in_all.update(numbers_at)
    causes = sorted(failed, key=lambda it: -failed[it].total())[:MAX_CAUSES]
    mine = {cause: _of_cause(numbers, _shares(numbers, failed[cause], in_all, len(failed) == 1)) for cause in causes}
    spells = {cause: CauseSpell(_whole(each), each, last[cause] or seen.at) for cause, each in mine.items()}
    return {cause: each for cause, each in spells.items() if each.spell.failed >= SOME_FAILURES}


def without(numbers: Numbers, causes: Iterable[CauseSpell]) -> Numbers:
    """Return the numbers of a queue without the failures by some causes."""
    mine = _failed_by(causes)
    return [
        (max(began - mine[at], 0), succeeded, max(failed - mine[at], 0))
        for at, (began, succeeded, failed) in enumerate(numbers)
    ]


def spell_of_all(numbers: Numbers, causes: Iterable[CauseSpell]) -> Spell:
    """Return all of the time in which some causes, one at least, made tries of a queue fail."""
    return _whole(_of_cause(numbers, _failed_by(causes)))


def _failed_by(causes: Iterable[CauseSpell]) -> Counter[int]:
    found = Counter[int]()
    for each in causes:
        found.update({at: failed for at, (_, _, failed) in enumerate(each.numbers) if failed})
    return found


def _shares(numbers: Numbers, failed: Counter[int], in_all: Counter[int], is_only_one: bool) -> Mapping[int, int]:
    """Return how many tries failed by a cause in each minute. Of more failures than there are errors known, each cause
    has its part; the only one that is known has all."""
    if is_only_one:
        return {at: max(failed[at], counted) for at, (_, _, counted) in enumerate(numbers) if counted or failed[at]}
    return {at: max(number, round(number * numbers[at][2] / in_all[at])) for at, number in failed.items()}


def _of_cause(numbers: Numbers, shares: Mapping[int, int]) -> Numbers:
    return [
        (max(began, succeeded + shares.get(at, 0)), succeeded, shares.get(at, 0))
        for at, (began, succeeded, _) in enumerate(numbers)
    ]


def _whole(numbers: Numbers) -> Spell:
    """Return a spell from the first failure to the last, which is over if the last of its parts is."""
    bad = [at for at, (_, _, failed) in enumerate(numbers) if failed]
    return _between(numbers, bad[0], bad[-1])._replace(is_over=_last_spell(numbers, bad).is_over)


def _last_spell(numbers: Numbers, bad: Sequence[int]) -> Spell:
    """Return the spell that ends with the last of some bad minutes."""

    def total(which: int, first: int, last: int) -> int:
        return sum(each[which] for each in numbers[first : last + 1])

    first = last = bad[-1]
    for at in reversed(bad[:-1]):
        succeeded, failed = total(1, first, last), total(2, first, last)
        if total(1, at + 1, first - 1) >= _enough(failed, succeeded + failed):
            break
        first = at
    return _between(numbers, first, last)


def _between(numbers: Numbers, first: int, last: int) -> Spell:
    began, succeeded, failed = (sum(each[which] for each in numbers[first : last + 1]) for which in range(3))
    since = sum(each[1] for each in numbers[last + 1 :])
    is_over = since >= _enough(failed, succeeded + failed)
    return Spell(first, last, began, succeeded, failed, since, len(numbers) - first, is_over)


def _enough(failed: int, ended: int) -> float:
    """Return how many successes tell that failures have stopped."""
    return SURELY * ended / max(failed, 1)
