"""Looking for what is left of those who died: jobs whose lease lapsed, and records of who was there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from limpyd_jobs import dates, transitions
from limpyd_jobs.exceptions import WorkerLost
from limpyd_jobs.idents import Ident
from limpyd_jobs.models import Queue, job_classes
from limpyd_jobs.models.presence import presence_models
from limpyd_jobs.records import presences
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.transitions import ClaimRequest, Delivery
from limpyd_jobs.workers.context import Context

# How many seconds to let pass between two looks, at least: claims of applications may have very short leases.
SHORTEST_WAIT = 1.0


@dataclass(eq=False)
class Rescuer:
    """Puts jobs whose lease lapsed back in their waiting lists. A job that was rescued too often ends in error.

    It also deletes the presences of those who are not there any more.
    """

    name = "rescue_jobs"

    queue_model: type[Queue]
    lease: float
    max_rescues: int
    request: Callable[[], ClaimRequest]  # without waiting lists
    on_turn: Callable[[], None]  # it is this worker's turn to reconcile
    on_rescued: Callable[[Delivery], Any]
    on_exhausted: Callable[[Delivery, WorkerLost], Any]

    def __post_init__(self) -> None:
        self.interval = self.lease / 4
        self._next_lapse: float | None = None
        self._has_run = False
        self._is_starting = not dates.moved_time  # else tests let leases lapse, on a server that has just begun

    def run(self, context: Context) -> float | None:
        self._next_lapse = None
        queue_keys = context.queue_keys
        more = bool(queue_keys)
        while more:
            more = self._rescue_some(context, queue_keys)
        if self._has_run:  # a worker that only begins has jobs to run
            self._sweep()
        self._has_run = True
        return self._next_lapse

    def _sweep(self) -> None:
        for model in presence_models(self.queue_model.database):
            while presences.sweep(model):
                pass

    def _rescue_some(self, context: Context, queue_keys: Sequence[str]) -> bool:
        found = transitions.rescue(self.queue_model, queue_keys, self.max_rescues, self.request(), self._is_starting)
        is_resolved = self._resolve(found.unknown)
        self._is_starting = bool(found.spared) or (self._is_starting and is_resolved)
        if found.next_lapse < self.interval:  # it was not renewed when it was time
            self._next_lapse = min(self._next_lapse or inf, max(found.next_lapse, SHORTEST_WAIT))
        if found.has_to_reconcile:
            self.on_turn()
        for ident, reason in found.broken:
            quarantined = "put in the quarantine of its queue"
            context.log_repeated(quarantined, f"[{one_line(ident)}] is {quarantined}: {one_line(reason, MESSAGE)}")
        for delivery in found.rescued:
            self.on_rescued(delivery)
        if found.exhausted:
            self.on_exhausted(found.exhausted, WorkerLost(f"Its workers died, {self.max_rescues + 1} times in a row"))
        return bool(found.rescued or found.exhausted or found.broken or found.spared or is_resolved)

    @staticmethod
    def _resolve(idents: Sequence[str]) -> bool:
        """Resolve the classes of some jobs, if possible. Workers that know the others will do so."""
        known = job_classes.known
        for ident in idents:
            with suppress(Exception):
                job_classes.resolve(Ident.of(ident).path)
        return job_classes.known is not known
