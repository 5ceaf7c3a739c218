"""The events of a job: for each a hook, the message it logs, and the method of the job that it calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from inspect import signature
from time import monotonic
from types import SimpleNamespace
from typing import Any, TypeVar

from limpyd_jobs import transitions
from limpyd_jobs.arguments import delay_argument, nearest_priority, read_priority
from limpyd_jobs.exceptions import CodeNotRun, LimpydJobsException, WorkerLost
from limpyd_jobs.models import Error, Job, Queue, has_custom_placement
from limpyd_jobs.retrying import Again, Cancel, GiveUp, Requeue, decide, own_policy, read_policy
from limpyd_jobs.schedules.model import Schedule
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.store.lazy_fields import has_method, pk_of
from limpyd_jobs.transitions import ClaimRequest, Ending
from limpyd_jobs.utils import (
    MESSAGE,
    compute_delayed_until,
    described,
    one_line,
    overrides,
    parse_datetime,
    takes,
    utcnow,
)
from limpyd_jobs.workers.claim import Claim
from limpyd_jobs.workers.class_names import ClassNames

# The delay of a job that delays itself without saying until when, in seconds.
DEFAULT_DELAY = 60

T = TypeVar("T")


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


class JobEvents:
    """What a worker does at each turn in the life of a job.

    A hook records the turn, by one transition; then it logs its message; then it calls the method that the job may
    have for the event. All three may be overridden.

    To end a job and to claim the next one is one step, as long as no code of the application comes in between: no
    overridden hook, no method of the job.
    """

    error_model: type[Error]
    save_errors: bool
    lease: float
    requeue_times: int | None
    requeue_priority_delta: int | None
    requeue_delay_delta: float | timedelta | None
    _settings: SimpleNamespace

    # The job at hand, and the classes of those before it.
    _claim: Claim
    _class_names: ClassNames

    def log(self, message: str, level: str = "info") -> None:
        raise NotImplementedError

    def _next_claim(self, job: Job, hook: str, event: str) -> ClaimRequest | None:
        raise NotImplementedError

    def _is_put_by(self, job: Job, queue: Queue, result: Any) -> bool:
        raise NotImplementedError

    def _ended(self, ending: Ending) -> None:
        raise NotImplementedError

    def _retry_until_recorded(self, record: Callable[[], T]) -> T:
        raise NotImplementedError

    def _claim_by_hand(self, job: Job, queue: Queue) -> None:
        raise NotImplementedError

    def _let_go(self, job: Job, queue: Queue) -> None:
        raise NotImplementedError

    def _token(self, job: Job) -> str:
        """The claim on a job: on the one at hand, or one made by calling its hooks by hand; empty if there is none."""
        return self._claim.token if self._claim.is_on(job) else getattr(job, "_token_by_hand", "")

    def _hook(self, name: str, *args: Any) -> Any:
        """Call a hook that version 2 does not have: our own, if the application has something else of its name."""
        hook: Any = getattr(self, name, None)
        return hook(*args) if takes(hook, *args) else getattr(JobEvents, name)(self, *args)

    @staticmethod
    def _name_of(job: Job, queue: Queue) -> str:
        """The queue, pk and identifier at the beginning of a message on a job."""
        identifier = getattr(job, "_cached_identifier", None) or job.identifier.hget()
        return f"[{one_line(_queue_name(queue))}|{pk_of(job)}|{one_line(identifier)}]"

    def _log_job(self, job: Job, queue: Queue, message: str, level: str = "info") -> None:
        """Log a message on a job, with its class if there are several in the queue."""
        self.log(message + self._class_names.mark(getattr(queue, "_cached_name", ""), job.get_model_repr()), level)

    # -- started

    def job_started(self, job: Job, queue: Queue) -> None:
        """Hook: a job was fetched, is recorded as running, and is about to be executed."""
        if not self._token(job):
            self._claim_by_hand(job, queue)
        self._log_job(job, queue, self.job_started_message(job, queue))
        _notify(job, "on_started", queue)

    def job_started_message(self, job: Job, queue: Queue) -> str:
        """Return what to log when a job starts."""
        return f"{self._name_of(job, queue)} starting"

    # -- success

    def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
        """Hook: a job was executed without an exception. It is recorded as a success, and listed in its queue."""
        if self._is_put_by(job, queue, job_result):
            return
        request = self._next_claim(job, "job_success", "on_success")
        ending = self._retry_until_recorded(partial(transitions.succeed, job, queue, self._token(job), request))
        self._succeeded(job, queue, job_result, ending)

    def _succeeded(self, job: Job, queue: Queue, job_result: Any, ending: Ending) -> None:
        if ending.outcome == "canceled":
            job._cached_status = STATUSES.CANCELED
            self.job_skipped(job, queue)
        elif ending.outcome == "delayed":
            job._cached_status = STATUSES.DELAYED
            self.job_delayed(job, queue)
        else:
            self._ended(ending)
            job._cached_end = ending.end
            self._log_job(job, queue, self.job_success_message(job, queue, job_result))
            _notify(job, "on_success", queue, job_result)

    def job_success_message(self, job: Job, queue: Queue, job_result: Any) -> str:
        """Return what to log when a job is a success."""
        return f"{self._name_of(job, queue)} success, in {self._duration(job)}"

    @staticmethod
    def _duration(job: Job) -> timedelta | None:
        if "_cached_duration" in vars(job):
            return job._cached_duration
        start = parse_datetime(getattr(job, "_cached_start", None))
        end = parse_datetime(getattr(job, "_cached_end", None))
        return end - start if start and end else job.duration

    # -- scheduled

    def job_scheduled(self, job: Job, schedule: Schedule, time: datetime) -> None:
        """Hook: this worker added a job, as a schedule was due at that time, naive UTC."""
        self.log(self._hook("job_scheduled_message", job, schedule, time))
        _notify(job, "on_scheduled", schedule, time)

    def job_scheduled_message(self, job: Job, schedule: Schedule, time: datetime) -> str:
        """Return what to log when a job is added by a schedule."""
        name, identifier = schedule.name.hget() or "", job.identifier.hget() or ""
        return f"[{one_line(name)}] due at {time}: job {pk_of(job)} added, {one_line(identifier)}"

    def schedule_missed(self, schedule: Schedule, time: datetime) -> None:
        """Hook: this worker passed over a time, naive UTC, of a schedule, as it is too late for its grace."""
        self.log(self._hook("schedule_missed_message", schedule, time), "warning")

    def schedule_missed_message(self, schedule: Schedule, time: datetime) -> str:
        """Return what to log when a schedule missed a time."""
        return f"[{one_line(schedule.name.hget() or '')}] schedule missed its time, {time}"

    # -- skipped

    def job_skipped(self, job: Job, queue: Queue) -> None:
        """Hook: a job did not wait, or was canceled while it ran. It is no longer queued."""
        token = self._token(job)
        if token:
            request = self._next_claim(job, "job_skipped", "on_skipped")
            self._ended(self._retry_until_recorded(partial(transitions.finish_canceled, job, queue, token, request)))
        else:
            self._retry_until_recorded(partial(transitions.skip, job, queue, self.lease))
        self._log_job(job, queue, self.job_skipped_message(job, queue), "warning")
        _notify(job, "on_skipped", queue)

    def job_skipped_message(self, job: Job, queue: Queue) -> str:
        """Return what to log when a job is skipped."""
        status = getattr(job, "_cached_status", None) or job.status.hget()
        name = STATUSES.by_value(status, "UNKNOWN")
        reason = getattr(job, "_cached_reason", "")
        return f"{self._name_of(job, queue)} job skipped (current status: {name}){reason and f': {reason}'}"

    # -- delayed

    def job_delayed(self, job: Job, queue: Queue) -> None:
        """Hook: a job was delayed while it ran, or before.

        It goes to the delayed set until its `delayed_until`, or for 60 seconds if it has none.
        """
        until = parse_datetime(self._retry_until_recorded(job.delayed_until.hget))
        if has_custom_placement(type(job), type(queue)):
            delayed_until = self._delay_customly(job, queue, until)
        else:
            delayed_until = self._delay(job, queue, until)
        job._cached_delayed_until = delayed_until
        self._log_job(job, queue, self.job_delayed_message(job, queue), "warning" if delayed_until else "info")
        _notify(job, "on_delayed", queue)

    def _delay(self, job: Job, queue: Queue, until: datetime | None) -> str:
        delay = delay_argument(delayed_until=until) if until else delay_argument(delayed_for=DEFAULT_DELAY)
        request = self._next_claim(job, "job_delayed", "on_delayed")
        ending = self._retry_until_recorded(
            partial(transitions.delay, job, queue, self._token(job), _queue_name(queue), delay, request)
        )
        self._ended(ending)
        return ending.delayed_until

    def _delay_customly(self, job: Job, queue: Queue, until: datetime | None) -> str:
        self._let_go(job, queue)
        job.enqueue_or_delay(
            queue_name=_queue_name(queue),
            delayed_until=until or utcnow() + timedelta(seconds=DEFAULT_DELAY),
            queue_model=type(queue),
        )
        return job.delayed_until.hget() or ""

    def job_delayed_message(self, job: Job, queue: Queue) -> str:
        """Return what to log when a job is delayed."""
        delayed_until = getattr(job, "_cached_delayed_until", None)
        if delayed_until is None:
            delayed_until = job.delayed_until.hget()
        if delayed_until == "":
            return f"{self._name_of(job, queue)} job put back in its queue"
        return f"{self._name_of(job, queue)} job delayed until {delayed_until}"

    # -- error

    def job_error(self, job: Job, queue: Queue, exception: BaseException, trace: str | None = None) -> None:
        """Hook: the execution of a job raised an exception.

        The job is recorded as an error and listed in its queue; then it is put back in a queue if it may run again.
        """
        if self._has_a_say_in_errors(job, queue):
            self._fail_step_by_step(job, queue, exception, trace)
        else:
            self._fail_at_once(job, queue, exception, trace)

    def _has_a_say_in_errors(self, job: Job, queue: Queue) -> bool:
        """Whether code of the application is to see the job between its error and its return to a queue."""
        return (
            overrides(self, JobEvents, "additional_error_fields", "job_error_message", "requeue_job")
            or overrides(type(job), Job, "requeue", "must_be_cancelled_on_error")
            or overrides(self.error_model, Error, "add_error")
            or has_custom_placement(type(job), type(queue))
            or has_method(job, "on_error")
            or has_method(job, "on_requeued")
        )

    def _fail_at_once(self, job: Job, queue: Queue, exception: BaseException, trace: str | None) -> None:
        self._save_error(job, queue, exception, trace)
        back = self._return_of(job, exception)
        priority = self._requeue_priority(queue, back)
        fail = partial(
            transitions.fail,
            job,
            queue,
            self._token(job),
            back.times,
            _queue_name(queue),
            priority,
            delay_argument(delayed_for=back.delay),
            began=self._claim.began_late,
            next_claim=self._next_claim(job, "job_error", "on_error"),
        )
        ending = self._retry_until_recorded(fail)
        self._ended(ending)
        requeued = ending.outcome == "requeued"
        self._log_error(job, queue, requeued, exception, trace)
        if requeued:
            job._cached_priority, job._cached_delayed_until = priority, ending.delayed_until
            self._log_job(job, queue, self.job_requeue_message(job, queue))

    def _fail_step_by_step(self, job: Job, queue: Queue, exception: BaseException, trace: str | None) -> None:
        """Hold a job that may run again in error until all hooks have seen it."""
        back = self._return_of(job, exception)
        fail = partial(
            transitions.fail,
            job,
            queue,
            self._token(job),
            back.times,
            hold=True,
            heed_field=not overrides(type(job), Job, "must_be_cancelled_on_error"),
            began=self._claim.began_late,
        )
        ending = self._retry_until_recorded(fail)
        self._ended(ending)
        held = ending.outcome == "held"
        self._save_error(job, queue, exception, trace)
        self._log_error(job, queue, held, exception, trace)
        _notify(job, "on_error", queue, exception, trace)
        if held:
            self._requeue_held(job, queue, back)

    def _log_error(self, job: Job, queue: Queue, requeued: bool, exception: BaseException, trace: str | None) -> None:
        told: Any = requeued or (
            self.requeue_times and False
        )  # version 2 says 0 or None if these are its requeue_times
        self._log_job(job, queue, self.job_error_message(job, queue, told, exception, trace), "error")

    def _requeue_held(self, job: Job, queue: Queue, back: Return) -> None:
        """Put a job that is held in error back in a queue, unless it was canceled meanwhile."""
        try:
            self.requeue_job(job, queue, int(self._requeue_priority(queue, back)), delayed_for=back.delay)
        except LimpydJobsException:
            job._cached_status = self._retry_until_recorded(job.status.hget)
            if job._cached_status != STATUSES.CANCELED:
                raise
            self.job_skipped(job, queue)

    def _return_of(self, job: Job, exception: BaseException) -> Return:
        """How a job is put back, its `cancel_on_error` field aside, which fail() looks at."""
        never = Return(0, self.requeue_priority_delta, None)
        if isinstance(exception, (CodeNotRun, WorkerLost)) or self._is_never_put_back(job):
            return never
        text, tries, uncounted, age = self._history_of(job)
        policy = read_policy(text) or own_policy(job.default_retry_policy) or self._settings.retry_policy
        if policy is None:
            return Return(int(self.requeue_times or 0), self.requeue_priority_delta, self.requeue_delay_delta)
        decision = decide(policy, exception, tries - uncounted, age)
        if isinstance(decision, GiveUp):
            return never
        return self._return_by(decision)

    def _return_by(self, again: Again) -> Return:
        delta = self.requeue_priority_delta if again.priority_delta is None else again.priority_delta
        return Return(None, delta, again.delay)

    @staticmethod
    def _is_never_put_back(job: Job) -> bool:
        if overrides(type(job), Job, "must_be_cancelled_on_error"):
            return bool(job.must_be_cancelled_on_error)
        return bool(job.always_cancel_on_error)

    def _history_of(self, job: Job) -> tuple[str | None, int, int, float]:
        """What a retry policy looks at: the text of that of the job; how often it was run, and how many of these runs
        do not count; its age in seconds, by the clock of Redis. No round trip, unless its hooks are called by hand."""
        text: str | None
        if self._claim.is_on(job):
            fetched = self._claim.fetched
            (text, uncounted, since), tries, start = fetched.retry, fetched.tries, fetched.start
            ran = monotonic() - self._claim.began
        else:
            names = ("_retry_policy", "_uncounted_tries", "tries", "start", "added", "_requeued_at")
            text, uncounted, tries, start, added, requeued_at = job.hmget(*names)
            since, ran = requeued_at or added, 0.0
        began, born = parse_datetime(start), parse_datetime(since)
        waited = (began - born).total_seconds() if began and born else 0.0
        return text, _number(tries), _number(uncounted), max(waited, 0.0) + ran

    def _requeue_priority(self, queue: Queue, back: Return) -> str:
        priority = read_priority(getattr(queue, "_cached_priority", None) or queue.priority.hget()) or 0
        return nearest_priority(priority + (back.priority_delta or 0))

    def _save_error(self, job: Job, queue: Queue, exception: BaseException, trace: str | None) -> None:
        if self.save_errors:
            # Some overrides have no parameter for the traceback.
            given = {"trace": trace} if "trace" in signature(self.additional_error_fields).parameters else {}
            fields = self.additional_error_fields(job, queue, exception, **given) or {}
            self._retry_until_recorded(
                partial(self.error_model.add_error, _queue_name(queue), job, exception, trace=trace, **fields)
            )

    def job_error_message(
        self, job: Job, queue: Queue, to_be_requeued: bool, exception: BaseException, trace: str | None = None
    ) -> str:
        """Return what to log when a job failed."""
        requeued = "requeued" if to_be_requeued else "NOT requeued"
        return f"{self._name_of(job, queue)} error: {described(exception)} [{requeued}]"

    def additional_error_fields(
        self, job: Job, queue: Queue, exception: BaseException, trace: str | None = None
    ) -> dict[str, Any]:
        """Return the values of the fields that a subclass of `Error` has in addition."""
        return {}

    # -- rescued

    def job_rescued(self, job: Job, queue: Queue) -> None:
        """Hook: a job whose worker died was put back at the front of its waiting list."""
        self._log_job(job, queue, self._hook("job_rescued_message", job, queue), "warning")
        _notify(job, "on_rescued", queue)

    def job_rescued_message(self, job: Job, queue: Queue) -> str:
        """Return what to log when a job is rescued."""
        return f"{self._name_of(job, queue)} rescued, as its worker died"

    # -- released

    def job_released(self, job: Job, queue: Queue) -> None:
        """Hook: a job was interrupted, as its worker has to end, and is back at the front of its waiting list.

        The try is not counted.
        """
        self._log_job(job, queue, self._hook("job_released_message", job, queue), "warning")
        _notify(job, "on_released", queue)

    def job_released_message(self, job: Job, queue: Queue) -> str:
        """Return what to log when a job is released."""
        return f"{self._name_of(job, queue)} released, as its worker has to end"

    def _release(self, job: Job, queue: Queue) -> None:
        fetched = self._claim.fetched
        release = partial(transitions.release, type(job), fetched.ident, self._claim.token, fetched.queue_key)
        self._retry_until_recorded(release)
        self._claim.end()
        self._hook("job_released", job, queue)

    # -- requeue, canceled: as the code of the job asks for it

    def job_requeued(self, job: Job, queue: Queue, request: Requeue) -> None:
        """Hook: the code of a job raised `Requeue`. It is put back in its queue, unless it was canceled meanwhile.

        It is no error, and the try is none of its retry policy.
        """
        is_custom = has_custom_placement(type(job), type(queue))
        delay = delay_argument(request.delayed_for, request.delayed_until)
        ending = self._retry_until_recorded(
            partial(
                transitions.delay,
                job,
                queue,
                self._token(job),
                _queue_name(queue),
                delay or delay_argument(delayed_for=DEFAULT_DELAY) if is_custom else delay,
                self._next_claim(job, "job_requeued", "on_requeued"),
                priority=request.priority,
                uncounted=True,
            )
        )
        if ending.outcome == "canceled":
            job._cached_status = STATUSES.CANCELED
            self.job_skipped(job, queue)
            return
        self._ended(ending)
        job._cached_priority = request.priority or getattr(queue, "_cached_priority", "0")
        job._cached_delayed_until = ending.delayed_until
        if is_custom:
            self._place_customly(job, queue, request)
        _notify(job, "on_requeued", queue)
        self._log_job(job, queue, self.job_requeue_message(job, queue))

    @staticmethod
    def _place_customly(job: Job, queue: Queue, request: Requeue) -> None:
        """Put a job that was delayed for a moment, to be safe from other workers, in its queue the way it has."""
        job.enqueue_or_delay(
            queue_name=_queue_name(queue),
            priority=request.priority or job.priority.hget(),
            delayed_until=compute_delayed_until(request.delayed_for, request.delayed_until),
            queue_model=type(queue),
        )
        del job._cached_priority

    def _cancel(self, job: Job, queue: Queue, reason: Cancel) -> None:
        """The code of a job raised `Cancel`: as if it had set its status."""
        if overrides(self, JobEvents, "job_skipped"):
            self._retry_until_recorded(partial(job.status.hset, STATUSES.CANCELED))
        job._cached_status, job._cached_reason = STATUSES.CANCELED, one_line(reason, MESSAGE)
        self.job_skipped(job, queue)

    # -- requeue

    def requeue_job(self, job: Job, queue: Queue, priority: int, delayed_for: float | timedelta | None = None) -> None:
        """Put a job that failed back in a queue."""
        job.__dict__.pop("_cached_priority", None)
        is_first = iter((True,))

        def requeue() -> None:
            if next(is_first, False) or job.status.hget() == STATUSES.ERROR:  # else it was done, but the reply was lost
                job.requeue(
                    queue_name=_queue_name(queue), priority=priority, delayed_for=delayed_for, queue_model=type(queue)
                )

        self._retry_until_recorded(requeue)
        if "_cached_priority" in vars(job):  # so it was our own version that put it back, and ended the claim
            self._ended(Ending("requeued"))
        _notify(job, "on_requeued", queue)
        self._log_job(job, queue, self.job_requeue_message(job, queue))

    def job_requeue_message(self, job: Job, queue: Queue) -> str:
        """Return what to log when a job that failed was put back in a queue."""
        priority = getattr(job, "_cached_priority", None)
        delayed_until = getattr(job, "_cached_delayed_until", None)
        if priority is None:
            priority, delayed_until = job.hmget("priority", "delayed_until")
        delayed = f", delayed until {delayed_until}" if delayed_until else ""
        return f"{self._name_of(job, queue)} requeued with priority {priority}{delayed}"


def _queue_name(queue: Queue) -> str:
    name: str = getattr(queue, "_cached_name", None) or queue.name.hget()
    return name


def _number(text: str | None) -> int:
    """Return a stored count; 0 if it is none."""
    return read_priority(text) or 0


def _notify(job: Job, event: str, *args: Any) -> None:
    """Call the method of a job for an event, if its class has one."""
    if has_method(job, event):
        getattr(job, event)(*args)
