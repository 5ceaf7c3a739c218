"""How the successes of jobs that run at once are recorded: together, and the next jobs are claimed in the same step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from limpyd_jobs.workers.running.acknowledging import AckTogether
from limpyd_jobs.workers.running.execution import Execution


@dataclass(eq=False)
class AckOfMany(AckTogether):
    """Keeps successes until the worker lets them be recorded. Successes of jobs with a method for it, and all other
    ends, are recorded at once."""

    def succeed(self, execution: Execution, may_chain: bool) -> None:
        claim = execution.claim
        if may_chain and claim.is_held and not (claim.outcome or claim.delivery.database):
            execution.is_buffered = True
            self.executions.unrecorded.append(execution)
        else:
            super().succeed(execution, False)

    def record(self, limit: int = 0) -> int:
        """Record all successes that are kept, and claim at most `limit` jobs; return how many were claimed."""
        waiting = self.executions.unrecorded
        executions = list(waiting)
        if not (executions or limit):
            return 0
        request = self.claimer.request(self.waiter.keys_in_turn)
        endings, deliveries = self._record_all(request, limit, executions)
        for delivery in deliveries:
            self.claimer.keep(delivery)
        for execution, reply in zip(executions, endings, strict=True):
            waiting.popleft()
            execution.is_buffered = False
            self.guard.run(execution, partial(self._accept, execution, reply))
        return len(deliveries)

    def flush(self) -> None:
        self.record()
