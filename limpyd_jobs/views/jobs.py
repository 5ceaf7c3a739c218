"""Jobs as they are shown in a list: one line each, with the arguments that differ, and what went wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from limpyd_jobs.dates import parse_datetime, shown_span, utcnow
from limpyd_jobs.models.following.progress import read_progress
from limpyd_jobs.query import FoundJob
from limpyd_jobs.records.flows import END_OF_ALL_DATES, wait_of
from limpyd_jobs.records.known_classes import KnownClass
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import classes_of, connection_to, error_models_of, replies_to
from limpyd_jobs.search.found import FIELDS
from limpyd_jobs.search.look import NOT_MEANT
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import one_line

# How many fields of a class are read for its rows, how many characters of a value are shown, and of a message.
MAX_FIELDS, MAX_VALUE, MAX_MESSAGE = 12, 60, 200

# How many bytes of a value are read.
MAX_READ = 400

# The columns of a list of jobs: what each is called, and whether it is there unless others are chosen.
COLUMNS: Mapping[str, tuple[str, bool]] = {
    "job": ("Job", True),
    "identifier": ("Identifier", False),
    "arguments": ("Arguments, and what went wrong", True),
    "queue": ("Queue", True),
    "priority": ("Priority", False),
    "tries": ("Tries", False),
    "added": ("Added", False),
    "when": ("When", True),
    "ran": ("Ran", True),
}

# What is read of the library's own fields.
_OWN = ("delayed_until", "_progress_state", "_waits", "_queue_key")

Mask = Callable[[str, str, str], str]  # of the path of a class, the name of a field and its value


def as_it_is(_: str, __: str, value: str) -> str:
    return value


class JobRow(NamedTuple):
    """A job as a list shows it.

    Attributes
    ----------
    job: FoundJob
    name: str
        Its class without the module, and its pk: ``SendMail:12``.
    when: str
        The moment that says most. A date in UTC; empty if it is not known.
    event: str
        What that is the moment of: ``due``, of a delayed job; ``ended``; ``began``, of one that runs; else ``added``.
    seconds: float
        How long it ran, or has run; None if it did not begin.
    arguments: dict of str to str
        The fields of the application that differ among the rows of its class; the beginnings of long values.
    message: str
        Of a job in error, its last error; of one that is tried again, how often it was tried; of one that waits for
        something else than a worker, for what.
    progress: float
        How far a running job is, from 0 to 1; None if it does not say.
    state: str
        Its status; or what it waits for: ``waiting for a signal``, ``waiting for its children``, ``waiting for
        others``, or ``waiting for its limits``.
    waits: bool
        Whether it waits for other jobs, or for a signal.
    """

    job: FoundJob
    name: str
    when: str
    event: str
    seconds: float | None
    arguments: Mapping[str, str]
    message: str
    progress: float | None
    state: str
    waits: bool

    @property
    def ran(self) -> str:
        """How long it ran, in words."""
        return "" if self.seconds is None else shown_time(self.seconds)


def shown_time(seconds: float) -> str:
    """Return a short time with its unit: ``41 ms``, ``0.2 s``, ``18 s``, ``2 min 3 s``."""
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else shown_span(seconds)


def job_rows(found: Sequence[FoundJob], database: JobsDatabase | None = None, mask: Mask = as_it_is) -> list[JobRow]:
    """Return jobs as a list shows them. It takes some round trips, however many there are."""
    classes = classes_of(database)
    known = [classes.get(job.ident.rpartition(":")[0]) for job in found]
    stored = _values_of(found, known, database)
    messages = _messages_of([job for job in found if job.status == "error"], database)
    differing, parked = _differing(found, stored), _parked_among(found, known, stored, database)
    return [_row(*each, messages, differing, parked, mask) for each in zip(found, stored, strict=True)]


def moment_of(job: FoundJob, due: str = "") -> tuple[str, str]:
    """Return the moment of a job that says most, and what it is the moment of, given until when it is delayed. A job
    that waits may have run before, and have ended then."""
    has_ended = job.status not in ("waiting", "delayed", "running")
    found = {"due": due, "ended": has_ended and job.end, "began": job.status == "running" and job.start}
    return next(((date, event) for event, date in found.items() if date), (job.added or "", "added"))


def dues_of(found: Sequence[FoundJob], database: JobsDatabase | None = None) -> dict[str, str]:
    """Return until when each of those that are delayed is so, by its ident, as far as there is a date."""
    known = classes_of(database)
    delayed = [job.ident for job in found if job.status == "delayed" and job.ident.rpartition(":")[0] in known]
    parted = [ident.rpartition(":") for ident in delayed]
    asked = [("HGET", f"{known[path].name}:{pk}:hash", "delayed_until") for path, _, pk in parted]
    dates = replies_to(connection_to(database), asked) if asked else []
    return {ident: date for ident, date in zip(delayed, dates, strict=True) if date and len(date) < MAX_VALUE}


def _row(
    job: FoundJob,
    values: Mapping[str, str],
    messages: Mapping[str, tuple[str, str]],
    differing: Mapping[str, set[str]],
    parked: Container[str],
    mask: Mask,
) -> JobRow:
    path, _, pk = job.ident.rpartition(":")
    arguments = {
        name: one_line(mask(path, name, value), MAX_VALUE) for name, value in values.items() if name in differing[path]
    }
    progress = read_progress(values.get("_progress_state")) if job.status == "running" else None
    kind, text = messages.get(job.ident, ("", ""))
    message = ": ".join(filter(None, (kind, mask(path, "message", text))))  # masked before it is composed
    is_delayed = job.status == "delayed"
    wait = wait_of(STATUSES.DELAYED, values.get("_waits"), values.get("delayed_until")) if is_delayed else None
    if wait:
        message = f"waits for the signal {one_line(wait.signal)}" if wait.signal else wait.state.replace("ing", "s", 1)
    elif job.ident in parked:
        message = "waits for its limits"
    elif is_delayed and isinstance(job.tries, int) and job.tries:
        message = f"tried {job.tries} time{'s' * (job.tries > 1)}, again"
    until = "" if wait and wait.date == END_OF_ALL_DATES else values.get("delayed_until", "") if is_delayed else ""
    return JobRow(
        job,
        f"{path.rpartition('.')[2]}:{pk}",
        *moment_of(job, until),
        _seconds_of(job),
        arguments,
        one_line(message, MAX_MESSAGE),
        progress and progress.fraction,
        wait.state if wait else "waiting for its limits" if job.ident in parked else job.status,
        wait is not None,
    )


def _parked_among(
    found: Sequence[FoundJob],
    known: Sequence[KnownClass | None],
    stored: Sequence[Mapping[str, str]],
    database: JobsDatabase | None,
) -> Container[str]:
    """Return the idents of those that limits keep from beginning. Only classes with limits are asked for."""
    asked = [
        (f"{values.get('_queue_key', '')}:_parked", job.ident)
        for job, each, values in zip(found, known, stored, strict=True)
        if job.status == "waiting" and each and each.limits
    ]
    scores = replies_to(connection_to(database), (("ZSCORE", *each) for each in asked)) if asked else []
    return {ident for (_, ident), score in zip(asked, scores, strict=True) if score is not None}


def _seconds_of(job: FoundJob) -> float | None:
    start = parse_datetime(job.start)
    end: datetime | None = parse_datetime(job.end) if job.end else utcnow() if job.status == "running" else None
    return max((end - start).total_seconds(), 0.0) if start and end else None


def fields_of(known: KnownClass) -> list[str]:
    """Return the fields of the application that a class has in its hash."""
    return sorted(name for name in known.fields - NOT_MEANT - {*FIELDS, "delayed_until"} if not name.startswith("_"))


def _values_of(
    found: Sequence[FoundJob], known: Sequence[KnownClass | None], database: JobsDatabase | None
) -> list[dict[str, str]]:
    """Return the values of the first fields of each job, without those that are too long to be shown."""
    rows = [[*fields_of(each)[:MAX_FIELDS], *_OWN] if each else [] for each in known]
    keys = [
        f"{each.name}:{job.ident.rpartition(':')[2]}:hash" if each else ""
        for job, each in zip(found, known, strict=True)
    ]
    connection = connection_to(database)
    asked = [(key, name) for key, names in zip(keys, rows, strict=True) for name in names]
    lengths = replies_to(connection, (("HSTRLEN", key, name) for key, name in asked))
    short = {pair: length for pair, length in zip(asked, lengths, strict=True) if length}
    read = [pair for pair, length in short.items() if length <= MAX_READ]
    values = dict(zip(read, replies_to(connection, (("HGET", key, name) for key, name in read)), strict=True))
    return [
        {name: values.get((key, name)) or f"({short[key, name]:,} bytes)" for name in names if (key, name) in short}
        for key, names in zip(keys, rows, strict=True)
    ]


def _differing(found: Sequence[FoundJob], stored: Sequence[Mapping[str, str]]) -> Mapping[str, set[str]]:
    """Return the fields that do not have the same value in all rows of a class, by its path."""
    by_path = defaultdict[str, list[Mapping[str, str]]](list)
    for job, values in zip(found, stored, strict=True):
        by_path[job.ident.rpartition(":")[0]].append(values)
    return {
        path: {
            name
            for name in {name for values in rows for name in values if not name.startswith("_")} - {"delayed_until"}
            if len(rows) == 1 or len({values.get(name) for values in rows}) > 1
        }
        for path, rows in by_path.items()
    }


def _messages_of(failed: Sequence[FoundJob], database: JobsDatabase | None) -> dict[str, tuple[str, str]]:
    """Return the type and the message of the last error of each job, by its ident."""
    models = [each for each in error_models_of(database, None) if {"job_pk", "job_model_repr"} <= each.indexes.keys()]
    connection, found = connection_to(database), dict[str, tuple[str, str]]()
    asked = [(job.ident, each) for job in failed for each in models]
    sets = replies_to(
        connection,
        (
            (
                "SINTER",
                f"{each.indexes['job_pk']}{ident.rpartition(':')[2]}",
                f"{each.indexes['job_model_repr']}{ident.rpartition(':')[0]}",
            )
            for ident, each in asked
        ),
    )
    last = [
        (ident, f"{each.name}:{max(pks, key=lambda pk: int(pk) if pk.isdecimal() else 0)}:hash")
        for (ident, each), pks in zip(asked, sets, strict=True)
        if pks
    ]
    lengths = replies_to(connection, (("HSTRLEN", key, "message") for _, key in last))
    names = [["type"] if (length or 0) > 100 * MAX_READ else ["type", "message"] for length in lengths]
    texts = replies_to(connection, (("HMGET", key, *each) for (_, key), each in zip(last, names, strict=True)))
    for (ident, _), values in zip(last, texts, strict=True):
        kind, *text = [each or "" for each in values or [""]]
        found[ident] = kind, "".join(text)
    return found
