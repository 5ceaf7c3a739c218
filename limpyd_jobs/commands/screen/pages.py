"""The pages of the screen: each has a head, and rows to choose from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from math import inf
from typing import Any, NamedTuple

from limpyd_jobs.commands.screen.lines import Column, Line, Part, Signs, cells, joined, line, paragraphs, table
from limpyd_jobs.commands.screen.reading import (
    CauseRead,
    JobRead,
    QueueRead,
    Sample,
    read_cause,
    read_job,
    read_queue,
)
from limpyd_jobs.commands.shared.incidents import said_of
from limpyd_jobs.commands.shared.printing import chart
from limpyd_jobs.dates import parse_datetime, shown_span, span, utcnow
from limpyd_jobs.models.following.progress import Progress
from limpyd_jobs.models.presence import RunningJob
from limpyd_jobs.query import EndedWorker, ErrorGroup, FoundError, FoundJob, Incident, Period
from limpyd_jobs.texts import MESSAGE, count_of, one_line, size_text
from limpyd_jobs.views.queues import QueueRow, rounded
from limpyd_jobs.views.workers import ShownWorker

# How many lines a message has at most.
MAX_LINES = 4

# The signs and styles of the states of queues, workers and jobs.
OF_STATE = {
    "well": ("well", "well"),
    "paused": ("paused", "warning"),
    "worker_silent": ("silent", "warning"),
    "worker_lost": ("silent", "warning"),
    "silent": ("silent", "warning"),
    "busy": ("running", "running"),
    "running": ("running", "running"),
    "error": ("error", "error"),
    "success": ("well", "well"),
    "idle": ("well", "well"),
}
OF_GRAVITY = {"error": ("error", "error"), "warning": ("warning", "warning"), "over": ("over", "over")}

WIDTH_OF_BAR = 12

# How many queues are listed, the first of those that are sorted.
MAX_QUEUES = 500


class Item(NamedTuple):
    """A row that can be chosen: what it is, its value, and the text that a filter looks at."""

    kind: str
    value: Any
    text: str


class Row(NamedTuple):
    """A line of a page; what it stands for, if it can be chosen. The heading of a table stays above its rows."""

    line: Line
    item: Item | None = None
    is_heading: bool = False


class Asked(NamedTuple):
    """How a page is drawn: how wide, filtered and sorted by what, and when."""

    sample: Sample
    width: int
    signs: Signs
    filter: str = ""
    sort: str = ""
    data: Any = None  # what the page read
    now: datetime = datetime.min


class Page:
    """A page. `read` is called in a thread, again and again, if it reads more than the sample."""

    title = ""
    sorts: Sequence[str] = ()

    read: Callable[[], Any] | None = None

    def rows(self, asked: Asked) -> Iterator[Row]:
        """Yield all lines of the page."""
        raise NotImplementedError


def state_part(signs: Signs, state: str, gravity: str = "") -> Part:
    name, style = OF_STATE.get(state) or OF_GRAVITY.get(gravity) or ("well", "well")
    return signs[name], style


def ago(moment: datetime | None, now: datetime) -> str:
    return span(max((now - moment).total_seconds(), 0.0)) if moment else ""


# -- The first page


_OF_QUEUES = (
    Column("", 0),
    Column("queue", 0, is_prose=True, least=20),
    Column("", 6, is_prose=True, least=24),
    Column("waiting", 9, is_number=True),
    Column("oldest", 7, is_number=True),
    Column("running", 4),
    Column("a minute", 3, is_number=True),
    Column("failed", 8, is_number=True),
    Column("95 % waited", 1, is_number=True),
    Column("empty in", 2, is_number=True),
)

SORTS = {
    "worst": None,
    "waiting": lambda row: -row.waiting,
    "oldest": lambda row: -(row.oldest or 0),
    "failed": lambda row: -(row.failed or 0),
    "a minute": lambda row: -row.ended,
    "queue": lambda row: row.name,
}


class Home(Page):
    title = "attention"
    sorts = tuple(SORTS)

    def rows(self, asked: Asked) -> Iterator[Row]:
        sample = asked.sample
        incidents = [each for each in sample.incidents if is_met(asked, each.title, *each.queues)]
        for at, each in enumerate(incidents):
            yield Row(_line_of(each, asked), Item("incident", each, each.title))
            if not at and each.message:
                yield Row(line("  ", (said_of(each, asked.now).message, "weak")))
        if incidents:
            yield Row([])
        yield from queue_table(asked, [row for row in sample.queues if is_met(asked, row.name, row.why)])
        if not sample.queues:
            yield Row(line(("There is no queue yet: add a job, and start limpyd-jobs-worker.", "weak")))


def is_met(asked: Asked, *texts: str) -> bool:
    return any(asked.filter.lower() in text.lower() for text in texts)


def _line_of(incident: Incident, asked: Asked) -> Line:
    sign, style = state_part(asked.signs, incident.code, incident.gravity)
    if incident.code == "failures":
        sign = asked.signs["error" if incident.gravity == "error" else incident.gravity]
        style = incident.gravity
    said = said_of(incident, asked.now)
    parts: Line = [
        (f"{sign} ", style),
        (said.title, style if incident.gravity != "warning" else ""),
        (f"  {said.age}" if said.age else "", "weak"),
    ]
    if incident.remedy and incident.remedy.verb in ("pause", "resume", "requeue"):
        key = "r" if incident.remedy.verb == "requeue" else "p"
        parts += [("  ", ""), (key, "key"), (f" {said.helps}", "weak")]
    return parts


def queue_table(asked: Asked, rows: Sequence[QueueRow]) -> Iterator[Row]:
    if not rows:
        return
    if by := SORTS.get(asked.sort):
        rows = sorted(rows, key=by)
    rows, more = rows[:MAX_QUEUES], len(rows[MAX_QUEUES:])
    cells = [_cells_of(row, asked) for row in rows]
    heading, lines = table(_OF_QUEUES, cells, asked.width, asked.sort)
    yield Row(heading, is_heading=True)
    for row, each in zip(rows, lines, strict=True):
        yield Row(each, Item("queue", row, row.name))
    if more:
        yield Row(line((f"{count_of(more, 'more queue')}: / finds one by its name", "weak")))


def _cells_of(row: QueueRow, asked: Asked) -> list[Part]:
    signs = asked.signs
    sign, style = state_part(signs, row.state, row.gravity)
    failed = "" if row.failed is None else f"{row.failed:.0%}" if row.failed in (0, 1) else f"{row.failed * 100:.1f} %"
    failed = failed.replace("%", " %").replace("  ", " ")
    empty = "never" if row.empty_in == inf else shown_span(row.empty_in)
    taken = signs.slots(row.running, row.slots) if row.slots else (f"{row.running:,}" if row.running else "")
    quiet = "weak"
    return [
        (sign, style),
        (row.name, "title" if row.gravity == "error" else ""),
        (row.why, style if row.gravity else quiet),
        (f"{row.waiting:,}", "" if row.waiting else quiet),
        (shown_span(row.oldest), "warning" if row.state == "waiting" else ""),
        (taken, "running" if row.running else quiet),
        (rounded(row.ended), "" if row.ended else quiet),
        (failed, "error" if row.failed and row.failed >= 0.1 else "warning" if row.failed else quiet),
        (f"≤ {span(row.waited)}" if row.waited is not None else "", quiet),
        (empty, "error" if row.empty_in == inf else ""),
    ]


# -- An incident, a queue, a cause


class OfIncident(Page):
    title = "incident"
    sorts = tuple(SORTS)

    def __init__(self, incident: Incident) -> None:
        self.incident = incident

    def rows(self, asked: Asked) -> Iterator[Row]:
        each = self._now(asked)
        said = said_of(each, asked.now)
        yield from _plain(paragraphs(said.title, asked.width, OF_GRAVITY[each.gravity][1]))
        yield from _plain(paragraphs(said.text, asked.width, most=MAX_LINES))
        for name, text in [*said.facts, *([("Since", said.since)] if said.since else [])]:
            yield Row(line((f"{name}: ", "weak"), text))
        if said.message:
            yield from _plain(paragraphs(said.message, asked.width, "error", MAX_LINES))
        if said.command:
            yield Row(line(("What helps: ", "weak"), (said.helps, "title"), f"  {said.note}".rstrip()))
            yield Row(line(("  ", ""), (said.command, "link")))
        yield Row([])
        queues = {*each.queues}
        yield from queue_table(asked, [row for row in asked.sample.queues if row.name in queues])

    def _now(self, asked: Asked) -> Incident:
        """Return the incident as it is now; as it was, if it is no more."""
        same = (
            it for it in asked.sample.incidents if (it.code, it.queues) == (self.incident.code, self.incident.queues)
        )
        self.incident = next(same, self.incident)
        return self.incident


class OfQueue(Page):
    def __init__(self, name: str) -> None:
        self.name, self.title = name, f"queue {name}"

    def read(self) -> QueueRead:  # type: ignore[override]
        return read_queue(self.name)

    def rows(self, asked: Asked) -> Iterator[Row]:
        row, found = asked.sample.row(self.name), asked.data
        if not row:
            yield Row(line(("This queue is gone.", "weak")))
            return
        sign, style = state_part(asked.signs, row.state, row.gravity)
        yield Row(line((f"{sign} ", style), (row.name, "title"), (f"  {row.why}", style)))
        yield Row(_figures(row))
        numbers = [period.of(row.name).started for period in asked.sample.seen.periods]
        if any(numbers):
            yield Row(line(("begun in the last hour: ", "weak"), chart(numbers, max(min(asked.width - 45, 60), 10))))
        if len(row.priorities) > 1:
            waiting = ", ".join(f"{each.priority}: {each.waiting:,}" for each in row.priorities)
            yield Row(line(("waiting by priority: ", "weak"), waiting))
        if not isinstance(found, QueueRead):
            yield Row(line(("…", "weak")))
            return
        yield from cause_rows(found.causes, asked)
        yield from job_rows(found.jobs, found, asked)


def _begun(name: str, period: Period) -> int:
    return sum(each.started for (queue, _), each in period.metrics.items() if queue == name)


def _figures(row: QueueRow) -> Line:
    parts: Line = []
    told = [
        ("waiting", f"{row.waiting:,}"),
        ("oldest", shown_span(row.oldest)),
        ("running", f"{row.running:,} of {row.slots:,}"),
        ("delayed", f"{row.delayed:,}" if row.delayed else ""),
        ("a minute", rounded(row.ended)),
        ("failed", "" if row.failed is None else f"{row.failed * 100:.0f} %"),
        ("empty in", "never" if row.empty_in == inf else shown_span(row.empty_in)),
    ]
    for name, text in told:
        if text:
            parts += [(f"{name} ", "weak"), (f"{text}   ", "")]
    return parts


def _plain(lines: Iterator[Line]) -> Iterator[Row]:
    return (Row(each) for each in lines)


_OF_CAUSES = (
    Column("errors", 5, is_number=True),
    Column("last", 4, is_number=True),
    Column("cause", 0, is_prose=True),
    Column("message", 3, is_prose=True),
)


def cause_rows(causes: Sequence[ErrorGroup], asked: Asked) -> Iterator[Row]:
    found = [each for each in causes if is_met(asked, each.type, each.message, each.raised_in)]
    if not found:
        return
    cells = [
        [
            (f"{each.number:,}", "error"),
            (ago(parse_datetime(each.last_seen), asked.now), ""),
            (f"{each.type}{' in ' if each.function else ''}{each.function}", ""),
            (each.example, "weak"),
        ]
        for each in found
    ]
    yield Row([])
    heading, lines = table(_OF_CAUSES, cells, asked.width)
    yield Row(heading, is_heading=True)
    for each, shown in zip(found, lines, strict=True):
        yield Row(shown, Item("cause", each, each.type))


_OF_JOBS = (
    Column("", 0),
    Column("job", 0, is_prose=True),
    Column("identifier", 5, is_prose=True),
    Column("try", 1, is_number=True),
    Column("for", 4, is_number=True),
    Column("progress", 3, is_prose=True),
)


def job_rows(jobs: Sequence[FoundJob], found: QueueRead, asked: Asked) -> Iterator[Row]:
    shown = [each for each in jobs if is_met(asked, each.ident, each.identifier or "")]
    if not shown:
        return
    cells = []
    for job in shown:
        progress = found.progress.get(job.ident)
        since = parse_datetime(job.start if job.status == "running" else job.added)
        bar = (
            f"{asked.signs.bar(progress.fraction, WIDTH_OF_BAR)} {progress.fraction:.0%} {progress.text}"
            if progress
            else ""
        )
        sign, style = OF_STATE.get(job.status, ("gone", "weak"))
        cells.append(
            [
                (asked.signs[sign], style),
                (job.ident.rpartition(".")[2], ""),
                (job.identifier or "", ""),
                (f"{job.tries}", "weak"),
                (ago(since, asked.now), ""),
                (bar or job.status, "running" if bar else style),
            ]
        )
    yield Row([])
    heading, lines = table(_OF_JOBS, cells, asked.width)
    yield Row(heading, is_heading=True)
    for job, each in zip(shown, lines, strict=True):
        yield Row(each, Item("job", job, job.ident))


def _bar(progress: Progress, asked: Asked, width: int = WIDTH_OF_BAR) -> str:
    return f"{asked.signs.bar(progress.fraction, width)} {progress.fraction:.0%} {progress.text}".rstrip()


class OfCause(Page):
    title = "cause"

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint

    def read(self) -> CauseRead:  # type: ignore[override]
        return read_cause(self.fingerprint)

    def rows(self, asked: Asked) -> Iterator[Row]:
        found = asked.data
        group = found.group if isinstance(found, CauseRead) else None
        if not isinstance(found, CauseRead) or not group:
            yield Row(line(("…" if found is None else "There are no such errors any more.", "weak")))
            return
        place = f" in {group.raised_in}" if group.raised_in else ""
        yield from _plain(paragraphs(f"{group.type}{place}", asked.width, "error", 2))
        at_least = "" if found.is_exact else "at least "
        told = f"{count_of(group.number, 'error')}, the last {ago(parse_datetime(group.last_seen), asked.now)} ago"
        yield Row(line(f"{told}; {at_least}{count_of(found.in_error, 'job')} in error by it now"))
        for name, numbers in (("class", group.job_classes), ("queue", group.queues), ("version", group.app_versions)):
            if numbers:
                yield Row(
                    line((f"{name}: ", "weak"), ", ".join(f"{it} ({number:,})" for it, number in numbers.items()))
                )
        for message in group.messages[:MAX_LINES]:
            yield Row(line((f"{message.number:6,}  ", "weak"), one_line(message, MESSAGE)))
        yield from _error_rows(found.errors, asked)


_OF_ERRORS = (
    Column("ago", 0, is_number=True),
    Column("job", 0, is_prose=True),
    Column("identifier", 3, is_prose=True),
    Column("message", 2, is_prose=True),
)


def _error_rows(errors: Sequence[FoundError], asked: Asked) -> Iterator[Row]:
    shown = [each for each in errors if is_met(asked, each.ident, each.message, each.identifier or "")]
    if not shown:
        return
    cells = [
        [
            (ago(parse_datetime(each.date_time), asked.now), "weak"),
            (each.ident.rpartition(".")[2], ""),
            (each.identifier or "", ""),
            (each.message, "weak"),
        ]
        for each in shown
    ]
    yield Row([])
    heading, lines = table(_OF_ERRORS, cells, asked.width)
    yield Row(heading, is_heading=True)
    for each, shown_line in zip(shown, lines, strict=True):
        yield Row(shown_line, Item("job", each, each.ident))


# -- A job


class OfJob(Page):
    def __init__(self, ident: str) -> None:
        self.ident, self.title = ident, f"job {ident}"

    def read(self) -> JobRead:  # type: ignore[override]
        return read_job(self.ident)

    def rows(self, asked: Asked) -> Iterator[Row]:
        found = asked.data
        if not isinstance(found, JobRead):
            yield Row(line((f"{found}" if isinstance(found, str) else "…", "weak")))
            return
        details = found.details
        sign, style = OF_STATE.get(details.status, ("gone", "delayed" if details.status == "delayed" else "weak"))
        queue = f"  in {details.queue}" if details.queue else ""
        yield Row(line((f"{asked.signs[sign]} ", style), (self.ident, "title"), (f"  {details.status}{queue}", style)))
        if details.progress:
            yield Row(line((_bar(details.progress, asked, WIDTH_OF_BAR * 2), "running")))
        for reason in found.explanation.reasons:
            yield from _plain(paragraphs(reason.text, asked.width, "warning", 3))
        yield Row([])
        for name, value in details.fields.items():
            if is_met(asked, name, value):
                yield Row(line((f"{name}: ", "weak"), one_line(value)))
        for error in details.errors[:2]:
            yield Row([])
            yield from _plain(paragraphs(f"{error.get('type')}: {error.get('message')}", asked.width, "error", 3))
            for text in (error.get("traceback") or "").splitlines()[-12:]:
                yield Row(line((f"  {text}", "weak")))
        if details.log:
            yield Row([])
            yield Row(line(("log", "heading")))
            for text in details.log[-50:]:
                yield Row(line(text))


# -- The workers


_OF_WORKERS = (
    Column("", 0),
    Column("worker", 0, is_prose=True),
    Column("status", 8),
    Column("slots", 7),
    Column("runs", 6, is_prose=True),
    Column("for", 5, is_number=True),
    Column("done", 3, is_number=True),
    Column("failed", 4, is_number=True),
    Column("memory", 2, is_number=True),
    Column("version", 1),
    Column("queues", 1, is_prose=True),
)


class Workers(Page):
    title = "workers"

    def rows(self, asked: Asked) -> Iterator[Row]:
        workers = [it for it in asked.sample.workers if is_met(asked, it.name, it.status, *it.queues)]
        ended = [it for it in asked.sample.ended if is_met(asked, it.name, *it.queues)]
        cells = [*(_cells_of_worker(it, asked) for it in workers), *(_cells_of_ended(it, asked) for it in ended)]
        if not cells:
            yield Row(line(("No worker is there: limpyd-jobs-worker --queues=NAME starts one.", "weak")))
            return
        heading, lines = table(_OF_WORKERS, cells, asked.width)
        yield Row(heading, is_heading=True)
        everyone: list[ShownWorker | EndedWorker] = [*workers, *ended]
        for worker, each in zip(everyone, lines, strict=True):
            yield Row(each, Item("worker", worker, worker.name))


def _process(name: str) -> str:
    """Return the host and the pid, by which commands know a worker, too."""
    return name.rpartition(":")[0] or name


def _cells_of_worker(worker: ShownWorker, asked: Asked) -> list[Part]:
    sign, style = OF_STATE.get(worker.status, ("warning", "warning"))
    first = worker.running[0] if worker.running else None
    more = f" and {worker.running_number - 1:,} more" if worker.running_number > 1 else ""
    return [
        (asked.signs[sign], style),
        (_process(worker.name), ""),
        (worker.status, style),
        (asked.signs.slots(worker.running_number, worker.slots), style),
        (f"{first.ident.rpartition('.')[2]}{more}" if first else "", ""),
        (shown_span(worker.seconds_of(first)) if first else "", ""),
        (f"{worker.done:,}", ""),
        (f"{worker.failed:,}", "error" if worker.failed else "weak"),
        (size_text(worker.memory) if worker.memory else "", "weak"),
        (worker.versions.get("application", ""), "weak"),
        (",".join(worker.queues), "weak"),
    ]


def _cells_of_ended(worker: EndedWorker, asked: Asked) -> list[Part]:
    how = "ended" if worker.how == "ended" else "died"
    style = "weak" if how == "ended" else "warning"
    return [
        (asked.signs["gone"], style),
        (_process(worker.name), "weak"),
        (how, style),
        ("", ""),
        (f"with {count_of(worker.running, 'job')}" if worker.running and how == "died" else "", style),
        (f"{ago(worker.ended, asked.now)} ago", "weak"),
        (f"{worker.done:,}", "weak"),
        (f"{worker.failed:,}", "weak"),
        (size_text(worker.memory) if worker.memory else "", "weak"),
        (worker.versions.get("application", ""), "weak"),
        (",".join(worker.queues), "weak"),
    ]


class Text(Page):
    """Some lines of text, such as why a job waits."""

    def __init__(self, title: str, texts: Sequence[str]) -> None:
        self.title, self._texts = title, texts

    def rows(self, asked: Asked) -> Iterator[Row]:
        for text in self._texts:
            yield from _plain(paragraphs(text, asked.width, most=100))


KEYS = (
    "arrows, j k     choose a row             Enter   open it",
    "g, G            the first, the last row",
    "Esc, Backspace  go back                  /       filter the rows",
    "s               sort by another column   w       the workers",
    "l               the limits               f       the flows",
    "p               pause or unpause: asks   r       requeue at a rate: asks",
    "e               explain                  q       end",
    "",
    "Nothing is changed before you have answered with y.",
)


def opened(item: Item) -> Page | None:
    """Return the page of a row."""
    match item.kind:
        case "page":
            found: Page = item.value()
            return found
        case "incident":
            return OfIncident(item.value)
        case "queue":
            return OfQueue(item.value.name)
        case "cause":
            return OfCause(item.value.fingerprint)
        case "job":
            return OfJob(item.value.ident)
        case "worker":
            return Text(f"worker {item.value.name}", [*_lines_of_worker(item.value)])
    return None


def _lines_of_worker(worker: Any) -> Iterator[str]:
    if isinstance(worker, ShownWorker) and worker.silence:
        yield f"It has been {worker.silence}."
    for name, value in (worker._asdict() if isinstance(worker, EndedWorker) else vars(worker)).items():
        if value and name not in _NOT_OF_WORKERS:
            yield f"{name.replace('_', ' ')}: {_text_of(name, value)}"


# How many columns there have to be at least for the name of the database.
LEAST_OF_NAME = 14

# What is not shown of a worker: what is said in words, or is of no use to people.
_NOT_OF_WORKERS = ("details", "kind", "pk", "silence", "lease_left", "running_number", "silent_for", "until")


def _text_of(name: str, value: Any) -> str:
    match value:
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S} (UTC)"
        case dict():
            return ", ".join(f"{key} {each}" for key, each in value.items())
        case list():
            return ", ".join(each.ident if isinstance(each, RunningJob) else f"{each}" for each in value)
    return size_text(value) if name == "memory" else f"{value:,}" if name in ("done", "failed") else f"{value}"


def head(sample: Sample, asked: Asked, database: str) -> Iterator[Line]:
    """Yield the two lines at the top: the verdict, and the numbers of all jobs."""
    seen, verdict = sample.seen.overview, sample.verdict
    sign = asked.signs["error" if verdict.gravity == "error" else "warning" if verdict.gravity == "warning" else "well"]
    style = f"verdict {verdict.gravity}" if verdict.gravity != "over" else "verdict"
    said = line((f"{sign} {verdict.title}", style), f"  {verdict.text}")
    has_room = sum(cells(text) for text, _ in said) + LEAST_OF_NAME <= asked.width
    yield [*said, (f"  {database}", "weak")] if has_room else said
    totals = seen.totals
    used = f"{size_text(totals.memory)} used" if totals.memory else ""
    parts: Line = []
    for name in ("waiting", "delayed", "running", "error"):
        number = getattr(totals, name)
        parts += [(f"{name} ", "weak"), (f"{number:,}", "error" if name == "error" and number else ""), ("   ", "")]
    oldest = f"oldest {span(totals.latency)}" if totals.latency is not None else ""
    yield joined([*parts, (oldest, "")], line((used, "weak")), asked.width)


def now() -> datetime:
    return utcnow()
