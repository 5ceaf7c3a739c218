"""Renewing the leases of all jobs that a worker has claimed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redis import Redis

from limpyd_jobs import transitions
from limpyd_jobs.exceptions import ClaimLost, JobGone, LimpydJobsException
from limpyd_jobs.models import job_classes
from limpyd_jobs.models.claims.job_claim import job_class_of
from limpyd_jobs.redis.calls import chunks
from limpyd_jobs.search.classes import connection_to
from limpyd_jobs.texts import one_line
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers.claiming.prefetched import Prefetched
from limpyd_jobs.workers.context import Context
from limpyd_jobs.workers.running.execution import Execution, Executions

# How many leases are renewed in one step, at most, so that Redis can do something else in between.
MAX_IN_STEP = 1000


@dataclass(eq=False)
class Leases:
    """The leases of one worker. A thread renews them, so it uses a connection that threads share."""

    context: Context
    prefetched: Prefetched
    executions: Executions
    log_not_renewed: Callable[[str, Exception], None]  # for an identifier
    on_canceled: Callable[[Execution], None] = lambda _: None  # called with a running job that was canceled

    def renew(self, connection: Redis) -> None:
        """Renew all leases: of the jobs that run, in one round trip, as of those that do not. Nothing is raised."""
        self._renew_others(connection)
        found = [*self.executions.offered.copy().values(), *self.executions.running.copy().values()]
        executions = [each for each in found if each.claim.token and not each.claim.is_lost]
        if len(executions) == 1:
            self._renew(connection, executions[0])
            return
        for execution in executions:
            if execution.claim.has_cursors:  # they are kept with the renewal
                self._renew(connection, execution)
        others = [each for each in executions[::-1] if not each.claim.has_cursors]
        databases = {each.claim.delivery.database for each in others}
        for database in sorted(databases, key=bool):  # the own one first: another one may not answer
            found = [each for each in others if each.claim.delivery.database is database]
            for some in chunks(found, MAX_IN_STEP):
                self._renew_running(connection, some)

    def _renew_running(self, connection: Redis, executions: Sequence[Execution]) -> None:
        """Renew the leases of jobs that run at once, the last one first: so they would be rescued in their order."""
        try:
            jobs = [(job_class_of(each.claim.delivery), each.claim.delivery) for each in executions]
            connection = _connection_of(executions[0], connection)
            outcomes = transitions.renew_all(connection, jobs, self.context.settings.lease)
        except Exception as error:
            self.log_not_renewed(executions[0].claim.delivery.identifier, error)
            return
        for execution, outcome in zip(executions, outcomes, strict=True):
            if outcome in ("refused", "gone") and execution.claim.lose():
                self._log_lost(execution.claim.delivery)
            elif outcome == "failed":
                self.log_not_renewed(execution.claim.delivery.identifier, LimpydJobsException("its record is broken"))
            elif outcome == "canceled":
                self.on_canceled(execution)

    def _renew(self, connection: Redis, execution: Execution) -> None:
        claim = execution.claim
        try:
            if claim.renew(_connection_of(execution, connection), self.context.settings.lease):
                self.on_canceled(execution)
        except (ClaimLost, JobGone):
            if claim.lose():
                self._log_lost(claim.delivery)
        except Exception as error:
            self.log_not_renewed(claim.delivery.identifier, error)

    def _renew_others(self, connection: Redis) -> None:
        """Renew the leases of the jobs that are run next, or released, or whose end is not recorded yet."""
        following = self.prefetched
        prefetched = [delivery for delivery in following.deliveries.copy() if following.holds(delivery)]
        unrecorded = (execution.claim.delivery for execution in self.executions.unrecorded.copy())
        others = [*following.releasing.copy(), *unrecorded]
        claims = [*prefetched[::-1], *others[::-1]]  # so that they would be rescued in their order
        if not claims:
            return
        try:
            jobs = [(job_classes.resolve(delivery.path), delivery) for delivery in claims]
            outcomes = transitions.renew_all(connection, jobs, self.context.settings.lease)
            waiting = {delivery.token for delivery in following.deliveries.copy()}  # another thread may release them
            for delivery, outcome in zip(prefetched[::-1], outcomes, strict=False):
                if delivery.token in waiting:
                    following.note(delivery, outcome)
            lost = [delivery for delivery in prefetched if not following.holds(delivery)]
            if lost:
                self._log_lost(lost[0], others=len(lost) - 1)
        except Exception as error:
            self.log_not_renewed(claims[0].identifier, error)

    def _log_lost(self, delivery: Delivery, others: int = 0) -> None:
        more = f" (and {others} more that are next)" if others else ""
        text = f"[{one_line(delivery.identifier)}] lost its claim: another worker may run it{more}"
        self.context.log(text, "error")


def _connection_of(execution: Execution, connection: Redis) -> Redis:
    """Return what leads to the shard of a job."""
    database = execution.claim.delivery.database
    found: Redis = connection_to(database) if database else connection
    return found
