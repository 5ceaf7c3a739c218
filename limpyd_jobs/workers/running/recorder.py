"""Recording how a job ends, whatever hooks do; in the same step, the next job may be claimed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Any, ParamSpec

from limpyd.exceptions import DoesNotExist

from limpyd_jobs import transitions
from limpyd_jobs.exceptions import ClaimLost, JobGone, NotRecorded
from limpyd_jobs.models import Job
from limpyd_jobs.redis.forks import end_child, this_process
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, described, one_line, traceback_of
from limpyd_jobs.transitions import Delivery, Ending
from limpyd_jobs.workers.claiming.waiter import Waiter
from limpyd_jobs.workers.context import Context
from limpyd_jobs.workers.log import ident_of, label_of, still_claimed
from limpyd_jobs.workers.process.signals import is_by_signal
from limpyd_jobs.workers.redis_retry import RedisRetry
from limpyd_jobs.workers.run import Run, Runs
from limpyd_jobs.workers.running.event_loop import LoopFailed

P = ParamSpec("P")


@dataclass(eq=False)
class Recorder:
    """Records ends, tries again while Redis fails, and makes sure that no claim remains."""

    redis_retry: RedisRetry
    context: Context
    runs: Runs
    waiter: Waiter  # which knows what to claim in the same step

    def __post_init__(self) -> None:
        self.retry = self.redis_retry.retry
        self.next_request = self.waiter.next_request  # what to claim in that step; None if there is else to do before
        self.keep = self.waiter.claimer.keep  # takes what was claimed

    def end(self, verb: Callable[P, Ending], *args: P.args, **kwargs: P.kwargs) -> Ending:
        """End a claim by a verb; keep the next job, if one was claimed."""
        ending = self.retry(verb, *args, **kwargs)
        self.keep(ending.prefetched)
        return ending

    def end_together(self, runs: Sequence[Run], limit: int) -> tuple[Sequence[Any], list[Delivery]]:
        """Record that some jobs succeeded, and claim at most so many; return how each ended, and what was claimed."""
        request = self.waiter.request()
        requests = chain([request], repeat(replace(request, is_again=True)))
        return self.retry(lambda: transitions.succeed_many(request.connection, runs, next(requests), limit))

    def end_meanwhile(self, runs: Sequence[Run]) -> Sequence[Any]:
        """Record that some jobs succeeded, once, over a connection that any thread may use."""
        return transitions.succeed_many(self.context.connection, runs, self.waiter.claimer.request())[0]

    # -- Whatever happens

    def guard(self, run: Run, step: Callable[[], None]) -> None:
        """Do a step that ends the claim on a job; then make sure that the claim is ended. A child that a hook forked
        ends with the step."""
        job, shard, pid = run.job, run.delivery.database, this_process.pid
        if shard is not None:
            self.redis_retry.away(shard)
        try:
            try:
                step()
            finally:
                if this_process.pid != pid:
                    end_child()
        except ClaimLost as error:
            self._log_not_recorded(job, error)
        except NotRecorded as error:
            self.context.log(f"{label_of(job)} {one_line(error, MESSAGE)}", "error")
        except BaseException as error:  # asyncio.CancelledError, for one, ends no worker, nor the jobs beside
            if _ends_worker(error):
                raise
            self._failed(run, error)
            self.abandon(run)
        else:
            if run.is_held and not run.is_buffered:
                self.abandon(run)
        finally:
            self.runs.running.pop(run, None)
            if shard is not None:
                self.redis_retry.away(None)
            if not run.is_buffered:
                job.__dict__.pop("_run_in_worker", None)  # so that the garbage collector need not find the cycle

    def _log_not_recorded(self, job: Job, error: Exception) -> None:
        text = f"{label_of(job)} {one_line(error, MESSAGE)}"
        self.context.log_repeated("how a job went is not recorded", text)

    def _failed(self, run: Run, error: BaseException) -> None:
        """Record a job whose hook failed as an error, unless its end is recorded; list it with the errors anyway."""
        job, ident = run.job, ident_of(run.job)
        if isinstance(error, DoesNotExist) and "_pk" not in vars(job):  # it was deleted through this object
            error = JobGone(run.delivery.ident or ident)
            ident = error.ident
        if isinstance(error, JobGone) and error.ident == ident:
            self._log_not_recorded(job, error)
            return
        if not isinstance(error, Exception):
            self.redis_retry.disconnect()  # a connection may still have a reply for the code it interrupted
        self.context.log(f"{label_of(job)} unexpected error: {described(error)}\n{traceback_of(error)}", "error")
        try:
            self.retry(self._record_failure, run, error)
        except Exception as another:
            text = f"{label_of(job)} could not be put in errors: {one_line(another, MESSAGE)}"
            self.context.log(text, "error")
            if isinstance(another, NotRecorded) and run.outcome != "held":
                run.is_held = False  # it is not abandoned: when its lease has lapsed, the job is rescued

    def _record_failure(self, run: Run, error: BaseException) -> None:
        if run.is_held and run.outcome != "held":
            run.fail(reason=error)
        else:
            self._record_found(run)
            run.queue.errors.rpush(run.job.ident)

    def _record_found(self, run: Run) -> None:
        """Record the end of a job that did not wait, if its hook did not."""
        is_found = run.delivery.outcome == "found" and not run.outcome
        if is_found and run.job._cached_status == STATUSES.DELAYED:
            if not run.delivery.reason:  # else Redis has delayed it
                self._delay(run)
        elif is_found:
            transitions.skip(run.job, run.queue, self.context.settings.lease)

    def abandon(self, run: Run) -> None:
        """End the claim if overridden hooks did not: then they took care of the state of the job."""
        if run.is_buffered or not run.is_held:
            return
        try:
            if not self.retry(run.abandon):
                self._delay(run)
        except Exception as error:
            self.context.log(still_claimed(run.delivery.ident, error), "error")
        run.is_held = False

    def _delay(self, run: Run) -> None:
        self.end(run.delay, run.stored_delay())


def _ends_worker(error: BaseException) -> bool:
    """Whether what a hook raised ends the worker: because it says so, or because a signal came."""
    is_interrupt = isinstance(error, KeyboardInterrupt) and is_by_signal(error)
    return is_interrupt or isinstance(error, (SystemExit, LoopFailed))
