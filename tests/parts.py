"""The parts of a worker, as its loop builds them, for tests of one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from unittest.mock import patch
from weakref import WeakKeyDictionary

from limpyd_jobs import Worker
from limpyd_jobs.workers.context import RunState
from limpyd_jobs.workers.loop import Loop
from limpyd_jobs.workers.maintenance import scheduler
from limpyd_jobs.workers.worker import OURS

Part = TypeVar("Part")


def with_part(kind: type[Part], make: Callable[[], Worker]) -> tuple[Worker, Part]:
    """Make a worker; return it, and its part of that kind."""
    made: list[Part] = []
    init = kind.__init__

    def note(self: Part, *args: Any, **options: Any) -> None:
        made.append(self)
        init(self, *args, **options)

    with patch.object(kind, "__init__", note):
        worker = make()
    (part,) = made
    return worker, part


def calls_of(part: Any, name: str) -> list[Any]:
    """Note the end of each call of a method of a part."""
    calls: list[Any] = []
    method = getattr(part, name)
    setattr(part, name, lambda *args: (method(*args), calls.append(args))[0])
    return calls


def parts_of(worker: Worker) -> Loop:
    """Build the parts of a worker, which claim a job, run it and record how it ends; without running the loop."""
    loop = Loop(worker, OURS, RunState())
    loop.context.connect()
    return loop


_parts: WeakKeyDictionary[Worker, Loop] = WeakKeyDictionary()


def run_task(worker: Worker, name: str) -> float | None:
    """Run a maintenance task, built for a worker; return after how many seconds to run it again. It leaves nothing that
    is due for the next time, however slow the machine is."""
    parts = _parts.setdefault(worker, _parts.get(worker) or parts_of(worker))
    with patch.object(scheduler, "MAX_ENQUEUING", scheduler.MAX_ENQUEUING and 60.0):
        seconds: float | None = getattr(parts, name).run(parts.context)
    return seconds
