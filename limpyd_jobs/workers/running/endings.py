"""How the successes of jobs are recorded: each at once, or several together in the step that claims the next ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from threading import Lock
from time import monotonic
from typing import Any

from redis.exceptions import RedisError

from limpyd_jobs import transitions
from limpyd_jobs.exceptions import NotRecorded
from limpyd_jobs.models import Job
from limpyd_jobs.models.following.results import kept_result
from limpyd_jobs.records.layout import kept_for
from limpyd_jobs.redis.servers import is_denied, is_transient
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.threads import WakeupTimer
from limpyd_jobs.transitions import Delivery, Ending, KeptResult
from limpyd_jobs.workers.claiming.stock import log_not_released
from limpyd_jobs.workers.claiming.waiter import Waiter
from limpyd_jobs.workers.context import Context, Face
from limpyd_jobs.workers.log import Repeats, label_of
from limpyd_jobs.workers.overrides import Overrides
from limpyd_jobs.workers.run import Run, Runs
from limpyd_jobs.workers.running.recorder import Recorder
from limpyd_jobs.workers.running.strategies import Strategy

# How long the end of a job waits for other ends, in seconds.
MAX_ACK_DELAY = 0.02

# For how many seconds the thread leaves recording and releasing to the worker after Redis failed.
RETRY_AFTER = 1.0


@dataclass(eq=False)
class Endings:
    """Records how jobs succeeded.

    A worker that claims jobs ahead keeps successes, to record them together. Successes of jobs with a method for it,
    and all other ends, are recorded at once. If such a worker has one slot, a thread looks after what gets late while
    a job takes long: it records the successes that are kept, and releases the jobs in stock.
    """

    worker: Face
    context: Context
    recorder: Recorder
    runs: Runs
    waiter: Waiter  # which knows what may be claimed
    overrides: Overrides

    def __post_init__(self) -> None:
        settings, self._stock = self.context.settings, self.waiter.stock
        self._is_one = settings.concurrency == 1
        self.keeps = not self._is_one or settings.prefetch != 1  # whether successes may be recorded together
        self._latest = min(self._stock.size.bound, MAX_ACK_DELAY)
        self._replies: deque[tuple[Run, Ending | Exception]] = deque()  # whose consequences are still to come
        self._lock = Lock()  # who records holds it
        self._batch: tuple[float, int] | None = None  # when it was claimed, and how many jobs were begun before
        self._meanwhile = WakeupTimer(self._look_meanwhile, self.context.fail)
        self._watched_at, self._watching = inf, Lock()  # when that timer will look; who sets it holds the lock
        self._repeats = Repeats(self.worker.log)  # of its thread

    def succeed(self, run: Run, strategy: Strategy, result: Any) -> None:
        """Record that a job succeeded, with what is kept of its result, or do so later."""
        run.result = result
        if kept_for(type(run.job)) or run.delivery.flow:
            run.kept = self._kept_result(run.job, result)
        if strategy.erases and not kept_for(type(run.job)):
            run.is_erased = run.delivery.tries == "1"  # the pruner finds errors of earlier tries
        may_chain = "job_success" in strategy.chained_hooks
        if self.keeps and may_chain and self._may_be_kept(run):
            run.is_unrecorded = True
            if self._is_one:
                run.ended_at = monotonic()
            self.runs.unrecorded.append(run)
            if self._is_one and run.ended_at + self._latest < self._watched_at:
                self._watch(run.ended_at + self._latest)
        else:  # in the same step the next job may be claimed, if no code of the application follows
            next_claim = self.recorder.next_request() if may_chain else None
            self._succeeded(run, self.recorder.end(run.succeed, next_claim, run.is_erased, run.kept))

    def _kept_result(self, job: Job, result: Any) -> KeptResult | None:
        """Return what to keep of a result. If it cannot be kept, the job is a success anyway."""
        try:
            return kept_result(type(job), result)
        except (TypeError, ValueError) as error:
            self.context.log(f"{label_of(job)} its result is not kept: {one_line(error, MESSAGE)}", "warning")
            return None

    def _may_be_kept(self, run: Run) -> bool:
        """Whether the success may be recorded with others. If there are none, it is worth it for short jobs only."""
        if not run.is_held or run.outcome or run.is_unrecorded or run.delivery.database:
            return False
        if not self._is_one:
            return True
        if self.worker.status != "running" or not self.overrides.may_record_later:
            return False
        if self.runs.unrecorded or self._replies or self._stock.deliveries:
            return True
        self._stock.size.observe(1, monotonic() - run.began)
        return self._stock.size.jobs > 1

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

    # -- Several together

    def record(self, limit: int = 0) -> int:
        """Record all successes that are kept, claim at most `limit` jobs, and do what follows a recorded success.
        Return how many were claimed."""
        with self._lock:
            runs = list(self.runs.unrecorded)
            deliveries = self._record(runs, limit) if runs or limit else []
        for delivery in deliveries:
            self.recorder.keep(delivery)
        if len(deliveries) > 1 and self._is_one:
            self._begin_batch()
        while self._replies:
            run, reply = self._replies.popleft()
            run.is_unrecorded = False
            self.recorder.guard(run, partial(self._accept, run, reply))
        return len(deliveries)

    def _record(self, runs: Sequence[Run], limit: int) -> list[Delivery]:
        """Record some successes; if that fails altogether, `_accept` does so one by one, or says so."""
        replies: Sequence[Ending | Exception]
        try:
            replies, deliveries = self.recorder.end_together(runs, limit)
        except Exception as error:
            reason = error.__cause__
            replies, deliveries = [reason if isinstance(reason, Exception) else error] * len(runs), []
        self._note(replies)
        return deliveries

    def _note(self, replies: Sequence[Ending | Exception]) -> None:
        for reply in replies:
            self._replies.append((self.runs.unrecorded.popleft(), reply))

    def _accept(self, run: Run, reply: Ending | Exception) -> None:
        if isinstance(reply, Ending) and reply.outcome != "failed":
            ending = run.ended_by(transitions.accept_success(run.job, reply))
            vars(run.job)["_cached_duration"] = transitions.duration_between(run.began, run.ended_at)
        elif isinstance(reply, RedisError) and (is_transient(reply) or is_denied(reply)):
            raise NotRecorded(f"How {run.delivery.ident} ended is not recorded: {reply}")
        else:
            ending = self.recorder.retry(run.succeed, None, run.is_erased, run.kept)
        self._succeeded(run, ending)

    # -- One job after the other, in batches

    def job_done(self) -> None:
        """The only slot is free: record the successes that may not wait any longer, and claim the next batch."""
        stock = self._stock
        is_at_its_end = not stock.deliveries  # asked before the time: the thread may release them meanwhile
        if stock.are_late and not self.context.must_stop():  # else all are released when it ends
            self._release()
            is_at_its_end = not stock.deliveries
        if is_at_its_end:
            self._end_batch()
        unrecorded = self.runs.unrecorded
        if self._replies or (unrecorded and (is_at_its_end or monotonic() - unrecorded[0].began > self._latest)):
            self.record(self._batch_size())

    def _batch_size(self) -> int:
        """Return how many jobs to claim in the step that records successes."""
        if self._stock.deliveries or not self.waiter.may_claim:
            return 0
        return ceil(min(self._stock.size.jobs, self.worker.max_loops - self.worker.num_loops))

    def _begin_batch(self) -> None:
        self._batch = monotonic(), self.worker.num_loops
        self._stock.late_after(self._stock.size.bound)
        self._watch(self._stock.late_at)

    def _end_batch(self) -> None:
        """Set the size of the next batch by this one, which was run or released."""
        self._stock.late_after(inf)
        if self._batch:
            (began, loops), self._batch = self._batch, None
            self._stock.size.observe(max(self.worker.num_loops - loops, 1), monotonic() - began)

    def _release(self) -> None:
        """Release the jobs that have waited for too long; if the thread does so, wait until it is done."""
        try:
            failures = self.recorder.retry(self._stock.release, if_late=True)
        except Exception as error:
            failures = [error]
        log_not_released(self.context.log_repeated, failures)

    # -- While a job takes long

    def __enter__(self) -> None:
        if self.keeps and self._is_one:
            self._meanwhile.__enter__()

    def __exit__(self, *exc_info: object) -> None:
        self._meanwhile.__exit__(*exc_info)

    def _watch(self, moment: float) -> None:
        """Let the thread look at that moment, if it would not do so before. The thread, too, may call it."""
        with self._watching:
            if moment < self._watched_at:
                self._watched_at = moment
                self._meanwhile.set(moment)

    def _look_meanwhile(self) -> None:
        """Record and release what is late; called by another thread."""
        self._watched_at = inf  # before it looks: what is kept later sets the timer again
        failed = [step for step in (self._record_late, self._release_late) if not _is_done(step)]
        kept = next(iter(self.runs.unrecorded.copy()), None)
        late_at = min(kept.ended_at + self._latest if kept else inf, self._stock.late_at)
        self._watch(monotonic() + RETRY_AFTER if failed else late_at)

    def _record_late(self) -> None:
        with self._lock:
            late = list(self.runs.unrecorded.copy())
            if late and monotonic() - late[0].ended_at >= self._latest:
                self._note(self.recorder.end_meanwhile(late))

    def _release_late(self) -> None:
        if self._stock.are_late:
            log_not_released(self._repeats.log, self._stock.release(if_late=True))
            self._repeats.sum_up()


def _is_done(step: Callable[[], None]) -> bool:
    """Take a step, once; return False if it failed: the worker will log it if it fails again."""
    try:
        step()
    except Exception:
        return False
    return True
