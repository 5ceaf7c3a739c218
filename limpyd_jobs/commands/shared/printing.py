"""The output of commands: tables and progress for people, JSON for programs."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from shutil import get_terminal_size
from textwrap import TextWrapper
from typing import Any

from limpyd_jobs.commands.shared.colours import has_colours, painted, painted_row
from limpyd_jobs.dates import span
from limpyd_jobs.texts import MESSAGE, NAME, cells_of, one_line, shortened, table_lines
from limpyd_jobs.views.documents import text_of

Row = Sequence[object]

# How many characters of a stored text are shown, unless all are asked for.
MAX_TEXT = 16_000

# The columns of a table whose texts are shortened first where there is no room, and how much is left of them.
PROSE, SHORTEST = ("message", "filter", "how", "trigger", "outcome"), 16

# What the identifier of a job is to which none was given.
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_BARS = " ▁▂▃▄▅▆▇█"


def with_models(heading: Row, rows: Iterable[Row], models: Sequence[str], at: int) -> list[Row]:
    """Return a table, with the model of each row as a column if there are several."""
    shown = [("model", heading), *zip(models, rows, strict=True)]
    several = len({*models}) > 1
    return [(*row[:at], model, *row[at:]) if several else row for model, row in shown]


def with_shards(table: Sequence[Row], numbers: Iterable[int]) -> list[Row]:
    """Return a table with the number of the shard of each row as its first column."""
    return [(number, *row) for number, row in zip(["shard", *numbers], table, strict=True)]


def width_of_terminal() -> int:
    """Return the columns of the terminal; without one, a number that cuts nothing."""
    return get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def print_fitted(rows: Sequence[Row], spare: Sequence[str] = ()) -> None:
    """Print a table, at most as wide as the terminal; what is the same in all rows goes first, then columns of `spare`,
    then those at the right. States have colours on a terminal."""
    width = width_of_terminal()
    rows, left_out = fitted(rows, width, spare)
    for line in shown_lines(rows, width):
        print(line)
    if left_out:
        print(wrapped(f"({not_shown(left_out)})", hang=""))


def shown_lines(rows: Sequence[Row], width: int) -> Iterator[str]:
    """Yield the lines of a table for the output, cut where they are wider."""
    lines = table_lines(rows)
    if not has_colours():
        yield from (cut(line, width) for line in lines)
        return
    yield from (painted(cut(line, width), "heading") for line in islice(lines, 1))
    for line, cells in zip(lines, cells_of(rows)[1:], strict=True):
        yield cut(line, width) if len(line) > width else "  ".join(painted_row(cells, rows[0])).rstrip()


def print_fields(rows: Sequence[Row], most: int = NAME) -> None:
    """Print names and values, the beginning of those of more than `most` characters, in lines that fit the terminal."""
    names = [one_line(name) for name, _ in rows]
    width = max(map(len, names)) + 2
    for name, (_, value) in zip(names, rows, strict=True):
        shown, margin = "" if value is None else one_line(value, most), name.ljust(width)
        print(wrapped(shown, margin=margin, hang=" " * width) or margin.rstrip())


def not_shown(left_out: Sequence[str]) -> str:
    return f"no room for: {', '.join(left_out)}"


def fitted(rows: Sequence[Row], width: int, spare: Sequence[str] = ()) -> tuple[list[Row], list[str]]:
    """Leave out the columns of a table that say nothing, then shorten its long texts, then leave out others, until it
    fits; return it, and the columns left out."""
    left_out: list[str] = []
    same = {} if len(rows) < 3 else _same_in_all(rows)
    saying_nothing = [*(name for name in spare if name in same), *same]
    if _has_made_identifiers(rows):
        saying_nothing.append("identifier")
        same |= {"identifier": "a UUID"}
    while _width(rows) > width and saying_nothing:
        name = saying_nothing.pop(0)
        if name in rows[0]:
            rows = _without(rows, name)
            left_out.append(f"{name} ({same[name]} in all rows)" if same[name] else name)
    whole, rows = rows, _shortened(rows, width)
    names = iter((*spare, *map(str, reversed(rows[0][1:]))))
    while _width(rows) > width and (name := next((each for each in names if each in rows[0]), "")):
        whole, rows = _without(whole, name), _without(rows, name)
        left_out.append(name)
    return _shortened(whole, width), left_out  # there may be more room now


def _without(rows: Sequence[Row], name: str) -> list[Row]:
    at = rows[0].index(name)
    return [(*row[:at], *row[at + 1 :]) for row in rows]


def _has_made_identifiers(rows: Sequence[Row]) -> bool:
    """Whether the rows have identifiers, and these are UUIDs, such as those that jobs get whose adder gave none: they
    say nothing that the ident does not."""
    if len(rows) < 2 or "identifier" not in rows[0][1:]:
        return False
    at = rows[0].index("identifier")
    return all(_UUID.fullmatch(one_line(row[at])) for row in rows[1:])


def _same_in_all(rows: Sequence[Row]) -> dict[str, str]:
    """Return the columns, but the first one, in which all rows have the same, and what that is; the last one first."""
    columns = [("" if cell is None else one_line(cell) for cell in column) for column in zip(*rows[1:], strict=True)]
    found = {str(name): {*cells} for name, cells in zip(rows[0], columns, strict=True)}
    return {name: cells.pop() for name, cells in reversed([*found.items()][1:]) if len(cells) == 1}


def wrapped(text: str, command: str = "", margin: str = "", hang: str = "  ") -> str:
    """Return a text in lines that fit the terminal, behind a margin. A command in it stays whole, to be copied."""
    joined = text.replace(command, command.replace(" ", "\xa0")) if command else text
    wrapper = TextWrapper(width_of_terminal(), margin, hang, break_long_words=False, break_on_hyphens=False)
    return wrapper.fill(joined).replace("\xa0", " ")


def cut(text: str, most: int) -> str:
    """Return a text, or its beginning and ``…`` if it has more characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _shortened(rows: Sequence[Row], width: int) -> list[Row]:
    """Cut the texts of the columns that are made of prose, as far as need be."""
    excess = _width(rows) - width
    for at, name in enumerate(rows[0]):
        if name in PROSE and excess > 0:
            longest = max(len(one_line(row[at])) for row in rows if row[at] is not None)
            most = max(longest - excess, min(longest, SHORTEST))
            rows = [
                tuple(cut(one_line(cell), most) if i == at and cell else cell for i, cell in enumerate(row))
                for row in rows
            ]
            excess -= longest - most
    return [*rows]


def _width(rows: Sequence[Row]) -> int:
    return max(map(len, table_lines(rows)))


def print_error(fields: Mapping[str, str], is_whole: bool = False) -> None:
    """Print a stored error, all of it or only the beginning and the end of what is long."""
    most = sys.maxsize if is_whole else MESSAGE
    date, kind, message = (one_line(fields.get(name, ""), most) for name in ("date_time", "type", "message"))
    print(wrapped(f"{date} {kind}: {message}"))
    traceback = fields.get("traceback", "")
    for line in (traceback if is_whole else ends_of(traceback)).splitlines():
        print(f"    {one_line(line, most)}")


def ends_of(text: str) -> str:
    """Return a stored text; of a long one, its beginning and its end, and how much is left out."""
    return shortened(text, MAX_TEXT)


def print_json(value: Any) -> None:
    print(text_of(value, indent=2))


def print_json_lines(values: Iterable[Any]) -> int:
    """Print each value as JSON in a line of its own; return how many there were."""
    number = 0
    for value in values:
        print(text_of(value))
        number += 1
    return number


def time_between(start: datetime | None, end: datetime | None) -> str:
    """Return the time between two moments in the same way."""
    return span(max((end - start).total_seconds(), 0.0)) if start and end else ""


def chart(numbers: Sequence[int], width: int) -> str:
    """Return numbers as a line of bars, neighbours together if need be, with the highest number at its end."""
    size = max(-(-len(numbers) // width), 1)
    sums = [sum(numbers[at : at + size]) for at in range(0, len(numbers), size)] or [0]
    highest = max(*sums, 1)
    line = "".join(_BARS[-(-number * (len(_BARS) - 1) // highest)] for number in sums)
    return f"{line} {max(sums):,} at most"


class ProgressLine:
    """A line on standard error that is written again and again; a new line now and then if that is not a terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._pause = 0.1 if self._is_terminal else 5
        self._last = float("-inf")

    def __call__(self, line: str) -> None:
        """Show a line, unless the last one was shown a moment ago."""
        if time.monotonic() - self._last >= self._pause:
            self._last = time.monotonic()
            sys.stderr.write(f"\r\x1b[K{line}" if self._is_terminal else f"{line}\n")
            sys.stderr.flush()

    def end(self) -> None:
        """Take the line away."""
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")


@contextmanager
def shown_progress(line: str) -> Iterator[Callable[..., object] | None]:
    """Give a function that shows a line with some numbers; None if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    progress = ProgressLine()
    try:
        yield lambda *numbers: progress(line.format(*numbers))
    finally:
        progress.end()
