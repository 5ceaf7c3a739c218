"""How the successes of jobs that run at once are recorded: together, and the next jobs are claimed in the same step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from limpyd_jobs.workers.run import Run
from limpyd_jobs.workers.running.acknowledging import AckTogether


@dataclass(eq=False)
class AckOfMany(AckTogether):
    """Keeps successes until the worker lets them be recorded. Successes of jobs with a method for it, and all other
    ends, are recorded at once."""

    def _record_or_keep(self, run: Run, may_chain: bool) -> None:
        if may_chain and run.is_held and not (run.outcome or run.delivery.database):
            run.is_buffered = True
            self.runs.unrecorded.append(run)
        else:
            super()._record_or_keep(run, False)

    def record(self, limit: int = 0) -> int:
        """Record all successes that are kept, and claim at most `limit` jobs; return how many were claimed."""
        waiting = self.runs.unrecorded
        runs = list(waiting)
        if not (runs or limit):
            return 0
        request = self.claimer.request(self.waiter.keys_in_turn)
        endings, deliveries = self._record_all(request, limit, runs)
        for delivery in deliveries:
            self.claimer.keep(delivery)
        for run, reply in zip(runs, endings, strict=True):
            waiting.popleft()
            run.is_buffered = False
            self.guard.run(run, partial(self._accept, run, reply))
        return len(deliveries)

    def flush(self) -> None:
        self.record()
