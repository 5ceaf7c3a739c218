"""``limpyd-jobs audit``: who did what to many jobs at once."""

from __future__ import annotations

from limpyd_jobs.arguments import read_priority
from limpyd_jobs.commands.command import JSON, JSONL, READING_OPTIONS, Command
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.store.audit import last_entries
from limpyd_jobs.workers.options import WorkerOption, between

TEXTS, NUMBERS = ("at", "who", "verb", "filter", "how"), ("done", "skipped", "refused")


class Audit(Command):
    """Exit status: 0."""

    summary = "Tell who changed many jobs at once, or paused queues, the newest first"
    option_list = (
        *READING_OPTIONS,
        WorkerOption(
            "--limit", type="int", default=50, check=between(1, 10_000), help="How many, at the most (default: 50)"
        ),
        JSON,
        JSONL,
    )

    def run(self) -> int:
        """Print the last entries."""
        entries = last_entries(BaseJobsModel.get_connection(), self.options.limit)
        rows = [
            {name: entry.get(name, "") for name in TEXTS} | {name: read_priority(entry.get(name)) for name in NUMBERS}
            for entry in entries
        ]
        self.print_list(rows, ("at (UTC)", *TEXTS[1:], *NUMBERS), ([*row.values()] for row in rows))
        return 0
