"""Recording how a job ends, whatever hooks do; in the same step, the next job may be claimed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec

from limpyd_jobs import transitions
from limpyd_jobs.exceptions import ClaimLost, JobGone, NotRecorded
from limpyd_jobs.models import Job
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, described, one_line, traceback_of
from limpyd_jobs.transitions import ClaimRequest, Delivery, Ending
from limpyd_jobs.workers.context import Context
from limpyd_jobs.workers.naming import label_of, still_claimed
from limpyd_jobs.workers.redis_retry import RedisRetry
from limpyd_jobs.workers.running.execution import Execution, Executions

P = ParamSpec("P")


@dataclass(eq=False)
class Recorder:
    """Records ends, and tries again while Redis fails."""

    redis_retry: RedisRetry
    next_request: Callable[[], ClaimRequest | None]  # what to claim in that step; None if there is else to do before
    keep: Callable[[Delivery | None], None]

    def __post_init__(self) -> None:
        self.retry = self.redis_retry.retry

    def end(self, verb: Callable[P, Ending], *args: P.args, **kwargs: P.kwargs) -> Ending:
        """End a claim by a verb; keep the next job, if one was claimed."""
        ending = self.retry(verb, *args, **kwargs)
        self.keep(ending.prefetched)
        return ending


@dataclass(eq=False)
class Guard:
    """Does the steps that end claims."""

    context: Context
    executions: Executions
    recorder: Recorder

    def run(self, execution: Execution, step: Callable[[], None]) -> None:
        """Do a step that ends the claim on a job; then make sure that the claim is ended."""
        job, shard = execution.claim.job, execution.claim.delivery.database
        if shard is not None:
            self.recorder.redis_retry.away(shard)
        try:
            step()
        except ClaimLost as error:
            self._log_not_recorded(job, error)
        except NotRecorded as error:
            self.context.log(f"{label_of(job)} {one_line(error, MESSAGE)}", "error")
        except Exception as error:
            self._failed(execution, error)
            self.abandon(execution)
        else:
            self.abandon(execution)
        finally:
            self.executions.running.pop(execution, None)
            if shard is not None:
                self.recorder.redis_retry.away(None)
            if not execution.is_buffered:
                job.__dict__.pop("_execution", None)  # so that the garbage collector need not find the cycle

    def _log_not_recorded(self, job: Job, error: Exception) -> None:
        text = f"{label_of(job)} {one_line(error, MESSAGE)}"
        self.context.log_repeated("how a job went is not recorded", text)

    def _failed(self, execution: Execution, error: Exception) -> None:
        """Record a job whose hook failed as an error, unless its end is recorded; list it with the errors anyway."""
        claim = execution.claim
        job = claim.job
        if isinstance(error, JobGone) and error.ident == job.ident:
            self._log_not_recorded(job, error)
            return
        self.context.log(f"{label_of(job)} unexpected error: {described(error)}\n{traceback_of(error)}", "error")
        try:
            self.recorder.retry(self._record_failure, execution)
        except Exception as another:
            text = f"{label_of(job)} could not be put in errors: {one_line(another, MESSAGE)}"
            self.context.log(text, "error")
            if isinstance(another, NotRecorded) and claim.outcome != "held":
                claim.is_held = False  # it is not abandoned: when its lease has lapsed, the job is rescued

    def _record_failure(self, execution: Execution) -> None:
        claim = execution.claim
        if claim.is_held and claim.outcome != "held":
            claim.fail()
        else:
            self._record_found(execution)
            claim.queue.errors.rpush(claim.job.ident)

    def _record_found(self, execution: Execution) -> None:
        """Record the end of a job that did not wait, if its hook did not."""
        claim = execution.claim
        is_found = claim.delivery.outcome == "found" and not claim.outcome
        if is_found and claim.job._cached_status == STATUSES.DELAYED:
            if not claim.delivery.reason:  # else Redis has delayed it
                self._delay(execution)
        elif is_found:
            transitions.skip(claim.job, claim.queue, self.context.settings.lease)

    def abandon(self, execution: Execution) -> None:
        """End the claim if overridden hooks did not: then they took care of the state of the job."""
        claim = execution.claim
        if execution.is_buffered or not claim.is_held:
            return
        try:
            if not self.recorder.retry(claim.abandon):
                self._delay(execution)
        except Exception as error:
            self.context.log(still_claimed(claim.delivery.ident, error), "error")
        claim.is_held = False

    def _delay(self, execution: Execution) -> None:
        self.recorder.end(execution.claim.delay, execution.claim.stored_delay())
