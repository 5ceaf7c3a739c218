"""How a job goes back to a queue: our way, or one of the application."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.models import DEFAULT_DELAY, JobClaim, queue_name
from limpyd_jobs.retrying import Requeue
from limpyd_jobs.utils import compute_delayed_until, utcnow
from limpyd_jobs.workers.execution import Execution

if TYPE_CHECKING:
    from limpyd_jobs.workers.engine import Engine


class OwnPlacement:
    """One transition ends the claim and puts the job in its queue.

    Attributes
    ----------
    least_delay: str
        The delay of a job that asked to be put back at once, as transitions take it.
    """

    least_delay = ""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def delay(self, execution: Execution, until: datetime | None) -> str:
        """Delay a job, and return until when: a date as text, empty if it waits."""
        hooks = self._engine.hooks
        return hooks.end(execution.claim.delay, until, hooks.next_claim(execution.claim, "job_delayed")).delayed_until

    def put_back(self, claim: JobClaim, request: Requeue) -> None:
        """Do what is left to do once it is delayed: nothing."""


class CustomPlacement(OwnPlacement):
    """The job class, or the queue model, has its own `enqueue_or_delay`, or what that calls."""

    # So that no other worker takes it until it is put in its queue.
    least_delay = delay_argument(delayed_for=DEFAULT_DELAY)

    def delay(self, execution: Execution, until: datetime | None) -> str:
        job, queue = execution.claim.job, execution.claim.queue
        self._engine.executor.let_go(execution)
        job.enqueue_or_delay(
            queue_name=queue_name(queue),
            delayed_until=until or utcnow() + timedelta(seconds=DEFAULT_DELAY),
            queue_model=type(queue),
        )
        return job.delayed_until.hget() or ""

    def put_back(self, claim: JobClaim, request: Requeue) -> None:
        job, queue = claim.job, claim.queue
        job.enqueue_or_delay(
            queue_name=queue_name(queue),
            priority=request.priority or job.priority.hget(),
            delayed_until=compute_delayed_until(request.delayed_for, request.delayed_until),
            queue_model=type(queue),
        )
        del job._cached_priority
