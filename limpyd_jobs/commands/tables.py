"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from limpyd_jobs.utils import one_line


def print_table(rows: Iterable[Sequence[object]]) -> None:
    """Print rows, the first of which is the heading, with columns as wide as need be; what is None as nothing."""
    shown = [["" if cell is None else one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_json(value: Any) -> None:
    """Print a value as JSON, in lines that people can read."""
    print(json.dumps(value, indent=2, ensure_ascii=True))


def print_json_lines(values: Iterable[Mapping[str, Any]]) -> None:
    """Print each value as JSON in a line of its own."""
    for value in values:
        print(json.dumps(value, ensure_ascii=True))
