"""How a job fails, or goes back to a queue: in one step, or in several, with code of the application in between."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, NamedTuple

from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.dates import compute_delayed_until, utcnow
from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.models import Job, JobClaim, Queue, queue_name
from limpyd_jobs.models.claims.job_claim import DEFAULT_DELAY, Return
from limpyd_jobs.retrying import Requeue
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.workers.running.execution import Execution

if TYPE_CHECKING:
    from limpyd_jobs.workers.engine import Engine


class FailAtOnce:
    """Records the failure and puts the job back in one step, because no code of the application sees it in between."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._worker = engine.worker

    def __call__(self, claim: JobClaim, exception: BaseException, trace: str | None) -> None:
        """Record that a job failed, and put it back in a queue if it may run again."""
        hooks, job, queue = self._engine.hooks, claim.job, claim.queue
        self._save_error(job, queue, exception, trace)
        back = self._return_of(claim, exception)
        ending = hooks.end(claim.fail, back, next_claim=hooks.next_claim(claim, "job_error"))
        is_requeued = ending.outcome == "requeued"
        hooks.tell_failed(job, queue, exception, trace, is_requeued)
        if is_requeued:
            job._cached_priority, job._cached_delayed_until = ending.priority, ending.delayed_until
            hooks.tell_requeued(job, queue)

    def _save_error(self, job: Job, queue: Queue, exception: BaseException, trace: str | None) -> None:
        worker = self._worker
        if worker.save_errors:
            # Some overrides have no parameter for the traceback.
            given = {"trace": trace} if "trace" in signature(worker.additional_error_fields).parameters else {}
            fields = worker.additional_error_fields(job, queue, exception, **given) or {}
            add_error = partial(worker.error_model.add_error, queue_name(queue), job, exception, trace=trace, **fields)
            self._engine.redis_retry.retry(add_error)

    def _return_of(self, claim: JobClaim, exception: BaseException) -> Return:
        worker = self._worker
        times = int(worker.requeue_times or 0)
        otherwise = Return(times, worker.requeue_priority_delta, worker.requeue_delay_delta)
        return claim.decide(exception, self._engine.settings.retry_policy, otherwise)


class FailStepByStep(FailAtOnce):
    """Holds a job that may run again in error until all code of the application has seen it."""

    def __call__(self, claim: JobClaim, exception: BaseException, trace: str | None) -> None:
        hooks, job, queue = self._engine.hooks, claim.job, claim.queue
        back = self._return_of(claim, exception)
        ending = hooks.end(claim.fail, back, hold=True)
        is_held = ending.outcome == "held"
        self._save_error(job, queue, exception, trace)
        hooks.tell_failed(job, queue, exception, trace, is_held)
        hooks.notify(job, "on_error", queue, exception, trace)
        if is_held:
            self._requeue(claim, back)

    def _requeue(self, claim: JobClaim, back: Return) -> None:
        """Put a job that is held in error back in a queue, unless it was canceled meanwhile."""
        job, queue = claim.job, claim.queue
        try:
            self._worker.requeue_job(job, queue, int(claim.priority_after(back)), delayed_for=back.delay)
        except LimpydJobsException:
            job._cached_status = self._engine.redis_retry.retry(job.status.hget)
            if job._cached_status != STATUSES.CANCELED:
                raise
            self._worker.job_skipped(job, queue)


class OwnPlacement:
    """One transition ends the claim and puts the job in its queue.

    Attributes
    ----------
    least_delay: str
        The delay of a job that asked to be put back at once, in the form that transitions take.
    """

    least_delay = ""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def delay(self, execution: Execution, until: datetime | None) -> str:
        """Delay a job, and return until when: a date as text, empty if it waits."""
        hooks = self._engine.hooks
        return hooks.end(execution.claim.delay, until, hooks.next_claim(execution.claim, "job_delayed")).delayed_until

    def put_back(self, claim: JobClaim, request: Requeue) -> None:
        """Do nothing more: the delay was the only step."""


class CustomPlacement(OwnPlacement):
    """For a job class, or a queue model, with its own `enqueue_or_delay`, or its own version of what that calls."""

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


class Strategy(NamedTuple):
    """How the jobs of one class, from queues of one model, are ended.

    Attributes
    ----------
    chained_hooks: frozenset of str
        The hooks whose step may claim the next job, because no code of the application comes in between.
    fail: FailAtOnce
        How a failure is recorded.
    placement: OwnPlacement
        How a job is put back in a queue.
    erases: bool
        Whether a job that succeeded is deleted.
    """

    chained_hooks: frozenset[str]
    fail: FailAtOnce
    placement: OwnPlacement
    erases: bool
