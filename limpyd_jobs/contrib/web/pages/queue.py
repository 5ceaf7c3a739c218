"""A page for each queue, and for each class of jobs: what is wrong, waits, was run and fails, and who serves it."""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import NamedTuple

from limpyd_jobs.contrib.web.pages.flows import shown_flows
from limpyd_jobs.contrib.web.pages.limits import shown_limits
from limpyd_jobs.contrib.web.pages.overview import span_of
from limpyd_jobs.contrib.web.pictures.lanes import Choice, Now, Strip, steps_of, strip_of
from limpyd_jobs.contrib.web.pictures.looks import HOUR
from limpyd_jobs.contrib.web.protocol import Asked, Page, Times
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.integration import Ident, parse_datetime
from limpyd_jobs.query import (
    Count,
    ErrorFilter,
    ErrorGroup,
    Facets,
    FoundJob,
    Glance,
    Incident,
    JobFilter,
    Levels,
    ScheduleState,
    attention,
    lately,
    schedules,
    summed,
)
from limpyd_jobs.views import FlowSummary, LimitRow, QueueRow, ShownWorker, queue_rows, shown_workers

# How many causes, jobs, workers, schedules and classes are on the page.
MAX_CAUSES, MAX_JOBS, MAX_WORKERS, MAX_FEEDING = 5, 8, 12, 20

# For how long it looks at errors, and at jobs; at how many jobs for their age; and, without time for all, at how many
# entries of the list of errors.
TIMES, TIMEOUT, MAX_AGES, MAX_LISTED = Times(0.08, 0.2), 0.2, 500, 2_000

# The bounds of the ages by which waiting jobs are counted, in seconds.
AGES = (1, 10, 60, 300, 3600, 86400)


# From when on, in seconds since the epoch, a job is delayed that waits for others without a limit.
ENDLESS = datetime(9999, 12, 31, tzinfo=timezone.utc).timestamp()


class Ages(NamedTuple):
    """How many jobs have waited for how long, the shortest first, of the oldest ones that were looked at."""

    rows: Sequence[tuple[str, int]]
    looked: int


class Feeder(NamedTuple):
    """A class of jobs that run in a queue, or a queue in which those of a class run, and how many tries began in
    the last hour."""

    name: str
    began: int


@dataclass(frozen=True)
class QueueShown:
    """A queue, with all its priorities.

    `ended` is how many tries ended a minute, and `come` about how many jobs came: how many began, and by how many more
    wait. It is None if it is not known how many waited.
    """

    name: str
    queue: QueueRow
    incidents: Sequence[Incident]
    next_due: float | None
    in_error: Count
    ended: float
    come: float | None
    strip: Strip
    causes: Sequence[ErrorGroup]
    causes_are_exact: bool
    oldest: Sequence[FoundJob]
    ages: Ages
    workers: Sequence[ShownWorker]
    others: int
    feeding: Sequence[Feeder]
    schedules: Sequence[ScheduleState]
    limits: Sequence[LimitRow]
    flows: Sequence[FlowSummary]
    names: Sequence[str]
    at: datetime

    @property
    def of_errors(self) -> str:
        """The filter that finds its jobs in error."""
        return shlex.join([f"queue={self.name}", "status=error"])


@dataclass(frozen=True)
class ClassShown:
    """A class of jobs: how many are in each state, what was run of it, in which queues, and what failed."""

    name: str
    numbers: Mapping[str, int]
    is_exact: bool
    strip: Strip
    causes: Sequence[ErrorGroup]
    causes_are_exact: bool
    queues: Sequence[Feeder]
    schedules: Sequence[ScheduleState]
    incidents: Sequence[Incident]
    limits: Sequence[LimitRow]
    flows: Sequence[FlowSummary]
    at: datetime


def show(asked: Asked) -> QueueShown:
    name, span = asked.query.one("name"), span_of(asked)
    glanced, _ = asked.looks.glance()
    found = attention(glanced)
    row = next((each for each in queue_rows(glanced, found) if each.name == name), None)
    if row is None:
        raise Refusal(404, f"There is no queue {name}")
    incidents = [each for each in found if name in each.queues]
    errors = _causes(asked, f"queue={name}")
    waiting = asked.find(("oldest", name), partial(_oldest, asked, name))
    feeding = _rates(glanced, Choice(queue=name), 1)
    workers = [each for each in shown_workers(glanced.overview.workers) if name in each.queues]
    due = [state.next_due for state in row.priorities if state.next_due is not None and state.next_due < ENDLESS]
    levels = asked.looks.levels(span, name)
    strip = strip_of(
        span,
        asked.looks.periods(glanced, span),
        glanced,
        Now(row.waiting, row.running, row.slots, levels),
        of=Choice(queue=name),
        fails=any(each.is_failing for each in incidents),
    )
    return QueueShown(
        name=name,
        queue=row,
        incidents=incidents,
        next_due=min(due, default=None),
        in_error=asked.find_soon(
            ("in error", name), partial(_in_error, asked, name), TIMES, lambda count: count.is_exact
        ),
        ended=row.ended,
        come=_come(glanced, row, levels if span == HOUR else asked.looks.levels(HOUR, name)),
        strip=strip,
        causes=errors[0],
        causes_are_exact=errors[1],
        oldest=[_masked(asked, job) for job in waiting[:MAX_JOBS]],
        ages=_ages(waiting, glanced.at),
        workers=workers[:MAX_WORKERS],
        others=len(workers[MAX_WORKERS:]),
        feeding=feeding,
        schedules=_schedules(asked, "queue", name),
        limits=shown_limits(asked, {each.name for each in feeding} | {Ident.of(each.ident).path for each in waiting}),
        flows=shown_flows(asked, lambda each: any(f"{it.model}:{it.pk}" in each.queues for it in row.priorities)),
        names=[each.name for each in glanced.overview.queues],
        at=datetime.now(timezone.utc),
    )


def show_class(asked: Asked) -> ClassShown:
    name, span = asked.query.one("name"), span_of(asked)
    glanced, _ = asked.looks.glance()
    facets, errors = _of_class(asked, name)
    incidents = [each for each in attention(glanced) if each.job_class == name]
    choice = Choice(job_class=name)
    periods = asked.looks.periods(glanced, span)
    fails = any(each.is_failing for each in incidents)
    return ClassShown(
        name=name,
        numbers=facets.counts,
        is_exact=facets.is_exact,
        strip=strip_of(span, periods, glanced, of=choice, fails=fails),
        causes=errors[0],
        causes_are_exact=errors[1],
        queues=_rates(glanced, choice, 0),
        schedules=_schedules(asked, "job", name),
        incidents=incidents,
        limits=shown_limits(asked, {name}),
        flows=shown_flows(asked, lambda each: name in each.classes),
        at=datetime.now(timezone.utc),
    )


def _of_class(asked: Asked, name: str) -> tuple[Facets, tuple[Sequence[ErrorGroup], bool]]:
    """Return how many jobs of a class are in each state, and their errors: none of a class that is not known here."""
    try:
        jobs = JobFilter(f"class={name}", database=asked.database)
        return jobs.facets("status", timeout=TIMEOUT), _causes(asked, f"class={name}")
    except ValueError:
        return Facets({}, 0, True), ((), True)


def _come(glanced: Glance, row: QueueRow, levels: Levels) -> float | None:
    """Return about how many jobs came a minute: those that began, and by how many more wait than did."""
    last = lately(glanced.periods, glanced.at)
    waited = dict(zip(levels.starts, levels.waiting, strict=True)).get(last.periods[0].start) if last.periods else None
    return None if waited is None else max(last.of(row.name).started + row.waiting - waited, 0) / last.minutes


def _oldest(asked: Asked, name: str) -> Sequence[FoundJob]:
    """Return the jobs of a queue that wait for longest: those at the front of its lists, if there are many."""
    jobs = JobFilter(queue=name, status="waiting", database=asked.database)
    few = jobs.listed(MAX_AGES, newest_first=False) or jobs
    return few.page(MAX_AGES, newest_first=False, timeout=TIMEOUT).found


def _in_error(asked: Asked, name: str, timeout: float) -> Count:
    """Count the jobs of a queue that are in error: all, or those that its list of errors got last."""
    jobs = JobFilter(queue=name, status="error", database=asked.database)
    count = jobs.count(timeout / 2)
    few = None if count.is_exact else jobs.listed(MAX_LISTED)
    return max(count, few.count(timeout)._replace(is_exact=False)) if few else count


def _causes(asked: Asked, condition: str) -> tuple[Sequence[ErrorGroup], bool]:
    errors = asked.masking.checked(ErrorFilter(condition, database=asked.database))
    look = partial(errors.groups, MAX_CAUSES, messages=1, mask=asked.masking.message)
    found = asked.find_soon(("causes", condition), look, TIMES, lambda some: some.is_exact)
    return found.groups, found.is_exact


def _masked(asked: Asked, job: FoundJob) -> FoundJob:
    return job._replace(identifier=asked.masking.identifier(job.identifier, job.ident))


def _ages(jobs: Sequence[FoundJob], now: datetime) -> Ages:
    numbers, looked = [0] * (len(AGES) + 1), 0
    for job in jobs:
        if added := parse_datetime(job.added):
            numbers[bisect_left(AGES, (now - added).total_seconds())] += 1
            looked += 1
    return Ages([*zip(steps_of(AGES), numbers, strict=True)], looked)


def _rates(glanced: Glance, choice: Choice, which: int) -> list[Feeder]:
    """Return the classes of a queue, or the queues of a class, with how many tries began in the last hour."""
    periods = glanced.periods
    rows = summed(periods, lambda *names: names[which] if choice.has(*names) else None)
    found = [Feeder(name, row.started) for name, row in rows.items() if name and row.started]
    return sorted(found, key=lambda each: (-each.began, each.name))[:MAX_FEEDING]


def _schedules(asked: Asked, field: str, name: str) -> list[ScheduleState]:
    found = schedules(most=1_000, timeout=TIMEOUT, database=asked.database).found
    some = [each for each in found if getattr(each, field) == name][:MAX_FEEDING]
    return [asked.masking.of(each.job or "").schedule(each) for each in some]


PAGE = Page("/queues/queue", "Queue", show, "queue.html", lane="jobs")
CLASS_PAGE = Page("/queues/class", "Class", show_class, "class.html", lane="jobs")
