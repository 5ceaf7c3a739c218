"""A report of what a worker does at this moment. It is made from memory, so it does not wait for Redis."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterator
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING

from limpyd_jobs.texts import one_line
from limpyd_jobs.workers.naming import part_of

if TYPE_CHECKING:
    from limpyd_jobs.transitions import Delivery
    from limpyd_jobs.workers.engine import Engine

# How many of the claimed jobs are named.
NAMED = 5


def report_of(engine: Engine, frame: FrameType | None) -> str:
    """Return what a worker does, in lines.

    Parameters
    ----------
    frame: types.FrameType
        Where the main thread is, if this is called by the handler of a signal.
    """
    return "\n".join([_state(engine), *_jobs(engine), *_threads(frame)])


def _state(engine: Engine) -> str:
    worker = engine.worker
    asked = "asked to end, " if worker.end_forced else "quiet, " if engine.stopping.is_quiet else ""
    loops, queues = part_of(worker.num_loops, worker.max_loops), ",".join(map(one_line, worker.queues))
    return f"{worker.status}, {asked}queues={queues}, loop={loops}, duration={worker.elapsed}"


def _jobs(engine: Engine) -> Iterator[str]:
    running = [execution.claim for execution in engine.executor.running.copy().values() if execution.claim.token]
    for claim in running:
        since = monotonic() - claim.began
        yield f"has the claim {claim.token} on {_name(claim.delivery)}, since {since:.1f} seconds"
    if not running:
        yield "idle"
    prefetched, unrecorded = list(engine.fetcher.prefetched), engine.acknowledger.unrecorded()
    for what, claims in (("to be run next", prefetched), ("run, but not recorded yet", unrecorded)):
        if claims:
            names = "; ".join(map(_name, claims[:NAMED]))
            yield f"{len(claims)} jobs {what}: {names}{'; …' if len(claims) > NAMED else ''}"


def _name(fetched: Delivery) -> str:
    place = f"[{one_line(fetched.queue_name)}|{fetched.pk}|{one_line(fetched.identifier)}]"
    return f"{place} {one_line(fetched.ident)}, try {fetched.tries}"


def _threads(frame: FrameType | None) -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    if frame is not None:
        frames[threading.get_ident()] = frame  # without the handler
    for ident in sorted(frames, key=lambda ident: ident != threading.main_thread().ident):
        stack = "".join(traceback.format_stack(frames[ident])).rstrip()
        yield f"thread {names.get(ident, ident)}:\n{stack}"
