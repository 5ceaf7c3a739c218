"""The way of a job by the hooks of the worker, of which the application may have its own versions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from limpyd_jobs import events, transitions
from limpyd_jobs.models import Job, Queue, queue_name
from limpyd_jobs.retrying import Requeue
from limpyd_jobs.schedules.model import Schedule
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import raw_traceback_of
from limpyd_jobs.workers.claiming.offers import Offers
from limpyd_jobs.workers.context import Face
from limpyd_jobs.workers.log import label_of
from limpyd_jobs.workers.run import Run, Runs
from limpyd_jobs.workers.running.announcer import Announcer
from limpyd_jobs.workers.running.endings import Endings
from limpyd_jobs.workers.running.recorder import Recorder
from limpyd_jobs.workers.running.strategies import Strategies


@dataclass(eq=False)
class ByHooks:
    """Calls the hooks of the worker at each turn in the life of a job, and is what they do unless they are overridden.

    A hook records the turn by one transition. Then it emits the event, which is logged. Then it calls the method of the
    job for it, if there is one. The application may have its own version of all three. If it has none, the step that
    ends a job claims the next one.
    """

    worker: Face
    runs: Runs
    strategies: Strategies
    recorder: Recorder
    announcer: Announcer
    endings: Endings
    offers: Offers

    def __post_init__(self) -> None:
        self.overrides = self.strategies.overrides
        self._slowed: set[type[Job]] = set()

    def _run_of(self, job: Job, queue: Queue) -> Run:
        if self.worker.status is None:
            self.strategies.refresh()  # the worker does not run, so they may still change
        run = vars(job).get("_run_in_worker") or self.runs.of(job) or Run()
        run.job, run.queue, run.way = job, queue, run.way or self
        return run

    # -- The way of a job

    def start(self, run: Run) -> None:
        self.worker.job_started(run.job, run.queue)

    def executed(self, run: Run, result: Any) -> None:
        """Call the hook for the status that the job has now.

        An overridden hook finds the status that the job gave itself, as in version 2; our own finds out by itself.
        """
        job, queue = run.job, run.living_queue()
        status = STATUSES.RUNNING if self.overrides.has_our_success else self.recorder.retry(job.status.hget)
        vars(job)["_cached_status"] = status
        if status == STATUSES.CANCELED:
            self.worker.job_skipped(job, queue)
        elif status == STATUSES.DELAYED:
            self.worker.job_delayed(job, queue)
        else:
            self.worker.job_success(job, queue, result)

    def succeeded(self, run: Run) -> None:
        message = self.worker.job_success_message(run.job, run.queue, run.result)
        self.announcer.emit(events.JobSucceeded, run.job, run.queue, message, run.result)
        self.announcer.notify(run.job, "on_success", run.queue, run.result)

    # -- Of a job that does not succeed

    def skipped(self, run: Run, reason: str) -> None:
        """A job is canceled, or does not wait any more, for a reason if there is one."""
        run.job._cached_reason = reason
        self.worker.job_skipped(run.job, run.living_queue())

    def delayed(self, run: Run) -> None:
        """A job was delayed before its code began."""
        self.worker.job_delayed(run.job, run.living_queue())

    def requeued(self, run: Run, request: Requeue) -> None:
        """The code of a job asked to be put back."""
        self.overrides.hook("job_requeued", run.job, run.living_queue(), request)

    def released(self, run: Run) -> None:
        """A job was interrupted, and is back in its list."""
        self.overrides.hook("job_released", run.job, run.living_queue())

    def failed(self, run: Run, error: BaseException) -> None:
        """The code of a job raised an exception."""
        trace = raw_traceback_of(error) if self.worker.save_tracebacks else None
        self.worker.job_error(run.job, run.living_queue(), error, trace)

    # -- The turns

    def job_started(self, job: Job, queue: Queue) -> None:
        if not self._run_of(job, queue).is_held:  # it is called outside of the loop
            job._run_in_worker = Run(self.offers.take(queue.waiting.key, job.ident), job, queue)
        self.announcer.emit(events.JobStarted, job, queue, self.worker.job_started_message(job, queue))
        self.announcer.notify(job, "on_started", queue)

    def job_success(self, job: Job, queue: Queue, result: Any) -> None:
        self.endings.succeed(self._run_of(job, queue), self.strategies.of(job, queue), result)

    def job_skipped(self, job: Job, queue: Queue) -> None:
        run, recorder = self._run_of(job, queue), self.recorder
        if run.is_held:
            may_chain = "job_skipped" in self.strategies.of(job, queue).chained_hooks
            recorder.end(run.cancel, recorder.next_request() if may_chain else None)
        else:
            recorder.retry(transitions.skip, job, queue, self.worker._settings.lease)
        self.announcer.emit_again(events.JobSkipped, job, queue, self.worker.job_skipped_message(job, queue))
        self.announcer.notify(job, "on_skipped", queue)

    def job_delayed(self, job: Job, queue: Queue) -> None:
        run = self._run_of(job, queue)
        delivery = run.delivery
        if delivery.reason:  # it follows another job: Redis has delayed it, and may have let it go since
            delayed_until = delivery.delayed_until
        else:
            until = self.recorder.retry(run.stored_delay)
            delayed_until = self.strategies.of(job, queue).placement.delay(run, until)
        job._cached_delayed_until = delayed_until
        message = self.worker.job_delayed_message(job, queue)
        if delayed_until:
            self.announcer.emit_again(events.JobDelayed, job, queue, message, delayed_until)
        else:
            self.announcer.emit(events.JobRequeued, job, queue, message)
        self.announcer.notify(job, "on_delayed", queue)

    def job_error(self, job: Job, queue: Queue, exception: BaseException, trace: str | None) -> None:
        run = self._run_of(job, queue)
        self.strategies.of(job, queue).fail(run, exception, trace)

    def requeue_job(self, job: Job, queue: Queue, priority: int, delayed_for: float | timedelta | None) -> None:
        run = self._run_of(job, queue)
        job.__dict__.pop("_cached_priority", None)
        is_first = iter((True,))

        def requeue() -> None:
            if next(is_first, False) or job.status.hget() == STATUSES.ERROR:  # else it was done, its reply was lost
                job.requeue(
                    queue_name=queue_name(queue), priority=priority, delayed_for=delayed_for, queue_model=type(queue)
                )

        self.recorder.retry(requeue)
        if "_cached_priority" in vars(job):  # so our own version put it back, and ended the claim
            run.ended("requeued")
        self.announcer.notify(job, "on_requeued", queue)
        self.announcer.requeued(job, queue)

    def job_requeued(self, job: Job, queue: Queue, request: Requeue) -> None:
        run, recorder = self._run_of(job, queue), self.recorder
        strategy = self.strategies.of(job, queue)
        placement, may_chain = strategy.placement, "job_requeued" in strategy.chained_hooks
        next_claim = recorder.next_request() if may_chain else None
        ending = recorder.end(run.requeue, request, placement.least_delay, next_claim)
        if ending.outcome == "canceled":
            job._cached_status = STATUSES.CANCELED
            self.worker.job_skipped(job, queue)
            return
        job._cached_priority = request.priority or getattr(queue, "_cached_priority", "0")
        job._cached_delayed_until = ending.delayed_until
        if ending.slowed:
            self._log_slowed(job)
        placement.put_back(run, request, ending.slowed)
        self.announcer.notify(job, "on_requeued", queue)
        self.announcer.requeued(job, queue)

    def _log_slowed(self, job: Job) -> None:
        """Log, once for each class, that a job is slowed down: see ``slowing.lua``."""
        if type(job) not in self._slowed:
            self._slowed.add(type(job))
            what = "asked too often to be put back at once: it waits longer each time, up to a minute"
            self.worker.log(f"{label_of(job)} {what}. Give Requeue a delay", "warning")

    def job_released(self, job: Job, queue: Queue) -> None:
        kind = events.JobWaits if vars(job).get("_is_to_wait") else events.JobReleased
        self.announcer.emit(kind, job, queue, self.overrides.hook("job_released_message", job, queue))
        self.announcer.notify(job, "on_released", queue)

    def job_rescued(self, job: Job, queue: Queue) -> None:
        self.announcer.emit(events.JobRescued, job, queue, self.overrides.hook("job_rescued_message", job, queue))
        self.announcer.notify(job, "on_rescued", queue)

    def job_scheduled(self, job: Job, schedule: Schedule, time: datetime) -> None:
        message = self.overrides.hook("job_scheduled_message", job, schedule, time)
        events.emit(events.JobScheduled, self.worker, message, job, schedule, time)
        self.announcer.notify(job, "on_scheduled", schedule, time)

    def schedule_missed(self, schedule: Schedule, time: datetime) -> None:
        message = self.overrides.hook("schedule_missed_message", schedule, time)
        events.emit(events.ScheduleMissed, self.worker, message, schedule, time)
