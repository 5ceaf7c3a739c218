"""``limpyd-jobs pause`` and ``limpyd-jobs resume``: let the jobs of some names rest, and run them again."""

from __future__ import annotations

from typing import ClassVar

from limpyd_jobs import records
from limpyd_jobs.arguments import stored_queue_name
from limpyd_jobs.commands.command import Command
from limpyd_jobs.models import Queue


class Pause(Command):
    """Exit status: 0, also for queues that are paused already."""

    summary = "Let the jobs of some queues wait: workers begin no more of them, and go on with those that run"
    words = "name... "
    told: ClassVar = ("paused", "paused already")

    def run(self) -> int:
        """Pause each queue that is named, and tell so."""
        queue_model = self.options.queue_model or Queue
        for name in self._names():
            print(f"{name}: {self.told[0 if self._change(queue_model, name) else 1]}")
        return 0

    def _names(self) -> list[str]:
        if not self.given:
            self.parser.error("the name of a queue is needed")
        try:
            return [stored_queue_name(name) for name in self.given]
        except ValueError as error:
            self.parser.error(str(error))

    def _change(self, queue_model: type[Queue], name: str) -> bool:
        return records.pause(queue_model, name)


class Resume(Pause):
    """Exit status: 0, also for queues that are not paused."""

    summary = "Let workers run the jobs of some paused queues again"
    told = ("resumed", "not paused")

    def _change(self, queue_model: type[Queue], name: str) -> bool:
        return records.resume(queue_model, name)
