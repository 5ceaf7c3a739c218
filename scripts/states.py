"""Print the table that says which script takes a job from which status to which, from the headers of the scripts.

The manual shows it: docs/reference/states.rst.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ("verb", "from", "to", "what")

# In the order of a job's life.
VERBS = (
    "add",
    "add_many",
    "add_once",
    "enqueue_due",
    "add_flow",
    "drop_flow",
    "move",
    "move_many",
    "edit",
    "claim",
    "claim_job",
    "renew",
    "renew_many",
    "settle",
    "rest",
    "ask_signal",
    "ask_children",
    "succeed",
    "succeed_many",
    "fail",
    "finish_canceled",
    "cancel",
    "cancel_many",
    "delay",
    "release",
    "abandon",
    "force_release",
    "rescue",
    "reconcile",
    "requeue",
    "requeue_many",
    "promote",
    "send_signal",
    "signal_flow",
    "step_flow",
    "skip",
    "defer_unresolved",
    "prune",
)


def header(path: Path) -> dict[str, str]:
    """Return the ``-- name: text`` lines at the top of a script; none if it is no transition."""
    return dict(re.findall(r"^-- (verb|from|to|what): (.+)$", path.read_text("utf-8"), re.MULTILINE))


def rows() -> list[tuple[str, ...]]:
    """Return the verbs, each with where it goes from and to, and what it does."""
    headers = {path.stem: header(path) for path in (ROOT / "limpyd_jobs" / "lua").glob("*/*.lua")}
    transitions = {name for name, found in headers.items() if "from" in found}
    if transitions != set(VERBS):
        raise SystemExit(f"VERBS does not name the transitions: {sorted(transitions ^ set(VERBS))}")
    return [tuple(headers[name][column] for column in COLUMNS) for name in VERBS]


def table() -> str:
    """Return the table, in reStructuredText."""
    cells = [COLUMNS, *rows()]
    widths = [max(len(row[i]) for row in cells) for i in range(len(COLUMNS))]
    rule = "  ".join("=" * width for width in widths)
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule, ""])


if __name__ == "__main__":
    print(table(), end="")
