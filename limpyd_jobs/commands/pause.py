"""``limpyd-jobs pause`` and ``limpyd-jobs resume``: let the jobs of some names rest, and run them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from optparse import Values
from typing import Any, ClassVar

from limpyd_jobs.arguments import stored_queue_name
from limpyd_jobs.commands.command import COMMON_OPTIONS, JSON, JSONL, Command
from limpyd_jobs.commands.verbs import DRY_RUN, UNAUDITED
from limpyd_jobs.models import Queue
from limpyd_jobs.store import records
from limpyd_jobs.utils import one_line
from limpyd_jobs.workers.options import WorkerOption


class Resume(Command):
    """Exit status: 0, also for queues that are not paused; 2 if the command line is wrong."""

    summary = "Let workers run the jobs of some paused queues again"
    words = "name... [options]"
    option_list = (
        *(option for option in COMMON_OPTIONS if option.dest != "error_model"),
        *(DRY_RUN, UNAUDITED, JSON, JSONL),
    )

    pauses: ClassVar = False

    def run(self) -> int:
        """Pause or resume each queue that is named, and say so."""
        try:
            return change_pauses(self, self.given, pauses=self.pauses)
        except ValueError as error:
            self.parser.error(str(error))


class Pause(Resume):
    """Exit status: 0, also for queues that are paused already, or that do not exist yet; 2 if the command line is
    wrong."""

    summary = "Let the jobs of some queues wait: workers begin no more of them; running jobs go on"
    words = "name... | --list [options]"
    pauses = True
    option_list = (
        WorkerOption("--list", action="store_true", help="Show which queues are paused, and what waits in them"),
        *Resume.option_list,
    )

    def run(self) -> int:
        """Pause each queue that is named, and say so; or tell which queues are paused."""
        if not self.options.list:
            return super().run()
        if self.given:
            self.parser.error("--list takes no names")
        rows = [self._what_waits(name) for name in sorted(records.paused_names(_model_of(self.options)))]
        if self.print_as_json(rows):
            return 0
        for row in rows:
            waits = "no queue" if row["waiting"] is None else f"{row['waiting']} waiting, {row['delayed']} delayed"
            print(f"{one_line(row['queue'])}: {waits}")
        if not rows:
            print("no queue is paused")
        return 0

    def _what_waits(self, name: str) -> Mapping[str, Any]:
        rows = records.list_queues(_model_of(self.options), [name])
        waiting, delayed = (sum(int(row[at]) for row in rows) if rows else None for at in (3, 4))
        return {"queue": name, "waiting": waiting, "delayed": delayed}


def change_pauses(command: Command, names: Sequence[str], *, pauses: bool) -> int:
    """Pause the queues of some names, or resume them, as the options of a command say, and print what was done.

    Returns
    -------
    int
        The exit status.

    Raises
    ------
    ValueError
        If a name is not valid.
    """
    if not names:
        command.parser.error("the name of a queue is needed")
    model, verb = _model_of(command.options), "pause" if pauses else "resume"
    done, undone = ("paused", "paused already") if pauses else ("resumed", "not paused")
    names = [stored_queue_name(name) for name in names]
    _warn(command, names, pauses=pauses)
    if command.options.dry_run:
        paused = records.paused_names(model)
        is_changed = {name: (name in paused) != pauses for name in names}
    else:
        is_changed = {name: getattr(records, verb)(model, name, **command.how_audited) for name in names}
    rows = [{"queue": name, "outcome": command.would_be(done) if is_changed[name] else undone} for name in names]
    if not command.print_as_json([{**row, **command.mark} for row in rows]):
        for row in rows:
            print(f"{one_line(row['queue'])}: {row['outcome']}")
    return 0


def _warn(command: Command, names: Sequence[str], *, pauses: bool) -> None:
    """Warn of names that may be wrong."""
    model = _model_of(command.options)
    for name in names:
        if pauses and not records.list_queues(model, [name]):
            near = names_near(name, model.collection().values_list("name", flat=True))
            command.tell(f"warning: no queue is named {one_line(name)} so far{near}")
        elif not pauses and name not in (paused := records.paused_names(model)) and names_near(name, paused):
            command.tell(f"warning: {one_line(name)} is not paused{names_near(name, paused)}")


def _model_of(options: Values) -> type[Queue]:
    return options.queue_model or Queue


def names_near(name: str, others: Iterable[str | None]) -> str:
    """Return the end of a message: which other names may be meant; empty if no name is similar."""
    near = get_close_matches(name, {other for other in others if other})
    return f", but there is: {', '.join(map(one_line, near))}" if near else ""
