"""``limpyd-jobs pause`` and ``limpyd-jobs resume``: let the jobs of some names rest, and run them again."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar

from limpyd_jobs.arguments import stored_queue_name
from limpyd_jobs.commands.command import COMMON_OPTIONS, Command
from limpyd_jobs.models import Queue
from limpyd_jobs.store import records
from limpyd_jobs.utils import one_line
from limpyd_jobs.workers.options import WorkerOption


class Resume(Command):
    """Exit status: 0, also for queues that are not paused."""

    summary = "Let workers run the jobs of some paused queues again"
    words = "name... "
    told: ClassVar = ("resumed", "not paused")

    def run(self) -> int:
        """Resume each queue that is named, and say so."""
        for name in self._names():
            print(f"{one_line(name)}: {self.told[0 if self._change(name) else 1]}")
        return 0

    @property
    def _queue_model(self) -> type[Queue]:
        return self.options.queue_model or Queue

    def _names(self) -> list[str]:
        if not self.given:
            self.parser.error("the name of a queue is needed")
        try:
            return [stored_queue_name(name) for name in self.given]
        except ValueError as error:
            self.parser.error(str(error))

    def _change(self, name: str) -> bool:
        is_resumed = records.resume(self._queue_model, name)
        if not is_resumed:
            near = names_near(name, records.paused_names(self._queue_model))
            if near:
                self._warn(f"{one_line(name)} is not paused{near}")
        return is_resumed

    def _warn(self, text: str) -> None:
        print(f"{self.parser.get_prog_name()}: warning: {text}", file=sys.stderr)


class Pause(Resume):
    """Exit status: 0, also for queues that are paused already, or that do not exist yet."""

    summary = "Let the jobs of some queues wait: workers begin no more of them; running jobs go on"
    words = "name... | --list"
    told = ("paused", "paused already")
    option_list = (
        WorkerOption("--list", action="store_true", help="Show which queues are paused, and what waits in them"),
        *COMMON_OPTIONS,
    )

    def run(self) -> int:
        """Pause each queue that is named, and say so; or tell which queues are paused."""
        if not self.options.list:
            return super().run()
        if self.given:
            self.parser.error("--list takes no names")
        names = sorted(records.paused_names(self._queue_model))
        for name in names:
            print(f"{one_line(name)}: {self._what_waits(name)}")
        if not names:
            print("no queue is paused")
        return 0

    def _what_waits(self, name: str) -> str:
        rows = records.list_queues(self._queue_model, [name])
        return f"{sum(row[3] for row in rows)} waiting, {sum(row[4] for row in rows)} delayed" if rows else "no queue"

    def _change(self, name: str) -> bool:
        if not records.list_queues(self._queue_model, [name]):
            names = self._queue_model.collection().values_list("name", flat=True)
            self._warn(f"no queue is named {one_line(name)} so far{names_near(name, names)}")
        return records.pause(self._queue_model, name)


def names_near(name: str, others: Iterable[str | None]) -> str:
    """Return the end of a message: which other names may be meant; empty if no name is similar."""
    near = get_close_matches(name, {other for other in others if other})
    return f", but there is: {', '.join(map(one_line, near))}" if near else ""
