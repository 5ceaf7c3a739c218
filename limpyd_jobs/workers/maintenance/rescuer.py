"""Looking for what is left of those who died: jobs whose lease lapsed, and records of who was there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from limpyd_jobs import dates, transitions
from limpyd_jobs.exceptions import WorkerLost
from limpyd_jobs.idents import Ident
from limpyd_jobs.models import job_classes
from limpyd_jobs.models.presence import presence_models
from limpyd_jobs.records import presences
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.workers.maintenance.reconciler import Reconciler

if TYPE_CHECKING:
    from limpyd_jobs.workers.engine import Engine

# How many seconds to let pass between two looks, at least: claims of applications may have very short leases.
SHORTEST_WAIT = 1.0


class Rescuer:
    """Puts jobs whose lease lapsed back in their waiting lists. A job that was rescued too often ends in error.

    It also deletes the presences of those who are not there any more.

    The reconciler is told when it is this worker's turn.
    """

    name = "rescue_jobs"

    def __init__(self, lease: float, max_rescues: int, reconciler: Reconciler) -> None:
        self.interval = lease / 4
        self._patience = lease / 2
        self._max_rescues = max_rescues
        self._reconciler = reconciler
        self._has_run = False
        self._is_starting = not dates.moved_time  # else tests let leases lapse, on a server that has just begun

    def run(self, context: Engine) -> None:
        queue_keys = context.queue_keys
        more = bool(queue_keys)
        while more:
            more = self._rescue_some(context, queue_keys)
        if self._has_run:  # a worker that only begins has jobs to run
            self._sweep(context)
        self._has_run = True

    @staticmethod
    def _sweep(context: Engine) -> None:
        for model in presence_models(context.worker.queue_model.database):
            while presences.sweep(model):
                pass

    def postpone(self, context: Engine) -> None:
        """Let the others renew their leases first: they could not while Redis was away."""
        context.maintenance.postpone(self, self._patience)

    def _rescue_some(self, context: Engine, queue_keys: Sequence[str]) -> bool:
        request = context.fetcher.request(())
        found = transitions.rescue(
            context.worker.queue_model, queue_keys, self._max_rescues, request, self._is_starting
        )
        is_resolved = self._resolve(found.unknown)
        self._is_starting = bool(found.spared) or (self._is_starting and is_resolved)
        if found.next_lapse < self.interval:  # it was not renewed when it was time
            context.maintenance.hasten(self, monotonic() + max(found.next_lapse, SHORTEST_WAIT))
        if found.has_to_reconcile:
            self._reconciler.begin()
        for ident, reason in found.broken:
            quarantined = "put in the quarantine of its queue"
            context.repeats.log(quarantined, f"[{one_line(ident)}] is {quarantined}: {one_line(reason, MESSAGE)}")
        for delivery in found.rescued:
            context.executor.tell(delivery, partial(context.overrides.hook, "job_rescued"))
        if found.exhausted:
            lost = WorkerLost(f"Its workers died, {self._max_rescues + 1} times in a row")
            context.executor.tell(found.exhausted, context.worker.job_error, lost)
        return bool(found.rescued or found.exhausted or found.broken or found.spared or is_resolved)

    @staticmethod
    def _resolve(idents: Sequence[str]) -> bool:
        """Resolve the classes of some jobs, if possible. Workers that know the others will do so."""
        known = job_classes.known
        for ident in idents:
            with suppress(Exception):
                job_classes.resolve(Ident.of(ident).path)
        return job_classes.known is not known
