"""How a job fails, or goes back to a queue: in one step, or in several, with code of the application in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from inspect import signature
from typing import NamedTuple, ParamSpec, TypeVar

from redis.exceptions import RedisError

from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.classes.binding import bound_like
from limpyd_jobs.dates import compute_delayed_until, utcnow
from limpyd_jobs.exceptions import ConfigurationException, LimpydJobsException
from limpyd_jobs.models import Error, Job, Queue, has_custom_placement, queue_name
from limpyd_jobs.models.claims.job_claim import DEFAULT_DELAY, Return
from limpyd_jobs.models.error import is_created_with_failure, new_error
from limpyd_jobs.records.lazy_fields import has_method
from limpyd_jobs.records.records import NewError
from limpyd_jobs.retrying import Requeue, Retry
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.workers.context import Face
from limpyd_jobs.workers.log import label_of
from limpyd_jobs.workers.overrides import METHODS, Overrides
from limpyd_jobs.workers.run import Run
from limpyd_jobs.workers.running.announcer import Announcer
from limpyd_jobs.workers.running.recorder import Recorder

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(eq=False)
class FailAtOnce:
    """Records the failure and its error, and puts the job back, in one step, because no code of the application sees it
    in between. So there is no error of a failure that is refused."""

    worker: Face
    retry_policy: Retry | None
    recorder: Recorder
    announcer: Announcer
    may_chain: bool

    def __call__(self, run: Run, exception: BaseException, trace: str | None) -> None:
        """Record that a job failed, and put it back in a queue if it may run again."""
        recorder, job, queue = self.recorder, run.job, run.queue
        error = self._log_if_not_recorded(job, self._new_error, job, queue, exception, trace)
        back = self._return_of(run, exception)
        next_claim = recorder.next_request() if self.may_chain else None
        try:
            ending = recorder.end(run.fail, back, next_claim=next_claim, error=error, reason=exception)
        finally:
            if error:
                self._log_if_not_recorded(job, error.complete)
        is_requeued = ending.outcome == "requeued"
        self.announcer.failed(job, queue, exception, trace, is_requeued)
        if is_requeued:
            job._cached_priority, job._cached_delayed_until = ending.priority, ending.delayed_until
            self.announcer.requeued(job, queue)

    def _new_error(self, job: Job, queue: Queue, exception: BaseException, trace: str | None) -> NewError | None:
        if not self.worker.save_errors:
            return None
        return new_error(_error_model_of(self.worker, type(job)), queue_name(queue), job, exception, trace)

    def _log_if_not_recorded(self, job: Job, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return self.recorder.retry(action, *args, **kwargs)
        except RedisError as error:  # which is no reason not to run the job again
            self.worker.log(f"{label_of(job)} its error is not recorded: {one_line(error, MESSAGE)}", "error")
            return None

    def _return_of(self, run: Run, exception: BaseException) -> Return:
        worker = self.worker
        times = int(worker.requeue_times or 0)
        otherwise = Return(times, worker.requeue_priority_delta, worker.requeue_delay_delta)
        return run.decide(exception, self.retry_policy, otherwise)


class FailStepByStep(FailAtOnce):
    """Holds a job that may run again in error until all code of the application has seen it."""

    def __call__(self, run: Run, exception: BaseException, trace: str | None) -> None:
        job, queue = run.job, run.queue
        back = self._return_of(run, exception)
        ending = self.recorder.end(run.fail, back, hold=True, reason=exception)
        is_held = ending.outcome == "held"
        if not ending.status:  # else it has ended in another way before
            self._save_error(job, queue, exception, trace)
        self.announcer.failed(job, queue, exception, trace, is_held)
        self.announcer.notify(job, "on_error", queue, exception, trace)
        if is_held:
            self._requeue(run, back)

    def _save_error(self, job: Job, queue: Queue, exception: BaseException, trace: str | None) -> None:
        worker = self.worker
        if worker.save_errors:
            # Some overrides have no parameter for the traceback.
            given = {"trace": trace} if "trace" in signature(worker.additional_error_fields).parameters else {}
            fields = worker.additional_error_fields(job, queue, exception, **given) or {}
            add_error = _error_model_of(worker, type(job)).add_error
            self._log_if_not_recorded(job, partial(add_error, queue_name(queue), job, exception, trace=trace, **fields))

    def _requeue(self, run: Run, back: Return) -> None:
        """Put a job that is held in error back in a queue, unless it was canceled meanwhile."""
        job, queue = run.job, run.queue
        try:
            self.worker.requeue_job(job, queue, int(run.priority_after(back)), delayed_for=back.delay)
        except LimpydJobsException:
            job._cached_status = self.recorder.retry(job.status.hget)
            if job._cached_status != STATUSES.CANCELED:
                raise
            self.worker.job_skipped(job, queue)


@dataclass(eq=False)
class OwnPlacement:
    """One transition ends the claim and puts the job in its queue."""

    least_delay = ""  # of a job that asked to be put back at once, as transitions take it

    recorder: Recorder
    may_chain: bool

    def delay(self, run: Run, until: datetime | None) -> str:
        """Delay a job, and return until when: a date as text, empty if it waits."""
        next_claim = self.recorder.next_request() if self.may_chain else None
        return self.recorder.end(run.delay, until, next_claim).delayed_until

    def put_back(self, run: Run, request: Requeue, slowed: str) -> None:
        """Do nothing more: the delay was the only step."""


class CustomPlacement(OwnPlacement):
    """For a job class, or a queue model, with its own `enqueue_or_delay`, or its own version of what that calls."""

    # So that no other worker takes it until it is put in its queue.
    least_delay = delay_argument(delayed_for=DEFAULT_DELAY)

    def delay(self, run: Run, until: datetime | None) -> str:
        job, queue = run.job, run.queue
        self.recorder.abandon(run)
        job.enqueue_or_delay(
            queue_name=queue_name(queue),
            delayed_until=until or utcnow() + timedelta(seconds=DEFAULT_DELAY),
            queue_model=type(queue),
        )
        return job.delayed_until.hget() or ""

    def put_back(self, run: Run, request: Requeue, slowed: str) -> None:
        job, queue = run.job, run.queue
        after = (float(slowed), None) if slowed else (request.delayed_for, request.delayed_until)
        job.enqueue_or_delay(
            queue_name=queue_name(queue),
            priority=request.priority or job.priority.hget(),
            delayed_until=compute_delayed_until(*after),
            queue_model=type(queue),
        )
        del job._cached_priority


def _error_model_of(worker: Face, job_class: type[Job]) -> type[Error]:
    """Return the model of the errors of a job class, in the shard of its jobs."""
    return bound_like(worker.error_model, job_class)


class Strategy(NamedTuple):
    """How the jobs of one class, from queues of one model, are ended."""

    # The hooks whose step may claim the next job, because no code of the application comes in between.
    chained_hooks: frozenset[str]
    fail: FailAtOnce  # how a failure is recorded
    placement: OwnPlacement  # how a job is put back in a queue
    erases: bool  # whether a job that succeeded is deleted
    is_straight: bool  # whether no code of the application comes before the code of the job, or after its success


@dataclass(eq=False)
class Strategies:
    """The strategy for each job class and queue model."""

    worker: Face
    retry_policy: Retry | None
    overrides: Overrides
    recorder: Recorder
    announcer: Announcer

    def __post_init__(self) -> None:
        self._found: dict[tuple[type, type], Strategy] = {}

    def refresh(self) -> None:
        """Find out again what is overridden."""
        self.overrides.refresh()
        self._found = {}

    def of(self, job: Job, queue: Queue) -> Strategy:
        """Return the strategy of a job: the one of its class, unless the job has methods of its own."""
        if not vars(job).keys().isdisjoint(METHODS):
            return self._find(job, queue)
        kind = type(job), type(queue)
        if kind not in self._found:
            self._found[kind] = self._find(job, queue)
        return self._found[kind]

    def check_tries(self, run: Run, request: Requeue) -> None:
        """Raise `RetriedTooOften` if a job that asks to be put back, as a try that counts, has no tries left."""
        run.check_tries(request, self.retry_policy, int(self.worker.requeue_times or 0))

    def _find(self, job: Job, queue: Queue) -> Strategy:
        is_custom = has_custom_placement(type(job), type(queue))
        chained = self.overrides.chained_hooks_of(job)
        fail = FailStepByStep if is_custom or self._fails_in_steps(job) else FailAtOnce
        placement = CustomPlacement if is_custom else OwnPlacement
        return Strategy(
            chained,
            fail(self.worker, self.retry_policy, self.recorder, self.announcer, "job_error" in chained),
            placement(self.recorder, "job_delayed" in chained),
            self.overrides.may_erase(job, queue),
            "job_success" in chained and not has_method(job, "on_started"),
        )

    def _fails_in_steps(self, job: Job) -> bool:
        """Whether code of the application sees a job that failed, or the script for that cannot create its error."""
        if self.overrides.overrides_errors(job):
            return True
        try:
            return not is_created_with_failure(_error_model_of(self.worker, type(job)), type(job))
        except ConfigurationException:  # which is raised when there is an error to record
            return True
