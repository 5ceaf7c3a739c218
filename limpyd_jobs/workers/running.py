"""Running one job: from the moment it was fetched until its end is recorded, whatever its code does."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from math import ceil
from time import monotonic
from typing import Any, TypeVar

from redis import Redis
from redis.exceptions import RedisError

from limpyd_jobs import transitions
from limpyd_jobs.arguments import delay_argument, own_seconds, read_seconds
from limpyd_jobs.exceptions import ClaimLost, CodeNotRun, GracePeriodOver, JobGone, JobTimeout, NotRecorded
from limpyd_jobs.models import Error, Job, Queue, attached_queue, job_classes
from limpyd_jobs.ordinary import is_coroutine, is_unrun, why_unrun
from limpyd_jobs.retrying import Cancel, Requeue
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.store import records
from limpyd_jobs.store.lazy_fields import has_method
from limpyd_jobs.transitions import ClaimRequest, Delivery, Ending, Success
from limpyd_jobs.utils import MESSAGE, described, one_line, overrides, parse_datetime
from limpyd_jobs.workers.ack_buffer import AckBuffer
from limpyd_jobs.workers.backoff import (
    Backoff,
    OncePerSecond,
    is_connection_error,
    is_denied,
    is_of_replica,
    is_transient,
)
from limpyd_jobs.workers.claim import Claim
from limpyd_jobs.workers.class_names import ClassNames
from limpyd_jobs.workers.events import DEFAULT_DELAY, JobEvents
from limpyd_jobs.workers.fetcher import Fetcher
from limpyd_jobs.workers.job_timer import JobTimer
from limpyd_jobs.workers.parameters import Parameters
from limpyd_jobs.workers.repeats import Repeats
from limpyd_jobs.workers.unresolved import UnresolvedClasses

T = TypeVar("T")

# How many seconds to rest after a job of a paused queue was put back.
PAUSE = 1.0


class Running(Parameters, JobEvents):
    """How a worker runs one job.

    It takes the job, calls the hooks for what becomes of it, and makes sure that in the end the worker has no claim
    on it any more.
    """

    end_forced: bool
    _is_quiet: bool
    status: str | None
    keys: list[str]
    num_loops: int
    _shared_connection: Redis

    def __init__(self) -> None:
        self._repeats = Repeats(self.log)
        self._unresolved = UnresolvedClasses(self.queue_model, self._model_for_errors, self._repeats.say)
        self._fetcher = Fetcher(self.queue_model, self._settings.lease, self._unresolved.defer)
        self._claim = Claim()
        self._class_names = ClassNames()
        self._ack_buffer = AckBuffer(self._record_late)
        self._is_prefetching = False
        self._job_timer = JobTimer()
        self._may_log_redis_error = OncePerSecond()

    @property
    def _model_for_errors(self) -> type[Error] | None:
        return self.error_model if self.save_errors else None

    def must_stop(self) -> bool:
        raise NotImplementedError

    def _next_round(self) -> float:
        raise NotImplementedError

    def _keys_in_turn(self) -> list[str]:
        raise NotImplementedError

    def _fetches_as_we_do(self) -> bool:
        raise NotImplementedError

    def _postpone_rescue(self) -> None:
        raise NotImplementedError

    @property
    def connection(self) -> Redis:
        """The connection to Redis."""
        return self.queue_model.get_connection()

    # -- The way of a job

    def _run_job(self, queue: Queue | None, job: Job | None) -> None:
        if queue is None or job is None:
            self.log("[??] unexpected error: wait_for_job returned no queue, or no job", "error")
            self._put_back_unseen()
            return
        self._guard(job, queue, partial(self._start, job, queue))
        if self._ack_buffer and (not self._fetcher.prefetched or self._ack_buffer.are_late):
            self._record_successes(self._batch_size())

    def _guard(self, job: Job, queue: Queue, action: Callable[[], None]) -> None:
        """Do something that ends the claim on a job. No failure of the application, or of ours, ends the worker."""
        try:
            action()
        except ClaimLost as error:
            self._not_recorded(job, error)
            return
        except NotRecorded as error:
            self.log(f"{_label(job)} {one_line(error, MESSAGE)}", "error")
            return
        except Exception as error:
            if isinstance(error, JobGone) and error.ident == job.ident:
                self._not_recorded(job, error)
            else:
                self._unexpected(job, queue, error)
        self._let_go(job, queue)

    def _not_recorded(self, job: Job, error: Exception) -> None:
        self._repeats.say("how a job went is not recorded", f"{_label(job)} {one_line(error, MESSAGE)}")

    def _start(self, job: Job, queue: Queue) -> None:
        self._take(job, queue)
        if self._claim.fetched.outcome == "paused":
            self._sleep(PAUSE)  # an overridden wait_for_job finds it again at once
        elif job._cached_status == STATUSES.DELAYED:
            self.job_delayed(job, queue)
        elif not self._token(job) or job._cached_status == STATUSES.CANCELED:
            self.job_skipped(job, queue)
        else:
            self._execute(job, queue)

    def _take(self, job: Job, queue: Queue) -> None:
        """Claim the job unless `wait_for_job` did so."""
        if self._claim.fetched.ident != job.ident:
            self._put_back_unseen()
            self._claim = Claim(self._fetcher.take(queue.waiting.key, job.ident))
        elif self._claim.is_in_hand:
            self._begin(self._claim, queue)
        self._remember(job, queue)

    def _begin(self, in_hand: Claim, queue: Queue) -> None:
        """Claim a job to run it; should it not wait any more, nothing but that counts."""
        claim = self._claim = Claim(self._fetcher.take(queue.waiting.key, in_hand.fetched.ident))
        if not claim.token and claim.fetched.status == STATUSES.DELAYED:
            claim.token = in_hand.token
        elif not claim.token:
            self._leave(in_hand)

    def _claim_by_hand(self, job: Job, queue: Queue) -> None:
        """Claim a job whose hooks are called outside of the loop, as tests of applications do."""
        job._token_by_hand = self._fetcher.take(queue.waiting.key, job.ident).token

    def _remember(self, job: Job, queue: Queue) -> None:
        """Keep on the objects what their hooks may read."""
        fetched = self._claim.fetched
        self._claim.job = job
        job.__dict__.update(  # at once, as an assignment asks whether it is one to a field
            _cached_identifier=fetched.identifier,
            _cached_status=fetched.status,
            _cached_start=fetched.start,
            _held_token=self._claim.token,
        )
        queue._cached_name = fetched.queue_name
        self._class_names.add(fetched.queue_name, fetched.path)

    def _execute(self, job: Job, queue: Queue) -> None:
        try:
            self.job_started(job, queue)
            result = self._call(job, queue)
        except Requeue as request:
            self._hook("job_requeued", job, self._still(queue), request)
        except Cancel as reason:
            self._cancel(job, self._still(queue), reason)
        except GracePeriodOver:
            self._interrupted()
            self._release(job, self._still(queue))
        except (Exception, JobTimeout, SystemExit) as error:
            if isinstance(error, JobTimeout):
                self._interrupted()
            trace = traceback.format_exc() if self.save_tracebacks else None
            self.job_error(job, self._still(queue), error, trace)
            if isinstance(error, SystemExit):
                raise
        except BaseException:
            self._interrupted()
            self._release(job, self._still(queue))
            raise
        else:
            self._executed(job, self._still(queue), result)

    def _interrupted(self) -> None:
        """The code of the job was left in its midst: a connection may still have a reply for it."""
        self._job_timer.disarm()
        self.connection.connection_pool.disconnect(inuse_connections=False)

    def _call(self, job: Job, queue: Queue) -> Any:
        """Run the code of a job, for as long as it may."""
        seconds = self._timeout_of(job)
        if seconds is not None:
            self._job_timer.set("job", seconds, JobTimeout(f"It ran for more than {seconds} seconds"))
        self._job_timer.arm()
        try:
            result = (self.callback or self.execute)(job, queue)
        finally:
            self._job_timer.disarm()
            self._job_timer.clear("job")
        if result is not None and is_unrun(result):
            self._check_has_run(job, result)
        return result

    def _check_has_run(self, job: Job, result: Any) -> None:
        """Raise `CodeNotRun`, as the code of a job returned a coroutine or a generator instead of doing its work.

        Generators that the application's own `execute` returns are left to its hooks.
        """
        function: Any = self.callback or self.execute
        is_ours = getattr(function, "__func__", None) is Running.execute
        if is_ours or function != self.execute or is_coroutine(result):
            raise CodeNotRun(why_unrun(job.run if is_ours else function, result))

    def _timeout_of(self, job: Job) -> float | None:
        """The seconds a job may run: what it says itself, else its class, else the worker; None for no limit."""
        seconds = read_seconds(self._claim.fetched.job_timeout)
        if seconds is None:
            seconds = own_seconds(job.default_job_timeout)
        if seconds is None:
            seconds = self._settings.job_timeout
        if seconds and not self._job_timer.is_possible():
            self.log(f"{_label(job)} may run for ever: a time limit needs the main thread", "warning")
            return None
        return seconds or None

    def _still(self, queue: Queue) -> Queue:
        """The queue, even if the job deleted it: it is where the claim is."""
        if "_pk" in vars(queue):
            return queue
        fetched = self._claim.fetched
        return attached_queue(self.queue_model, fetched.queue_pk, fetched.queue_name, fetched.queue_priority)

    def execute(self, job: Job, queue: Queue) -> Any:
        """Run a job; what is called if there is no callback."""
        return job.run(queue)

    def _executed(self, job: Job, queue: Queue, result: Any) -> None:
        """Call the hook for the status the job has now. Our own `job_success` finds out by itself."""
        job._cached_status = STATUSES.RUNNING
        if not self._is_prefetching and overrides(self, JobEvents, "job_success"):
            job._cached_status = self._retry_until_recorded(job.status.hget)
        if job._cached_status == STATUSES.CANCELED:
            self.job_skipped(job, queue)
        elif job._cached_status == STATUSES.DELAYED:
            self.job_delayed(job, queue)
        else:
            self.job_success(job, queue, result)

    # -- When something fails

    def _unexpected(self, job: Job, queue: Queue, error: Exception) -> None:
        """A hook failed: the job is in error, unless something is recorded already, and listed as such anyway."""
        self.log(f"{_label(job)} unexpected error: {described(error)}\n{traceback.format_exc()}", "error")
        try:
            if self._token(job) and not self._claim.is_held:
                self._ended(transitions.fail(job, queue, self._token(job)))
            else:
                self._put_in_order(job, queue)
                queue.errors.rpush(job.ident)
        except Exception as another:
            self.log(f"{_label(job)} could not be put in errors: {one_line(another, MESSAGE)}", "error")

    def _put_in_order(self, job: Job, queue: Queue) -> None:
        """Record what the hook for a job that did not wait may not have come to."""
        is_found = self._claim.fetched.outcome == "found" and not self._claim.is_ended
        if is_found and job._cached_status == STATUSES.DELAYED:
            self._delay(job, queue, parse_datetime(job.delayed_until.hget()))
        elif is_found:
            transitions.skip(job, queue, self.lease)

    def _let_go(self, job: Job, queue: Queue) -> None:
        """End the claim if the hooks did not: they were overridden, and took care of the state of the job."""
        fetched, token = self._claim.fetched, self._claim.token
        if token:
            try:
                abandon = partial(transitions.abandon, type(job), fetched.ident, token, fetched.queue_key)
                if not self._retry_until_recorded(abandon):
                    self._delay(job, queue, parse_datetime(job.delayed_until.hget()))
            except Exception as error:
                self.log(f"[{one_line(fetched.ident)}] is still claimed: {one_line(error, MESSAGE)}", "error")
            self._claim.token = ""

    def _put_back_unseen(self) -> None:
        """Give back, for later, a job that was claimed, but that `get_queue` or `get_job` made no object of."""
        claim, self._claim = self._claim, Claim()
        if claim.is_in_hand:
            self._leave(claim)
        elif claim.token:
            fetched, delay = claim.fetched, delay_argument(delayed_for=DEFAULT_DELAY)
            try:
                job_class = job_classes.resolve(fetched.path)
                transitions.release(job_class, fetched.ident, claim.token, fetched.queue_key, delay)
            except Exception as error:
                self._still_claimed(fetched, error)

    def _leave(self, in_hand: Claim) -> None:
        """Leave a job that the application does not want where that put it; if it did not, it is put back for later."""
        fetched, later = in_hand.fetched, delay_argument(delayed_for=DEFAULT_DELAY)
        try:
            job_class = job_classes.resolve(fetched.path)
            claim = (job_class, fetched.ident, in_hand.token, fetched.queue_key)
            if not transitions.abandon(*claim, later, self.keys):
                job = records.attached(job_class, fetched.pk)
                until = parse_datetime(job.delayed_until.hget())
                delay = delay_argument(delayed_until=until) if until else later
                queue = attached_queue(self.queue_model, fetched.queue_pk, fetched.queue_name, fetched.queue_priority)
                transitions.delay(job, queue, in_hand.token, fetched.queue_name, delay)
        except Exception as error:
            self._still_claimed(fetched, error)

    def _still_claimed(self, fetched: Delivery, error: Exception) -> None:
        self.log(f"[{one_line(fetched.ident)}] is still claimed: {one_line(error, MESSAGE)}", "error")

    def _retry_until_recorded(self, record: Callable[[], T]) -> T:
        """Record something in Redis; while that fails for a reason that may pass, or is denied, again and again.

        Once the worker has to end, it gives up after one lease.
        """
        backoff, began = Backoff(), monotonic()
        while True:
            try:
                return record()
            except (RedisError, NotRecorded) as error:
                reason = error.__cause__ if isinstance(error, NotRecorded) else error
                is_over = self.end_forced and monotonic() - began > self._settings.lease
                if is_over or not (is_transient(reason) or is_denied(reason)):
                    raise
                self._redis_failed("Unable to record how a job went", reason)
                self._sleep(backoff.next())

    def _redis_failed(self, what: str, error: BaseException | None) -> None:
        """Say so, and drop the connections if they lead to a server that is no primary any more."""
        if is_connection_error(error):
            self._postpone_rescue()
        if self._may_log_redis_error:
            self.log(f"{what}, trying again: {one_line(error, MESSAGE)}", "error")
        if is_of_replica(error):
            self.connection.connection_pool.disconnect(inuse_connections=False)  # of this thread: none is

    def _sleep(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    # -- The claim on the job at hand, and the next one

    def _beat(self, connection: Redis) -> None:
        """Renew the leases of all jobs in hand. Called by another thread, so with a connection that threads share."""
        if self._is_prefetching:
            self._renew_others(connection)
        claim, fetched = self._claim, self._claim.fetched
        if not claim.token or claim.is_lost:
            return
        try:
            job_class, lease = job_classes.resolve(fetched.path), self._settings.lease
            renewed = transitions.renew(connection, job_class, fetched.ident, claim.token, fetched.queue_key, lease)
            if not renewed and claim.token:
                self._lost(claim)
        except Exception as error:
            self._not_renewed(fetched, error)

    def _renew_others(self, connection: Redis) -> None:
        """Renew the leases of the jobs that are to be run next, and of those whose end is not recorded yet."""
        prefetched = [fetched for fetched in self._fetcher.prefetched.copy() if self._fetcher.holds(fetched)]
        claims = [*prefetched[::-1], *self._ack_buffer.claims()[::-1]]  # so that they would be rescued in their order
        if not claims:
            return
        try:
            jobs = [(job_classes.resolve(fetched.path), fetched) for fetched in claims]
            outcomes = transitions.renew_all(connection, jobs, self._settings.lease)
            for fetched, outcome in zip(prefetched[::-1], outcomes, strict=False):
                self._fetcher.tell(fetched, outcome)
            lost = [fetched for fetched in prefetched if not self._fetcher.holds(fetched)]
            if lost:
                self._lost(Claim(lost[0]), others=len(lost) - 1)
        except Exception as error:
            self._not_renewed(claims[0], error)

    def _not_renewed(self, fetched: Delivery, error: Exception) -> None:
        if is_connection_error(error):
            self._postpone_rescue()
        if self._may_log_redis_error:
            self.log(f"[{one_line(fetched.identifier)}] lease not renewed: {one_line(error, MESSAGE)}", "error")

    def _lost(self, claim: Claim, others: int = 0) -> None:
        """Say so, once for each claim."""
        claim.is_lost = True
        if claim.job is not None:
            claim.job._claim_lost = True
        more = f" (and {others} more that are next)" if others else ""
        self.log(f"[{one_line(claim.fetched.identifier)}] lost its claim: another worker may run it{more}", "error")

    def _next_claim(self, job: Job, hook: str, event: str) -> ClaimRequest | None:
        """What to claim in the step that ends a job: nothing if the application has a say in between."""
        if (
            not self._fetches_as_we_do()
            or overrides(self, JobEvents, hook)
            or has_method(job, event)
            or self.status != "running"
            or self._fetcher.prefetched
            or monotonic() >= self._next_round()
            or self._is_quiet
            or self.must_stop()
        ):
            return None
        return self._fetcher.request(self._keys_in_turn())

    # -- Successes that are recorded together

    def _is_put_by(self, job: Job, queue: Queue, result: Any) -> bool:
        """Leave the success of a job to be recorded with others, unless the application has a say in it."""
        claim = self._claim
        if not self._is_prefetching or self.status != "running" or has_method(job, "on_success"):
            return False
        if not claim.token or claim.is_held or not claim.is_on(job):
            return False
        self._ack_buffer.buffer(Success(job, queue, claim.fetched, result, claim.began, monotonic()))
        self._claim = Claim()
        return True

    def _batch_size(self) -> int:
        """How many jobs to claim in the step that records successes."""
        if self._fetcher.prefetched or monotonic() >= self._next_round() or self._is_quiet or self.must_stop():
            return 0
        return ceil(min(self._settings.prefetch, self.max_loops - self.num_loops))

    def _record_successes(self, limit: int = 0) -> None:
        """Record the successes that were put by, claim so many jobs, and do what is to be done once it is recorded."""
        request = self._fetcher.request(self._keys_in_turn())
        recorded, prefetched = self._ack_buffer.record(partial(self._record_all, request, limit))
        for fetched in prefetched:
            self._fetcher.keep(fetched)
        for success, reply in recorded:
            self._claim = Claim(success.fetched)
            self._guard(success.job, success.queue, partial(self._accept, success, reply))
        self._claim = Claim()

    def _record_all(
        self, request: ClaimRequest, limit: int, successes: Sequence[Success]
    ) -> tuple[Sequence[Any], list[Delivery]]:
        """Record some successes; if that fails altogether, leave it to `_accept` to do so one by one, or to say so."""
        requests = chain([request], repeat(replace(request, is_again=True)))
        try:
            return self._retry_until_recorded(
                lambda: transitions.succeed_many(self._fetcher.connection, successes, next(requests), limit)
            )
        except Exception as error:
            return [("failed", error.__cause__ or error)] * len(successes), []

    def _record_late(self, successes: Sequence[Success]) -> tuple[Sequence[Any], list[Delivery]]:
        """The same, once, while a job runs; called by another thread."""
        return transitions.succeed_many(self._shared_connection, successes, self._fetcher.request(()))

    def _accept(self, success: Success, reply: Any) -> None:
        job, queue = success.job, success.queue
        if reply[0] != "failed":
            ending = transitions.accept_success(job, reply)
            job._cached_duration = success.duration
        elif isinstance(reply[1], RedisError) and (is_transient(reply[1]) or is_denied(reply[1])):
            raise NotRecorded(f"How {success.fetched.ident} ended is not recorded: {reply[1]}")
        else:
            ending = self._retry_until_recorded(partial(transitions.succeed, job, queue, self._token(job)))
        self._succeeded(job, queue, success.result, ending)

    def _ended(self, ending: Ending) -> None:
        """Keep what a transition left: the claim, if the job is only held, and the next job, if it claimed one."""
        self._claim.is_held = ending.outcome == "held"
        if not self._claim.is_held:
            self._claim.end()
        self._fetcher.keep(ending.prefetched)


def _label(job: Job) -> str:
    """Name a job at the beginning of a message, without asking Redis."""
    ident = f"{job.get_model_repr()}:{vars(job).get('_pk')}"
    return f"[{one_line(getattr(job, '_cached_identifier', None) or ident)}]"
