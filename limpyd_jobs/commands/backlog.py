"""``limpyd-jobs backlog``: what has to be run, and how many workers that needs, for autoscalers."""

from __future__ import annotations

from redis.exceptions import ConnectionError

from limpyd_jobs.commandline.options import WorkerOption, between, queue_names, time_span
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.options import JSON, JSONL, QUEUE_MODEL, READING_OPTIONS
from limpyd_jobs.commands.shared.printing import wrapped
from limpyd_jobs.dates import shown_span
from limpyd_jobs.query.backlog import Backlog as Found
from limpyd_jobs.query.backlog import backlog_of, read_load
from limpyd_jobs.views.merged import load_of_all

HEADING = ("queue", "waiting", "due", "delayed", "running", "latency", "mean run", "busy workers")


class Backlog(Command):
    """Exit status: 0, also after SIGTERM; 2 if the command line is wrong, or it cannot listen there."""

    summary = "Tell what has to be run, and how many workers that needs: once, or to autoscalers over HTTP"
    examples = ("limpyd-jobs backlog --queues=mails --within=2m",)
    merged = ("",)
    option_list = (
        *READING_OPTIONS,
        QUEUE_MODEL,
        WorkerOption("--queues", check=queue_names, help="Of these queues, joined by commas (default: of all)"),
        WorkerOption(
            "--within",
            check=time_span,
            default=60.0,
            help="In what time the jobs that can be begun now should have been begun, as 90, 90s, 30m (default: 60)",
        ),
        WorkerOption(
            "--port",
            type="int",
            check=between(0, 65535),
            help="Answer over HTTP on this port until SIGTERM, 0 for any that is free: /backlog, and /backlog with "
            "?queues=mails,news&within=30s; /health",
        ),
        WorkerOption(
            "--host",
            default="127.0.0.1",
            help="The address to listen on; 0.0.0.0 lets other machines ask, without a password (default: 127.0.0.1)",
        ),
        WorkerOption("--dry-run", action="store_true", help="With --port: listen, print the address, and end"),
        JSON,
        JSONL,
    )

    def run(self) -> int:
        if self.options.port is not None:
            return self._serve()
        found = self._look(self.options.queues, self.options.within)
        if self.print_as_json(found):
            return 0
        rows = [
            (
                f"{name} (paused)" if each.is_paused else name,
                *(f"{number:,}" for number in (each.waiting, each.due, each.delayed, each.running)),
                shown_span(each.latency),
                shown_span(each.run_seconds),
                f"{each.load:,.1f}",
            )
            for name, each in found.queues.items()
        ]
        self.print_list([], HEADING, rows)
        within = shown_span(self.options.within)
        print()
        print(wrapped(f"workers that this needs, to begin all within {within}: about {found.wanted_workers:,}"))
        return 0

    def _look(self, queues: str | None, within: float) -> Found:
        """Look at queues whose names are joined by commas, or at all."""
        names = [name.strip() for name in queues.split(",") if name.strip()] if queues else None
        load = self.look(read_load, load_of_all, names=names, queue_model=self.options.queue_model)
        return backlog_of(load, within)

    def _serve(self) -> int:
        from limpyd_jobs.commands.shared.backlog_server import serve

        serve(self._look_at_all, self.options, self.note)
        return 0

    def _look_at_all(self, queues: str | None, within: float) -> Found:
        """Look at queues; it is an error if a shard cannot be used, because its jobs need workers, too."""
        self.unseen = {}
        found = self._look(queues, within)
        if self.unseen:
            raise ConnectionError("; ".join(self.unseen.values()))
        return found
