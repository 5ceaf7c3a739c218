"""``limpyd-jobs check``: what is wrong in a database, and its repair."""

from __future__ import annotations

import sys
from functools import partial

from limpyd_jobs.check import audited_repair, check
from limpyd_jobs.check.catalogue import JOB_STORES, import_used_integrations
from limpyd_jobs.check.checking import DEFAULT_PAUSE, LEASE
from limpyd_jobs.check.problems import LEAVE, WORDS
from limpyd_jobs.commandline.options import WorkerOption, one_of, seconds
from limpyd_jobs.commandline.programs import as_typed
from limpyd_jobs.commands.integrations import job_store, namespace
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, UNAUDITED
from limpyd_jobs.commands.shared.printing import ProgressLine, width_of_terminal
from limpyd_jobs.models import Queue


class Check(Command):
    """Exit status: 0 if nothing is wrong, or everything was repaired; 1 if something is wrong, or if --strict is given
    and something is warned of."""

    summary = "Look for jobs, queues and keys that are not as they should be, and repair them"
    examples = (
        "limpyd-jobs check",
        "limpyd-jobs check --repair",
    )
    option_list = (
        *COMMON_OPTIONS,
        WorkerOption(
            "--queue-model",
            help="The model of the queues: Queue or a subclass, e.g. --queue-model=my.module.QueueModel (default: all "
            "that are imported)",
        ),
        WorkerOption(
            "--error-model",
            help="The model of the errors: Error or a subclass, e.g. --error-model=my.module.ErrorModel (default: all "
            "that are imported)",
        ),
        WorkerOption("--repair", action="store_true", help="Repair what can be repaired (default: only tell)"),
        UNAUDITED,
        WorkerOption(
            "--unresolved",
            check=one_of(*WORDS["unresolved"]),
            default=LEAVE,
            help="What a repair does with jobs in queues whose class cannot be resolved: leave (the default), "
            "quarantine (move their idents to the quarantine of their queue) or delete (remove them)",
        ),
        WorkerOption(
            "--unknown-status",
            check=one_of(*WORDS["unknown_status"]),
            default=LEAVE,
            help="What a repair does with jobs in no queue whose status is not one of the six: leave (the default), "
            "requeue or delete",
        ),
        WorkerOption(
            "--namespace",
            action="append",
            check=namespace,
            help="Look at the job store of APScheduler in this namespace, too; may be repeated (default: at "
            f"{' and '.join(JOB_STORES)}, if they are used)",
        ),
        WorkerOption(
            "--strict",
            action="store_true",
            help="Warn of settings that lose jobs in a failover of Redis Sentinel, or when its memory is full, too; "
            "each warning makes the exit status 1 (default: warn of lists that grow only)",
        ),
        WorkerOption("--json", action="store_true", help="Print what is wrong as JSON (default: as a table)"),
        WorkerOption(
            "--lease",
            type="float",
            check=seconds,
            default=LEASE,
            help="How many seconds at most to leave alone a RUNNING job without a lease, or without a worker's claim, "
            f"because a worker may run it, before a worker puts it back (default: {LEASE}); 0 if no worker of "
            "version 2 lives",
        ),
        WorkerOption(
            "--pause",
            type="float",
            check=seconds,
            default=DEFAULT_PAUSE,
            help=f"The seconds between the two looks at what seems wrong (default: {DEFAULT_PAUSE}); 0 if nothing else "
            "uses the database",
        ),
        WorkerOption(
            "--progress",
            action="store_true",
            help="Tell on standard error how far the check is (default: if that is a terminal)",
        ),
        WorkerOption("--no-progress", action="store_false", dest="progress", help="Do not tell how far the check is"),
    )

    def run(self) -> int:
        model, error_model = self.options.queue_model, self.options.error_model
        if self.options.unaudited and not self.options.repair:
            self.parser.error("--unaudited needs --repair")
        shows = sys.stderr.isatty() if self.options.progress is None else self.options.progress
        progress = ProgressLine() if shows else None
        unread = [] if self.options.job_modules else import_used_integrations()
        for each in self.options.namespace or ():
            job_store(self, each)
        choices = {"unresolved": self.options.unresolved, "unknown_status": self.options.unknown_status}
        verb = partial(audited_repair, **self.how_audited) if self.options.repair else check
        report = verb(
            queue_models=[model] if model else None,
            error_models=[error_model] if error_model else None,
            database=(model or Queue).database,
            lease=self.options.lease,
            pause=self.options.pause,
            strict=bool(self.options.strict),
            progress=progress,
            **choices,
        )
        if progress:
            progress.end()
        report.unchecked += unread
        print(report.as_json() if self.options.json else as_typed(report.as_table(width_of_terminal())))
        return 1 if report.left or (self.options.strict and report.warnings) else 0
