"""What several shards have, as if it was one database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import reduce
from itertools import chain
from typing import TypeVar

from limpyd_jobs.query.attention.evidence import Glance, RecentErrors
from limpyd_jobs.query.backlog import Load
from limpyd_jobs.query.metrics import Period, added_up, summed
from limpyd_jobs.query.overview import Overview, Totals
from limpyd_jobs.query.queues import QueueState, rank, together
from limpyd_jobs.query.series import Levels
from limpyd_jobs.records.app_versions import AppVersion
from limpyd_jobs.redis.cluster.tags import without_tag
from limpyd_jobs.search.causes import EXAMPLES, ErrorGroup, ErrorGroups, ErrorMessage
from limpyd_jobs.search.found import Count, Page
from limpyd_jobs.statuses import STATUSES

T = TypeVar("T")


def overview_of_all(found: Mapping[int, Overview]) -> Overview:
    """Return several databases at a glance. The memory is that of the fullest server."""
    each = [*found.values()]
    totals = [seen.totals for seen in each]
    fullest = max(totals, key=lambda it: ((it.memory or 0) / it.max_memory if it.max_memory else 0, it.memory or 0))
    queues = states_of_all({number: seen.queues for number, seen in found.items()})
    numbers = ("jobs", *map(str.lower, STATUSES), "quarantine")
    sums = {name: sum(getattr(it, name) for it in totals) for name in numbers}
    latency = max((it.latency for it in totals if it.latency is not None), default=None)
    names = f"{each[0].database} … {each[-1].database}" if len(each) > 1 else each[0].database
    return Overview(
        database=f"{len(each):,} shard{'s' * (len(each) > 1)}, {names}",
        totals=Totals(**sums, latency=latency, memory=fullest.memory, max_memory=fullest.max_memory),
        queues=queues,
        workers=[worker for seen in each for worker in seen.workers],
        running=[job for seen in each for job in seen.running],
        lapsed=frozenset(),
        lateness=max(seen.lateness for seen in each),
        late_schedules=sum(seen.late_schedules for seen in each),
        unread=sorted({without_tag(name) for seen in each for name in seen.unread}),
        foreign=sorted({text for seen in each for text in seen.foreign}),
        parts=found,
    )


def states_of_all(found: Mapping[int, Iterable[QueueState]]) -> list[QueueState]:
    """Return the queues of several databases, as one for each model, name and priority."""
    same: dict[tuple[str, str, int | str], list[QueueState]] = {}
    for state in chain.from_iterable(found.values()):
        model = without_tag(state.model)  # the shards of a cluster have one each
        same.setdefault((model, state.name, state.priority), []).append(state._replace(model=model))
    return sorted((reduce(together, states) for states in same.values()), key=rank)


def periods_of_all(found: Mapping[int, Iterable[Period]]) -> list[Period]:
    """Return the metrics of several databases, as if they were one."""
    same: dict[datetime, list[Period]] = {}
    for period in chain.from_iterable(found.values()):
        same.setdefault(period.start, []).append(period)
    return [
        Period(start, summed(periods, lambda *names: names), added_up(each.added for each in periods))
        for start, periods in sorted(same.items())
    ]


def levels_of_all(found: Mapping[int, Levels]) -> Levels:
    """Return the levels of several databases, as if they were one: of each minute, what is known."""
    same: dict[datetime, list[tuple[int | None, int | None]]] = {}
    for levels in found.values():
        for start, *level in zip(levels.starts, levels.waiting, levels.running, strict=True):
            same.setdefault(start, []).append((level[0], level[1]))
    starts = sorted(same)
    waiting, running = ([_sum_of_known(level[at] for level in same[start]) for start in starts] for at in (0, 1))
    return Levels(starts, waiting, running, any(levels.is_cut for levels in found.values()))


def _sum_of_known(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def glance_of_all(found: Mapping[int, Glance]) -> Glance:
    """Return several databases at a glance, with what incidents are found by."""
    each = [*found.values()]
    errors = sorted((error for it in each for error in it.recent.errors), key=lambda it: it.date_time, reverse=True)
    in_error = frozenset[str]().union(*(it.recent.in_error for it in each))
    versions: dict[str, AppVersion] = {}
    for version in sorted((version for it in each for version in it.versions), key=lambda it: it.first_seen):
        versions.setdefault(version.version, version)
    return Glance(
        overview_of_all({number: it.overview for number, it in found.items()}),
        periods_of_all({number: it.periods for number, it in found.items()}),
        RecentErrors(errors, in_error, all(it.recent.is_exact for it in each)),
        {name: pause for it in each for name, pause in it.pauses.items()},
        [*versions.values()],
        max(it.at for it in each),
        sorted((key for it in each for key in it.limits), key=lambda key: (-(key.waited or 0), key.label)),
        _sum_of(it.waited_before for it in each),
        {name: worker for it in each for name, worker in it.lost.items()},
    )


def _sum_of(found: Iterable[Mapping[str, int]]) -> Counter[str]:
    numbers = Counter[str]()
    for each in found:
        numbers.update(each)
    return numbers


def load_of_all(found: Mapping[int, Load]) -> Load:
    """Return the load of several databases. A queue is paused if it is in all of them."""
    each = [*found.values()]
    states, due = [state for load in each for state in load.states], Counter[str]()
    for load in each:
        due.update(load.due)
    served = {(without_tag(state.model), state.name) for state in states if not state.is_paused}
    states = [it._replace(is_paused=it.is_paused and (without_tag(it.model), it.name) not in served) for it in states]
    return Load(each[0].names, states, due, periods_of_all({number: load.periods for number, load in found.items()}))


def groups_of_all(found: Iterable[ErrorGroups], most: int) -> ErrorGroups:
    """Return the errors of several databases by their cause. What is in no group of one of them is in none."""
    each, same = [*found], dict[str, list[ErrorGroup]]()
    for group in (group for groups in each for group in groups.groups):
        same.setdefault(group.fingerprint, []).append(group)
    groups = sorted(map(_one_group, same.values()), key=lambda group: (-group.number, group.fingerprint))
    others = sum(it.others for it in each) + sum(group.number for group in groups[most:])
    looked, size = sum(it.looked for it in each), sum(it.size for it in each)
    return ErrorGroups(groups[:most], others, all(it.is_exact for it in each), looked, size)


def _one_group(groups: Sequence[ErrorGroup]) -> ErrorGroup:
    if len(groups) == 1:
        return groups[0]
    messages = _one_list([message for group in groups for message in group.messages])
    counts = [group.message_count for group in groups]
    has_all = all(len(it.messages) == it.message_count.number and it.message_count.is_exact for it in groups)
    return max(groups, key=lambda group: group.last_seen)._replace(
        number=sum(group.number for group in groups),
        first_seen=min(group.first_seen for group in groups),
        message=f"{messages[0]}" if messages else "",
        job_classes=_summed(group.job_classes for group in groups),
        queues=_summed(group.queues for group in groups),
        app_versions=_summed(group.app_versions for group in groups),
        messages=messages,
        message_count=Count(max(len(messages), *(count.number for count in counts)), has_all),
        trend=[sum(numbers) for numbers in zip(*(group.trend for group in groups), strict=True)],
    )


def _one_list(messages: Sequence[ErrorMessage]) -> list[ErrorMessage]:
    same: dict[str, ErrorMessage] = {}
    for each in messages:
        before = same.get(each.pattern, ErrorMessage(each.pattern, 0, []))
        examples = [*dict.fromkeys([*before.examples, *each.examples])][:EXAMPLES]
        same[each.pattern] = ErrorMessage(each.pattern, before.number + each.number, examples)
    return sorted(same.values(), key=lambda each: (-each.number, each.pattern))


def _summed(numbers: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for each in numbers:
        total.update(each)
    return dict(total.most_common())


def page_of_all(
    pages: Mapping[int, Page[T]], most: int, date: Callable[[T], str | None], *, newest_first: bool = True
) -> tuple[Page[T], list[int]]:
    """Return the first records by their dates, and the number of the shard of each. After those of several shards no
    page follows: `following` only tells that there are more."""
    if len(pages) == 1:
        [(number, page)] = pages.items()
        return page, [number] * len(page.found)
    rows = [(each, number) for number, page in pages.items() for each in page.found]
    rows.sort(key=lambda row: date(row[0]) or "", reverse=newest_first)
    is_more = len(rows) > most or any(page.following for page in pages.values())
    is_complete = all(page.is_complete for page in pages.values())
    found = [each for each, _ in rows[:most]]
    return Page(found, "more" if is_more else None, is_complete), [number for _, number in rows[:most]]
