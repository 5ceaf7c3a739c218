"""A claim on a job, for an application that runs the job its own way, without a worker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from functools import cached_property, partial
from threading import RLock
from time import monotonic
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from limpyd.exceptions import DoesNotExist
from redis.exceptions import RedisError

from limpyd_jobs import transitions
from limpyd_jobs.arguments import checked_lease, delay_argument, stored_owner
from limpyd_jobs.exceptions import (
    ClaimLost,
    JobGone,
    JobInterrupted,
    JobTimeout,
    LimpydJobsException,
    NotRecorded,
    RetriedTooOften,
)
from limpyd_jobs.models.claims.job_claim import NEVER, JobClaim, queue_of
from limpyd_jobs.models.error import Error
from limpyd_jobs.models.job_record import JobRecord
from limpyd_jobs.models.pruning import keeps_no_success
from limpyd_jobs.models.queue import Queue
from limpyd_jobs.observing import instruments
from limpyd_jobs.observing.instruments import Around, Running, as_attempt
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.forks import this_process
from limpyd_jobs.retrying import Cancel, Requeue, Retry, as_policy, wish_among
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, host_and_pid, one_line, raw_traceback_of
from limpyd_jobs.threads import Heartbeat
from limpyd_jobs.transitions import Ending

T = TypeVar("T")
AJob = TypeVar("AJob", bound=JobRecord)

LEAST_INTERVAL = 0.01  # seconds between two renewals of a lease

logger = logging.getLogger("limpyd-jobs")


class Claim(Generic[AJob]):
    """The right to run a job, as `Job.claim` returns it: no one else has it until the lease lapses, or a verb ends it.

    The verbs are `succeed`, `fail`, `release` and `cancel`. As a context manager it renews its lease from a thread, and
    ends with the block. Unless a verb was called before, the job succeeds, or fails with the exception that leaves the
    block. An exception that is not a failure of the job, such as `KeyboardInterrupt`, releases the job. All exceptions
    are raised further, except `JobInterrupted`, `Requeue` and `Cancel`: with the last two, the code of a job asks to be
    put back, or canceled. A `Requeue` that counts, when no tries are left, lets the job fail, and `RetriedTooOften` is
    raised.

    An owner that was silent for longer than the lease may have lost the claim to another one. Then a verb changes
    nothing and raises `ClaimLost`. The code of the block is not interrupted, but may ask `is_lost`. A job whose holder
    died is put back in its queue by any worker, or may be claimed again. No hook of workers or jobs is called.

    All verbs, and `renew`, raise the exceptions below. Each is one round trip, `fail` is two.

    Raises
    ------
    ClaimLost
        If another owner holds the claim, or it was ended before.
    JobGone
        If the job was deleted.
    NotRecorded
        If Redis does not answer, or refuses. You may call the verb again.

    Attributes
    ----------
    job: Job
    queue: Queue
        The queue of the job.
    owner: str
        Who holds the claim.
    lease: float
        For how many seconds the claim holds after each renewal.
    status: str
        The status that the end of the claim gave to the job, a value of `STATUSES`; None while the claim is not ended.
        If the reply to a verb was lost, and another verb was called, it is the status by the first verb.
    """

    def __init__(self, claim: JobClaim, owner: str, lease: float, error_model: type[Error], holds_until: float) -> None:
        self.job: AJob = claim.job
        self.owner = owner
        self.lease = lease
        self.status: str | None = None
        self._claim = claim
        self._ident = claim.delivery.ident
        self._error_model = error_model
        self._pid = this_process.pid
        self._holds_until = holds_until
        self._is_decided = False
        self._lacks_error = False
        self._around: Around | None = None  # the instruments, while the block is run
        self._is_erased = keeps_no_success(type(claim.queue)) and transitions.is_erased_at_once(type(claim.job))
        self._renewing = RLock()
        self._heartbeat = Heartbeat(_interval(lease), self._beat)
        claim.remember(_claim_lost=False, _is_told_to_end=False, _next_question=0)

    @classmethod
    def on(
        cls,
        job: AJob,
        queue_model: type[Queue],
        queue_name: str,
        owner: str | None,
        lease: float,
        error_model: type[Error],
    ) -> Claim[AJob]:
        """Claim a job: see `Job.claim`."""
        owner, lease = stored_owner(host_and_pid() if owner is None else owner), checked_lease(lease)
        # A call whose reply was lost may be repeated, on the same object: then the job may be claimed by its token
        # already. No other code may have the token: no copy of the object, no other process, and only one thread.
        caller = owner, this_process.pid, id(job)
        before, token = job.__dict__.pop("_unsure_claim", (None, ""))
        token = token if before == caller else transitions.claim_token(owner)
        asked = monotonic()
        try:
            delivery = transitions.claim_job(job, queue_model, queue_name, token, lease)
        except (LimpydJobsException, JobGone):
            raise
        except DoesNotExist:  # it was deleted through this object
            raise JobGone(type(job).get_model_repr()) from None
        except BaseException:
            job._unsure_claim = caller, token
            raise
        return cls(JobClaim(delivery, job, queue_of(queue_model, delivery)), owner, lease, error_model, asked + lease)

    def __repr__(self) -> str:
        return f"<Claim of {one_line(self.owner)} on {one_line(self._ident)}>"

    @cached_property
    def queue(self) -> Queue:
        """The queue of the job. It is an object of its own, because the application may delete it."""
        return queue_of(type(self._claim.queue), self._claim.delivery)

    @property
    def is_lost(self) -> bool:
        """Whether another owner may hold the job by now. Redis is not asked."""
        return self._claim.is_lost or (self.status is None and monotonic() > self._holds_until)

    def renew(self, lease: float | None = None) -> None:
        """Let the lease begin anew.

        Parameters
        ----------
        lease: float
            For how many seconds from now on. None for as many as before.
        """
        self._check_is_held()
        with self._renewing:  # so that the last lease is the one that is known here, too
            lease = self.lease if lease is None else checked_lease(lease)
            until = monotonic() + lease
            self._set_lease(min(lease, self.lease), min(until, self._holds_until))  # while the reply is not known
            self._do(self._claim.renew, redis_of(self.job), lease)
            self._set_lease(lease, until)

    def succeed(self) -> None:
        """Record that the job is a success, unless `Job.cancel` canceled it or `Job.enqueue_or_delay` delayed it.

        If the class of its queue says ``keep_success = 0``, the job is deleted in the same step. If the class of the
        job has fields or indexes that a script cannot delete, the job is pruned later instead, as all others are.
        Errors of earlier tries are deleted with it.
        """
        self._decide()
        ending = self._do(self._claim.succeed, erase=self._is_erased)
        if not self._ends_otherwise(ending.outcome):
            self._ended(ending.status or STATUSES.SUCCESS)
        if self._is_erased and self.status == STATUSES.SUCCESS and self._claim.delivery.tries != "1":
            self._ask(self._delete_errors)

    def fail(self, error: BaseException, trace: str | None = None, retry_policy: Retry | str | None = None) -> None:
        """Record that the job is an error, and put it back in its queue if its retry policy says so.

        Parameters
        ----------
        error: Exception
            Why it failed.
        trace: str
            The traceback; by default the one of the error, if it was raised.
        retry_policy: Retry or str
            The policy, or its text, if neither the job nor its class has one. Without any policy the job is not put
            back.

        Raises
        ------
        TypeError
            If the error is not an exception.
        """
        if not isinstance(error, BaseException):
            raise TypeError(f"A claim fails with an exception, not with {error!r}")
        if trace is None and error.__traceback__:
            trace = raw_traceback_of(error)
        policy = as_policy(retry_policy)
        # The job first, then its error: an owner that lost the claim leaves no error of a job that another owner runs.
        # An owner that dies in between leaves a failed job without a reason, which is better than an error of a job
        # that runs.
        if not self._lacks_error:
            self._decide()
            back = self._ask(self._claim.decide, error, policy) or NEVER
            self._end(partial(self._claim.fail, reason=error), back)
            self._lacks_error = self.status not in (STATUSES.SUCCESS, STATUSES.CANCELED)
        if self._lacks_error:
            self._ask(self._error_model.add_error, self._claim.delivery.queue_name, self.job, error, trace=trace)
        self._lacks_error = False

    def release(self, delayed_for: float | timedelta | None = None) -> None:
        """Put the job back at the front of its waiting list; the try is not counted. If it was canceled or delayed
        meanwhile, that counts, as in `succeed`.

        Parameters
        ----------
        delayed_for: int, float or timedelta
            How long to wait before it may run, in seconds unless a timedelta.
        """
        self._give_back(delay_argument(delayed_for=delayed_for))

    def _give_back(self, delay: str = "", waits: str = "") -> None:
        """Release the job, with a delay, or until what it waits for is there."""
        self._decide()
        reply = self._do(self._claim.release, delay, heeds_status=True, begun=True, waits=waits)
        if not self._ends_otherwise(reply["outcome"]):
            self._ended(reply["status"])

    def cancel(self) -> None:
        """Cancel the job: it is not run again."""
        self._decide()
        self._ended(self._do(self._claim.cancel).status or STATUSES.CANCELED)

    def __enter__(self) -> Self:
        self._check_is_held()
        if self._holds_until - monotonic() < self.lease * 3 / 4:  # the first beat would come late
            self.renew()
        try:
            self._heartbeat.__enter__()
        except RuntimeError as error:  # Python shuts down, or there are too many threads
            self._end_quietly(self.release)
            raise LimpydJobsException(f"No thread can renew the lease of {self._ident}: {error}") from error
        if instruments.installed:
            self._enter_instruments()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._around and this_process.pid == self._pid:
            self._around.__exit__(kind, error, trace)
        self._heartbeat.stop()
        if self._is_decided or this_process.pid != self._pid:  # a child that the block forked ends nothing
            return False
        if isinstance(error, BaseExceptionGroup):
            error = wish_among(error) or error
        if error is None:
            self.succeed()
        elif isinstance(error, Cancel):
            self.cancel()
        elif isinstance(error, Requeue):
            self._put_back(error)
        else:
            self._end_by(error)
        return isinstance(error, (Cancel, Requeue, JobInterrupted))

    def _enter_instruments(self) -> None:
        delivery = self._claim.delivery
        self._around = Around(Running(self.job, delivery.queue_name, as_attempt(delivery.tries), self.owner))
        self._around.__enter__()

    # -- How it ends

    def _put_back(self, request: Requeue) -> None:
        """Put the job back as the block asked for; raise `RetriedTooOften` if that counts, and it has no tries left."""
        if request.count:
            try:
                self._do(self._claim.check_tries, request, None)
            except RetriedTooOften as error:
                self._end_by(error)
                raise
        self._decide()
        self._end(self._claim.requeue, request)

    def _end_by(self, error: BaseException) -> None:
        """Let the job fail, or release it."""
        if isinstance(error, (Exception, JobTimeout, SystemExit)):
            self._end_quietly(self.fail, error)
        else:
            self._end_quietly(self._give_back, "", getattr(error, "waits", ""))

    def _end_quietly(self, verb: Callable[..., None], *args: Any) -> None:
        """Call a verb, so that its exception does not hide the one that is being raised."""
        try:
            verb(*args)
        except Exception as another:
            logger.error(f"[{one_line(self._ident)}] its end is not recorded: {one_line(another, MESSAGE)}")

    def _end(self, verb: Callable[..., Ending], *args: Any) -> None:
        """End the claim by a verb that puts the job back, or leaves it in error."""
        ending = self._do(verb, *args)
        if not self._ends_otherwise(ending.outcome):
            back = STATUSES.DELAYED if ending.delayed_until else STATUSES.WAITING
            self._ended(ending.status or (STATUSES.ERROR if ending.outcome == "error" else back))

    def _ends_otherwise(self, outcome: str) -> bool:
        """If the job was canceled or delayed meanwhile, end it so; return whether it was."""
        if outcome == "canceled":
            self.cancel()
        elif outcome == "delayed":
            self._end(self._claim.delay, self._do(self._claim.stored_delay))
        return outcome in ("canceled", "delayed")

    def _do(self, action: Callable[..., T], *args: Any, **how: Any) -> T:
        """Call a function that asks Redis."""
        try:
            return action(*args, **how)
        except ClaimLost:
            self._claim.lose()
            raise
        except DoesNotExist as error:
            self._claim.lose()
            raise JobGone(self._ident) from error
        except RedisError as error:
            raise self._not_recorded(error) from error

    def _ask(self, action: Callable[..., T], *args: Any, **how: Any) -> T | None:
        """Call a function of which the application may have its own version. If it fails, the job ends all the same."""
        try:
            return action(*args, **how)
        except RedisError as error:
            raise self._not_recorded(error) from error
        except Exception as error:
            logger.error(f"[{one_line(self._ident)}] code of the application failed: {one_line(error, MESSAGE)}")
            return None

    def _not_recorded(self, error: RedisError) -> NotRecorded:
        return NotRecorded(f"What became of {self._ident} is not recorded: {error}")

    def _delete_errors(self) -> None:
        """Delete the errors of a job that is erased."""
        of_job = {"job_model_repr": self.job.get_model_repr(), "job_pk": pk_of(self.job)}
        self._error_model.delete_many(self._error_model.collection(**of_job))

    def _decide(self) -> None:
        self._check_is_held()
        self._is_decided = True

    def _check_is_held(self) -> None:
        if self.status is not None:
            raise ClaimLost(
                f"The claim on {self._ident} was ended before: its status is {STATUSES.by_value(self.status)}"
            )

    def _ended(self, status: str) -> None:
        self.status = status
        self._heartbeat.stop()
        if self._claim.is_that_of_job:
            self.job._held_token = None

    # -- The lease

    def _beat(self) -> None:
        """Renew the lease. Called by another thread."""
        if self.status is not None or self._claim.is_lost:
            return
        try:
            self.renew()
        except Exception as error:
            if self.status is None:  # else it ended meanwhile
                logger.error(f"[{one_line(self._ident)}] lease not renewed: {one_line(error, MESSAGE)}")

    def _begins_renewal(self, lease: float, locks: ExitStack) -> bool:
        """Let the lease begin anew together with others, before the locks are released; return False if another thread
        renews it now."""
        if not self._renewing.acquire(blocking=False):
            return False
        locks.callback(self._renewing.release)
        self._set_lease(min(lease, self.lease), self._holds_until)
        return True

    def _was_renewed(self, sent: float, lease: float, outcome: str) -> None:
        """The lease began anew when this was sent, by the clock of `monotonic`; or the claim was lost."""
        if outcome in ("refused", "gone"):
            self._claim.lose()
        elif outcome != "failed":
            self._claim.was_renewed(sent, outcome)
            self._set_lease(lease, sent + lease)

    def _set_lease(self, lease: float, until: float) -> None:
        self.lease, self._holds_until = lease, until
        self._heartbeat.begin_anew(_interval(lease))


def _interval(lease: float) -> float:
    """After how many seconds to renew a lease."""
    return max(lease / 4, LEAST_INTERVAL)
