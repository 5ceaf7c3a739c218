"""Colours of states, on a terminal that has them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

# What a terminal is told for each style.
_CODES = {
    "bold": "1",
    "heading": "1;36",
    "weak": "2",
    "error": "31",
    "warning": "33",
    "over": "2",
    "well": "36",
    "running": "34",
    "delayed": "35",
}

# The style of each state, whatever it is of: a job, a worker, a queue.
_STYLES = {
    "error": "error",
    "success": "well",
    "idle": "well",
    "running": "running",
    "busy": "running",
    "delayed": "delayed",
    "canceled": "over",
    "paused": "warning",
    "silent": "warning",
    "quiet": "warning",
    "stopping": "warning",
    "no": "warning",  # queue
    "late": "warning",
    "interrupted": "error",
    "killed": "error",
}

# The columns that have a state.
STATES = ("status", "state", "outcome")


def has_colours() -> bool:
    """Whether the output is a terminal, and no one asked for it to be without colours."""
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    return bool(sys.stdout and sys.stdout.isatty()) and not is_dumb and not os.environ.get("NO_COLOR")


def painted(text: str, style: str) -> str:
    """Return a text in a style; as it is, if it has none."""
    code = _CODES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


def painted_row(cells: Sequence[str], heading: Sequence[object]) -> list[str]:
    """Return the cells of a row with those coloured that have a state."""
    return [
        painted(cell, _STYLES.get(cell.split()[0], "")) if name in STATES and cell.split() else cell
        for cell, name in zip(cells, heading, strict=True)
    ]
