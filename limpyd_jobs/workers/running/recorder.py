"""Recording how a job ends, whatever Redis and the hooks do; in the same step, the next job may be claimed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from limpyd.exceptions import DoesNotExist
from redis.exceptions import RedisError

from limpyd_jobs import transitions
from limpyd_jobs.exceptions import ClaimLost, JobGone, NotRecorded
from limpyd_jobs.models import Job, job_classes
from limpyd_jobs.records.wrong_types import remedy_of
from limpyd_jobs.redis.forks import end_child, this_process
from limpyd_jobs.redis.servers import is_connection_error, is_denied, is_of_replica, is_transient
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, OncePer, described, one_line, traceback_of
from limpyd_jobs.transitions import Delivery, Ending
from limpyd_jobs.workers.backoff import Backoff
from limpyd_jobs.workers.claiming.waiter import Waiter
from limpyd_jobs.workers.context import Context, Face
from limpyd_jobs.workers.log import ident_of, label_of, still_claimed
from limpyd_jobs.workers.process.signals import is_by_signal
from limpyd_jobs.workers.run import Run, Runs
from limpyd_jobs.workers.running.event_loop import LoopFailed

P = ParamSpec("P")
T = TypeVar("T")


# How long a worker sleeps at most before it looks whether it has to stop, in seconds.
WAIT_SLICE = 1.0

# For how many seconds another shard is not asked after the end of one of its jobs could not be recorded.
UNUSABLE_FOR = 10.0

OF_ANOTHER_SHARD = (
    "How it ended is not recorded: it is of a shard that cannot be used, and is rescued there when its lease has lapsed"
)


def sleep(seconds: float) -> None:
    """Do nothing for some seconds."""
    threading.Event().wait(seconds)


def nap(seconds: float = WAIT_SLICE) -> None:
    """Do nothing for some seconds, but no longer than until the next look whether the worker has to stop."""
    sleep(max(min(seconds, WAIT_SLICE), 0.0))


@dataclass(eq=False)
class RedisRetry:
    """Logs failures of Redis, and waits until they pass. `on_disconnected` is called if Redis did not answer."""

    worker: Face
    context: Context
    on_disconnected: Callable[[], None]

    def __post_init__(self) -> None:
        self.may_log = OncePer(1)  # whether to say now what may happen thousands of times a second
        self.backoff = Backoff()  # the waits before another try to get a job
        self._has_given_up = False
        self._shard: Any = None  # the database of another shard, while something is recorded there
        self._away_until = 0.0

    def retry(self, record: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Record something in Redis; try again while that fails for a reason that may pass, or is denied.

        Once the worker has to end, it gives up after one lease; then all other steps are tried once.
        """
        backoff, began = None, monotonic()
        while True:
            if self._shard is not None and monotonic() < self.context.state.unusable.get(self._shard, 0.0):
                raise NotRecorded(OF_ANOTHER_SHARD)
            try:
                return record(*args, **kwargs)
            except (RedisError, NotRecorded) as error:
                reason = error.__cause__ if isinstance(error, NotRecorded) else error
                if not (is_transient(reason) or is_denied(reason)) or self._gives_up(began):
                    if self.remedy_of(reason):
                        self._log("Not tried again", reason)
                    raise
                self.log("Unable to record how a job went", reason)
                if self._shard is not None and self._is_too_long(began):
                    self.context.state.unusable[self._shard] = monotonic() + UNUSABLE_FOR
                    raise NotRecorded(OF_ANOTHER_SHARD) from error
                backoff = backoff or Backoff()
                sleep(min(backoff.next(), max(self.context.state.gives_up_at - monotonic(), WAIT_SLICE / 10)))

    def away(self, shard: Any) -> None:
        """What is recorded from now on is in this database of another shard; None if it is not any more. While that
        shard fails, it is tried for half a lease in all, because the worker has jobs of its own, too. Then it is not
        tried for others for a while, either."""
        self._shard, self._away_until = shard, 0.0

    def _is_too_long(self, began: float) -> bool:
        self._away_until = self._away_until or began + self.context.settings.lease / 2
        return monotonic() > self._away_until

    def _gives_up(self, began: float) -> bool:
        now = monotonic()
        is_over = (
            self._has_given_up or now - began > self.context.settings.lease or now > self.context.state.gives_up_at
        )
        self._has_given_up = self.worker.end_forced and is_over
        return self._has_given_up

    def log(self, what: str, error: BaseException | None) -> None:
        """Log what failed, and drop the connections if they lead to a server that is not a primary any more."""
        self.context.state.turned = monotonic()  # a worker that waits for Redis is alive
        self._log(f"{what}, trying again", error)
        if is_of_replica(error):
            self.disconnect()

    def disconnect(self) -> None:
        """Drop the connections that are not in use; this thread uses none."""
        self.worker.connection.connection_pool.disconnect(inuse_connections=False)

    def wait(self, what: str, error: RedisError) -> None:
        """Log what failed, and wait before the next try, but no longer than until the worker has to end."""
        self.log(what, error)
        until = monotonic() + self.backoff.next()
        while monotonic() < until and not (self.worker.end_forced or self.context.is_over_time):
            nap(until - monotonic())

    def log_lease_not_renewed(self, identifier: str, error: Exception) -> None:
        """Log that the lease of a job was not renewed."""
        self._log(f"[{one_line(identifier)}] lease not renewed", error)

    def _log(self, what: str, error: BaseException | None) -> None:
        if is_connection_error(error):
            self.on_disconnected()
        if self.may_log():
            self.context.log(f"{what}: {one_line(error, MESSAGE)}{self.remedy_of(error)}", "error")

    def remedy_of(self, error: BaseException | None) -> str:
        """Return which key another program wrote, and what to do, if an error is about that."""
        return remedy_of(error, self.worker.connection, job_classes.all(), self.context.queue_keys)


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

    def end_together(self, runs: Sequence[Run], limit: int) -> tuple[Sequence[Ending], list[Delivery]]:
        """Record that some jobs succeeded, and claim at most so many; return how each ended, and what was claimed."""
        request = self.waiter.request()
        requests = chain([request], repeat(replace(request, is_again=True)))
        return self.retry(lambda: transitions.succeed_many(request.connection, runs, next(requests), limit))

    def end_meanwhile(self, runs: Sequence[Run]) -> Sequence[Ending]:
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
            if run.is_held and not run.is_unrecorded:
                self.abandon(run)
        finally:
            self.runs.running.pop(run, None)
            if shard is not None:
                self.redis_retry.away(None)
            if not run.is_unrecorded:
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
        if run.is_unrecorded or not run.is_held:
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
