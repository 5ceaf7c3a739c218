"""Finding anything by a text that was pasted: an ident, an identifier, an address, a line of a log, a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import NamedTuple

from limpyd_jobs.query import Count, FoundJob, JobFilter, audit_entries, paused_queues, queue_names, schedules
from limpyd_jobs.redis.calls import finish, listed
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import classes_of
from limpyd_jobs.search.errors import ErrorFilter
from limpyd_jobs.search.found import FIELDS, cursor_of, positions_of
from limpyd_jobs.search.look import NOT_MEANT, hides_none
from limpyd_jobs.search.walk import Walk
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.views.flows import flows_named

# How many characters of a text are looked at, and how many words of it are asked for.
MAX_TEXT, MAX_WORDS = 2_000, 8

# How many jobs of a word, and how many names of a kind, are shown.
MAX_JOBS, MAX_NAMES = 5, 5

# For how many seconds jobs of a word, and causes, are looked for.
JOBS_TIMEOUT, CAUSES_TIMEOUT = 0.2, 0.15

# How many entries of the audit are looked through.
MAX_ENTRIES = 500

# The least characters of a text that is looked for within values.
SHORTEST = 3

# What may be the name of something, in a line of a log: an ident, an address, an identifier, a path, a hexadecimal id.
_WORD = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|[\w-]+(?:[.:/#-][\w-]+)+|\w{4,}")

# The verbs that a text may begin with, by their words.
_VERBS = {"pause": "pause", "resume": "resume", "unpause": "resume", "requeue": "requeue"}
_VERB = re.compile(rf"({'|'.join(_VERBS)})\s+(.+)", re.IGNORECASE | re.DOTALL)


class JobsOf(NamedTuple):
    """The jobs that a word finds: the first ones, and how many there are."""

    word: str
    jobs: Sequence[FoundJob]
    number: Count


class Place(NamedTuple):
    """Something with a name: a ``queue``, a ``class``, a ``cause``, a ``status``, a ``flow``, a ``schedule``, or the
    ``audit``.

    Attributes
    ----------
    kind, name: str
    about: str
        What is said beside the name; empty for nothing. Of a flow, whose `name` is its id, it is the name.
    """

    kind: str
    name: str
    about: str = ""


class Finding(NamedTuple):
    """What a text finds at once.

    Attributes
    ----------
    text: str
    jobs: list of JobsOf
    places: list of Place
    scans: bool
        Whether fields that are not indexed can be looked through for the text: see `look_through`.
    """

    text: str
    jobs: Sequence[JobsOf]
    places: Sequence[Place]
    scans: bool


class Through(NamedTuple):
    """How far a look through fields that are not indexed went.

    Attributes
    ----------
    jobs: list of FoundJob
        Those that it found this time.
    fields: list of str
        In which field of each the text is.
    looked, size: int
        At how many jobs it looked so far, and how many there are to look at.
    following: str
        Where to go on; None at the end.
    """

    jobs: Sequence[FoundJob]
    fields: Sequence[str]
    looked: int
    size: int
    following: str | None


def find_anything(
    text: str, database: JobsDatabase | None = None, is_hidden: Callable[[str], bool] = hides_none
) -> Finding:
    """Return what a text finds at once: jobs by the exact text, or by words in it, and names in which it is."""
    text = " ".join(text[:MAX_TEXT].split())
    if not text:
        return Finding("", [], [], scans=False)
    jobs = list[JobsOf]()
    for word in _words_of(text):
        found = _jobs_of(word, database, is_hidden)
        if found.jobs and not any(each.jobs[0].ident == found.jobs[0].ident for each in jobs):
            jobs.append(found)
    return Finding(text, jobs, [*_places(text, database)], bool(len(text) >= SHORTEST))


class VerbFound(NamedTuple):
    """A verb that a text names, and what it can be done with now: a ``queue``, or the jobs in error of a queue or a
    ``cause``."""

    verb: str
    kind: str
    name: str
    about: str = ""


def find_verbs(text: str, database: JobsDatabase | None = None) -> list[VerbFound] | None:
    """Return what a text such as ``pause mails`` may mean; None if it does not begin with a verb."""
    match = _VERB.fullmatch(text.strip()[:MAX_TEXT])
    if not match:
        return None
    verb, low = _VERBS[match[1].lower()], match[2].strip().lower()
    paused, names = {name for _, name in paused_queues(database)}, _near(low, queue_names(database))
    if verb == "requeue":
        causes = [VerbFound(verb, each.kind, each.name, each.about) for each in _causes(low, database)]
        return [*causes, *(VerbFound(verb, "queue", name) for name in names)]
    if verb == "resume":
        names = _near(low, [*{*queue_names(database), *paused}])
    return [VerbFound(verb, "queue", name) for name in names if (name in paused) == (verb == "resume")]


def _words_of(text: str) -> list[str]:
    """Return the text, and what in it may be the name of something."""
    return [*dict.fromkeys([text, *(match[0] for match in _WORD.finditer(text))])][:MAX_WORDS]


def _jobs_of(word: str, database: JobsDatabase | None, is_hidden: Callable[[str], bool]) -> JobsOf:
    asked = JobFilter(database=database)
    if not {*"=<>"}.isdisjoint(word):
        return JobsOf(word, [], Count(0, True))
    asked = JobFilter(word, database=database)
    asked.is_hidden = is_hidden
    page = asked.page(MAX_JOBS, timeout=JOBS_TIMEOUT)
    is_all = page.is_complete and not page.following
    return JobsOf(word, page.found, Count(len(page.found), True) if is_all else asked.count(JOBS_TIMEOUT))


def _places(text: str, database: JobsDatabase | None) -> Iterator[Place]:
    low = text.lower()
    near, causes = partial(_near, low), [*_causes(low, database)]
    if " " in text:  # the line of an error names its cause
        yield from causes
    yield from (Place("status", name) for name in map(str.lower, STATUSES) if name.startswith(low))
    yield from (Place("queue", name) for name in near(queue_names(database)))
    yield from (Place("class", path) for path in near(classes_of(database)))
    if " " not in text:
        yield from causes
    yield from (Place("flow", each.id, each.label) for each in flows_named(text, MAX_NAMES, database))
    yield from (Place("schedule", each.name) for each in schedules(text, MAX_NAMES, CAUSES_TIMEOUT, database).found)
    number = sum(low in f"{each.who} {each.filter} {each.how}".lower() for each in audit_entries(MAX_ENTRIES, database))
    if number:
        yield Place("audit", text, f"{number:,} {'entry' if number == 1 else 'entries'}")


def _near(low: str, names: Iterable[str]) -> list[str]:
    """Return the names in which a text is, or the last part of which is in the text, those that begin so first."""
    found = [each for each in names if low in each.lower() or (len(each) > SHORTEST and each.lower() in low)]
    return sorted(found, key=lambda each: (not each.lower().startswith(low), len(each), each))[:MAX_NAMES]


def _causes(low: str, database: JobsDatabase | None) -> Iterator[Place]:
    groups = ErrorFilter(database=database).groups(50, CAUSES_TIMEOUT).groups
    found = [each for each in groups if low in (each.fingerprint, each.type.lower()) or each.type.lower() in low]
    found += [each for each in groups if each not in found and low in f"{each.type} {each.raised_in}".lower()]
    for each in found[:MAX_NAMES]:
        yield Place("cause", each.fingerprint, f"{each.type}{f' in {each.raised_in}' if each.raised_in else ''}")


def look_through(
    text: str,
    after: str | None = None,
    within: float = 0.5,
    database: JobsDatabase | None = None,
    is_hidden: Callable[[str], bool] = hides_none,
) -> Through:
    """Look for a text in the values of fields that are not indexed, class by class, the newest jobs first.

    Parameters
    ----------
    text: str
    after: str
        The `following` of the look before; None to begin.
    within: float
        After how many seconds to return.
    database: JobsDatabase
    is_hidden: callable
        Returns whether a field must not be looked at.

    Raises
    ------
    ValueError
        If `after` is not the `following` of a look.
    """
    low, positions = text.lower(), positions_of(after) if after else {}
    walk: Walk = finish(JobFilter(database=database)._begun())
    looked, until = positions.pop("", 0), monotonic() + within
    jobs, fields = list[FoundJob](), list[str]()
    for source in walk.sources:
        known = source.known
        names = sorted(
            name
            for name in known.fields - known.indexes.keys() - NOT_MEANT - {*FIELDS}
            if not (name.startswith("_") or is_hidden(name))
        )
        position = positions.get(known.name)
        if position == 0 or not names:
            looked += 0 if position == 0 else source.size
            positions[known.name] = 0
            continue
        for step in walk.look(source, position, names=listed([*FIELDS, *names])):
            looked += step.looked
            positions[known.name] = step.seen
            for pk, values in step.records:
                where = [
                    name for name, each in zip(names, values[len(FIELDS) :], strict=True) if low in (each or "").lower()
                ]
                if where:
                    jobs.append(FoundJob.of(known, pk, values[: len(FIELDS)]))
                    fields.append(where[0])
            if monotonic() >= until:
                return Through(jobs, fields, min(looked, walk.size), walk.size, cursor_of({**positions, "": looked}))
        positions[known.name] = 0
    return Through(jobs, fields, walk.size, walk.size, None)
