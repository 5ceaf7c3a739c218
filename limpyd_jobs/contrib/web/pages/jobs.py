"""The jobs that a filter finds, and the verbs for some or all of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

from limpyd_jobs.contrib.web.masking import HIDDEN
from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.rendering import address
from limpyd_jobs.contrib.web.tasks import OnStep
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.integration import Ident, parse_datetime, parse_moment, part, rate, time_span
from limpyd_jobs.query import (
    Count,
    Enough,
    Facets,
    FoundJob,
    JobFilter,
    MissingIndex,
    Tally,
    completions,
    queue_names,
    queue_states,
    release_job,
)
from limpyd_jobs.views import (
    COLUMNS,
    Change,
    Following,
    JobRow,
    count_of,
    dues_of,
    filter_of_job,
    job_rows,
    moment_of,
    new_token,
    unknown_names,
    verbs_for_many,
)

HERE = "/jobs"

# How many jobs are on a page, and for how many seconds at most it looks for them, and counts them all, which is at once
# done if there is an index. Beside the page, it looks for longer, and counts with more time: all, and by the values of
# each field, in `FACETS_TIMEOUT` together.
PER_PAGE, PAGE_TIMEOUT, LONG_PAGE_TIMEOUT, COUNT_TIMEOUT, FACETS_TIMEOUT = 50, 0.03, 1.0, 0.2, 2.0

# At how many jobs a count looks: a page that is loaded again shows the same number, however fast Redis is just then.
# Beside the page, all counts together look at so many.
MAX_COUNTED, MAX_COUNTED_BESIDE = 5_000, 40_000

MAX_PER_PAGE = 500

# How many classes that are not known are named.
MAX_CLASSES = 10

# How many entries of the lists of a queue it looks at, if there is no time to look at all jobs.
MAX_LISTED = 10_000

# Up to this number of jobs of all kinds, a page has that longer time: it will hardly need it.
FEW_JOBS = 5_000

# By what the jobs are counted beside the list, and how many values of each are shown.
FACETS, MAX_VALUES = ("status", "queue", "class"), 12

# How many jobs are sorted by another column than by when they were added, which all can be: the newest ones, at first,
# and when it looks for longer.
FIRST_SORTED, MAX_SORTED = 1_000, 10_000

# How many characters a filter has at most.
MAX_FILTER = 8_000

# Above which part of failures a requeue stops by itself: the name in forms.
STOP = "stop_if_failing"

# Of how many queues a page that asks shows the numbers; and what it says that a verb leaves alone.
MAX_PARTS = 8
STAYS = {
    "delete": "their errors, what was counted of them, and a line in the audit with your name.",
    "cancel": "the jobs with their arguments: Run again adds each anew.",
}

# What an address may have beside conditions.
OF_PAGES = ("q", "after", "limit", "by", "oldest", "done", "long", "columns", "sort", "from")
OF_VERBS = (
    "ident",
    "all",
    "confirmed",
    "queue_to",
    "priority_to",
    "for",
    "until",
    "spread",
    "rate",
    "force",
    "counted",
    "typed",
    STOP,
)


@dataclass(frozen=True)
class OfFilter:
    """What a filter finds."""

    words: Sequence[str]

    @property
    def text(self) -> str:
        """The filter as it is typed."""
        return shlex.join(self.words)

    def narrowed(self, field: str, value: str) -> str:
        """Return the filter with one more condition."""
        others = [word for word in self.words if not word.startswith(f"{field}=")]
        return shlex.join([*others, f"{field}={value}"])


@dataclass(frozen=True)
class JobsShown(OfFilter):
    """A page of jobs.

    `words` are the conditions, as on a command line. `count` says how many jobs there are, as far as there was time to
    look; `is_complete`, whether there was time to look for the jobs of the page. `following` leads to the next page.
    `missing_indexes` say why it takes long, if it does. If `is_listed`, it looked only at jobs that a list of the queue
    has, or that run or are canceled, without `left_out` entries of these lists; if `is_long`, for longer than at first.
    It looked at `looked` jobs, of `size` that there are to look at. If no job is found, `unknown_classes` have jobs in
    the queue that is asked for, but are not known here, and `hints` say what may be meant instead. If it is sorted by a
    column, but not all are, `sorted_of` says how many of the newest ones are.
    """

    jobs: Sequence[FoundJob]
    count: Count
    following: str | None
    is_complete: bool
    unseen: int
    oldest_first: bool
    missing_indexes: Sequence[MissingIndex]
    after: str = ""
    is_listed: bool = False
    is_long: bool = False
    left_out: int = 0
    looked: int = 0
    size: int = 0
    unknown_classes: Sequence[str] = ()
    hints: Sequence[str] = ()
    rows: Sequence[JobRow] = ()
    columns: Sequence[str] = ()
    sort: str = ""
    following_from: int = 0
    sorted_of: int = 0

    @property
    def verbs(self) -> Sequence[str]:
        """The verbs that can work for some of these jobs."""
        return verbs_for_many({(row.job.status, row.waits) for row in self.rows})

    @property
    def all_columns(self) -> Sequence[tuple[str, str, bool]]:
        """The names of all columns, what they are called, and whether they are shown."""
        of_when = self.event.capitalize() or "When"
        titles = {name: of_when if name == "when" else title for name, (title, _) in COLUMNS.items()}
        return [(name, title, name in self.columns) for name, title in titles.items()]

    @property
    def event(self) -> str:
        """What the moments of all these jobs are: when they ended, for example; empty if that differs."""
        events = {row.event for row in self.rows}
        return events.pop() if len(events) == 1 else ""

    def sorted_by(self, column: str) -> str:
        """Return the order that a click on a heading asks for."""
        if column == "added":
            return "" if self.oldest_first and not self.sort else "added"
        return f"-{column}" if self.sort == column else column

    @property
    def chips(self) -> Sequence[tuple[str, str]]:
        """Each condition, and the filter without it."""
        return [(word, shlex.join(each for each in self.words if each != word)) for word in self.words]


@dataclass(frozen=True)
class FacetsShown(OfFilter):
    """How many jobs of a filter there are, by the values of some fields.

    `looked` says for each field at how many jobs it looked, of how many there are to look at. If `is_listed`, it looked
    only at jobs that a list of the queue has.
    """

    count: Count
    facets: Mapping[str, Facets]
    looked: Mapping[str, tuple[int, int]]
    is_listed: bool

    def has(self, field: str, value: str) -> bool:
        """Return whether the filter asks for a value."""
        return f"{field}={value}" in self.words


@dataclass(frozen=True)
class WordsShown:
    """What the last word of a filter may be completed to."""

    words: Sequence[str]


def show(asked: Asked) -> JobsShown:
    words = words_of(asked.query)
    jobs = filter_of(asked, words)
    sort, columns = _sort_of(asked), _columns_of(asked)
    oldest_first = asked.query.get("oldest") == "1" or sort == "added"
    limit, after = asked.query.number("limit", PER_PAGE, 1, MAX_PER_PAGE), asked.query.get("after")
    is_long = asked.query.get("long") == "1"
    look = partial(JobFilter.page, limit=limit, after=after or None, newest_first=not oldest_first)
    page = look(jobs, timeout=LONG_PAGE_TIMEOUT if is_long or _are_few(asked) else PAGE_TIMEOUT)
    count = jobs.count(COUNT_TIMEOUT, UpTo(MAX_COUNTED))  # with an index, it takes no time
    is_slow = not (page.is_complete and count.is_exact)
    listed = jobs.listed(MAX_LISTED, newest_first=not oldest_first) if not (page.is_complete or is_long) else None
    if listed:
        page = look(listed, timeout=LONG_PAGE_TIMEOUT)
        count = count if count.is_exact else max(count, listed.count(COUNT_TIMEOUT)._replace(is_exact=False))
    if not count.is_exact:  # what is shown was seen
        count = max(count, Count(len(page.found), is_exact=False))
    found, following_from, sorted_of = page.found, 0, 0
    is_sorted = sort.lstrip("-") in _KEYS
    if is_sorted:
        found, following_from, sorted_of = _sorted(asked, listed or jobs, sort, limit, is_long=is_long)
    return JobsShown(
        words,
        [job._replace(identifier=asked.masking.identifier(job.identifier, job.ident)) for job in found],
        count,
        None if is_sorted else page.following,
        page.is_complete and not listed,
        jobs.unseen,
        oldest_first,
        jobs.missing_indexes()[:3] if is_slow else [],
        after=after,
        is_listed=bool(listed),
        is_long=is_long,
        left_out=listed.left_out if listed else 0,
        looked=page.looked,
        size=page.size,
        unknown_classes=[] if page.found else _unknown_classes(asked, jobs),
        hints=[] if page.found or not page.is_complete else [*unknown_names(jobs.conditions, asked.database)],
        rows=rows_of(asked, found),
        columns=columns,
        sort=sort if is_sorted else "",
        following_from=following_from,
        sorted_of=sorted_of,
    )


def rows_of(asked: Asked, found: Sequence[FoundJob]) -> list[JobRow]:
    """Return jobs as a list shows them, with masked secrets."""

    def mask(path: str, name: str, value: str) -> str:
        return asked.masking.of(path).field(name, value)

    rows = job_rows(found, asked.database, mask)
    return [
        row._replace(
            job=row.job._replace(identifier=asked.masking.identifier(row.job.identifier, row.job.ident)),
            arguments={name: value for name, value in row.arguments.items() if value != HIDDEN},
        )
        for row in rows
    ]


# By what each column is sorted.
_KEYS: Mapping[str, Callable[[FoundJob], Any]] = {
    "job": lambda job: (job.ident.rpartition(":")[0], int(job.ident.rpartition(":")[2])),
    "identifier": lambda job: job.identifier or "",
    "queue": lambda job: job.queue or "",
    "priority": lambda job: job.priority if isinstance(job.priority, int) else 0,
    "tries": lambda job: job.tries if isinstance(job.tries, int) else 0,
    "when": lambda job: moment_of(job)[0],
    "ran": lambda job: _seconds_between(job.start, job.end),
}


def _seconds_between(start: str | None, end: str | None) -> float:
    began, ended = parse_datetime(start), parse_datetime(end)
    return (ended - began).total_seconds() if began and ended else -1.0


def _sorted(asked: Asked, jobs: JobFilter, sort: str, limit: int, *, is_long: bool) -> tuple[list[FoundJob], int, int]:
    """Return the jobs of a page that is sorted by a column; where the next one begins, 0 if there is none; and how many
    of the newest jobs are sorted, 0 if all are."""
    first = asked.query.number("from", 0, 0, MAX_SORTED)
    timeout, most = (LONG_PAGE_TIMEOUT, MAX_SORTED) if is_long else (COUNT_TIMEOUT, FIRST_SORTED)
    page = jobs.page(most, timeout=timeout)
    key, dues = _KEYS[sort.lstrip("-")], dues_of(page.found, asked.database) if sort.lstrip("-") == "when" else {}
    everything = sorted(page.found, key=lambda job: dues.get(job.ident) or key(job), reverse=sort.startswith("-"))
    following, are_all = first + limit, page.is_complete and not page.following
    shown = everything[first:following]
    return shown, following if following < len(everything) else 0, 0 if are_all else len(everything)


def _sort_of(asked: Asked) -> str:
    sort = asked.query.get("sort")
    return sort if sort.lstrip("-") in (*_KEYS, "added") else ""


def _columns_of(asked: Asked) -> list[str]:
    """Return the columns that are chosen: those of the address, or the usual ones."""
    chosen = {name for text in asked.query.all("columns") for name in text.split(",")}
    found = [name for name in COLUMNS if name in chosen]
    return found or [name for name, (_, is_usual) in COLUMNS.items() if is_usual]


def show_nothing(asked: Asked) -> JobsShown:
    """Return the page of a filter that cannot be read."""
    return JobsShown([], [], Count(0, False), None, True, 0, False, [])


class UpTo:
    """Ends a look at some number of jobs, and knows how far it went."""

    def __init__(self, most: int) -> None:
        self.most, self.looked, self.size = most, 0, 0

    def __call__(self, looked: int, size: int) -> None:
        self.looked, self.size = looked, size
        if looked >= self.most:
            raise Enough


def _unknown_classes(asked: Asked, jobs: JobFilter) -> list[str]:
    """Return classes of jobs in the queue that is asked for; in any queue, which takes longer, if nothing is asked."""
    names = [each.value for each in jobs.conditions if each.field == "queue" and each.is_equality]
    if jobs.conditions and not names:
        return []
    states = queue_states(names or None, asked.database)
    return sorted({path for state in states for path in state.unknown_classes})[:MAX_CLASSES]


def _are_few(asked: Asked) -> bool:
    return JobFilter(database=asked.database).count().number <= FEW_JOBS


def show_facets(asked: Asked) -> FacetsShown:
    words = words_of(asked.query)
    jobs = filter_of(asked, words)
    by = asked.query.get("by")
    fields = [*FACETS, *([by] if by and by not in FACETS else [])]
    asked.masking.check(fields)
    until = monotonic() + FACETS_TIMEOUT
    count = jobs.count(_part(until, len(fields) + 2), UpTo(MAX_COUNTED_BESIDE // (len(fields) + 1)))
    listed = None if count.is_exact else jobs.listed(MAX_LISTED)
    of_lists = listed.count(_part(until, len(fields) + 1)).number if listed else 0
    if listed and of_lists >= count.number:
        jobs, count = listed, Count(of_lists, is_exact=False)
    found, looked = _counted(jobs, fields, until)
    is_listed = jobs is listed
    facets = {
        field: Facets(asked.masking.any.counts(each.counts), each.others, each.is_exact and not is_listed)
        for field, each in found.items()
    }
    return FacetsShown(words, count, facets, looked, is_listed)


def _part(until: float, of: int) -> float:
    """Return a part of the time that is left."""
    return max(until - monotonic(), 0) / of


def _counted(
    jobs: JobFilter, fields: Sequence[str], until: float
) -> tuple[dict[str, Facets], dict[str, tuple[int, int]]]:
    """Count the jobs by each field, with the same time for each. Also return at how many jobs it looked, and of how
    many."""
    found, looked = dict[str, Facets](), dict[str, tuple[int, int]]()
    for number, field in enumerate(fields):
        enough = UpTo(MAX_COUNTED_BESIDE // (len(fields) + 1))
        found[field] = jobs.facets(field, MAX_VALUES, _part(until, len(fields) - number), enough)
        if enough.size:
            looked[field] = enough.looked, enough.size + jobs.left_out
    return found, looked


def show_words(asked: Asked) -> WordsShown:
    """Complete the last word of a filter."""
    typed = asked.query.get("q")
    last = "" if not typed or typed[-1].isspace() else typed.split()[-1].lstrip("'\"")
    return WordsShown([_typed(word) for word in completions(last[:200], asked.database)])


def _typed(word: str) -> str:
    return word if word.endswith("=") else shlex.quote(word)


def words_of(form: Form) -> list[str]:
    """Return the conditions of an address or a form as words: those in ``q``, and other names with their values."""
    text = " ".join(form.all("q"))
    if len(text) + sum(len(name) + len(value) for name, value in form.without(*OF_PAGES, *OF_VERBS)) > MAX_FILTER:
        raise Refusal(414, f"The filter is too long: at most {MAX_FILTER:,} characters")
    try:
        typed = shlex.split(text)
    except ValueError as error:
        raise Refusal(400, f"The filter is not complete: {error}") from None
    return [*typed, *(f"{name}={value}" for name, value in form.without(*OF_PAGES, *OF_VERBS))]


def filter_of(asked: Asked, words: Sequence[str]) -> JobFilter:
    """Return the filter of some words, unless it asks for what is masked."""
    return asked.masking.checked(JobFilter(*words, database=asked.database))


# Verbs


def act_on_jobs(verb: str, asked: Asked, form: Form) -> Plan:
    """Do something with the jobs whose idents are sent, or, with ``all``, with all that the filter finds."""
    idents, words = form.all("ident"), words_of(form)
    if form.get("all"):
        filters = [filter_of(asked, words)]
        what = f"all jobs with {shlex.join(words)}" if words else "all jobs"
    elif idents:
        filters = [_filter_of_ident(asked, ident) for ident in idents]
        what = idents[0] if len(idents) == 1 else count_of(len(idents), "job")
    else:
        raise Refusal(400, "Select some jobs first, or all that the filter finds")
    given = _arguments(verb, form)
    is_one = len(idents) == 1 and not form.get("all")
    if verb == "requeue" and len(idents) > 1 and not form.get("all"):
        filters = [JobFilter.of_jobs(idents, asked.database)]
    elif idents and not form.get("all") and given.keys() & {"spread", "rate"}:
        raise Refusal(400, "One job cannot be spread: leave that out")
    back = address(f"{HERE}/{idents[0]}") if is_one and verb != "delete" else address(HERE, q=shlex.join(words))
    to = f" {_shown(given)}" if given else ""
    title, danger = f"{verb.capitalize()} {what}{to}", _danger(verb, asked, given)
    if verb == "requeue" and len(filters) == 1 and not is_one and not given.keys() & {"delayed_for", "delayed_until"}:
        return requeueing(title, filters[0], asked, form, back, given, danger)
    plan = replace(Plan.of(title, Change(verb, filters, **given), danger, back), stays=STAYS.get(verb, ""))
    return replace(plan, parts=partial(_by_queue, filters[0])) if form.get("all") else plan


def _by_queue(jobs: JobFilter) -> Mapping[str, int]:
    found = jobs.facets("queue", MAX_PARTS, COUNT_TIMEOUT)
    return found.counts if found.is_exact and not found.others else {}


def requeueing(
    title: str,
    jobs: JobFilter,
    asked: Asked,
    form: Form,
    back: str,
    given: Mapping[str, Any],
    danger: str = "",
) -> Plan:
    """Return the plan of a requeue: it is followed, if the form says when it has to stop, as that of a browser does."""
    stop_above, pace = form.read(STOP, part), {name: given[name] for name in ("spread", "rate") if name in given}
    plan = replace(Plan.of(title, Change("requeue", [jobs], **given), danger, back), parts=partial(_by_queue, jobs))
    if stop_above is None:
        return replace(plan, asks_to_stop=not form.get("confirmed"))
    others = {name: value for name, value in given.items() if name not in pace}
    change, token = Change("requeue", [jobs], told=True, **others), new_token()

    def do(step: OnStep) -> Tally:
        rate = pace.get("rate") or (change.count().done / pace["spread"] if pace else None)
        return change.follow(Following(step, stop_above, rate, asked.database, token))

    return replace(plan, do=do, follows=token)


def _filter_of_ident(asked: Asked, ident: str) -> JobFilter:
    parsed = Ident.parse(ident)
    if not parsed:
        raise Refusal(400, f"{ident} is not the ident of a job")
    return filter_of_job(parsed, database=asked.database)


def _arguments(verb: str, form: Form) -> dict[str, Any]:
    """Return the arguments of a verb, of those that the form has."""
    given: dict[str, Any] = {}
    if verb in ("move", "requeue"):
        given |= {"queue_name": form.get("queue_to") or None}
        given |= {"priority": form.number("priority_to", 0, -(10**9), 10**9) if form.get("priority_to") else None}
    if verb in ("delay", "requeue"):
        given |= {"delayed_for": form.read("for", time_span)}
        given |= {"delayed_until": form.read("until", partial(parse_moment, "until"))}
    if verb == "requeue":
        given |= {"spread": form.read("spread", time_span), "rate": form.read("rate", rate)}
    return {name: value for name, value in given.items() if value is not None}


def _shown(given: Mapping[str, Any]) -> str:
    return " ".join(_SHOWN[name].format(value) for name, value in given.items())


_SHOWN = {
    "queue_name": "to the queue {}",
    "priority": "with the priority {}",
    "delayed_for": "in {:g} s",
    "delayed_until": "at {} UTC",
    "spread": "over {:g} s",
    "rate": "at {:g} a second",
}


def _danger(verb: str, asked: Asked, given: Mapping[str, Any]) -> str:
    if verb == "delete":
        return "the jobs, their arguments, logs and results. Nothing brings them back."
    target = given.get("queue_name")
    if target and target not in queue_names(asked.database):
        return f"There is no queue {target} yet: it is made. A worker has to serve it."
    return "the places of the jobs in their queues. Running jobs are asked to stop." if verb == "cancel" else ""


def release(asked: Asked, form: Form) -> Plan:
    """Put a job whose worker is dead at the front of its list."""
    ident, force = form.one("ident"), form.get("force") == "1"
    if force:
        asked.check(Role.ADMIN)

    def do(_: OnStep) -> str:
        release_job(ident, asked.database, force=force)
        return f"{ident} is released: it waits at the front of its list"

    def count() -> str:
        release_job(ident, asked.database, force=force, dry_run=True)
        return "1 job"

    danger = "If its worker is alive after all, the job may be run twice." if force else ""
    return Plan(f"Release {ident}", do, count, danger, address(f"{HERE}/{ident}"), is_short=True)


ROLES = {
    "requeue": Role.ACT,
    "cancel": Role.ACT,
    "promote": Role.ACT,
    "move": Role.ACT,
    "delay": Role.ACT,
    "delete": Role.ADMIN,
}

ACTS = (
    *(Act(f"{HERE}/{verb}", role, partial(act_on_jobs, verb)) for verb, role in ROLES.items()),
    Act(f"{HERE}/release", Role.ACT, release),
)

PAGE = Page(HERE, "Jobs", show, "jobs.html", "Jobs", "jobs", "j", acts=ACTS, lane="jobs", empty=show_nothing)
FACETS_PAGE = Page(f"{HERE}/facets", "Jobs by", show_facets, "facets.html", lane="jobs")
WORDS_PAGE = Page(f"{HERE}/words", "Words", show_words, "words.html")
