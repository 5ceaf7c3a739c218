"""Errors by their cause: what failed, how often, since when; and the jobs of a cause, to be requeued."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Any

from limpyd_jobs.contrib.web.kept import KeptValue
from limpyd_jobs.contrib.web.pages.jobs import STOP, OfFilter, requeueing, words_of
from limpyd_jobs.contrib.web.pages.requeues import running
from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan, Times
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.rendering import address
from limpyd_jobs.contrib.web.tasks import OnStep
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.integration import parse_datetime, rate, time_span
from limpyd_jobs.query import (
    Count,
    ErrorFilter,
    ErrorGroup,
    ErrorGroups,
    FoundJob,
    JobFilter,
    fails_now,
    paused_queues,
)
from limpyd_jobs.views import Block, Change, Requeue, blocks_of, filter_of_failed, words_of_failed

HERE = "/errors"
CAUSE = "/errors/cause"

# How many causes are on the page, and how many messages of each; how many messages, and jobs, are on that of a cause.
PER_PAGE, MAX_PER_PAGE, MESSAGES, MAX_MESSAGES, MAX_JOBS = 50, 500, 3, 100, 20

# For how long a page looks at errors, and, for each of three questions, at jobs.
ERRORS_TIMES, JOBS_TIMES = Times(0.15, 0.6), Times(0.05, 0.3)

# How many bytes of a value of the last error are read.
MAX_READ = 1_000_000

# Of how many causes it is counted how many jobs are in error, and for how long together.
MAX_FAILED, FAILED_TIMES = 10, Times(0.1, 0.3)

# For how many seconds the type of a cause is looked for.
NAME_TIMEOUT = 0.5

# How many queues of a cause that fails are paused by one button.
MAX_PAUSING = 20

# How many versions of the application there are links to.
MAX_VERSIONS = 5

# For how many seconds a requeue that ended is shown with its cause.
SHOWN_FOR = 3600

_FINGERPRINT = re.compile(r"last_fingerprint=(\S+)")

# What a form has beside conditions.
OF_FORMS = ("fingerprint", "spread", "rate", "confirmed", "counted", "typed", STOP)


@dataclass(frozen=True)
class OfErrors(OfFilter):
    """What a filter of errors finds."""

    @property
    def unlike(self) -> Sequence[str]:
        """The conditions that jobs cannot be asked for: their jobs cannot be requeued all at once."""
        return words_of_failed(self.words)[1]


@dataclass(frozen=True)
class ErrorsShown(OfErrors):
    """Errors by their cause, the most frequent first.

    `words` are the conditions. `others` says how many errors have other causes. Without time for all `size` errors,
    `is_exact` is false, and the newest were looked at. `counted` says when, if that is kept from before.
    """

    groups: Sequence[ErrorGroup]
    others: int
    is_exact: bool
    looked: int
    size: int
    limit: int
    counted: datetime | None
    requeues: Mapping[str, Requeue] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)

    @property
    def chips(self) -> Sequence[tuple[str, str]]:
        """Each condition, and the filter without it."""
        return [(word, shlex.join(each for each in self.words if each != word)) for word in self.words]

    @property
    def causes(self) -> Sequence[Cause]:
        """The causes: those whose jobs are being requeued, then those that fail now, then those that are over."""
        found = [
            Cause(group, _fails_now(group), self.requeues.get(group.fingerprint), self.failed.get(group.fingerprint))
            for group in self.groups
        ]
        return sorted(found, key=lambda each: (each.requeue is None, not each.is_failing))

    @property
    def versions(self) -> Sequence[tuple[str, int]]:
        """The versions of the application that most of the errors are of, if there are several."""
        found = Counter[str]()
        for group in self.groups:
            found.update(group.app_versions)
        return found.most_common(MAX_VERSIONS) if len(found) > 1 else []

    @property
    def failing(self) -> int:
        """How many causes fail now."""
        return sum(map(_fails_now, self.groups))


@dataclass(frozen=True)
class Cause:
    """A cause: whether it fails now, a requeue of its jobs, and how many jobs are in error by it; None if that is not
    known."""

    group: ErrorGroup
    is_failing: bool
    requeue: Requeue | None
    failed: int | None


@dataclass(frozen=True)
class CauseShown(OfErrors):
    """The errors of one cause, the fields of the last one, and some of the jobs that are in error, and whose last error
    it is.

    `words` are the other conditions. `number` says how many errors there are; `group` is about the newest ones, if
    `is_exact` is false. As long as it fails, `pausing` are the queues to pause, as far as they are not.
    """

    fingerprint: str
    number: Count
    group: ErrorGroup
    is_exact: bool
    looked: int
    last: Mapping[str, str]
    failed: Count
    jobs: Sequence[FoundJob]
    is_complete: bool
    requeue: Requeue | None = None
    blocks: Sequence[Block] = ()
    pausing: Sequence[str] = ()

    @property
    def is_failing(self) -> bool:
        return _fails_now(self.group)

    @property
    def of_jobs(self) -> str:
        """The filter that finds the jobs."""
        found = words_of_failed(self.words)[0]
        return shlex.join(["status=error", *found, f"last_fingerprint={self.fingerprint}"])


def _fails_now(group: ErrorGroup) -> bool:
    return fails_now(group.last_seen, datetime.now(timezone.utc).replace(tzinfo=None))


def show(asked: Asked) -> ErrorsShown:
    words = words_of(asked.query)
    errors = _filter_of(asked, words)
    limit = asked.query.number("limit", PER_PAGE, 1, MAX_PER_PAGE)
    kept = asked.kept.get(_key(words))
    look = partial(errors.groups, limit, messages=MESSAGES, mask=asked.masking.message)
    found = kept.value if kept else asked.find_soon((HERE, limit, *words), look, ERRORS_TIMES, _is_exact)
    return _shown(asked, words, found, limit, kept)


def show_nothing(asked: Asked) -> ErrorsShown:
    """Return the page of a filter that cannot be read."""
    return ErrorsShown([], [], 0, True, 0, 0, PER_PAGE, None)


def _shown(asked: Asked, words: Sequence[str], found: ErrorGroups, limit: int, kept: KeptValue | None) -> ErrorsShown:
    others = found.others + sum(each.number for each in found.groups[limit:])
    counted = kept and kept.at
    shown = (words, found.groups[:limit], others, found.is_exact, found.looked, found.size, limit, counted)
    look = partial(_failed, asked, found, words)
    failed = asked.find_soon(("failed", limit, *words), look, FAILED_TIMES, lambda some: len(some) >= len(shown[1]))
    return ErrorsShown(*shown, requeues=_requeues(asked), failed=failed)


def _requeues(asked: Asked) -> dict[str, Requeue]:
    """Return the last requeue of the jobs of each cause, as long as it runs, or if it ended lately."""
    found: dict[str, Requeue] = {}
    for each in running(asked):
        ended = parse_datetime(each.at) if each.is_over else None
        is_old = ended and (datetime.now(timezone.utc).replace(tzinfo=None) - ended).total_seconds() > SHOWN_FOR
        fingerprint = _FINGERPRINT.search(each.filter)
        if fingerprint and not is_old:
            found.setdefault(fingerprint[1], each)
    return found


def _is_exact(found: ErrorGroups | Count) -> bool:
    return found.is_exact


def _failed(asked: Asked, found: ErrorGroups, words: Sequence[str], timeout: float) -> dict[str, int]:
    """Return how many jobs are in error by each of the first causes, as far as there is time to count."""
    groups = [group for group in found.groups[:MAX_FAILED] if group.fingerprint]
    each_timeout = timeout / max(len(groups), 1)
    counts = {each.fingerprint: _jobs_of(asked, each.fingerprint, words).count(each_timeout) for each in groups}
    return {fingerprint: count.number for fingerprint, count in counts.items() if count.is_exact}


def _key(words: Sequence[str]) -> Any:
    return (HERE, *words)


def _filter_of(asked: Asked, words: Sequence[str], **more: Any) -> ErrorFilter:
    """Return the filter of some words, unless it asks for what is masked."""
    return asked.masking.checked(ErrorFilter(*words, **more, database=asked.database))


def show_cause(asked: Asked) -> CauseShown:
    fingerprint = asked.query.one("fingerprint")
    words = _words_beside(asked.query)
    errors = _filter_of(asked, words, fingerprint=fingerprint)
    key = (fingerprint, *words)
    look = partial(errors.groups, 1, messages=MAX_MESSAGES, mask=asked.masking.message)
    found = asked.find_soon((CAUSE, *key), look, ERRORS_TIMES, _is_exact)
    if not found.groups:
        raise Refusal(404, f"There is no error with the fingerprint {fingerprint}")
    [group] = found.groups
    last = errors.last_of(group, MAX_READ)
    jobs = _jobs_of(asked, fingerprint, words)
    page = asked.find_soon(
        ("jobs of", *key),
        lambda timeout: jobs.page(MAX_JOBS, timeout=timeout),
        JOBS_TIMES,
        lambda some: some.is_complete or len(some.found) >= MAX_JOBS,
    )
    has_all = page.is_complete and not page.following
    return CauseShown(
        words=words,
        fingerprint=fingerprint,
        number=Count(group.number, True)
        if found.is_exact
        else asked.find_soon(("errors of", *key), errors.count, JOBS_TIMES, _is_exact),
        group=group,
        is_exact=found.is_exact,
        looked=found.looked,
        last=asked.masking.of(last.get("job_model_repr", "")).error(last),
        failed=Count(len(page.found), True)
        if has_all
        else asked.find_soon(("failed of", *key), jobs.count, JOBS_TIMES, _is_exact),
        jobs=[job._replace(identifier=asked.masking.identifier(job.identifier, job.ident)) for job in page.found],
        is_complete=page.is_complete,
        requeue=_requeues(asked).get(fingerprint),
        blocks=_blocks(asked, last),
        pausing=_pausing(asked, group) if _fails_now(group) else (),
    )


def _pausing(asked: Asked, group: ErrorGroup) -> list[str]:
    """Return the queues of the jobs that fail, without those that are paused."""
    paused = {name for _, name in paused_queues(asked.database)}
    return [name for name in group.queues if name and name.isprintable() and name not in paused][:MAX_PAUSING]


def _blocks(asked: Asked, last: Mapping[str, str]) -> list[Block]:
    path = last.get("job_model_repr", "")
    return blocks_of(asked.masking.of(path).error(last).get("traceback", ""), path)


def _jobs_of(asked: Asked, fingerprint: str, words: Sequence[str] = ()) -> JobFilter:
    return filter_of_failed(fingerprint, *words_of_failed(words)[0], database=asked.database)


def _words_beside(form: Form) -> list[str]:
    """Return the conditions that a form of a cause has beside its fingerprint."""
    return words_of(Form(form.without(*OF_FORMS)))


def _name_of(asked: Asked, fingerprint: str, words: Sequence[str]) -> str:
    """Return a cause as people know it: the type of its errors, beside its fingerprint."""
    found = _filter_of(asked, words, fingerprint=fingerprint).page(1, timeout=NAME_TIMEOUT).found
    kind = found[0].type if found else ""
    return f"{kind} ({fingerprint})" if kind and kind != fingerprint else fingerprint


def count(asked: Asked, form: Form) -> Plan:
    """Look at all errors of a filter, however long it takes, and keep the outcome for a while."""
    words = words_of(form)
    errors = _filter_of(asked, words)

    def do(step: OnStep) -> str:
        found = errors.groups(MAX_PER_PAGE, None, step, MESSAGES, asked.masking.message)
        asked.kept.put(_key(words), found)
        return f"{found.looked:,} errors were looked at"

    return Plan("Count all errors by their cause", do, back=address(HERE, q=shlex.join(words)))


def requeue(asked: Asked, form: Form) -> Plan:
    """Put the jobs of a cause back in their queues: now, over a time, or at a rate."""
    fingerprint = form.one("fingerprint")
    words = _words_beside(form)
    _, unlike = words_of_failed(words)
    if unlike:
        raise Refusal(400, f"Jobs cannot be requeued by {shlex.join(unlike)} of their errors: leave that out")
    spread, per_second = form.read("spread", time_span), form.read("rate", rate)

    told = f" over {spread:g} s" if spread else f" at {per_second:g} a second" if per_second else ""
    where = f" of {shlex.join(words)}" if words else ""
    title = f"Requeue the jobs{where} that failed with {_name_of(asked, fingerprint, words)}{told}"
    back = address(CAUSE, fingerprint=fingerprint, q=shlex.join(words))
    pace = {name: value for name, value in (("spread", spread), ("rate", per_second)) if value}
    return requeueing(title, _jobs_of(asked, fingerprint, words), asked, form, back, pace)


def delete(asked: Asked, form: Form) -> Plan:
    """Delete the errors of a cause."""
    fingerprint, words = form.one("fingerprint"), _words_beside(form)
    errors = _filter_of(asked, words, fingerprint=fingerprint)
    where = f" of {shlex.join(words)}" if words else ""
    title = f"Delete the errors{where} of {_name_of(asked, fingerprint, words)}"
    return Plan.of(
        title, Change("delete", [errors]), "The errors are deleted for good. Their jobs stay.", HERE, "error"
    )


ACTS = (
    Act(f"{HERE}/count", Role.VIEW, count),
    Act(f"{HERE}/requeue", Role.ACT, requeue),
    Act(f"{HERE}/delete", Role.ADMIN, delete),
)

PAGE = Page(HERE, "Errors", show, "errors.html", "Errors", "err", "e", acts=ACTS, lane="errors", empty=show_nothing)
CAUSE_PAGE = Page(CAUSE, "Cause", show_cause, "cause.html", lane="errors")
