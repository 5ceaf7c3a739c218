"""``limpyd-jobs info``: a database at a glance, once or again and again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from textwrap import wrap
from typing import Any

from redis.exceptions import RedisError

from limpyd_jobs.commandline.options import WorkerOption
from limpyd_jobs.commandline.parser import cannot_use_redis
from limpyd_jobs.commands.queues import table_of
from limpyd_jobs.commands.shared.colours import has_colours, painted
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.incidents import said_of
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, JSON, QUEUE_MODEL
from limpyd_jobs.commands.shared.printing import (
    Row,
    cut,
    fitted,
    not_shown,
    print_json,
    shown_lines,
    width_of_terminal,
    with_shards,
)
from limpyd_jobs.commands.shared.watching import EVERY, look_again
from limpyd_jobs.commands.workers import table_of as table_of_workers
from limpyd_jobs.dates import shown_span, utcnow
from limpyd_jobs.query import (
    AppVersion,
    Glance,
    Incident,
    MetricsReader,
    Overview,
    Verdict,
    attention,
    glance,
    large_jobs_of,
    verdict,
)
from limpyd_jobs.query.attention.values import OVER
from limpyd_jobs.query.overview import kept_without_limit
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.views.documents import document
from limpyd_jobs.views.hints import unknown_models
from limpyd_jobs.views.merged import glance_of_all
from limpyd_jobs.views.workers import shown_workers

# A table with its title; an empty title for none.
Section = tuple[str, list[Row]]

# How many of the jobs that run are shown.
MAX_RUNNING = 20

# The columns that are left out on a narrow terminal, the least important first.
DISPENSABLE = (
    "model",
    "memory",
    "since",
    "last sign",
    "success list",
    "mean run",
    "try",
    "canceled",
    "done",
    "begun/min",
    "failed",
    "queues",
    "failed/min",
    "errors list",
    "priority",
)

# The style of a title.
TITLE = "bold"


class Info(Command):
    """Exit status: 0, with --watch also after Ctrl-C."""

    summary = "Show a database at a glance: how many jobs there are, the queues, the workers"
    examples = (
        "limpyd-jobs info",
        "limpyd-jobs info --watch --every=5",
        "limpyd-jobs info --json",
    )
    merged = ("",)
    option_list = (
        *COMMON_OPTIONS,
        QUEUE_MODEL,
        WorkerOption("--watch", action="store_true", help="Show it again and again, until Ctrl-C"),
        EVERY,
        JSON,
    )

    def __init__(self, prog: str, argv: Sequence[str]) -> None:
        super().__init__(prog, argv)
        self._reader = MetricsReader()  # it looks again and again

    def run(self) -> int:
        if self.options.watch:
            if self.options.json:
                self.parser.error("--watch does not go with --json")
            return self._watch()
        if "every" in self.given_options:
            self.parser.error("--every needs --watch")
        glanced = self._glance()
        seen, found = glanced.overview, attention(glanced)
        warnings = [*map(str, self.look(large_jobs_of, lambda found: [*chain.from_iterable(found.values())]))]
        if self.options.json:
            versions = glanced.versions
            said = {"verdict": verdict(glanced, found), "attention": found, "versions": versions, "warnings": warnings}
            print_json({**_fields_of(seen), **said})
        else:
            told = [f"warning: {warning}" for warning in warnings] + [kept_without_limit(seen)]
            print(text_of(self._lines(glanced, [line for line in told if line])))
        return 0

    def _watch(self) -> int:
        before, end = ("\x1b[H\x1b[J", "\n") if sys.stdout.isatty() else ("", "\n\n")

        def look() -> None:
            self.unseen = {}
            try:
                lines = self._lines(self._glance())
            except RedisError as error:
                lines = [*lines_of([_away(error)])]
            print(f"{before}{text_of(lines)}", end=end, flush=True)

        return look_again(look, self.options.every)

    def _lines(self, glanced: Glance, told: Sequence[str] = ()) -> list[tuple[str, str]]:
        """Return the lines, each with its style: what needs attention is first on a terminal. Programs that read lines
        find each where it always was."""
        seen, found = glanced.overview, attention(glanced)
        told = [*told, *self.not_seen()]
        if not sys.stdout.isatty():
            sections = fitting_sections([*_tables(seen), *of_attention(found)], width_of_terminal())
            return [*lines_of([*sections, *((line, []) for line in told)])]
        sections = fitting_sections(_tables(seen, glanced.versions), width_of_terminal())
        first = lines_of_attention(verdict(glanced, found), found, width_of_terminal())
        return [*first, ("", ""), *lines_of([*sections, *((line, []) for line in told)])]

    def _glance(self, most_running: int = 0) -> Glance:
        how = {"most_running": most_running, "queue_model": self.options.queue_model, "reader": self._reader}
        return self.look(glance, glance_of_all, **how)

    def _seen(self, look: Callable[[], list[Section]]) -> list[Section]:
        """Look at the database. If Redis cannot be used now, tell that instead."""
        self.unseen = {}
        try:
            sections = look()
        except RedisError as error:
            return [_away(error)]
        return [*sections, *((line, []) for line in self.not_seen())]


def _away(error: RedisError) -> Section:
    return f"{utcnow():%H:%M:%S} (UTC): {cannot_use_redis(error)}", []


def lines_of_attention(said: Verdict, found: Sequence[Incident], width: int) -> Iterator[tuple[str, str]]:
    """Yield the verdict, and what needs attention, each with its message and what helps."""
    yield (
        f"{said.title}: {said.text}" if found else f"{said.title}. {said.text}",
        said.gravity if found or said.gravity != OVER else "well",
    )
    for each in (said_of(incident, utcnow()) for incident in found):
        for line in wrap(each.text, width, break_on_hyphens=False):
            yield line, each.style
        if each.message:
            yield cut(f"  {each.message}", width), "weak"
        if each.command:
            yield cut(f"  {each.command}{f'  ({each.note})' if each.note else ''}", width), "bold"


def _fields_of(seen: Overview) -> dict[str, Any]:
    shown, numbers = shown_workers(seen.workers), [number for number, part in parts_of(seen) for _ in part.workers]
    shards = [{"shard": number} if seen.parts else {} for number in numbers]
    workers = [{**shard, **document(worker)} for shard, worker in zip(shards, shown, strict=True)]
    return {"database": seen.database, "totals": seen.totals, "queues": seen.queues, "workers": workers}


def _tables(seen: Overview, versions: Sequence[AppVersion] = ()) -> list[Section]:
    unknown: list[Section] = [] if seen.queues or seen.parts else [(line, []) for line in unknown_models()]
    told: list[Section] = [
        (f"version {one_line(it.version)} of the application, seen since {it.first_seen:%Y-%m-%d %H:%M} (UTC)", [])
        for it in versions[-1:]
    ]
    return [totals_of(seen), *unknown, ("", table_of(seen.queues)), workers_of(seen), *told]


def of_attention(found: Iterable[Incident]) -> list[Section]:
    return [(said_of(each, utcnow()).text, []) for each in found]


def workers_of(seen: Overview) -> Section:
    table = table_of_workers(shown_workers(seen.workers))
    return "", with_shards(
        table, [number for number, part in parts_of(seen) for _ in part.workers]
    ) if seen.parts else table


def parts_of(seen: Overview) -> Iterable[tuple[int, Overview]]:
    return seen.parts.items() or [(0, seen)]


def totals_of(seen: Overview) -> Section:
    totals = seen.totals
    statuses = ("waiting", "delayed", "running", "success", "error", "canceled")
    row = (f"{totals.jobs:,}", *(f"{getattr(totals, name):,}" for name in statuses), shown_span(totals.latency))
    return f"{seen.database}{_memory(seen)}", [("jobs", *statuses, "latency"), row]


def _memory(seen: Overview) -> str:
    """Say how much memory Redis uses: ``, 4.5 of 4 MB: FULL``."""
    totals = seen.totals
    if totals.memory is None:
        return ", memory unknown"
    used = f", {'the fullest: ' * bool(seen.parts)}{totals.memory / 1_000_000:,.1f}"
    if not totals.max_memory:
        return f"{used} MB"
    most = f"{totals.max_memory / 1_000_000:,.1f}".removesuffix(".0")
    return f"{used} of {most} MB{': FULL' if totals.memory >= totals.max_memory else ''}"


def fitting_sections(sections: list[Section], width: int, spare: Sequence[str] = DISPENSABLE) -> list[Section]:
    """Leave out columns where there is no room, and say so behind the tables."""
    fitting = [(title, *fitted(rows, width, spare)) if rows else (title, rows, []) for title, rows in sections]
    left_out = list(dict.fromkeys(name for _, _, names in fitting for name in names))
    note: list[Section] = [(not_shown(left_out), [])] if left_out else []
    return [*((title, rows) for title, rows, _ in fitting), *note]


def lines_of(sections: list[Section]) -> Iterator[tuple[str, str]]:
    """Yield the lines of some sections, each with its style."""
    for number, (title, rows) in enumerate(sections):
        if number:
            yield "", ""
        for line in wrap(one_line(title, MESSAGE), width_of_terminal(), break_on_hyphens=False):
            yield line, TITLE
        for line in shown_lines(rows, width_of_terminal()) if rows else ():
            yield line, ""


def text_of(lines: Iterable[tuple[str, str]]) -> str:
    """Return the text of lines, with colours if the terminal has them."""
    has_styles = has_colours()
    return "\n".join(painted(line, style) if has_styles else line for line, style in lines)
