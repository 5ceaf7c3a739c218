"""``limpyd-jobs audit``: who did what to many jobs at once."""

from __future__ import annotations

from limpyd_jobs.commands.command import JSON, JSONL, READING_OPTIONS, Command
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.store.audit import last_entries
from limpyd_jobs.workers.options import WorkerOption, between

COLUMNS = ("who", "verb", "filter", "done", "skipped", "refused")


class Audit(Command):
    """Exit status: 0."""

    summary = "Tell who requeued, canceled, moved or deleted many jobs at once, the newest first"
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
        rows = [{name: entry.get(name, "") for name in ("at", *COLUMNS)} for entry in entries]
        self.print_list(rows, ("at (UTC)", *COLUMNS), ([*row.values()] for row in rows))
        return 0
