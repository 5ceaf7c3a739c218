"""``limpyd-jobs audit``: who did what to many jobs at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from limpyd_jobs.arguments import read_priority
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.options import JSON, JSONL, LIMIT, READING_OPTIONS
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.records.audit import last_entries

TEXTS, NUMBERS = ("at", "who", "claimed", "verb", "filter", "how"), ("done", "skipped", "refused")
HEADING = ("at (UTC)", "who", "verb", "filter", "how", *NUMBERS, "outcome")


class Audit(Command):
    """Exit status: 0."""

    summary = "Tell who changed many jobs at once, queues, schedules or workers, the newest first"
    option_list = (
        *READING_OPTIONS,
        LIMIT,
        JSON,
        JSONL,
    )

    def run(self) -> int:
        entries = last_entries(BaseJobsModel.get_connection(), self.options.limit)
        rows = [
            {
                **{name: entry.get(name, "") for name in TEXTS},
                **{name: read_priority(entry.get(name)) for name in NUMBERS},
                **{name: entry.get(name, "") for name in ("begun", "outcome")},
            }
            for entry in entries
        ]
        self.print_list(rows, HEADING, map(_as_row, rows), ("refused", "skipped", "how"))
        return 0


def _as_row(row: Mapping[str, Any]) -> Sequence[object]:
    """Return an entry as the table shows it: who it was, and beside that who the process claimed to be."""
    who = f"{row['who']} (as {row['claimed']})" if row["claimed"] else row["who"]
    return [row["at"], who, *(row[name] for name in ("verb", "filter", "how", *NUMBERS, "outcome"))]
