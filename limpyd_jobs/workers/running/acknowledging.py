"""How the successes of jobs are recorded: each at once, or several together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from math import ceil, inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from limpyd_jobs import transitions
from limpyd_jobs.commandline.options import AUTO
from limpyd_jobs.exceptions import NotRecorded
from limpyd_jobs.transitions import ClaimRequest, Delivery
from limpyd_jobs.workers.backoff import is_denied, is_transient
from limpyd_jobs.workers.claiming.batch_size import BatchSize, MeasuredBatchSize
from limpyd_jobs.workers.repeats import Repeats
from limpyd_jobs.workers.running.ack_buffer import AckBuffer
from limpyd_jobs.workers.running.execution import Execution
from limpyd_jobs.workers.running.timers import WakeupTimer

if TYPE_CHECKING:
    from limpyd_jobs.workers.engine import Engine

# How long the thread lets the worker give jobs back itself after Redis failed, in seconds.
REST = 1.0


class AckAtOnce:
    """Records each success as soon as the job has run; in the same step the next job may be claimed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def succeed(self, execution: Execution) -> None:
        """Record that a job succeeded, or do so later."""
        hooks, claim = self._engine.hooks, execution.claim
        next_claim = hooks.next_claim(claim, "job_success")
        hooks.succeeded(execution, hooks.end(claim.succeed, next_claim, execution.is_erased, execution.kept))

    def job_done(self) -> None:
        """A job was run: record the successes that may not wait any longer."""

    def flush(self) -> None:
        """Record the successes that are not recorded yet."""

    def unrecorded(self) -> list[Delivery]:
        """Return the claims on jobs whose success is not recorded yet. Any thread may ask."""
        return []

    def is_transient_status(self, status: str) -> bool:
        """Whether a status of the worker is too short to be seen."""
        return False

    def __enter__(self) -> None: ...

    def __exit__(self, *exc_info: object) -> None: ...


class AckInBatches(AckAtOnce):
    """Records successes together, and claims as many jobs in the same step.

    Successes of jobs with a method for it, and all other ends, are recorded at once. If the size of a batch is
    measured, long jobs are claimed one by one, and jobs that have waited for too long are given back. The worker does
    so when a job ends, a thread while a job runs.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        settings = engine.settings
        is_auto = settings.prefetch == AUTO
        self._size = MeasuredBatchSize(settings.prefetch_time) if is_auto else BatchSize(settings.prefetch)
        self._batch: tuple[float, int] | None = None  # when it was claimed, and how many jobs were begun before
        self._connection = engine.worker.connection  # for the thread of the buffer
        self._buffer = AckBuffer(self._record_late, self._size.bound)
        self._late_timer = WakeupTimer(self._give_back_meanwhile)
        self._late_repeats = Repeats(engine.worker.log)

    def succeed(self, execution: Execution) -> None:
        engine, claim = self._engine, execution.claim
        overrides_hook = "job_success" not in engine.overrides.of(claim.job, claim.queue).chained_hooks
        is_plain = claim.token and not claim.outcome and not execution.is_buffered
        if overrides_hook or engine.worker.status != "running" or not is_plain:
            super().succeed(execution)
            return
        ended = monotonic()
        if not (self._buffer or engine.fetcher.prefetched):
            self._size.observe(1, ended - claim.began)
            if self._size.jobs == 1:
                super().succeed(execution)
                return
        execution.ended, execution.is_buffered = ended, True
        self._buffer.add(execution)

    def job_done(self) -> None:
        fetcher = self._engine.fetcher
        is_at_its_end = not fetcher.prefetched  # asked before the time, because the thread may give them back meanwhile
        if fetcher.are_late and not self._engine.worker.must_stop():  # else all are given back when it ends
            self._give_back()
            is_at_its_end = not fetcher.prefetched
        if is_at_its_end:
            self._end_batch()
        if self._buffer and (is_at_its_end or self._buffer.are_late):
            self._record(self._batch_size())

    def flush(self) -> None:
        if self._buffer:
            self._record()

    def unrecorded(self) -> list[Delivery]:
        return self._buffer.claims()

    def is_transient_status(self, status: str) -> bool:
        """Return True between the jobs of a batch: to set a status there would be as costly as a job."""
        is_in_batch = self._engine.worker.status == "running" and self._size.jobs > 1
        return is_in_batch and (status == "running" or bool(self._engine.fetcher.prefetched))

    def __enter__(self) -> None:
        self._buffer.__enter__()
        if self._size.bound < inf:
            self._late_timer.__enter__()

    def __exit__(self, *exc_info: object) -> None:
        self._buffer.__exit__(*exc_info)
        self._late_timer.__exit__(*exc_info)

    # -- Batches

    def _begin_batch(self, deliveries: Sequence[Delivery]) -> None:
        engine, now = self._engine, monotonic()
        for delivery in deliveries:
            engine.fetcher.keep(delivery)
        if len(deliveries) > 1:
            self._batch = now, engine.worker.num_loops
            if self._size.bound < inf:
                engine.fetcher.give_back_at = now + self._size.bound
                self._late_timer.set(engine.fetcher.give_back_at)

    def _end_batch(self) -> None:
        """Set the size of the next batch by this one, which was run or given back."""
        self._engine.fetcher.give_back_at = inf
        if self._batch:
            (began, loops), self._batch = self._batch, None
            self._size.observe(max(self._engine.worker.num_loops - loops, 1), monotonic() - began)

    def _give_back(self) -> None:
        """Give back the jobs that have waited for too long; if the thread does so, wait until it is done."""
        engine = self._engine
        try:
            engine.tell_not_given_back(engine.redis_retry.retry(engine.fetcher.give_back_late))
        except Exception as error:
            engine.tell_not_given_back([error])

    def _give_back_meanwhile(self) -> None:
        """Do the same, once, while a job runs; called by another thread."""
        try:
            self._engine.tell_not_given_back(self._engine.fetcher.give_back_late(), self._late_repeats)
            self._late_repeats.sum_up()
        except Exception:  # the worker will tell of it, if it fails again
            self._late_timer.set(monotonic() + REST)

    def _batch_size(self) -> int:
        """Return how many jobs to claim in the step that records successes."""
        worker = self._engine.worker
        if self._engine.fetcher.prefetched or not self._engine.intake.may_claim:
            return 0
        return ceil(min(self._size.jobs, worker.max_loops - worker.num_loops))

    def _record(self, limit: int = 0) -> None:
        """Record all successes, claim at most `limit` jobs, and do what follows a recorded success."""
        engine = self._engine
        request = engine.fetcher.request(engine.intake.keys_in_turn)
        recorded, prefetched = self._buffer.record(partial(self._record_all, request, limit))
        self._begin_batch(prefetched)
        for execution, reply in recorded:
            execution.is_buffered = False
            engine.executor.guard(execution, partial(self._accept, execution, reply))

    def _record_all(
        self, request: ClaimRequest, limit: int, executions: Sequence[Execution]
    ) -> tuple[Sequence[Any], list[Delivery]]:
        """Record some successes; if that fails altogether, `_accept` does so one by one, or says so."""
        requests = chain([request], repeat(replace(request, is_again=True)))
        successes = [execution.success for execution in executions]
        try:
            return self._engine.redis_retry.retry(
                lambda: transitions.succeed_many(self._engine.fetcher.connection, successes, next(requests), limit)
            )
        except Exception as error:
            return [("failed", error.__cause__ or error)] * len(successes), []

    def _record_late(self, executions: Sequence[Execution]) -> tuple[Sequence[Any], list[Delivery]]:
        """Do the same, once, while a job runs; called by another thread."""
        successes = [execution.success for execution in executions]
        return transitions.succeed_many(self._connection, successes, self._engine.fetcher.request(()))

    def _accept(self, execution: Execution, reply: Any) -> None:
        claim = execution.claim
        if reply[0] != "failed":
            ending = claim.ended_by(transitions.accept_success(claim.job, reply))
            claim.job._cached_duration = execution.success.duration
        elif isinstance(reply[1], RedisError) and (is_transient(reply[1]) or is_denied(reply[1])):
            raise NotRecorded(f"How {claim.delivery.ident} ended is not recorded: {reply[1]}")
        else:
            ending = self._engine.redis_retry.retry(claim.succeed, None, execution.is_erased, execution.kept)
        self._engine.hooks.succeeded(execution, ending)
