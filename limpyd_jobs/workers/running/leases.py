"""Renewing the leases of all jobs that a worker has claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis import Redis

from limpyd_jobs import transitions
from limpyd_jobs.exceptions import ClaimLost, JobGone
from limpyd_jobs.models import JobClaim, job_classes
from limpyd_jobs.texts import one_line
from limpyd_jobs.transitions import Delivery

if TYPE_CHECKING:
    from limpyd_jobs.workers.engine import Engine


class Leases:
    """The leases of one worker. A thread renews them, so it uses a connection that threads share."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lease = engine.settings.lease

    def renew(self, connection: Redis) -> None:
        """Renew all leases. Nothing is raised."""
        self._renew_others(connection)
        running = [execution.claim for execution in self._engine.executor.running.copy().values()]
        for claim in (self._engine.intake.handed, *running):
            if claim and claim.token and not claim.is_lost:
                self._renew(connection, claim)

    def _renew(self, connection: Redis, claim: JobClaim) -> None:
        try:
            claim.renew(connection, self._lease)
        except (ClaimLost, JobGone):
            if claim.lose():
                self._log_lost(claim.delivery)
        except Exception as error:
            self._engine.redis_retry.log_lease_not_renewed(claim.delivery.identifier, error)

    def _renew_others(self, connection: Redis) -> None:
        """Renew the leases of the jobs that are run next, or given back, or whose end is not recorded yet."""
        fetcher = self._engine.fetcher
        prefetched = [delivery for delivery in fetcher.prefetched.copy() if fetcher.holds(delivery)]
        others = [*fetcher.leaving.copy(), *self._engine.acknowledger.unrecorded()]
        claims = [*prefetched[::-1], *others[::-1]]  # so that they would be rescued in their order
        if not claims:
            return
        try:
            jobs = [(job_classes.resolve(delivery.path), delivery) for delivery in claims]
            outcomes = transitions.renew_all(connection, jobs, self._lease)
            at_hand = {delivery.token for delivery in fetcher.prefetched.copy()}  # another thread may give them back
            for delivery, outcome in zip(prefetched[::-1], outcomes, strict=False):
                if delivery.token in at_hand:
                    fetcher.tell(delivery, outcome)
            lost = [delivery for delivery in prefetched if not fetcher.holds(delivery)]
            if lost:
                self._log_lost(lost[0], others=len(lost) - 1)
        except Exception as error:
            self._engine.redis_retry.log_lease_not_renewed(claims[0].identifier, error)

    def _log_lost(self, delivery: Delivery, others: int = 0) -> None:
        more = f" (and {others} more that are next)" if others else ""
        text = f"[{one_line(delivery.identifier)}] lost its claim: another worker may run it{more}"
        self._engine.worker.log(text, "error")
