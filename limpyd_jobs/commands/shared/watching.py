"""Looking again and again, until Ctrl-C, and following one job until its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from limpyd_jobs.commandline.options import WorkerOption, interval
from limpyd_jobs.commandline.parser import cannot_use_redis
from limpyd_jobs.commands.shared.printing import width_of_terminal
from limpyd_jobs.dates import utcnow
from limpyd_jobs.fields.codecs import dump_compact
from limpyd_jobs.models.following.output import Chunk, Output
from limpyd_jobs.query import JobDetails, job_details, job_output
from limpyd_jobs.search.classes import asking_once
from limpyd_jobs.texts import MESSAGE, one_line

# Waits some seconds, and may return True to end that.
Wait = Callable[[float], bool | None]

EVERY = WorkerOption(
    "--every", type="float", check=interval, default=2.0, help="The seconds between two looks (default: 2)"
)

# The exit status of a job that is followed, by how it ended, and if it was deleted meanwhile.
ENDS = {"success": 0, "error": 1, "canceled": 4}
GONE = 5

# How many seconds lie between two looks at it.
LOOK_EVERY = 0.5

# How many bytes are read of each value of a job that is followed, and how wide its bar is.
MOST, WIDTH_OF_BAR = 10_000, 20


def look_again(look: Callable[[], None], every: float, wait: Wait = time.sleep) -> int:
    """Look again and again, until Ctrl-C, or until the wait between two looks returns True."""
    with suppress(KeyboardInterrupt):
        look()
        while not wait(every):
            look()
    return 0


def watch(look: Callable[[], object], every: float) -> int:
    """Show what a function prints again and again: on a terminal from its first line. While Redis cannot be used, say
    that instead."""
    before = "\x1b[H\x1b[J" if sys.stdout.isatty() else ""

    def shown() -> None:
        print(end=before)
        try:
            with asking_once(anew=True):  # each time anew
                look()
        except RedisError as error:
            print(f"{utcnow():%H:%M:%S} (UTC): {cannot_use_redis(error)}")
        print(end="" if before else "\n", flush=True)

    return look_again(shown, every)


class Following:
    """Prints what becomes of a job, until its end: its status, its progress, the lines of its log, and its output; of
    that, what comes after a chunk, if its id is given. With `is_jsonl`, it prints each chunk as JSON, and no more."""

    def __init__(self, ident: str, after: str | None = None, *, is_jsonl: bool = False) -> None:
        self._ident, self._is_jsonl = ident, is_jsonl
        self._log: Sequence[str] = ()
        self._status = self._bar = ""
        self._tries = "0"
        self._last, self._run = after or "", 0
        self._is_terminal = sys.stdout.isatty()

    def until_end(self) -> int:
        """Return the exit status, by how the job ended."""
        details = job_details(self._ident, most=MOST)
        output = job_output(self._ident, after=self._last)
        while True:
            if details.status in ENDS:
                output.close()
                self._print_rest()
            self._print(details)
            if details.status in ENDS:
                return ENDS[details.status]
            self._print_output(output)
            try:
                details = job_details(self._ident, most=MOST)
            except LookupError:
                self._say("deleted")
                return GONE

    def _print_output(self, output: Output) -> None:
        """Print the output that comes until it is time to look at the job again."""
        until = time.monotonic() + LOOK_EVERY
        while (left := until - time.monotonic()) > 0:
            if output.has_ended:
                time.sleep(left)
            for chunk in output.read(left):
                self._print_chunk(chunk)

    def _print_rest(self) -> None:
        """Print what is left of its output."""
        output = job_output(self._ident, after=self._last)
        while some := output.read(0):
            for chunk in some:
                self._print_chunk(chunk)

    def _print_chunk(self, chunk: Chunk) -> None:
        if chunk.run > self._run > 0:
            self._say(f"run {chunk.run} of the job:")
        self._last, self._run = chunk.id, chunk.run
        if self._is_jsonl:
            print(dump_compact(chunk._asdict()), flush=True)
        self._say(f"> {one_line(dump_compact(chunk.value), MESSAGE)}")

    def _print(self, details: JobDetails) -> None:
        for line in _new_lines(self._log, details.log):
            self._say(one_line(line, MESSAGE))
        self._log = details.log
        progress, tries = details.progress, details.fields.get("tries", "0")
        bar = f"{progress.fraction:4.0%} {one_line(progress.text)}".rstrip() if progress else ""
        is_other = (details.status, tries) != (self._status, self._tries)
        if is_other:
            self._say(self._told(details))
        self._status, self._tries = details.status, tries
        if bar and bar != self._bar and details.status not in ENDS:
            self._show_bar(bar, progress.fraction if progress else 0.0)
        self._bar = bar

    def _told(self, details: JobDetails) -> str:
        queue = f" in {one_line(details.queue)}" if details.queue and details.status in ("waiting", "delayed") else ""
        until = details.fields.get("delayed_until", "") if details.status == "delayed" else ""
        number = details.fields.get("tries", "")
        tries = f", try {number}" if details.status == "running" and number else ""
        owner = f" by {one_line(details.owner)}" if details.owner and details.status == "running" else ""
        error = details.errors[0] if details.errors and details.status in ("error", "waiting", "delayed") else None
        why = f": {error.get('type')}: {error.get('message')}" if error else ""
        return one_line(
            f"{details.status}{queue}{f' until {until} (UTC)' if until else ''}{tries}{owner}{why}", MESSAGE
        )

    def _say(self, text: str) -> None:
        if self._is_jsonl:
            return
        end = "\x1b[K" if self._is_terminal and self._bar else ""
        print(f"{text}{end}", flush=True)

    def _show_bar(self, bar: str, fraction: float) -> None:
        """Print how far the job is: on a terminal in one line, which the next one replaces."""
        if self._is_jsonl:
            return
        if not self._is_terminal:
            print(bar, flush=True)
            return
        filled = min(max(round(fraction * WIDTH_OF_BAR), 0), WIDTH_OF_BAR)
        line = f"{'█' * filled}{'░' * (WIDTH_OF_BAR - filled)} {bar}"
        print(f"{line[: width_of_terminal() - 1]}\x1b[K", end="\r", flush=True)


def _new_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield the lines behind those that were there before: of a log, the last lines are kept."""
    for known in range(min(len(old), len(new)), -1, -1):
        if [*old[len(old) - known :]] == [*new[:known]]:
            yield from new[known:]
            return
