"""The output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from limpyd_jobs.utils import MESSAGE, NAME, one_line, shortened

Row = Sequence[object]

# How many characters of a stored text are shown, unless all are asked for.
LONGEST = 16_000

_BARS = " ▁▂▃▄▅▆▇█"


def print_table(rows: Iterable[Row], most: int = NAME) -> None:
    """Print rows, of which the first is the heading, with columns as wide as needed. None is printed as an empty
    cell. Of a cell of more than `most` characters, the beginning is shown."""
    for line in table_lines(rows, most):
        print(line)


def table_lines(rows: Iterable[Row], most: int = NAME) -> Iterator[str]:
    """Yield the lines of such a table."""
    shown = [["" if cell is None else one_line(cell, most) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def print_error(fields: Mapping[str, str], is_whole: bool = False) -> None:
    """Print a stored error: when it happened, its type and message, and its traceback; if it is not to be whole, only
    the beginning and the end of what is long."""
    most = sys.maxsize if is_whole else MESSAGE
    date, kind, message = (one_line(fields.get(name, ""), most) for name in ("date_time", "type", "message"))
    print(f"{date} {kind}: {message}")
    traceback = fields.get("traceback", "")
    for line in (traceback if is_whole else ends_of(traceback)).splitlines():
        print(f"    {one_line(line, most)}")


def ends_of(text: str, most: int = LONGEST) -> str:
    """Return a text; of a longer one, its beginning and its end, and how much is left out in between."""
    return shortened(text, most)


def print_json(value: Any) -> None:
    """Print a value as JSON, in lines that people can read."""
    print(json.dumps(value, indent=2, ensure_ascii=True))


def print_json_lines(values: Iterable[Any]) -> None:
    """Print each value as JSON in a line of its own."""
    for value in values:
        print(json.dumps(value, ensure_ascii=True))


def count_of(number: int, one: str, many: str = "") -> str:
    """Return a number of things: ``1 job``, ``1,200 jobs``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def chart(numbers: Sequence[int], width: int) -> str:
    """Return numbers as a line of bars, with the highest number at its end. Neighbours share a bar if there are too
    many."""
    size = max(-(-len(numbers) // width), 1)
    sums = [sum(numbers[at : at + size]) for at in range(0, len(numbers), size)] or [0]
    highest = max(*sums, 1)
    line = "".join(_BARS[-(-number * (len(_BARS) - 1) // highest)] for number in sums)
    return f"{line} {max(sums):,} at most"
