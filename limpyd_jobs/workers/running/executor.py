"""Running one job, from the moment on when its objects are made until its end is recorded, whatever its code does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Any

from limpyd_jobs.exceptions import (
    ConfigurationException,
    GracePeriodOver,
    JobInterrupted,
    RetriedTooLate,
    RetriedTooOften,
)
from limpyd_jobs.models import JobClaim
from limpyd_jobs.models.claims.job_claim import release_all
from limpyd_jobs.observing import instruments
from limpyd_jobs.retrying import Cancel, Requeue, wish_among
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers.claiming.offers import Offers
from limpyd_jobs.workers.context import Context
from limpyd_jobs.workers.process.signals import is_by_signal
from limpyd_jobs.workers.run import Run, Runs
from limpyd_jobs.workers.running.by_hooks import ByHooks
from limpyd_jobs.workers.running.code import JobCode
from limpyd_jobs.workers.running.event_loop import LoopFailed
from limpyd_jobs.workers.running.recorder import Recorder, sleep

# How many values the `retry` of a delivery has if the job has no time limit of its own, and has not failed.
WITHOUT_LIMIT = 3

# How many seconds to pause after a job of a paused queue was put back.
PAUSED_QUEUE_PAUSE = 1.0


@dataclass(eq=False)
class Executor:
    """Takes a job, runs its code, and calls the hook for its end."""

    context: Context
    runs: Runs
    recorder: Recorder
    code: JobCode
    by_hooks: ByHooks
    offers: Offers
    note: Callable[[Run], None] | None  # for the metrics

    # -- The steps

    def run(self, run: Run) -> None:
        """Run a job. No failure of the application, or of this library, ends the worker."""
        self.recorder.guard(run, partial(self._run, run))

    def _run(self, run: Run) -> None:
        if self.take_up(run):
            self._execute(run, self.code.call_inside if instruments.installed else self.code.call)

    def finish(self, run: Run, result: Callable[[Run], Any]) -> None:
        """Call the hook for the end of a job whose code has run. `result` returns what it returned, or raises."""
        self.recorder.guard(run, partial(self._execute, run, result))

    def take_up(self, run: Run) -> bool:
        """Claim the job, unless it is claimed already. Call the hook of one that is not to be run, and return False."""
        if run.way is None:
            run.way = self.by_hooks
            self._take(run)
        self._remember(run)
        status = run.job._cached_status
        if run.delivery.outcome in ("paused", "limited"):
            sleep(PAUSED_QUEUE_PAUSE)  # an overridden wait_for_job finds it again at once
        elif status == STATUSES.DELAYED:
            self.by_hooks.delayed(run)
        elif not run.is_held or status == STATUSES.CANCELED:
            self.by_hooks.skipped(run, run.delivery.reason)
        else:
            return not (run.delivery.retry[WITHOUT_LIMIT:] or run.delivery.reason) or self._may_begin(run)
        return False

    def _take(self, run: Run) -> None:
        """Claim the job if the application chose it, and only took it out of its list."""
        offered = run.delivery
        if run.is_only_taken:
            self._claim(run, offered.ident)
            if not run.is_held and run.delivery.status == STATUSES.DELAYED:
                run.taken_as_it_is(offered)
            elif not run.is_held:  # it does not wait any more, and only that counts
                self.offers.abandon(offered)
        elif not offered.ident:
            self._claim(run, run.job.ident)

    def _may_begin(self, run: Run) -> bool:
        """Whether a job that failed before is still to be tried again, and its limits can let it begin. Else it is an
        error."""
        try:
            if run.delivery.reason:
                raise ConfigurationException(run.delivery.reason)
            run.check_is_in_time()
        except (RetriedTooLate, ConfigurationException) as error:
            self._fail(run, error)
            return False
        return True

    def _claim(self, run: Run, ident: str) -> None:
        run.is_held = False
        run.taken(self.offers.take(run.queue.waiting.key, ident))

    def _remember(self, run: Run) -> None:
        delivery = run.delivery
        self.runs.running[run] = None
        run.remember(
            _cached_status=delivery.status,
            _cached_start=delivery.start,
            _run_in_worker=run,
            _worker_ends=self.context.ends_jobs,
        )
        vars(run.queue)["_cached_name"] = delivery.queue_name
        if delivery.path not in self.runs.class_names.of_queue[delivery.queue_name]:
            self.runs.class_names.add(delivery.queue_name, delivery.path, type(run.job), delivery.identifier)
            self.code.met(type(run.job), delivery.job_timeout)

    def _execute(self, run: Run, call: Callable[[Run], Any]) -> None:
        """Call what runs the code of a job, or tells how it ran, and then the hook for its end."""
        try:
            try:
                result = call(run)
            except BaseExceptionGroup as errors:
                wish = wish_among(errors)
                if wish is None:
                    raise
                raise wish from errors
        except Requeue as request:
            if not request.count or self._has_tries_left(run, request):
                self.by_hooks.requeued(run, request)
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
        try:
            self.recorder.retry(self.by_hooks.strategies.check_tries, run, request)
        except RetriedTooOften as error:
            self._fail(run, error)
            return False
        return True

    def _has_to_end(self, error: BaseException) -> bool:
        """Whether a job was interrupted because its worker has to end. If its code raised the same exceptions by
        itself, that is an error: else it would be run again and again, each time as if for the first time."""
        if isinstance(error, KeyboardInterrupt):
            return is_by_signal(error)
        return isinstance(error, GracePeriodOver) and self.context.ends_jobs()

    def _release(self, run: Run) -> None:
        """Put a job back that was interrupted, unless that is done."""
        if run.outcome != "released":
            self._interrupted(run)
            self.recorder.retry(run.release, begun=True)
        self.by_hooks.released(run)

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
        self.by_hooks.failed(run, error)
        if isinstance(error, SystemExit) and not isinstance(error.code, (int, NoneType)):  # Python prints it
            error.code = one_line(error.code, MESSAGE)

    def _give_way(self, run: Run, interrupt: JobInterrupted) -> None:
        """Put a job back that goes on later, where it was."""
        self.recorder.retry(run.release, begun=True, goes_last=interrupt.goes_last, waits=interrupt.waits)
        run.job._cached_reason, run.job._is_to_wait = str(interrupt), bool(interrupt.waits)
        self.by_hooks.released(run)

    def _cancel(self, run: Run, reason: Cancel) -> None:
        """Cancel a job whose code raised `Cancel`, as if it had set its status."""
        job = run.job
        if not self.by_hooks.overrides.has_our_skip:
            self.recorder.retry(job.status.hset, STATUSES.CANCELED)
        job._cached_status = STATUSES.CANCELED
        self.by_hooks.skipped(run, one_line(reason, MESSAGE))

    def _interrupted(self, run: Run) -> None:
        """Drop the connections, because the code of the job was interrupted: one may still have a reply for it."""
        self.code.interrupted()
        if database := run.delivery.database:
            database.close_idle()

    # -- Jobs that are not run here

    def call_hook(self, delivery: Delivery, hook: Callable[..., None], *details: Any) -> None:
        """Call a hook with a job that is not run, and its queue."""
        run = self.offers.run_of(delivery)
        self._remember(run)
        self.recorder.guard(run, partial(hook, run.job, run.queue, *details))
