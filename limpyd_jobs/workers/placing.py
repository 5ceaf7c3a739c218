"""How a job goes back to a queue: our way, or one of the application."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from limpyd_jobs import transitions
from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.retrying import Requeue
from limpyd_jobs.utils import compute_delayed_until, utcnow
from limpyd_jobs.workers.execution import Execution
from limpyd_jobs.workers.naming import queue_name

if TYPE_CHECKING:
    from limpyd_jobs.workers.engine import Engine

# The delay of a job that delays itself without saying until when, in seconds.
DEFAULT_DELAY = 60


class OwnPlacement:
    """One transition ends the claim and puts the job in its queue."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def delay(self, execution: Execution, until: datetime | None) -> str:
        """Delay a job, and return until when: a date as text, empty if it waits."""
        delay = delay_argument(delayed_until=until) if until else delay_argument(delayed_for=DEFAULT_DELAY)
        ending = self._engine.outages.retry(
            partial(
                transitions.delay,
                execution.job,
                execution.queue,
                execution.token,
                queue_name(execution.queue),
                delay,
                self._engine.hooks.next_claim(execution, "job_delayed"),
            )
        )
        self._engine.hooks.ended(execution, ending)
        return ending.delayed_until

    def delay_of(self, request: Requeue) -> str:
        """Return the delay of a job that asked to be put back, as transitions take it."""
        return delay_argument(request.delayed_for, request.delayed_until)

    def put_back(self, execution: Execution, request: Requeue) -> None:
        """Do what is left to do once it is delayed: nothing."""


class CustomPlacement(OwnPlacement):
    """The job class, or the queue model, has its own `enqueue_or_delay`, or what that calls."""

    def delay(self, execution: Execution, until: datetime | None) -> str:
        job, queue = execution.job, execution.queue
        self._engine.executor.let_go(execution)
        job.enqueue_or_delay(
            queue_name=queue_name(queue),
            delayed_until=until or utcnow() + timedelta(seconds=DEFAULT_DELAY),
            queue_model=type(queue),
        )
        return job.delayed_until.hget() or ""

    def delay_of(self, request: Requeue) -> str:
        """It is delayed for a moment at least, to be safe from other workers until it is put in its queue."""
        return super().delay_of(request) or delay_argument(delayed_for=DEFAULT_DELAY)

    def put_back(self, execution: Execution, request: Requeue) -> None:
        job, queue = execution.job, execution.queue
        job.enqueue_or_delay(
            queue_name=queue_name(queue),
            priority=request.priority or job.priority.hget(),
            delayed_until=compute_delayed_until(request.delayed_for, request.delayed_until),
            queue_model=type(queue),
        )
        del job._cached_priority
