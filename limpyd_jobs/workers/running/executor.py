"""Running one job, from the moment on when its objects are made until its end is recorded, whatever its code does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from types import CoroutineType, NoneType
from typing import Any

from limpyd_jobs.arguments import own_seconds, read_seconds
from limpyd_jobs.exceptions import (
    CodeNotRun,
    GracePeriodOver,
    JobInterrupted,
    JobTimeout,
    RetriedTooLate,
    RetriedTooOften,
)
from limpyd_jobs.fields.argument import know_all_arguments
from limpyd_jobs.functions import is_async, is_coroutine, is_unrun, why_unrun
from limpyd_jobs.models import Job, JobClaim
from limpyd_jobs.models.claims.job_claim import release_all
from limpyd_jobs.observing import instruments
from limpyd_jobs.observing.instruments import Around, Running, as_attempt
from limpyd_jobs.redis.forks import this_process
from limpyd_jobs.retrying import Cancel, Requeue
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line, raw_traceback_of
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers.concurrent.awaiting import Awaiting
from limpyd_jobs.workers.concurrent.event_loop import LoopFailed
from limpyd_jobs.workers.concurrent.stepping import code_of
from limpyd_jobs.workers.context import Context, Face
from limpyd_jobs.workers.naming import label_of
from limpyd_jobs.workers.overrides import Overrides
from limpyd_jobs.workers.process.forks import end_child
from limpyd_jobs.workers.process.signals import is_by_signal
from limpyd_jobs.workers.redis_retry import sleep
from limpyd_jobs.workers.run import Run, Runs, Way
from limpyd_jobs.workers.running.announcer import Announcer
from limpyd_jobs.workers.running.recorder import Guard, Recorder
from limpyd_jobs.workers.timers import JobTimer

# How many values the `retry` of a delivery has if the job has no time limit of its own, and has not failed.
WITHOUT_LIMIT = 3

# How many seconds to pause after a job of a paused queue was put back.
PAUSED_QUEUE_PAUSE = 1.0


@dataclass(eq=False)
class Executor:
    """Takes a job, runs its code, and calls the hook for its end."""

    worker: Face
    context: Context
    runs: Runs
    guard: Guard
    recorder: Recorder
    overrides: Overrides
    announcer: Announcer
    timer: JobTimer
    awaiting: Awaiting
    our_execute: Callable[..., Any]  # `Worker.execute`
    by_hooks: Way
    take: Callable[[str, str], Delivery]  # claims a job of a waiting list, by its ident
    abandon: Callable[[Delivery], None]  # ends the claim on a job that is only taken
    note: Callable[[Run], None] | None  # for the metrics
    worker_ends: Callable[[], bool]  # whether a job should give way

    _pid = 0

    # -- The steps

    def run(self, run: Run) -> None:
        """Run a job. No failure of the application, or of this library, ends the worker."""
        self._pid = this_process.pid
        try:
            self.guard.run(run, partial(self._run, run))
        finally:
            if this_process.pid != self._pid:  # a hook forked it
                end_child()

    def _run(self, run: Run) -> None:
        if self.take_up(run):
            self._execute(run, self._call_inside if instruments.installed else self._call)

    def finish(self, run: Run, result: Callable[[Run], Any]) -> None:
        """Call the hook for the end of a job whose code has run. `result` returns what it returned, or raises."""
        self.guard.run(run, partial(self._execute, run, result))

    def take_up(self, run: Run) -> bool:
        """Claim the job, unless it is claimed already. Call the hook of one that is not to be run, and return False."""
        if run.way is None:
            run.way = self.by_hooks
            self._take(run)
        self._remember(run)
        job, queue = run.job, run.queue
        if run.delivery.outcome == "paused":
            sleep(PAUSED_QUEUE_PAUSE)  # an overridden wait_for_job finds it again at once
        elif job._cached_status == STATUSES.DELAYED:
            self.worker.job_delayed(job, queue)
        elif not run.is_held or job._cached_status == STATUSES.CANCELED:
            job._cached_reason = run.delivery.reason
            self.worker.job_skipped(job, queue)
        else:
            return not run.delivery.retry[WITHOUT_LIMIT:] or self._is_in_time(run)
        return False

    def _take(self, run: Run) -> None:
        """Claim the job if the application chose it, and only took it out of its list."""
        offered = run.delivery
        if run.is_only_taken:
            self._claim(run, offered.ident)
            if not run.is_held and run.delivery.status == STATUSES.DELAYED:
                run.taken_as_it_is(offered)
            elif not run.is_held:  # it does not wait any more, and only that counts
                self.abandon(offered)
        elif not offered.ident:
            self._claim(run, run.job.ident)

    def _is_in_time(self, run: Run) -> bool:
        """Whether a job that failed before is still to be tried again. If not, it is an error, as its last try was."""
        try:
            run.check_is_in_time()
        except RetriedTooLate as error:
            self._fail(run, error)
            return False
        return True

    def _claim(self, run: Run, ident: str) -> None:
        run.is_held = False
        run.taken(self.take(run.queue.waiting.key, ident))

    def _remember(self, run: Run) -> None:
        delivery = run.delivery
        self.runs.running[run] = None
        run.remember(_cached_status=delivery.status, _cached_start=delivery.start, _run_in_worker=run)
        vars(run.queue)["_cached_name"] = delivery.queue_name
        run.job.__dict__["_worker_ends"] = self.worker_ends
        self.announcer.class_names.add(delivery.queue_name, delivery.path, type(run.job))

    def _execute(self, run: Run, call: Callable[[Run], Any]) -> None:
        """Call what runs the code of a job, or tells how it ran, and then the hook for its end."""
        try:
            result = call(run)
        except Requeue as request:
            if not request.count or self._has_tries_left(run, request):
                self.overrides.hook("job_requeued", run.job, run.living_queue(), request)
        except Cancel as reason:
            self._cancel(run, reason)
        except JobInterrupted as interrupt:
            self._give_way(run, interrupt)
        except LoopFailed:
            raise
        except BaseException as error:  # asyncio.CancelledError, for one, ends a job, but not its worker
            if self._has_to_end(error):
                self._release(run)
            else:
                self._fail(run, error)
            if isinstance(error, SystemExit) or (isinstance(error, KeyboardInterrupt) and self._has_to_end(error)):
                raise
        else:
            run.is_success = True
            self.runs.done += 1
            run.way.executed(run, result)
        finally:
            if self.note:
                self.note(run)

    def _has_tries_left(self, run: Run, request: Requeue) -> bool:
        """Whether a job whose code asks to be put back, as a try that counts, has tries left. If not, it failed."""
        policy, times = self.context.settings.retry_policy, int(self.worker.requeue_times or 0)
        try:
            self.recorder.retry(run.check_tries, request, policy, times)
        except RetriedTooOften as error:
            self._fail(run, error)
            return False
        return True

    def _has_to_end(self, error: BaseException) -> bool:
        """Whether a job was interrupted because its worker has to end. If its code raised the same exceptions by
        itself, that is an error: else it would be run again and again, each time as if for the first time."""
        if isinstance(error, KeyboardInterrupt):
            return is_by_signal(error)
        return isinstance(error, GracePeriodOver) and self.worker_ends()

    def _release(self, run: Run) -> None:
        """Put a job back that was interrupted, unless that is done."""
        if run.outcome != "released":
            self._interrupted(run)
            self.recorder.retry(run.release, begun=True)
        self.overrides.hook("job_released", run.job, run.living_queue())

    def release_together(self, claims: Sequence[JobClaim]) -> None:
        """Put jobs of one database back, in their order; `finish` does the rest."""
        if claims:
            self.recorder.redis_retry.disconnect()
            self.recorder.retry(release_all, claims)

    def _fail(self, run: Run, error: BaseException) -> None:
        """Call the hook for a job that failed."""
        run.is_success = False
        self.runs.failed += 1
        if not isinstance(error, (Exception, SystemExit)):
            self._interrupted(run)
        trace = raw_traceback_of(error) if self.worker.save_tracebacks else None
        self.worker.job_error(run.job, run.living_queue(), error, trace)
        if isinstance(error, SystemExit) and not isinstance(error.code, (int, NoneType)):  # Python prints it
            error.code = one_line(error.code, MESSAGE)

    def _give_way(self, run: Run, interrupt: JobInterrupted) -> None:
        """Put a job back that goes on later, where it was."""
        job = run.job
        self.recorder.retry(run.release, begun=True, goes_last=interrupt.goes_last)
        job._cached_reason = str(interrupt)
        self.overrides.hook("job_released", job, run.living_queue())

    def _call_inside(self, run: Run) -> Any:
        """Do as `_call`, with the instruments around it."""
        with Around(Running(run.job, run.delivery.queue_name, as_attempt(run.delivery.tries), self.worker.id)):
            return self._call(run)

    def _call(self, run: Run) -> Any:
        """Call the hook for the start of a job, then its code, and end that when its time is over."""
        job, worker = run.job, self.worker
        run.way.start(run)
        function = worker.callback or worker.execute
        is_ours = getattr(function, "__func__", None) is self.our_execute
        seconds = self.timeout_of(run)
        if seconds is not None:
            self.timer.set("job", seconds, JobTimeout(f"It ran for more than {seconds} seconds"))
        self.timer.arm()
        began, run.is_running, was_interrupted = monotonic(), True, False
        try:
            result = job.run(run.queue) if is_ours else function(job, run.queue)
            if type(result) is CoroutineType:
                result = self._await(job, function, result)
        finally:
            run.ran, run.is_running = monotonic() - began, False
            if this_process.pid != self._pid:
                end_child()
            self.timer.disarm()
            if seconds is not None:
                was_interrupted = self.timer.clear("job")
        if was_interrupted:
            self.worker.log(f"{label_of(job)} swallowed JobTimeout, and went on to its end all the same", "warning")
            raise JobTimeout(f"It ran for more than {seconds} seconds")
        if result is not None and is_unrun(result):
            self.check_has_run(job, function, result)
        return result

    def _await(self, job: Job, function: Any, coroutine: CoroutineType[Any, Any, Any]) -> Any:
        """Await the coroutine of an async function. One that another function returned may be there by mistake."""
        self.timer.disarm()
        if is_async(job.run) or is_async(function):
            try:
                self.read_arguments(job)
            except BaseException:
                coroutine.close()
                raise
            with code_of(job):
                return self.awaiting.run(coroutine, self.timer)
        return coroutine

    def read_arguments(self, job: Job) -> None:
        """Read the arguments that did not come with the claim of the job, so that a coroutine has all at hand."""
        self.recorder.retry(know_all_arguments, job)

    def timeout_of(self, run: Run, *, needs_signal: bool = True) -> float | None:
        """Return the seconds a job may run, as the job, else its class, else the worker says; None for no limit, or if
        that needs a signal, and this thread gets none."""
        job, given = run.job, run.delivery.job_timeout
        seconds = read_seconds(given) if given else None
        if seconds is None and job.default_job_timeout is not None:
            seconds = own_seconds(job.default_job_timeout)
        if seconds is None:
            seconds = self.context.settings.job_timeout
        if not (seconds and needs_signal) or self.timer.is_possible():
            return seconds or None
        if not (is_async(job.run) or is_async(self.worker.callback)):
            self.worker.log(f"{label_of(job)} may run for ever: a time limit needs the main thread", "warning")
            return None
        return seconds or None

    def check_has_run(self, job: Job, function: Any, result: Any) -> None:
        """Raise `CodeNotRun` if the code of a job returned a coroutine or a generator instead of doing its work.

        Generators that the application's own `execute` returns are left to its hooks.
        """
        is_ours = getattr(function, "__func__", None) is self.our_execute
        if is_ours or function != self.worker.execute or is_coroutine(result):
            raise CodeNotRun(why_unrun(job.run if is_ours else function, result))

    def _cancel(self, run: Run, reason: Cancel) -> None:
        """Cancel a job whose code raised `Cancel`, as if it had set its status."""
        job = run.job
        if not self.overrides.has_our_skip:
            self.recorder.retry(job.status.hset, STATUSES.CANCELED)
        job._cached_status, job._cached_reason = STATUSES.CANCELED, one_line(reason, MESSAGE)
        self.worker.job_skipped(job, run.living_queue())

    def _interrupted(self, run: Run) -> None:
        """Drop the connections, because the code of the job was interrupted: one may still have a reply for it."""
        self.timer.disarm()
        self.recorder.redis_retry.disconnect()
        if database := run.delivery.database:
            database.close_idle()

    # -- Jobs that are not run here

    def call_hook(self, delivery: Delivery, hook: Callable[..., None], *details: Any) -> None:
        """Call a hook with a job that is not run, and its queue."""
        self.runs.offer(delivery)
        queue, job = self.worker.get_queue(delivery.key), self.worker.get_job(delivery.ident)
        self.runs.offered.pop(delivery.ident, None)
        run = Run(delivery, job, queue)
        self._remember(run)
        self.guard.run(run, partial(hook, job, queue, *details))
