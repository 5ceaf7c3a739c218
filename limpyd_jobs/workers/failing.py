"""What becomes of a job whose execution raised an exception."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from inspect import signature
from time import monotonic
from typing import TYPE_CHECKING

from limpyd_jobs import transitions
from limpyd_jobs.arguments import delay_argument, nearest_priority, read_priority
from limpyd_jobs.exceptions import CodeNotRun, LimpydJobsException, WorkerLost
from limpyd_jobs.models import Job, Queue
from limpyd_jobs.retrying import Again, GiveUp, History
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.workers.execution import Execution
from limpyd_jobs.workers.naming import queue_name

if TYPE_CHECKING:
    from limpyd_jobs.workers.engine import Engine


@dataclass(frozen=True)
class Return:
    """How a job that failed is put back in its queue.

    Attributes
    ----------
    times: int
        How often, in all its life; None for this time, as its retry policy says so.
    priority_delta: int
        What to add to its priority; None for nothing.
    delay: float or timedelta
        For how long to delay it, in seconds if a number; None not to.
    """

    times: int | None
    priority_delta: int | None
    delay: float | timedelta | None

    def priority_in(self, queue: Queue) -> str:
        """The priority it is put back with."""
        priority = read_priority(getattr(queue, "_cached_priority", None) or queue.priority.hget()) or 0
        return nearest_priority(priority + (self.priority_delta or 0))


class FailAtOnce:
    """Records the failure and puts the job back in one step, as the application does not want to see it in between.

    Parameters
    ----------
    decides_itself: bool
        Whether the class of the job has its own `must_be_cancelled_on_error`.
    """

    def __init__(self, engine: Engine, *, decides_itself: bool) -> None:
        self._engine = engine
        self._worker = engine.worker
        self._decides_itself = decides_itself

    def __call__(self, execution: Execution, exception: BaseException, trace: str | None) -> None:
        """Record that a job failed, and do what follows from it."""
        hooks, job, queue = self._engine.hooks, execution.job, execution.queue
        self._save_error(job, queue, exception, trace)
        back = self._return_of(execution, exception)
        priority = back.priority_in(queue)
        fail = partial(
            transitions.fail,
            job,
            queue,
            execution.token,
            back.times,
            queue_name(queue),
            priority,
            delay_argument(delayed_for=back.delay),
            began=execution.began_late,
            next_claim=hooks.next_claim(execution, "job_error"),
        )
        ending = self._engine.outages.retry(fail)
        hooks.ended(execution, ending)
        is_requeued = ending.outcome == "requeued"
        hooks.tell_failed(job, queue, exception, trace, is_requeued)
        if is_requeued:
            job._cached_priority, job._cached_delayed_until = priority, ending.delayed_until
            hooks.tell_requeued(job, queue)

    def _save_error(self, job: Job, queue: Queue, exception: BaseException, trace: str | None) -> None:
        worker = self._worker
        if worker.save_errors:
            # Some overrides have no parameter for the traceback.
            given = {"trace": trace} if "trace" in signature(worker.additional_error_fields).parameters else {}
            fields = worker.additional_error_fields(job, queue, exception, **given) or {}
            self._engine.outages.retry(
                partial(worker.error_model.add_error, queue_name(queue), job, exception, trace=trace, **fields)
            )

    def _return_of(self, execution: Execution, exception: BaseException) -> Return:
        """How a job is put back, its `cancel_on_error` field aside, which the transition looks at."""
        worker, job = self._worker, execution.job
        never = Return(0, worker.requeue_priority_delta, None)
        if isinstance(exception, (CodeNotRun, WorkerLost)) or self._is_never_put_back(job):
            return never
        history, ran = _history_of(execution)
        decision = history.decide(exception, ran, job.default_retry_policy, self._engine.settings.retry_policy)
        if decision is None:
            return Return(int(worker.requeue_times or 0), worker.requeue_priority_delta, worker.requeue_delay_delta)
        return never if isinstance(decision, GiveUp) else self._return_by(decision)

    def _return_by(self, again: Again) -> Return:
        delta = self._worker.requeue_priority_delta if again.priority_delta is None else again.priority_delta
        return Return(None, delta, again.delay)

    def _is_never_put_back(self, job: Job) -> bool:
        return bool(job.must_be_cancelled_on_error if self._decides_itself else job.always_cancel_on_error)


class FailStepByStep(FailAtOnce):
    """Holds a job that may run again in error until all code of the application has seen it."""

    def __call__(self, execution: Execution, exception: BaseException, trace: str | None) -> None:
        hooks, job, queue = self._engine.hooks, execution.job, execution.queue
        back = self._return_of(execution, exception)
        fail = partial(
            transitions.fail,
            job,
            queue,
            execution.token,
            back.times,
            hold=True,
            heed_field=not self._decides_itself,
            began=execution.began_late,
        )
        ending = self._engine.outages.retry(fail)
        hooks.ended(execution, ending)
        is_held = ending.outcome == "held"
        self._save_error(job, queue, exception, trace)
        hooks.tell_failed(job, queue, exception, trace, is_held)
        hooks.notify(job, "on_error", queue, exception, trace)
        if is_held:
            self._requeue(job, queue, back)

    def _requeue(self, job: Job, queue: Queue, back: Return) -> None:
        """Put a job that is held in error back in a queue, unless it was canceled meanwhile."""
        try:
            self._worker.requeue_job(job, queue, int(back.priority_in(queue)), delayed_for=back.delay)
        except LimpydJobsException:
            job._cached_status = self._engine.outages.retry(job.status.hget)
            if job._cached_status != STATUSES.CANCELED:
                raise
            self._worker.job_skipped(job, queue)


def _history_of(execution: Execution) -> tuple[History, float]:
    """What a retry policy looks at, and for how many seconds the job ran. No round trip, unless nobody claimed it."""
    if execution.delivery.outcome == "claimed":
        return execution.delivery.history, monotonic() - execution.began
    names = ("_retry_policy", "tries", "_uncounted_tries", "start", "added", "_requeued_at")
    policy, tries, uncounted, start, added, requeued_at = execution.job.hmget(*names)
    return History(policy, tries, uncounted, start, requeued_at or added), 0.0
