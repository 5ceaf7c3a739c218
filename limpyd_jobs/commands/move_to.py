"""``limpyd-jobs move-to``: all jobs of a database become those of another one."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from redis.exceptions import RedisError

from limpyd_jobs.commandline.options import WorkerOption, seconds
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, DRY_RUN, JSON, JSONL, YES
from limpyd_jobs.commands.shared.printing import ProgressLine, print_fields
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.redis.database import JobsDatabase, parse_database
from limpyd_jobs.relocation import NotMoved, Plan, Relocation
from limpyd_jobs.relocation.relocating import NOTICED_AFTER
from limpyd_jobs.texts import MESSAGE, count_of, one_line


class MoveTo(Command):
    """Exit status: 0; 1 if the jobs are not moved, or keys are left, or you answered no; 2 if the command line is
    wrong."""

    summary = "Move all jobs to another database: from one server to a cluster, back, or to another server"
    words = """URL [options]

Stop all workers and schedulers first, and all programs of version 2. Programs that add
jobs may go on: they get an exception, DatabaseMoved, until they use the new database.
It copies all keys of the jobs, compares them, and then deletes them. It can be
interrupted, even killed, at any moment: type the line again for the rest."""
    option_list = (
        *COMMON_OPTIONS,
        WorkerOption(
            "--also",
            action="append",
            help="Move other keys that begin so, too; may be repeated (default: those in the namespaces of all jobs, "
            "queues, errors, schedules and integrations)",
        ),
        WorkerOption(
            "--pause",
            type="float",
            check=seconds,
            default=NOTICED_AFTER,
            help="The seconds until all programs have noticed that they cannot add jobs (default: "
            f"{NOTICED_AFTER:g}); 0 if nothing else uses the database",
        ),
        WorkerOption(
            "--undo",
            action="store_true",
            help="Give a move up that was broken off: use the old database again, and delete the copies",
        ),
        DRY_RUN,
        YES,
        JSON,
        JSONL,
    )

    def run(self) -> int:
        if len(self.given) != 1:
            self.parser.error("name one database, as --database takes it, to which the jobs are moved")
        with ExitStack() as stack:
            tell = None
            if sys.stderr.isatty():
                tell = ProgressLine()
                stack.callback(tell.end)
            relocation = self._relocation(tell)
            try:
                return self._undo(relocation) if self.options.undo else self._move(relocation)
            except NotMoved as error:
                self.fail(1, one_line(error, MESSAGE))

    def _relocation(self, tell: ProgressLine | None) -> Relocation:
        how = {"tell": tell} if tell else {}
        try:
            target = JobsDatabase(**parse_database(self.given[0]))
            return Relocation(
                BaseJobsModel.database, target, also=self.options.also or (), pause=self.options.pause, **how
            )
        except ConfigurationException as error:
            self.parser.error(str(error))

    def _undo(self, relocation: Relocation) -> int:
        if self.options.dry_run:
            self.parser.error("--undo and --dry-run do not go together")
        if not self.is_sure("use the old database again, and delete the copies?"):
            return 1
        relocation.undo()
        return 0

    def _move(self, relocation: Relocation) -> int:
        plan = relocation.plan()
        if self.options.dry_run:
            return self._print(plan)
        where = one_line(" to ".join(relocation.names), MESSAGE)
        which = ", ".join(f"{one_line(name)!r} ({number:,})" for name, number in plan.begins.items())
        if not self.is_sure(f"move {count_of(plan.keys, 'key')} from {where}, which begin with {which or 'nothing'}?"):
            return 1
        try:
            moved = relocation.run()
        except (KeyboardInterrupt, RedisError):
            self.note("not all is done: type the line again for the rest, or with --undo. See limpyd-jobs check")
            raise
        if not self.print_as_json(moved):
            rows = [("keys", ""), (f"{moved.keys:,}", "moved")]
            such = f"such as {one_line(moved.example)} in {relocation.names[0]}"
            rows += [(f"{moved.left:,}", f"left: changed after they were copied, {such}")] if moved.left else []
            print_fields(rows, MESSAGE)
        self.note("all programs need the new database now")
        return 1 if moved.left else 0

    def _print(self, plan: Plan) -> int:
        values = {
            "keys": plan.keys,
            "begins": plan.begins,
            "left": plan.left,
            "present": plan.present,
        }
        if not self.print_as_json(values):
            rows = [("keys", ""), (f"{plan.keys:,}", "would be moved")]
            rows += [(f"{number:,}", f"of these begin with {one_line(name)!r}") for name, number in plan.begins.items()]
            rows += [
                (f"{number:,}", f"would stay: they begin with {one_line(name)!r}, which is not known (--also)")
                for name, number in plan.left.items()
            ]
            rows += [("there", f"{each}: stop it first") for each in plan.present]
            rows += [("begun", plan.note.how_far)] if plan.note else []
            print_fields(rows, MESSAGE)
        return 0
