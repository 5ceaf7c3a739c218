"""A report of what a worker does at this moment. It is made from memory, so it does not wait for Redis."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from types import FrameType

from limpyd_jobs.texts import one_line
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers.claiming.stock import Stock
from limpyd_jobs.workers.context import Context, Face
from limpyd_jobs.workers.naming import part_of
from limpyd_jobs.workers.run import Runs

# How many of the claimed jobs are named.
NAMED = 5


@dataclass(eq=False)
class Report:
    """What a worker does, in lines."""

    worker: Face
    context: Context
    runs: Runs
    stock: Stock
    held: Callable[[], Iterator[str]]  # what jobs hold, in lines

    def __call__(self, frame: FrameType | None, *, has_identifiers: bool = True) -> str:
        """Return it. `frame` is where the main thread is, if this is called by the handler of a signal. Without
        identifiers, it may be shown to whoever may not see these."""
        worker = self.worker
        asked = "asked to end, " if worker.end_forced else "quiet, " if self.context.state.is_quiet else ""
        loops, queues = part_of(worker.num_loops, worker.max_loops), ",".join(map(one_line, worker.queues))
        state = f"{worker.status}, {asked}queues={queues}, loop={loops}, duration={worker.elapsed}"
        return "\n".join([state, *self._jobs(_name if has_identifiers else _place), *self.held(), *_threads(frame)])

    def _jobs(self, name: Callable[[Delivery], str]) -> Iterator[str]:
        running = [each for each in self.runs.now_running() if each.is_held]
        for claim in running:
            since = monotonic() - claim.began
            yield f"has the claim {claim.token} on {name(claim.delivery)}, since {since:.1f} seconds"
        if not running:
            yield "idle"
        following = list(self.stock.deliveries)
        unrecorded = [each.delivery for each in self.runs.unrecorded.copy()]
        for what, waiting in (("to be run next", following), ("run, but not recorded yet", unrecorded)):
            if waiting:
                names = "; ".join(map(name, waiting[:NAMED]))
                yield f"{len(waiting)} jobs {what}: {names}{'; …' if len(waiting) > NAMED else ''}"


def _name(delivery: Delivery) -> str:
    place = f"[{one_line(delivery.queue_name)}|{delivery.pk}|{one_line(delivery.identifier)}]"
    return f"{place} {one_line(delivery.ident)}, try {delivery.tries}"


def _place(delivery: Delivery) -> str:
    return f"[{one_line(delivery.queue_name)}|{delivery.pk}] {one_line(delivery.ident)}, try {delivery.tries}"


def _threads(frame: FrameType | None) -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    if frame is not None:
        frames[threading.get_ident()] = frame  # without the handler
    for ident in sorted(frames, key=lambda ident: ident != threading.main_thread().ident):
        stack = "".join(traceback.format_stack(frames[ident])).rstrip()
        yield f"thread {names.get(ident, ident)}:\n{stack}"
