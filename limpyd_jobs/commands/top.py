"""``limpyd-jobs top``: a database on the whole screen; with rich, pages of rows to look at and to act on."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from select import select
from shutil import get_terminal_size
from time import monotonic
from typing import TYPE_CHECKING, Any

from limpyd_jobs.classes.imports import installed_only
from limpyd_jobs.commands.info import (
    DISPENSABLE,
    MAX_RUNNING,
    Info,
    Section,
    fitting_sections,
    lines_of,
    of_attention,
    parts_of,
    text_of,
    totals_of,
    workers_of,
)
from limpyd_jobs.commands.queues import HEADING, as_row
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, QUEUE_MODEL
from limpyd_jobs.commands.shared.printing import Row, time_between, with_models, with_shards
from limpyd_jobs.commands.shared.watching import EVERY, Wait, look_again
from limpyd_jobs.dates import parse_datetime, shown_span, utcnow
from limpyd_jobs.models.presence import SILENT
from limpyd_jobs.query import (
    FoundJob,
    Incident,
    Lately,
    Metrics,
    Overview,
    attention,
    ended_workers,
    lately,
)

if TYPE_CHECKING:
    from limpyd_jobs.commands.screen.reading import Sample

# How many columns of the queues tell the state of now, not of the last minutes.
WAITING = HEADING.index("success list")


class Top(Info):
    """Exit status: 0 after q or Ctrl-C; 2 if the command line is wrong, or the output is not a terminal."""

    summary = "Watch a database on the whole screen, what needs attention first, and act on it; q or Ctrl-C ends"
    words = """[options]

With the extra [cli] (rich), and a keyboard, each line can be chosen:
  arrows, j k    choose a queue, a cause, a job          Enter  open it      Esc  go back
  /              filter       s  sort by another column   w  the workers     ?    all keys
  p              pause or unpause a queue: asks before
  r              requeue what failed, at a rate: asks before
  e              explain what is wrong
Else it shows what info shows, with the jobs that run and the rates of the queues."""
    ends = ""
    option_list = (*COMMON_OPTIONS, QUEUE_MODEL, EVERY)

    def run(self) -> int:
        if self.given:
            self.parser.error(f"unexpected argument: {self.given[0]!r}")
        if not sys.stdout.isatty():
            self.parser.error("needs a terminal; limpyd-jobs info --watch does not")
        if sys.stdin and sys.stdin.isatty() and _has_rich():
            return self._run_screen()
        with _keyboard() as (keys, is_q_typed):
            return look_again(partial(self._show_again, keys), self.options.every, is_q_typed)

    def _show_again(self, keys: str) -> None:
        _show(_titled(self._seen(self._sections), f"({keys} ends)"))

    def _run_screen(self) -> int:
        from limpyd_jobs.commands.screen.app import App
        from limpyd_jobs.commands.screen.keyboard import typed_keys
        from limpyd_jobs.commands.screen.lines import Signs

        signs = Signs(sys.stdout.encoding or "")
        with typed_keys() as keyboard, _on_own_screen() as draw:
            app = App(self._sample, signs, keyboard.wake, verbs=self.shards is None)
            due = 0.0
            try:
                while not app.is_over:
                    if monotonic() >= due:
                        app.refresh()
                        due = monotonic() + self.options.every
                    app.take_results()
                    size = get_terminal_size()
                    draw(app.lines(size.columns, size.lines), size.columns)
                    for key in keyboard.read(max(due - monotonic(), 0.01)):
                        app.press(key)
            except KeyboardInterrupt:
                pass
        return 0

    def _sample(self) -> Sample:
        from limpyd_jobs.commands.screen import reading

        self.unseen = {}
        ended = [*chain.from_iterable(self.look_at_each(ended_workers).values())]
        return reading.Sample.of(self._glance(), ended, self.not_seen())

    def _sections(self) -> list[Section]:
        """What needs attention, the jobs that run, and the rates of the last minutes, as wide as the terminal."""
        width, height = get_terminal_size()
        most = min(max(height // 3 - 2, 1), MAX_RUNNING)
        glanced = self._glance(most)
        seen, found = glanced.overview, attention(glanced)
        tables: list[Section] = [
            ("", _running(seen, most)),
            ("", _rates(seen, lately(glanced.periods, glanced.at), found)),
        ]
        return fitting_sections([totals_of(seen), *of_attention(found), *tables, workers_of(seen)], width, DISPENSABLE)


def _has_rich() -> bool:
    try:
        with installed_only():
            import rich.cells
            import rich.live  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def _on_own_screen() -> Iterator[Callable[[Any, int], None]]:
    """Yield a function that draws lines on a screen of its own, with colours unless NO_COLOR is set."""
    from rich.console import Console
    from rich.live import Live

    from limpyd_jobs.commands.screen.lines import drawn

    with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:

        def draw(lines: Any, width: int) -> None:
            live.update(drawn(lines, width), refresh=True)

        yield draw


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


def _rates(seen: Overview, last: Lately, incidents: Sequence[Incident]) -> list[Row]:
    """Return the queues, those that need attention first."""
    rates, told = last.by_queue, set[str]()
    ranks = {name: -rank for rank, each in reversed([*enumerate(incidents, -len(incidents))]) for name in each.queues}

    def rate(name: str) -> Row:
        """Return a value that is shown once for all priorities of a queue."""
        if name in told:
            return "", "", ""
        told.add(name)
        metrics = rates.get(name, Metrics())
        begun, failed = metrics.started / last.minutes, metrics.failed / last.minutes
        return (f"{begun:,.1f}", f"{failed:,.1f}", shown_span(metrics.ran.mean))

    heading = (*HEADING[:WAITING], "begun/min", "failed/min", "mean run", HEADING[-1])
    rows: list[Row] = []
    states = sorted(seen.queues, key=lambda state: -ranks.get(state.name, 0))
    for state in states:
        *shown, note = as_row(state)
        rows.append((*shown[:WAITING], *rate(state.name), note))
    return with_models(heading, rows, [state.model for state in states], -1)


def _running(seen: Overview, most: int) -> list[Row]:
    found = [(job, number, part) for number, part in parts_of(seen) for job in part.running]
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


def _show(sections: list[Section]) -> None:
    """Show what fits on the screen."""
    print(f"\x1b[H\x1b[2J{text_of(_fitting(sections, get_terminal_size().lines - 1))}", flush=True)


def _fitting(sections: list[Section], height: int) -> list[tuple[str, str]]:
    """Return the lines that there is room for, and how many more there are."""
    lines = [*lines_of(sections)]
    left = lines[height - 1 :]
    return (
        lines if len(left) < 2 else [*lines[: height - 1], (f"({len(left)} more lines: the terminal is too low)", "")]
    )
