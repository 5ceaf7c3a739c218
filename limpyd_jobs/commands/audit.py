"""``limpyd-jobs audit``: who did what to many jobs at once."""

from __future__ import annotations

from collections.abc import Sequence

from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.options import JSON, JSONL, LIMIT, READING_OPTIONS
from limpyd_jobs.query import AuditEntry, audit_entries

NUMBERS = ("done", "skipped", "refused")
HEADING = ("at (UTC)", "who", "verb", "filter", "how", *NUMBERS, "until (UTC)", "outcome")


class Audit(Command):
    """Exit status: 0."""

    summary = "Tell who changed many jobs at once, queues, schedules or workers, the newest first"
    examples = ("limpyd-jobs audit --limit=10",)
    option_list = (
        *READING_OPTIONS,
        LIMIT,
        JSON,
        JSONL,
    )

    def run(self) -> int:
        entries = audit_entries(self.options.limit)
        self.print_list(entries, HEADING, map(_as_row, entries), ("until (UTC)", "refused", "skipped", "how"))
        return 0


def _as_row(entry: AuditEntry) -> Sequence[object]:
    """Return an entry as the table shows it: who it was, and beside that who the process claimed to be."""
    who = f"{entry.who} (as {entry.claimed})" if entry.claimed else entry.who
    outcome = f"{entry.outcome}: {entry.outcomes}" if entry.outcomes else entry.outcome
    return [entry.at, who, *(getattr(entry, name) for name in ("verb", "filter", "how", *NUMBERS, "until")), outcome]
