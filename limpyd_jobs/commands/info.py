"""``limpyd-jobs info`` and ``limpyd-jobs top``: a database at a glance, once or again and again."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from select import select
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

from redis.exceptions import RedisError

from limpyd_jobs.classes.imports import installed_only
from limpyd_jobs.commandline.options import WorkerOption, interval
from limpyd_jobs.commandline.parser import cannot_use_redis
from limpyd_jobs.commandline.programs import as_typed
from limpyd_jobs.commands.queues import HEADING, as_row, table_of
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.names import unknown_models
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, JSON, QUEUE_MODEL
from limpyd_jobs.commands.shared.tables import (
    Row,
    cut,
    fitted,
    not_shown,
    print_json,
    time_between,
    width_of_terminal,
    with_models,
    with_shards,
)
from limpyd_jobs.commands.workers import table_of as table_of_workers
from limpyd_jobs.dates import parse_datetime, shown_span, utcnow
from limpyd_jobs.models.presence import SILENT
from limpyd_jobs.query import (
    FoundJob,
    Glance,
    Incident,
    Overview,
    Period,
    attention,
    glance,
    large_jobs_of,
    summed,
)
from limpyd_jobs.query.overview import kept_without_limit
from limpyd_jobs.records.metrics import Metrics
from limpyd_jobs.texts import MESSAGE, one_line, table_lines
from limpyd_jobs.views.documents import document
from limpyd_jobs.views.merged import glance_of_all
from limpyd_jobs.views.workers import shown_workers

# A table with its title; an empty title for none.
Section = tuple[str, list[Row]]

# Shows some of these; and waits some seconds, and may return True to end that.
Show = Callable[[list[Section]], None]
Wait = Callable[[float], bool | None]

# How many of the jobs that run are shown, and of how many minutes the rates are.
MAX_RUNNING, MINUTES = 20, 5

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

# The style of a title, as rich calls it.
TITLE = "bold"

# How many columns of the queues tell the state of now, not of the last minutes.
WAITING = HEADING.index("success list")

EVERY = WorkerOption(
    "--every", type="float", check=interval, default=2.0, help="The seconds between two looks (default: 2)"
)


class Info(Command):
    """Exit status: 0, with --watch also after Ctrl-C."""

    summary = "Show a database at a glance: how many jobs there are, the queues, the workers"
    merged = ("",)
    option_list = (
        *COMMON_OPTIONS,
        QUEUE_MODEL,
        WorkerOption("--watch", action="store_true", help="Show it again and again, until Ctrl-C"),
        EVERY,
        JSON,
    )

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
            print_json({**_fields_of(seen), "attention": found, "warnings": warnings})
        else:
            told = [f"warning: {warning}" for warning in warnings] + [kept_without_limit(seen)]
            sections = _narrow([*_tables(seen), *_sentences(found)], width_of_terminal())
            print(_text(_lines([*sections, *((line, []) for line in told if line)])))
        return 0

    def _watch(self) -> int:
        before, end = ("\x1b[H\x1b[J", "\n") if sys.stdout.isatty() else ("", "\n\n")

        def look() -> None:
            seen = self._seen(lambda: _narrow(self._sections(), width_of_terminal()))
            print(f"{before}{_text(_lines(seen))}", end=end, flush=True)

        return self._look_again(look)

    def _sections(self) -> list[Section]:
        glanced = self._glance()
        return [*_tables(glanced.overview), *_sentences(attention(glanced))]

    def _glance(self, most_running: int = 0) -> Glance:
        how = {"most_running": most_running, "queue_model": self.options.queue_model}
        return self.look(glance, glance_of_all, **how)

    def _seen(self, look: Callable[[], list[Section]]) -> list[Section]:
        """Look at the database. If Redis cannot be used now, tell that instead."""
        self.unseen = {}
        try:
            sections = look()
        except RedisError as error:
            return [(f"{utcnow():%H:%M:%S} (UTC): {cannot_use_redis(error)}", [])]
        return [*sections, *((line, []) for line in self.not_seen())]

    def _look_again(self, look: Callable[[], None], wait: Wait = time.sleep) -> int:
        """Look again and again, until Ctrl-C, or until the wait between two looks returns True."""
        with suppress(KeyboardInterrupt):
            look()
            while not wait(self.options.every):
                look()
        return 0


class Top(Info):
    """Exit status: 0 after q or Ctrl-C; 2 if the command line is wrong, or the output is not a terminal."""

    summary = "Watch a database on the whole screen: the jobs that run, and the rates of the queues; q or Ctrl-C ends"
    ends = ""
    option_list = (*COMMON_OPTIONS, QUEUE_MODEL, EVERY)

    def run(self) -> int:
        if not sys.stdout.isatty():
            self.parser.error("needs a terminal; limpyd-jobs info --watch does not")
        with _keyboard() as (keys, is_q_typed), _on_whole_screen() as show:
            return self._look_again(lambda: show(_titled(self._seen(self._sections), f"({keys} ends)")), is_q_typed)

    def _sections(self) -> list[Section]:
        """The same, with the jobs that run, and the rates of the last minutes, as wide as the terminal."""
        width, height = get_terminal_size()
        most = min(max(height // 3 - 2, 1), MAX_RUNNING)
        glanced = self._glance(most)
        seen = glanced.overview
        tables: list[Section] = [("", _running(seen, most)), ("", _rates(seen, glanced.periods[-MINUTES:]))]
        return _narrow([_totals(seen), *tables, *_sentences(attention(glanced)), _workers(seen)], width)


@contextmanager
def _keyboard() -> Iterator[tuple[str, Wait]]:
    """Yield which keys end the command, and a function that waits; at a terminal, it returns whether q is typed."""
    if not (sys.stdin and sys.stdin.isatty()):
        yield "Ctrl-C", time.sleep
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()

    def is_q_typed(seconds: float) -> bool:
        return bool(select([terminal], [], [], seconds)[0]) and b"q" in os.read(terminal, 100).lower()

    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield "q or Ctrl-C", is_q_typed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _fields_of(seen: Overview) -> dict[str, Any]:
    shown, numbers = shown_workers(seen.workers), [number for number, part in _parts(seen) for _ in part.workers]
    shards = [{"shard": number} if seen.parts else {} for number in numbers]
    workers = [{**shard, **document(worker)} for shard, worker in zip(shards, shown, strict=True)]
    return {"database": seen.database, "totals": seen.totals, "queues": seen.queues, "workers": workers}


def _tables(seen: Overview) -> list[Section]:
    unknown: list[Section] = [] if seen.queues or seen.parts else [(line, []) for line in unknown_models()]
    return [_totals(seen), *unknown, ("", table_of(seen.queues)), _workers(seen)]


def _sentences(found: Iterable[Incident]) -> list[Section]:
    return [(as_typed(each.text), []) for each in found]


def _workers(seen: Overview) -> Section:
    table = table_of_workers(shown_workers(seen.workers))
    return "", with_shards(
        table, [number for number, part in _parts(seen) for _ in part.workers]
    ) if seen.parts else table


def _parts(seen: Overview) -> Iterable[tuple[int, Overview]]:
    return seen.parts.items() or [(0, seen)]


def _totals(seen: Overview) -> Section:
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


def _narrow(sections: list[Section], width: int) -> list[Section]:
    """Leave out columns where there is no room, and say so behind the tables."""
    fitting = [(title, *fitted(rows, width, DISPENSABLE)) if rows else (title, rows, []) for title, rows in sections]
    left_out = list(dict.fromkeys(name for _, _, names in fitting for name in names))
    note: list[Section] = [(not_shown(left_out), [])] if left_out else []
    return [*((title, rows) for title, rows, _ in fitting), *note]


def _rates(seen: Overview, periods: Iterable[Period]) -> list[Row]:
    rates, told = summed(periods, lambda queue, _: queue), set[str]()

    def rate(name: str) -> Row:
        """Return a value that is shown once for all priorities of a queue."""
        if name in told:
            return "", "", ""
        told.add(name)
        metrics = rates.get(name, Metrics())
        return (f"{metrics.started / MINUTES:,.1f}", f"{metrics.failed / MINUTES:,.1f}", shown_span(metrics.ran.mean))

    heading = (*HEADING[:WAITING], "begun/min", "failed/min", "mean run", HEADING[-1])
    rows: list[Row] = []
    for state in seen.queues:
        *shown, note = as_row(state)
        rows.append((*shown[:WAITING], *rate(state.name), note))
    return with_models(heading, rows, [state.model for state in seen.queues], -1)


def _running(seen: Overview, most: int) -> list[Row]:
    found = [(job, number, part) for number, part in _parts(seen) for job in part.running]
    if seen.parts:
        found = sorted(found, key=lambda each: each[0].start or "", reverse=True)[:most]
    rows: list[Row] = [(job.ident, job.identifier, job.queue, job.tries, _for(job, part)) for job, _, part in found]
    table = [("running", "identifier", "queue", "try", "for"), *rows]
    return with_shards(table, [number for _, number, _ in found]) if seen.parts else table


def _for(job: FoundJob, seen: Overview) -> str:
    """Say for how long a job runs, or that this is not known."""
    if job.ident in {it.ident for worker in seen.workers if worker.silent_for for it in worker.running}:
        return SILENT
    return "lease ended" if job.ident in seen.lapsed else time_between(parse_datetime(job.start), utcnow())


def _titled(sections: list[Section], text: str) -> list[Section]:
    (title, rows), *others = sections
    return [(f"{title} {text}", rows), *others]


def _lines(sections: list[Section]) -> Iterator[tuple[str, str]]:
    """Yield the lines of some sections, each with its style."""
    for number, (title, rows) in enumerate(sections):
        if number:
            yield "", ""
        for line in wrap(one_line(title, MESSAGE), width_of_terminal(), break_on_hyphens=False):
            yield line, TITLE
        for at, line in enumerate(table_lines(rows)):
            yield cut(line, width_of_terminal()), "" if at else "bold cyan"


def _fitting(sections: list[Section], height: int) -> list[tuple[str, str]]:
    """Return the lines that there is room for, and how many more there are."""
    lines = [*_lines(sections)]
    left = lines[height - 1 :]
    return (
        lines if len(left) < 2 else [*lines[: height - 1], (f"({len(left)} more lines: the terminal is too low)", "")]
    )


def _text(lines: Iterable[tuple[str, str]]) -> str:
    return "\n".join(line for line, _ in lines)


@contextmanager
def _on_whole_screen() -> Iterator[Show]:
    """Show what fits on the screen; with rich on a screen of its own, with colours."""
    try:
        with installed_only():
            from rich.console import Group
            from rich.live import Live
            from rich.text import Text
    except ImportError:

        def show(sections: list[Section]) -> None:
            print(f"\x1b[H\x1b[2J{_text(_fitting(sections, get_terminal_size().lines - 1))}", flush=True)

        yield show
        return

    def drawn(line: str, style: str) -> Text:
        return Text(line, style, no_wrap=True, overflow="ellipsis")

    with Live(screen=True, auto_refresh=False) as live:

        def draw(sections: list[Section]) -> None:
            lines = _fitting(sections, get_terminal_size().lines)
            live.update(Group(*(drawn(*line) for line in lines)), refresh=True)

        yield draw
