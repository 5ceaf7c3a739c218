"""Running one job, from the moment it was fetched until its end is recorded, whatever its code does."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from limpyd_jobs import transitions
from limpyd_jobs.arguments import own_seconds, read_seconds
from limpyd_jobs.classes.unrun import is_coroutine, is_unrun, why_unrun
from limpyd_jobs.exceptions import ClaimLost, CodeNotRun, GracePeriodOver, JobGone, JobTimeout, NotRecorded
from limpyd_jobs.models import Job, JobClaim, Queue
from limpyd_jobs.retrying import Cancel, Requeue
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, described, one_line, traceback_of
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers.naming import ident_of, label_of
from limpyd_jobs.workers.process.forks import end_child_of
from limpyd_jobs.workers.redis_retry import sleep
from limpyd_jobs.workers.running.execution import Execution
from limpyd_jobs.workers.running.timers import JobTimer

if TYPE_CHECKING:
    from limpyd_jobs.workers.engine import Engine

# How many seconds to rest after a job of a paused queue was put back.
PAUSE = 1.0


class Executor:
    """Takes a job, runs its code, and calls the hook for its end. It makes sure that in the end the worker has no claim
    on the job any more.

    Attributes
    ----------
    running: dict of str to Execution
        The jobs that are being run, by their ident.
    done, failed: int
        How many jobs returned, and how many raised.
    timer: JobTimer
        Ends the code of a job whose time is over.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._worker = engine.worker
        self.running: dict[str, Execution] = {}
        self.done = self.failed = 0
        self.timer = JobTimer()
        self._pid = 0

    # -- The steps

    def run(self, queue: Queue | None, job: Job | None) -> None:
        """Run a job that was fetched. No failure of the application, or of this library, ends the worker."""
        if queue is None or job is None:
            self._worker.log("[??] unexpected error: wait_for_job returned no queue, or no job", "error")
            self._engine.intake.put_back_unseen()
            return
        execution = Execution(self._engine.intake.hand_over(job, queue))
        self._pid = os.getpid()
        try:
            self.guard(execution, partial(self._run, execution))
        finally:
            end_child_of(self._pid)  # if a hook forked it
        self._engine.acknowledger.job_done()

    def _run(self, execution: Execution) -> None:
        self._take(execution)
        claim = execution.claim
        job, queue = claim.job, claim.queue
        if claim.delivery.outcome == "paused":
            sleep(PAUSE)  # an overridden wait_for_job finds it again at once
        elif job._cached_status == STATUSES.DELAYED:
            self._worker.job_delayed(job, queue)
        elif not claim.token or job._cached_status == STATUSES.CANCELED:
            self._worker.job_skipped(job, queue)
        else:
            try:
                self._execute(execution)
            finally:
                if self._engine.settings.metrics:
                    self._engine.metrics.note(execution)

    def _take(self, execution: Execution) -> None:
        """Claim the job, unless it is claimed already."""
        claim = execution.claim
        handed = claim.delivery
        if claim.is_in_hand:
            self._claim(claim, handed.ident)
            if not claim.token and claim.delivery.status == STATUSES.DELAYED:
                claim.token = handed.token
            elif not claim.token:  # it does not wait any more, and only that counts
                self._engine.intake.leave(handed)
        elif not handed.ident:
            self._claim(claim, claim.job.ident)
        self._remember(execution)

    def _claim(self, claim: JobClaim, ident: str) -> None:
        claim.token = ""
        claim.taken(self._engine.fetcher.take(claim.queue.waiting.key, ident))

    def _remember(self, execution: Execution) -> None:
        delivery = execution.claim.delivery
        self.running[delivery.ident] = execution
        execution.remember()
        self._engine.hooks.class_names.add(delivery.queue_name, delivery.path)

    def _execute(self, execution: Execution) -> None:
        """Run the code of a job, and call the hook for its end."""
        job, queue, worker = execution.claim.job, execution.claim.queue, self._worker
        try:
            worker.job_started(job, queue)
            result = self._call(execution)
        except Requeue as request:
            self._engine.overrides.hook("job_requeued", job, execution.living_queue(), request)
        except Cancel as reason:
            self._cancel(execution, reason)
        except GracePeriodOver:
            self._interrupted()
            self._release(execution)
        except KeyboardInterrupt:
            self._interrupted()
            self._release(execution)
            raise
        except BaseException as error:  # asyncio.CancelledError, for one, ends a job, but not its worker
            execution.is_success = False
            self.failed += 1
            if not isinstance(error, (Exception, SystemExit)):
                self._interrupted()
            trace = traceback.format_exc() if worker.save_tracebacks else None
            worker.job_error(job, execution.living_queue(), error, trace)
            if isinstance(error, SystemExit):
                raise
        else:
            execution.is_success = True
            self.done += 1
            self._executed(execution, result)

    def _call(self, execution: Execution) -> Any:
        """Call the code of a job, and end it when its time is over."""
        job, function = execution.claim.job, self._worker.callback or self._worker.execute
        seconds = self._timeout_of(execution)
        if seconds is not None:
            self.timer.set("job", seconds, JobTimeout(f"It ran for more than {seconds} seconds"))
        self.timer.arm()
        began, execution.is_running = monotonic(), True
        try:
            result = function(job, execution.claim.queue)
        finally:
            execution.ran, execution.is_running = monotonic() - began, False
            end_child_of(self._pid)
            self.timer.disarm()
            self.timer.clear("job")
        if result is not None and is_unrun(result):
            self._check_has_run(job, function, result)
        return result

    def _timeout_of(self, execution: Execution) -> float | None:
        """Return the seconds a job may run, as the job, else its class, else the worker says; None for no limit."""
        job = execution.claim.job
        seconds = read_seconds(execution.claim.delivery.job_timeout)
        if seconds is None:
            seconds = own_seconds(job.default_job_timeout)
        if seconds is None:
            seconds = self._engine.settings.job_timeout
        if seconds and not self.timer.is_possible():
            self._worker.log(f"{label_of(job)} may run for ever: a time limit needs the main thread", "warning")
            return None
        return seconds or None

    def _check_has_run(self, job: Job, function: Any, result: Any) -> None:
        """Raise `CodeNotRun`, as the code of a job returned a coroutine or a generator instead of doing its work.

        Generators that the application's own `execute` returns are left to its hooks.
        """
        is_ours = getattr(function, "__func__", None) is self._engine.base.execute
        if is_ours or function != self._worker.execute or is_coroutine(result):
            raise CodeNotRun(why_unrun(job.run if is_ours else function, result))

    def _executed(self, execution: Execution, result: Any) -> None:
        """Call the hook for the status that the job has now."""
        job, queue = execution.claim.job, execution.living_queue()
        job._cached_status = self._engine.overrides.status_after_run(job)
        if job._cached_status == STATUSES.CANCELED:
            self._worker.job_skipped(job, queue)
        elif job._cached_status == STATUSES.DELAYED:
            self._worker.job_delayed(job, queue)
        else:
            self._worker.job_success(job, queue, result)

    def _cancel(self, execution: Execution, reason: Cancel) -> None:
        """Cancel a job whose code raised `Cancel`, as if it had set its status."""
        job = execution.claim.job
        self._engine.overrides.set_canceled(job)
        job._cached_status, job._cached_reason = STATUSES.CANCELED, one_line(reason, MESSAGE)
        self._worker.job_skipped(job, execution.living_queue())

    def _interrupted(self) -> None:
        """Drop the connections, because the code of the job was interrupted: one may still have a reply for it."""
        self.timer.disarm()
        self._worker.connection.connection_pool.disconnect(inuse_connections=False)

    def _release(self, execution: Execution) -> None:
        self._engine.redis_retry.retry(execution.claim.release)
        self._engine.overrides.hook("job_released", execution.claim.job, execution.living_queue())

    # -- Jobs that are not run here

    def of(self, job: Job, queue: Queue) -> Execution:
        """Return the execution of a job whose hook is called, also by hand, as tests of applications do."""
        if self._worker.status is None:
            self._engine.find_overrides()  # the worker does not run, so they may still change
        execution = vars(job).get("_execution") or self.running.get(ident_of(job)) or Execution(JobClaim())
        execution.claim.job, execution.claim.queue = job, queue
        return execution

    def tell(self, delivery: Delivery, hook: Callable[..., None], *details: Any) -> None:
        """Call a hook with a job that is not run, and its queue."""
        queue, job = self._engine.intake.objects_of(delivery)
        execution = Execution(JobClaim(delivery, job, queue))
        self._remember(execution)
        self.guard(execution, partial(hook, job, queue, *details))

    def call_hook(self, name: str, hook: str, *args: Any) -> None:
        """Call a hook of a schedule. Its failure stops no other hook."""
        try:
            self._engine.overrides.hook(hook, *args)
        except RedisError:
            raise
        except Exception as error:
            text = f"[{one_line(name)}] unexpected error: {described(error)}\n{traceback_of(error)}"
            self._worker.log(text, "error")

    # -- When something fails

    def guard(self, execution: Execution, step: Callable[[], None]) -> None:
        """Do a step that ends the claim on a job; then make sure that the claim is ended."""
        job = execution.claim.job
        try:
            step()
        except ClaimLost as error:
            self._tell_not_recorded(job, error)
        except NotRecorded as error:
            self._worker.log(f"{label_of(job)} {one_line(error, MESSAGE)}", "error")
        except Exception as error:
            self._tell_failure(execution, error)
            self.let_go(execution)
        else:
            self.let_go(execution)
        finally:
            self.running.pop(execution.claim.delivery.ident, None)
            if not execution.is_buffered:
                execution.forget()

    def _tell_not_recorded(self, job: Job, error: Exception) -> None:
        text = f"{label_of(job)} {one_line(error, MESSAGE)}"
        self._engine.repeats.log("how a job went is not recorded", text)

    def _tell_failure(self, execution: Execution, error: Exception) -> None:
        """Record a job whose hook failed as an error, unless its end is recorded; list it with the errors anyway."""
        claim = execution.claim
        job = claim.job
        if isinstance(error, JobGone) and error.ident == job.ident:
            self._tell_not_recorded(job, error)
            return
        self._worker.log(f"{label_of(job)} unexpected error: {described(error)}\n{traceback_of(error)}", "error")
        try:
            self._engine.redis_retry.retry(self._record_failure, execution)
        except Exception as another:
            text = f"{label_of(job)} could not be put in errors: {one_line(another, MESSAGE)}"
            self._worker.log(text, "error")
            if isinstance(another, NotRecorded) and claim.outcome != "held":
                claim.token = ""  # it is not abandoned: when its lease has lapsed, the job is rescued

    def _record_failure(self, execution: Execution) -> None:
        claim = execution.claim
        if claim.token and claim.outcome != "held":
            claim.fail()
        else:
            self._put_in_order(execution)
            claim.queue.errors.rpush(claim.job.ident)

    def _put_in_order(self, execution: Execution) -> None:
        """Record the end of a job that did not wait, if its hook did not."""
        claim = execution.claim
        job, queue = claim.job, claim.queue
        is_found = claim.delivery.outcome == "found" and not claim.outcome
        if is_found and job._cached_status == STATUSES.DELAYED:
            self._delay(execution)
        elif is_found:
            transitions.skip(job, queue, self._engine.settings.lease)

    def let_go(self, execution: Execution) -> None:
        """End the claim if overridden hooks did not: then they took care of the state of the job."""
        claim = execution.claim
        if execution.is_buffered or not claim.token:
            return
        try:
            if not self._engine.redis_retry.retry(claim.abandon):
                self._delay(execution)
        except Exception as error:
            self._engine.intake.tell_still_claimed(claim.delivery, error)
        claim.token = ""

    def _delay(self, execution: Execution) -> None:
        self._engine.placement.delay(execution, execution.claim.stored_delay())
