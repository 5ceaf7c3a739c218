"""``limpyd-jobs pause`` and ``limpyd-jobs resume``: let the jobs of some names rest, and run them again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from limpyd_jobs.arguments import stored_queue_name
from limpyd_jobs.commandline.options import WorkerOption
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, DRY_RUN, JSON, JSONL, QUEUE_MODEL, UNAUDITED
from limpyd_jobs.models import Queue
from limpyd_jobs.query import pause_queue, paused_queues, queue_names, queue_states
from limpyd_jobs.search.classes import is_board, queue_models_of
from limpyd_jobs.texts import one_line
from limpyd_jobs.views.hints import names_near, some_of, unknown_classes, unknown_models

# How many names a message tells of.
MAX_NAMES = 10

FORCE = WorkerOption("--force", action="store_true", help="Pause also a name that no queue has yet")

# What becomes of a board that is to be paused.
NO_PAUSE = "not paused: it is a board of TaskFlow, whose conductors take no notice"


class Resume(Command):
    """Exit status: 0, also for queues that are not paused; 1 if there is no such queue; 2 if the command line is
    wrong."""

    summary = "Let workers run the jobs of some paused queues again"
    words = "name... [options]"
    option_list = (*COMMON_OPTIONS, QUEUE_MODEL, DRY_RUN, UNAUDITED, JSON, JSONL)

    pauses: ClassVar = False

    def run(self) -> int:
        try:
            return change_pauses(self, self.given, pauses=self.pauses)
        except ValueError as error:
            self.parser.error(str(error))


class Pause(Resume):
    """Exit status: 0, also for queues that are paused already; 1 if there is no such queue, unless --force is given, or
    it is a board of TaskFlow; 2 if the command line is wrong."""

    summary = "Let the jobs of some queues wait: workers begin no more of them; running jobs go on"
    words = "name... | --list [options]"
    pauses = True
    option_list = (
        WorkerOption("--list", action="store_true", help="Show which queues are paused, and what waits in them"),
        FORCE,
        *Resume.option_list,
    )

    def run(self) -> int:
        if not self.options.list:
            return super().run()
        if self.given or self.given_options.keys() & {"force", "dry_run", "unaudited"}:
            self.parser.error("--list takes no names, and does not support --force, --dry-run and --unaudited")
        paused = sorted(paused_queues(queue_model=self.options.queue_model), key=lambda each: each[::-1])
        rows = [self._what_waits(*each) for each in paused]
        if self.print_as_json(rows):
            return 0
        names = _lines(paused)
        for row, name in zip(rows, names, strict=True):
            waits = "no queue" if row["waiting"] is None else f"{row['waiting']:,} waiting, {row['delayed']:,} delayed"
            print(f"{name}: {waits}")
        if not rows:
            print("no queue is paused")
        return 0

    def _what_waits(self, model: str, name: str) -> Mapping[str, Any]:
        states = [each for each in queue_states(name, queue_model=self.options.queue_model) if each.model == model]
        waiting, delayed = sum(each.waiting for each in states), sum(each.delayed for each in states)
        numbers = {"waiting": waiting, "delayed": delayed} if states else {"waiting": None, "delayed": None}
        return {"queue": name, "model": model, **numbers}


def change_pauses(command: Command, names: Sequence[str], *, pauses: bool) -> int:
    """Pause, or resume, the queues of some names, print what was done, and return the exit status."""
    if not names:
        command.parser.error("the name of a queue is needed")
    done, undone = ("paused", "paused already") if pauses else ("resumed", "not paused")
    paused = paused_queues(queue_model=command.options.queue_model)
    asked = _asked(command, [*map(stored_queue_name, names)], paused, pauses=pauses)
    rows = []
    for model, name in asked:
        is_refused = pauses and is_board(model)
        is_changed = ((model, name) in paused) != pauses and not is_refused
        if not (is_refused or command.options.dry_run):
            is_changed = pause_queue(model, name, pauses=pauses, **command.how_audited)
        outcome = NO_PAUSE if is_refused else command.would_be(done) if is_changed else undone
        rows.append({"queue": name, "model": model, "outcome": outcome})
    if not command.print_as_json(rows):
        for name, row in zip(_lines(asked), rows, strict=True):
            print(f"{name}: {row['outcome']}")
    return int(any(row["outcome"] == NO_PAUSE for row in rows))


def _asked(
    command: Command, names: Sequence[str], paused: Iterable[tuple[str, str]], *, pauses: bool
) -> list[tuple[str, str]]:
    """Return the model and the name of all queues that are meant; end the command if there is none of a name."""
    only = command.options.queue_model
    found = {(state.model, state.name) for state in queue_states(names, queue_model=only)}
    known = found if pauses else found.union(paused)
    asked = []
    for name in dict.fromkeys(names):
        models = sorted(model for model, of_name in known if of_name == name)
        if not models and pauses and getattr(command.options, "force", False):
            models = [queue_models_of(None, only or Queue)[0].name]
        if not models:
            others = queue_names(queue_model=only)
            hint = "; --force pauses the name all the same" if pauses else ""
            refuse_unknown(command, name, others if pauses else others.union(of_name for _, of_name in paused), hint)
        asked += [(model, name) for model in models]
    return asked


def _lines(queues: Sequence[tuple[str, str]]) -> list[str]:
    """Return the names of queues, each with its model if the names are of several models."""
    names, models = [name for _, name in queues], {model for model, _ in queues}
    several = len(models) > 1 and len(set(names)) < len(names)
    return [f"{one_line(name)} ({one_line(model)})" if several else one_line(name) for model, name in queues]


def refuse_unknown(command: Command, name: str, others: Collection[str], hint: str = "") -> NoReturn:
    """End a command, with the status 1, because there is no queue of a name; say which queues there are."""
    there = f"; there are: {some_of(sorted(others), MAX_NAMES)}" if others else ", nor any other that is known"
    text = f"there is no queue {one_line(name)}{names_near(name, others) or there}"
    command.fail(1, ". ".join([f"{text}{hint}", *(dict.fromkeys([*unknown_classes(), *unknown_models()]))]))
