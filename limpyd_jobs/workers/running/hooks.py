"""What the hooks of a worker do unless they are overridden."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec

from limpyd_jobs import events, transitions
from limpyd_jobs.models import Job, JobClaim, Queue, queue_name
from limpyd_jobs.models.following.results import kept_result
from limpyd_jobs.records.layout import kept_for
from limpyd_jobs.records.lazy_fields import has_method
from limpyd_jobs.retrying import Requeue
from limpyd_jobs.schedules.model import Schedule
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.transitions import ClaimRequest, Ending, KeptResult
from limpyd_jobs.workers.naming import ClassNames, label_of
from limpyd_jobs.workers.running.execution import Execution

if TYPE_CHECKING:
    from limpyd_jobs.workers.engine import Engine

P = ParamSpec("P")


class Hooks:
    """What a worker does at each turn in the life of a job.

    A hook records the turn by one transition. Then it tells the event, which is logged. Then it calls the method of the
    job for it, if there is one. The application may have its own version of all three.

    One step ends a job and claims the next one, if no code of the application is called in between: no overridden hook,
    no method of the job.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._worker = engine.worker
        self.class_names = ClassNames()

    # -- What they have in common

    def next_claim(self, claim: JobClaim, hook: str) -> ClaimRequest | None:
        """Return what to claim in the step that ends a job: None if code of the application is called in between."""
        engine = self._engine
        if (
            hook not in engine.overrides.of(claim.job, claim.queue).chained_hooks
            or engine.worker.status != "running"
            or engine.fetcher.prefetched
            or not engine.intake.may_claim
        ):
            return None
        return engine.fetcher.request(engine.intake.keys_in_turn)

    def end(self, verb: Callable[P, Ending], *args: P.args, **kwargs: P.kwargs) -> Ending:
        """End a claim by a verb, and try again while Redis fails; keep the next job, if one was claimed."""
        ending = self._engine.redis_retry.retry(verb, *args, **kwargs)
        self._engine.fetcher.keep(ending.prefetched)
        return ending

    @staticmethod
    def notify(job: Job, event: str, *args: Any) -> None:
        """Call the method of a job for an event, if its class has one."""
        if has_method(job, event):
            getattr(job, event)(*args)

    def _tell(self, kind: type[events.Event], job: Job, queue: Queue, message: str, *details: Any) -> None:
        """Tell an event of a job; the log names its class if there are several in the queue."""
        mark = self.class_names.mark(getattr(queue, "_cached_name", ""), job.get_model_repr())
        events.emit(kind, self._worker, message + mark, job, queue, *details)

    # -- The turns

    def job_started(self, job: Job, queue: Queue) -> None:
        if not self._engine.executor.of(job, queue).claim.token:  # it is called outside of the loop
            delivery = self._engine.fetcher.take(queue.waiting.key, job.ident)
            job._execution = Execution(JobClaim(delivery, job, queue))
        self._tell(events.JobStarted, job, queue, self._worker.job_started_message(job, queue))
        self.notify(job, "on_started", queue)

    def job_success(self, job: Job, queue: Queue, result: Any) -> None:
        execution = self._engine.executor.of(job, queue)
        execution.result = result
        if kept_for(type(job)):
            execution.kept = self._kept_result(job, result)
        elif self._engine.overrides.of(job, queue).erases:
            execution.is_erased = execution.claim.delivery.tries == "1"  # the pruner finds errors of earlier tries
        self._engine.acknowledger.succeed(execution)

    def _kept_result(self, job: Job, result: Any) -> KeptResult | None:
        """Return what to keep of a result. If it cannot be kept, the job is a success anyway."""
        try:
            return kept_result(type(job), result)
        except (TypeError, ValueError) as error:
            self._worker.log(f"{label_of(job)} its result is not kept: {one_line(error, MESSAGE)}", "warning")
            return None

    def succeeded(self, execution: Execution, ending: Ending) -> None:
        """Do what follows once the success of a job is recorded, or refused, because the job has another status."""
        job, queue, result = execution.claim.job, execution.claim.queue, execution.result
        if ending.outcome == "canceled":
            job._cached_status = STATUSES.CANCELED
            self._worker.job_skipped(job, queue)
        elif ending.outcome == "delayed":
            job._cached_status = STATUSES.DELAYED
            self._worker.job_delayed(job, queue)
        else:
            job._cached_end = ending.end
            message = self._worker.job_success_message(job, queue, result)
            self._tell(events.JobSucceeded, job, queue, message, result)
            self.notify(job, "on_success", queue, result)

    def job_skipped(self, job: Job, queue: Queue) -> None:
        claim = self._engine.executor.of(job, queue).claim
        if claim.token:
            self.end(claim.cancel, self.next_claim(claim, "job_skipped"))
        else:
            self._engine.redis_retry.retry(transitions.skip, job, queue, self._engine.settings.lease)
        self._tell(events.JobSkipped, job, queue, self._worker.job_skipped_message(job, queue))
        self.notify(job, "on_skipped", queue)

    def job_delayed(self, job: Job, queue: Queue) -> None:
        execution = self._engine.executor.of(job, queue)
        until = self._engine.redis_retry.retry(execution.claim.stored_delay)
        delayed_until = self._engine.overrides.of(job, queue).placement.delay(execution, until)
        job._cached_delayed_until = delayed_until
        message = self._worker.job_delayed_message(job, queue)
        if delayed_until:
            self._tell(events.JobDelayed, job, queue, message, delayed_until)
        else:
            self._tell(events.JobRequeued, job, queue, message)
        self.notify(job, "on_delayed", queue)

    def job_error(self, job: Job, queue: Queue, exception: BaseException, trace: str | None) -> None:
        claim = self._engine.executor.of(job, queue).claim
        self._engine.overrides.of(job, queue).fail(claim, exception, trace)

    def tell_failed(
        self, job: Job, queue: Queue, exception: BaseException, trace: str | None, is_requeued: bool
    ) -> None:
        """Tell that a job failed."""
        # version 2 says 0 or None if these are its requeue_times
        told: Any = is_requeued or (self._worker.requeue_times and False)
        message = self._worker.job_error_message(job, queue, told, exception, trace)
        self._tell(events.JobFailed, job, queue, message, exception, trace, is_requeued)

    def tell_requeued(self, job: Job, queue: Queue) -> None:
        """Tell that a job is back in a queue."""
        self._tell(events.JobRequeued, job, queue, self._worker.job_requeue_message(job, queue))

    def requeue_job(self, job: Job, queue: Queue, priority: int, delayed_for: float | timedelta | None) -> None:
        claim = self._engine.executor.of(job, queue).claim
        job.__dict__.pop("_cached_priority", None)
        is_first = iter((True,))

        def requeue() -> None:
            if next(is_first, False) or job.status.hget() == STATUSES.ERROR:  # else it was done, its reply was lost
                job.requeue(
                    queue_name=queue_name(queue), priority=priority, delayed_for=delayed_for, queue_model=type(queue)
                )

        self._engine.redis_retry.retry(requeue)
        if "_cached_priority" in vars(job):  # so our own version put it back, and ended the claim
            claim.ended("requeued")
        self.notify(job, "on_requeued", queue)
        self.tell_requeued(job, queue)

    def job_requeued(self, job: Job, queue: Queue, request: Requeue) -> None:
        claim = self._engine.executor.of(job, queue).claim
        placement = self._engine.overrides.of(job, queue).placement
        ending = self.end(claim.requeue, request, placement.least_delay, self.next_claim(claim, "job_requeued"))
        if ending.outcome == "canceled":
            job._cached_status = STATUSES.CANCELED
            self._worker.job_skipped(job, queue)
            return
        job._cached_priority = request.priority or getattr(queue, "_cached_priority", "0")
        job._cached_delayed_until = ending.delayed_until
        placement.put_back(claim, request)
        self.notify(job, "on_requeued", queue)
        self.tell_requeued(job, queue)

    def job_released(self, job: Job, queue: Queue) -> None:
        message = self._engine.overrides.hook("job_released_message", job, queue)
        self._tell(events.JobReleased, job, queue, message)
        self.notify(job, "on_released", queue)

    def job_rescued(self, job: Job, queue: Queue) -> None:
        message = self._engine.overrides.hook("job_rescued_message", job, queue)
        self._tell(events.JobRescued, job, queue, message)
        self.notify(job, "on_rescued", queue)

    def job_scheduled(self, job: Job, schedule: Schedule, time: datetime) -> None:
        message = self._engine.overrides.hook("job_scheduled_message", job, schedule, time)
        events.emit(events.JobScheduled, self._worker, message, job, schedule, time)
        self.notify(job, "on_scheduled", schedule, time)

    def schedule_missed(self, schedule: Schedule, time: datetime) -> None:
        message = self._engine.overrides.hook("schedule_missed_message", schedule, time)
        events.emit(events.ScheduleMissed, self._worker, message, schedule, time)
