"""How the successes of jobs are recorded: each at once, or several together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from math import ceil, inf
from time import monotonic
from typing import Any

from redis.exceptions import RedisError

from limpyd_jobs import transitions
from limpyd_jobs.commandline.options import AUTO
from limpyd_jobs.exceptions import NotRecorded
from limpyd_jobs.models import Job
from limpyd_jobs.models.following.results import kept_result
from limpyd_jobs.records.layout import kept_for
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.transitions import ClaimRequest, Delivery, Ending, KeptResult
from limpyd_jobs.workers.backoff import is_denied, is_transient
from limpyd_jobs.workers.claiming.batch_size import BatchSize, MeasuredBatchSize
from limpyd_jobs.workers.claiming.claimer import Claimer
from limpyd_jobs.workers.claiming.prefetched import log_not_released
from limpyd_jobs.workers.claiming.waiter import Waiter
from limpyd_jobs.workers.context import Context, Face
from limpyd_jobs.workers.log import Repeats
from limpyd_jobs.workers.naming import label_of
from limpyd_jobs.workers.overrides import Overrides
from limpyd_jobs.workers.run import Run, Runs
from limpyd_jobs.workers.running.ack_buffer import AckBuffer
from limpyd_jobs.workers.running.recorder import Guard, Recorder
from limpyd_jobs.workers.running.strategies import Strategy
from limpyd_jobs.workers.timers import WakeupTimer

# How long the thread lets the worker release jobs itself after Redis failed, in seconds.
RETRY_RELEASE_AFTER = 1.0


@dataclass(eq=False)
class AckAtOnce:
    """Records each success as soon as the job has run; in the same step the next job may be claimed."""

    worker: Face
    context: Context
    recorder: Recorder

    def succeed(self, run: Run, strategy: Strategy, result: Any) -> None:
        """Record that a job succeeded, with what is kept of its result, or do so later."""
        run.result = result
        if kept_for(type(run.job)):
            run.kept = self._kept_result(run.job, result)
        elif strategy.erases:
            run.is_erased = run.delivery.tries == "1"  # the pruner finds errors of earlier tries
        self._record_or_keep(run, "job_success" in strategy.chained_hooks)

    def _kept_result(self, job: Job, result: Any) -> KeptResult | None:
        """Return what to keep of a result. If it cannot be kept, the job is a success anyway."""
        try:
            return kept_result(type(job), result)
        except (TypeError, ValueError) as error:
            self.context.log(f"{label_of(job)} its result is not kept: {one_line(error, MESSAGE)}", "warning")
            return None

    def _record_or_keep(self, run: Run, may_chain: bool) -> None:
        """Record the success. In the same step the next job may be claimed, if no code of the application follows."""
        next_claim = self.recorder.next_request() if may_chain else None
        ending = self.recorder.end(run.succeed, next_claim, run.is_erased, run.kept)
        self._succeeded(run, ending)

    def _succeeded(self, run: Run, ending: Ending) -> None:
        """Do what follows once the success of a job is recorded, or refused, because the job has another status."""
        job, queue = run.job, run.queue
        if ending.outcome == "canceled":
            job._cached_status = STATUSES.CANCELED
            self.worker.job_skipped(job, queue)
        elif ending.outcome == "delayed":
            job._cached_status = STATUSES.DELAYED
            self.worker.job_delayed(job, queue)
        else:
            vars(job)["_cached_end"] = ending.end
            run.way.succeeded(run)

    def job_done(self) -> None:
        """A job was run: record the successes that may not wait any longer."""

    def flush(self) -> None:
        """Record the successes that are not recorded yet."""

    def __enter__(self) -> None: ...

    def __exit__(self, *exc_info: object) -> None: ...


@dataclass(eq=False)
class AckTogether(AckAtOnce):
    """Records several successes in one step, and claims jobs in it."""

    runs: Runs
    claimer: Claimer
    waiter: Waiter
    guard: Guard

    def _record_all(
        self, request: ClaimRequest, limit: int, runs: Sequence[Run]
    ) -> tuple[Sequence[Any], list[Delivery]]:
        """Record some successes; if that fails altogether, `_accept` does so one by one, or says so."""
        requests = chain([request], repeat(replace(request, is_again=True)))
        try:
            return self.recorder.retry(
                lambda: transitions.succeed_many(self.claimer.connection, runs, next(requests), limit)
            )
        except Exception as error:
            return [("failed", error.__cause__ or error)] * len(runs), []

    def _accept(self, run: Run, reply: Any) -> None:
        if reply[0] != "failed":
            ending = run.ended_by(transitions.accept_success(run.job, reply))
            vars(run.job)["_cached_duration"] = transitions.duration_between(run.began, run.ended_at)
        elif isinstance(reply[1], RedisError) and (is_transient(reply[1]) or is_denied(reply[1])):
            raise NotRecorded(f"How {run.delivery.ident} ended is not recorded: {reply[1]}")
        else:
            ending = self.recorder.retry(run.succeed, None, run.is_erased, run.kept)
        self._succeeded(run, ending)


@dataclass(eq=False)
class AckInBatches(AckTogether):
    """Records successes together, and claims as many jobs in the same step.

    Successes of jobs with a method for it, and all other ends, are recorded at once. If the size of a batch is
    measured, long jobs are claimed one by one, and jobs that have waited for too long are released. The worker does
    so when a job ends, a thread while a job runs.
    """

    overrides: Overrides

    def __post_init__(self) -> None:
        settings = self.context.settings
        self._prefetched = self.claimer.prefetched
        is_auto = settings.prefetch == AUTO
        self._size = MeasuredBatchSize(settings.prefetch_time) if is_auto else BatchSize(settings.prefetch)
        self._batch: tuple[float, int] | None = None  # when it was claimed, and how many jobs were begun before
        unrecorded, fail = self.runs.unrecorded, self.context.fail
        self._buffer = AckBuffer(unrecorded, self._record_late, self._size.bound, fail)
        self._late_timer = WakeupTimer(self._release_meanwhile, fail)
        self._late_repeats = Repeats(self.worker.log)

    def _record_or_keep(self, run: Run, may_chain: bool) -> None:
        is_plain = run.is_held and not (run.outcome or run.is_buffered or run.delivery.database)
        is_running = self.worker.status == "running"
        if not (is_plain and is_running and may_chain and self.overrides.may_buffer):
            super()._record_or_keep(run, may_chain)
            return
        ended = monotonic()
        if not (self._buffer or self._prefetched.deliveries):
            self._size.observe(1, ended - run.began)
            if self._size.jobs == 1:
                super()._record_or_keep(run, may_chain)
                return
        run.ended_at, run.is_buffered = ended, True
        self._buffer.add(run)

    def job_done(self) -> None:
        prefetched = self._prefetched
        is_at_its_end = not prefetched.deliveries  # asked before the time: the thread may release them meanwhile
        if prefetched.are_late and not self.worker.must_stop():  # else all are released when it ends
            self._release()
            is_at_its_end = not prefetched.deliveries
        if is_at_its_end:
            self._end_batch()
        if self._buffer and (is_at_its_end or self._buffer.are_late):
            self._record(self._batch_size())

    def flush(self) -> None:
        if self._buffer:
            self._record()

    def __enter__(self) -> None:
        self._buffer.__enter__()
        if self._size.bound < inf:
            self._late_timer.__enter__()

    def __exit__(self, *exc_info: object) -> None:
        self._buffer.__exit__(*exc_info)
        self._late_timer.__exit__(*exc_info)

    # -- Batches

    def _begin_batch(self, deliveries: Sequence[Delivery]) -> None:
        now = monotonic()
        for delivery in deliveries:
            self.claimer.keep(delivery)
        if len(deliveries) > 1:
            self._batch = now, self.worker.num_loops
            if self._size.bound < inf:
                self._prefetched.release_at = now + self._size.bound
                self._late_timer.set(self._prefetched.release_at)

    def _end_batch(self) -> None:
        """Set the size of the next batch by this one, which was run or released."""
        self._prefetched.release_at = inf
        if self._batch:
            (began, loops), self._batch = self._batch, None
            self._size.observe(max(self.worker.num_loops - loops, 1), monotonic() - began)

    def _release(self) -> None:
        """Release the jobs that have waited for too long; if the thread does so, wait until it is done."""
        try:
            failures = self.recorder.retry(self._prefetched.release, if_late=True)
        except Exception as error:
            failures = [error]
        log_not_released(self.context.log_repeated, failures)

    def _release_meanwhile(self) -> None:
        """Do the same, once, while a job runs; called by another thread."""
        try:
            log_not_released(self._late_repeats.log, self._prefetched.release(if_late=True))
            self._late_repeats.sum_up()
        except Exception:  # the worker will log it, if it fails again
            self._late_timer.set(monotonic() + RETRY_RELEASE_AFTER)

    def _batch_size(self) -> int:
        """Return how many jobs to claim in the step that records successes."""
        worker = self.worker
        if self._prefetched.deliveries or not self.waiter.may_claim:
            return 0
        return ceil(min(self._size.jobs, worker.max_loops - worker.num_loops))

    def _record(self, limit: int = 0) -> None:
        """Record all successes, claim at most `limit` jobs, and do what follows a recorded success."""
        request = self.claimer.request(self.waiter.keys_in_turn)
        recorded, prefetched = self._buffer.record(partial(self._record_all, request, limit))
        self._begin_batch(prefetched)
        for run, reply in recorded:
            run.is_buffered = False
            self.guard.run(run, partial(self._accept, run, reply))

    def _record_late(self, runs: Sequence[Run]) -> tuple[Sequence[Any], list[Delivery]]:
        """Do the same, once, while a job runs; called by another thread."""
        return transitions.succeed_many(self.context.connection, runs, self.claimer.request())


@dataclass(eq=False)
class AckOfMany(AckTogether):
    """Keeps successes until the worker lets them be recorded. Successes of jobs with a method for it, and all other
    ends, are recorded at once."""

    def _record_or_keep(self, run: Run, may_chain: bool) -> None:
        if may_chain and run.is_held and not (run.outcome or run.delivery.database):
            run.is_buffered = True
            self.runs.unrecorded.append(run)
        else:
            super()._record_or_keep(run, False)

    def record(self, limit: int = 0) -> int:
        """Record all successes that are kept, and claim at most `limit` jobs; return how many were claimed."""
        waiting = self.runs.unrecorded
        runs = list(waiting)
        if not (runs or limit):
            return 0
        request = self.claimer.request(self.waiter.keys_in_turn)
        endings, deliveries = self._record_all(request, limit, runs)
        for delivery in deliveries:
            self.claimer.keep(delivery)
        for run, reply in zip(runs, endings, strict=True):
            waiting.popleft()
            run.is_buffered = False
            self.guard.run(run, partial(self._accept, run, reply))
        return len(deliveries)

    def flush(self) -> None:
        self.record()
