"""Looking for jobs whose worker died: their lease lapsed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from limpyd_jobs import transitions
from limpyd_jobs.models import job_classes
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers.fetcher import Fetcher


class Rescuer:
    """Puts jobs whose lease lapsed back in their waiting lists.

    Parameters
    ----------
    fetcher: Fetcher
        Makes the claims on those that were rescued too often.
    max_rescues: int
        How often a job is rescued at the most.
    """

    def __init__(self, fetcher: Fetcher, max_rescues: int) -> None:
        self._fetcher = fetcher
        self._max_rescues = max_rescues
        self._is_starting = True
        self._has_to_reconcile = False
        self._broken: list[tuple[str, str]] = []

    def rescue(self, queue_keys: Sequence[str]) -> Iterator[Delivery]:
        """Yield each job that was put back, and claimed ones, which were rescued too often: the caller ends these.

        What else there is to do is kept for `take_turn_to_reconcile` and `take_broken`.
        """
        more = bool(queue_keys)
        while more:
            found = transitions.rescue(
                self._fetcher.queue_model, queue_keys, self._max_rescues, self._fetcher.request(()), self._is_starting
            )
            is_resolved = self._meet(found.unknown)
            self._is_starting = bool(found.spared) or (self._is_starting and is_resolved)
            self._has_to_reconcile |= found.has_to_reconcile
            self._broken += found.broken
            yield from found.rescued
            if found.exhausted:
                yield found.exhausted
            more = bool(found.rescued or found.exhausted or found.broken or found.spared or is_resolved)

    def take_turn_to_reconcile(self) -> bool:
        """Return whether it turned out, since this was called last, that it is this worker's turn to reconcile."""
        is_turn, self._has_to_reconcile = self._has_to_reconcile, False
        return is_turn

    def take_broken(self) -> list[tuple[str, str]]:
        """Return the idents of the broken jobs that were put in quarantine since this was called last, and why."""
        broken, self._broken = self._broken, []
        return broken

    @staticmethod
    def _meet(idents: Sequence[str]) -> bool:
        """Resolve the classes of some jobs, if possible: others are left to workers that can."""
        known = job_classes.known
        for ident in idents:
            with suppress(Exception):
                job_classes.resolve(ident.rpartition(":")[0])
        return job_classes.known is not known
