"""``limpyd-jobs info`` and ``limpyd-jobs top``: a database at a glance, once or again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from redis.exceptions import RedisError

from limpyd_jobs.commands.command import JSON, READING_OPTIONS, Command
from limpyd_jobs.commands.queues import HEADING, as_json, as_row
from limpyd_jobs.commands.tables import Row, print_json, span, table_lines
from limpyd_jobs.commands.workers import HEADING as WORKERS
from limpyd_jobs.commands.workers import as_json as worker_as_json
from limpyd_jobs.commands.workers import as_row as worker_as_row
from limpyd_jobs.query import Overview, overview, read_figures, summed
from limpyd_jobs.store.figures import Figures
from limpyd_jobs.utils import one_line, parse_datetime, utcnow
from limpyd_jobs.workers.options import WorkerOption, interval
from limpyd_jobs.workers.parser import cannot_use_redis

# A table with its title; an empty title for none.
Section = tuple[str, list[Row]]

# How many of the jobs that run are shown, and of how many minutes the rates are.
MOST_RUNNING, MINUTES = 20, 5

# How many columns of the queues tell the state of now, not of the last minutes.
WAITING = HEADING.index("success")

EVERY = WorkerOption(
    "--every", type="float", check=interval, default=2.0, help="The seconds between two looks (default: 2)"
)


class Info(Command):
    """Exit status: 0."""

    summary = "Show a database at a glance: how many jobs there are, the queues, the workers"
    option_list = (
        *READING_OPTIONS,
        WorkerOption("--watch", action="store_true", help="Show it again and again, until Ctrl-C"),
        EVERY,
        JSON,
    )

    def run(self) -> int:
        """Show it."""
        if self.options.watch:
            return self._watch()
        seen = overview()
        if self.options.json:
            print_json(_as_json(seen))
        else:
            print("\n".join(_lines(_sections(seen))))
        return 0

    def _watch(self) -> int:
        with _shown_again() if sys.stdout.isatty() else _printed() as show:
            return self._look_again(lambda: show(_seen(lambda: _sections(overview()))))

    def _look_again(self, look: Callable[[], None]) -> int:
        """Look again and again, until Ctrl-C."""
        try:
            while True:
                look()
                time.sleep(self.options.every)
        except KeyboardInterrupt:
            return 0


class Top(Info):
    """Exit status: 0; 2 if the output is no terminal."""

    summary = "Watch a database on the whole screen: the rates of the queues, and the jobs that run"
    option_list = (*READING_OPTIONS, EVERY)

    def run(self) -> int:
        """Show it until Ctrl-C."""
        if not sys.stdout.isatty():
            self.parser.error("needs a terminal; limpyd-jobs info --watch does not")
        with _on_whole_screen() as show:
            return self._look_again(lambda: show(_seen(lambda: _live_sections(overview(most_running=MOST_RUNNING)))))


def _seen(look: Callable[[], list[Section]]) -> list[Section]:
    """Look at the database. If Redis cannot be used now, tell that instead."""
    try:
        return look()
    except RedisError as error:
        return [(f"{utcnow():%H:%M:%S} (UTC): {cannot_use_redis(error)}", [])]


def _as_json(seen: Overview) -> dict[str, Any]:
    return {
        "database": seen.database,
        "totals": seen.totals._asdict(),
        "queues": [as_json(state) for state in seen.queues],
        "workers": [worker_as_json(worker) for worker in seen.workers],
    }


def _sections(seen: Overview) -> list[Section]:
    return [_totals(seen), ("", [HEADING, *map(as_row, seen.queues)]), _workers(seen)]


def _workers(seen: Overview) -> Section:
    return "", [WORKERS, *map(worker_as_row, seen.workers)]


def _totals(seen: Overview) -> Section:
    totals = seen.totals
    statuses = ("waiting", "delayed", "running", "success", "error", "canceled")
    row = (f"{totals.jobs:,}", *(f"{getattr(totals, name):,}" for name in statuses), _span(totals.latency))
    memory = "" if totals.memory is None else f", {totals.memory / 1_000_000:,.1f} MB"
    return f"{seen.database}{memory}", [("jobs", *statuses, "latency"), row]


def _live_sections(seen: Overview) -> list[Section]:
    """As `_sections`, with the rates of the last minutes, and the jobs that run."""
    periods = read_figures(timedelta(minutes=MINUTES))
    rates, told = summed(periods, lambda queue, _: queue), set[str]()

    def rate(name: str) -> Row:
        """Return a value that is shown once for all priorities of a queue."""
        if name in told:
            return "", "", ""
        told.add(name)
        figures = rates.get(name, Figures())
        return (f"{figures.started / MINUTES:,.1f}", f"{figures.failed / MINUTES:,.1f}", _span(figures.ran.mean))

    queues: list[Row] = [(*HEADING[:WAITING], "begun/min", "failed/min", "mean run", "")]
    for state in seen.queues:
        *shown, note = as_row(state)
        queues.append((*shown[:WAITING], *rate(state.name), note))
    running: list[Row] = [("running", "identifier", "queue", "try", "for")]
    for job in seen.running:
        start = parse_datetime(job.start)
        ran = _span(max((utcnow() - start).total_seconds(), 0)) if start else ""
        running.append((job.ident, job.identifier, job.queue, job.tries, ran))
    return [_totals(seen), ("", queues), _workers(seen), ("", running)]


def _span(seconds: float | None) -> str:
    return "" if seconds is None else span(seconds)


def _lines(sections: list[Section]) -> Iterator[str]:
    for number, (title, rows) in enumerate(sections):
        if number:
            yield ""
        if title:
            yield one_line(title)
        yield from table_lines(rows)


@contextmanager
def _printed() -> Iterator[Callable[[list[Section]], None]]:
    """Print one look below the other."""
    yield lambda sections: print("\n".join(_lines(sections)), end="\n\n", flush=True)


@contextmanager
def _shown_again() -> Iterator[Callable[[list[Section]], None]]:
    """Print each look in place of the one before."""

    def show(sections: list[Section]) -> None:
        print("\x1b[H\x1b[J" + "\n".join(_lines(sections)), flush=True)

    print("\x1b[2J", end="")
    yield show


@contextmanager
def _on_whole_screen() -> Iterator[Callable[[list[Section]], None]]:
    """Show each look on a screen of its own, with colours if rich is installed."""
    try:
        from rich.console import Group
        from rich.live import Live
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        with _shown_again() as show:
            yield show
        return

    def drawn(section: Section) -> Group:
        title, (heading, *rows) = section[0], section[1] or [()]
        table = Table(*map(str, heading), box=None, header_style="bold cyan", pad_edge=False, padding=(0, 2, 0, 0))
        for row in rows:
            table.add_row(*(Text("" if cell is None else one_line(cell)) for cell in row))
        return Group(Text(one_line(title), style="bold") if title else Text(""), table)

    with Live(screen=True, auto_refresh=False) as live:
        yield lambda sections: live.update(Group(*map(drawn, sections)), refresh=True)
