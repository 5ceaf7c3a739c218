"""A claim on a job, and how it ends. Workers use it, and so does `Claim`, which applications use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, TypeVar

from redis import Redis

from limpyd_jobs import transitions
from limpyd_jobs.arguments import delay_argument, nearest_priority, read_priority
from limpyd_jobs.classes.job_classes import ON_EXHAUSTED, job_classes
from limpyd_jobs.dates import compute_delayed_until, get_delta, parse_datetime, utcnow
from limpyd_jobs.exceptions import CodeNotRun, RetriedTooLate, RetriedTooOften, WorkerLost
from limpyd_jobs.fields.argument import know_arguments
from limpyd_jobs.functions import overrides
from limpyd_jobs.models.continuing.cursors import Keeping
from limpyd_jobs.models.job_record import JobRecord
from limpyd_jobs.models.queue import Queue, attached_queue, queue_name
from limpyd_jobs.records.records import NewError, redis_of
from limpyd_jobs.redis.calls import send_all
from limpyd_jobs.retrying import UNTIL_LIMIT, Again, GiveUp, History, Requeue, Retry
from limpyd_jobs.search.classes import on
from limpyd_jobs.transitions import (
    MAX_KEPT,
    MAX_KEPT_TEXT,
    MAX_RENEWED,
    NOTHING,
    ONLY_TAKEN,
    UNCLAIMED,
    ClaimRequest,
    Delivery,
    Ending,
)

Held = TypeVar("Held")
Renewing = tuple[Held, Keeping]  # what holds a claim that is renewed, and what to keep of its job

# The delay of a job that delays itself without saying until when, in seconds.
DEFAULT_DELAY = 60


@dataclass(frozen=True)
class Return:
    """How a job that failed is put back in its queue: how often, in all its life (None for this time, because its retry
    policy says so); what to add to its priority; after which delay; whether it is tried again for a limited time."""

    times: int | None = 0
    priority_delta: int | None = None
    delay: float | timedelta | None = None
    is_limited: bool = False


NEVER = Return()


class JobClaim:
    """The claim on one job, out of its list since it `began` by the clock of `monotonic`. Each verb is one transition,
    of the same name, and ends the claim unless it says otherwise.

    The job and the queue are None until the objects are made. The token is that of the claim, also once it is ended,
    and `UNCLAIMED` if the job was not claimed. `is_held` says whether the claim is not ended. The `outcome` is empty
    until an end is recorded; then as in `transitions.Ending`, or ``released``; after ``held`` the claim is not ended.
    `is_lost` says that a report was refused, because another owner holds the claim, or the job was deleted.
    """

    __slots__ = (
        "_is_erasing",
        "began",
        "delivery",
        "is_held",
        "is_lost",
        "job",
        "outcome",
        "queue",
        "renewed",
        "token",
    )

    def __init__(self, delivery: Delivery = NOTHING, job: Any = None, queue: Any = None) -> None:
        self.job: Any = job
        self.queue: Any = queue
        self.outcome = ""
        self.is_lost = self._is_erasing = False
        self.delivery = delivery  # as in `taken`, whose call would be one more for each job
        self.is_held = bool(delivery.token)
        self.token = delivery.token or UNCLAIMED
        self.began = self.renewed = monotonic()

    def taken(self, delivery: Delivery) -> None:
        """The job came out of its list, and maybe is claimed."""
        self.delivery = delivery
        self.is_held = bool(delivery.token)
        self.token = delivery.token or UNCLAIMED
        self.began = self.renewed = monotonic()  # the moment when the lease began

    def taken_as_it_is(self, delivery: Delivery) -> None:
        """The job is not run, but still has the claim with which it was only taken."""
        self.token, self.is_held = delivery.token, True

    def remember(self, **known: Any) -> None:
        """Keep the known values on the object of the job, to be read without asking Redis."""
        delivery = self.delivery
        known["_cached_identifier"], known["_held_token"] = delivery.identifier, self.token if self.is_held else ""
        known["_delivery"], known["_began"], known["_cursors"] = delivery, self.began, None
        self.job.__dict__.update(known)  # at once, because an assignment asks whether it is to a field
        if delivery.arguments:
            know_arguments(self.job, delivery.arguments)

    @property
    def is_only_taken(self) -> bool:
        """Whether the job is out of its list for the application to look at, and not claimed to be run yet."""
        return self.is_held and self.token.startswith(ONLY_TAKEN)

    # -- How it ends

    def succeed(
        self, next_claim: ClaimRequest | None = None, erase: bool = False, kept: transitions.KeptResult | None = None
    ) -> Ending:
        """The job is a success. If it was canceled or delayed meanwhile, the outcome says so, and nothing changes. With
        `erase`, nothing is kept of it: if this is called again, it may be gone."""
        how = ("again" if self._is_erasing else "1") if erase else ""
        self._is_erasing = erase
        return self.ended_by(transitions.succeed(self.job, self.queue, self.token, next_claim, how, kept))

    def cancel(self, next_claim: ClaimRequest | None = None) -> Ending:
        """The job was canceled."""
        return self.ended_by(transitions.finish_canceled(self.job, self.queue, self.token, next_claim))

    def delay(self, until: datetime | None, next_claim: ClaimRequest | None = None) -> Ending:
        """The job was delayed meanwhile: put it in its queue for that time, see `stored_delay`."""
        delay = delay_argument(delayed_until=until) if until else delay_argument(delayed_for=DEFAULT_DELAY)
        return self.ended_by(
            transitions.delay(self.job, self.queue, self.token, queue_name(self.queue), delay, next_claim)
        )

    def stored_delay(self) -> datetime | None:
        """Read until when the job was delayed meanwhile."""
        return parse_datetime(self.job.delayed_until.hget())

    def requeue(self, request: Requeue, least_delay: str = "", next_claim: ClaimRequest | None = None) -> Ending:
        """Put the job back as its code asked for, after the least delay if that asks for none: then the caller puts it
        in its place. If it was canceled, the outcome says so, and nothing changes."""
        delay = delay_argument(request.delayed_for, request.delayed_until)
        ending = transitions.delay(
            self.job,
            self.queue,
            self.token,
            queue_name(self.queue),
            delay or least_delay,
            next_claim,
            priority=request.priority,
            uncounted=not request.count,
            counted=request.count,
            failing=request.count and bool(self._run()[2]),
            asked=delay if least_delay else None,
        )
        return self.ended_by(ending)

    def fail(
        self,
        back: Return = NEVER,
        *,
        hold: bool = False,
        next_claim: ClaimRequest | None = None,
        error: NewError | None = None,
        reason: BaseException | None = None,
    ) -> Ending:
        """The job failed, for a reason. With `hold`, a job that is to be put back is only held, see
        `transitions.fail`."""
        priority, where = "", tuple[str, ...]()
        if back.times != 0 and not hold:
            priority = self.priority_after(back)
            where = queue_name(self.queue), priority, delay_argument(delayed_for=back.delay)
        ending = transitions.fail(
            self.job,
            self.queue,
            self.token,
            back.times,
            *where,
            hold=hold,
            heed_field=not (hold and self._decides_itself),
            failing=back.is_limited,
            began=self.began if self.delivery.is_one_of_several else None,  # it waited for the others
            next_claim=next_claim,
            error=error,
            handler=self._handler(reason) if reason and hasattr(type(self.job), "on_exhausted") else None,
        )
        return self.ended_by(ending._replace(priority=priority))

    def _handler(self, reason: BaseException) -> Any:
        """Return what handles the last failure; its module is imported only for those who have such a method."""
        own: Any = job_classes.resolve(ON_EXHAUSTED)
        return own.handler_of(self.job, reason)

    def release(
        self,
        delay: str = "",
        *,
        heeds_status: bool = False,
        begun: bool = False,
        goes_last: bool = False,
        waits: str = "",
    ) -> Mapping[str, Any]:
        """Give the job back, its try not counted; if it waits for something, until that is there. If its status is
        heeded, not if it was canceled or delayed."""
        how: dict[str, Any] = {"heeds_status": heeds_status, "begun": begun, "goes_last": goes_last, "waits": waits}
        reply = transitions.release(*self.names, delay, **how, kept=self._cursors_to_keep())
        if reply["outcome"] not in ("canceled", "delayed"):
            self.ended("released")
        return reply

    def abandon(self, delay: str = "", keys: Sequence[str] = ()) -> bool:
        """End the claim, and leave the job as it is. False if it is delayed, which is still to be done by `delay`."""
        is_ended = transitions.abandon(*self.names, delay, keys, kept=self._cursors_to_keep())
        if is_ended:
            self.is_held = False
        return is_ended

    def _cursors_to_keep(self) -> Mapping[str, Any] | None:
        return self._cursors.request() if self._cursors else None

    def ended_by(self, ending: Ending) -> Ending:
        """A transition gave this reply: the claim is ended, or only held, unless the reply leaves it as it is."""
        if ending.outcome not in ("canceled", "delayed"):
            self.outcome = ending.outcome
            if ending.outcome != "held":
                self.is_held = False
        return ending

    def ended(self, outcome: str) -> None:
        """The claim is ended."""
        self.outcome, self.is_held = outcome, False

    # -- The lease

    def renew(self, connection: Redis, lease: float) -> bool:
        """Let the lease begin anew, for that many seconds, over a connection that any thread may use; with it, keep the
        cursors of the job. Return whether the job was canceled."""
        sent = monotonic()
        with self.keeping() as keeping:
            reply = transitions.renew(connection, *self.names, lease, kept=keeping.request)
            keeping.is_done = True
        return self.was_renewed(sent, reply["outcome"])

    def keeping(self, *, waits: bool = True) -> AbstractContextManager[Keeping]:
        """Return the context in which the cursors of the job are kept: see `Cursors.keeping`."""
        cursors = self._cursors
        return cursors.keeping(waits=waits) if cursors and self.is_held else nullcontext(Keeping())

    def was_renewed(self, sent: float, outcome: str) -> bool:
        """The lease began anew when this was sent, by the clock of `monotonic`. Return whether the job was canceled."""
        self.renewed = sent
        is_canceled = outcome == "canceled"
        if is_canceled and self._cursors and self.is_that_of_job:
            vars(self.job)["_is_told_to_end"] = True
        return is_canceled

    @property
    def _cursors(self) -> Any:
        """How far the code of the job is, if it tells that; else None."""
        return vars(self.job).get("_cursors") if self.job is not None else None

    def lose(self) -> bool:
        """A report was refused, so the claim is lost: tell the code of the job. Return False if the claim was ended
        meanwhile."""
        self.is_lost = self.is_held
        if self.is_lost and self.is_that_of_job:
            self.job._claim_lost = True
        return self.is_lost

    @property
    def is_that_of_job(self) -> bool:
        """Whether the object of the job was not claimed again since."""
        return self.job is not None and vars(self.job).get("_held_token") == self.delivery.token

    @property
    def names(self) -> tuple[type[JobRecord], str, str, str]:
        """The arguments that name the claim, for transitions that need no object of the queue."""
        delivery = self.delivery
        job_class = job_class_of(delivery) if self.job is None else type(self.job)
        return job_class, delivery.ident, self.token, delivery.queue_key

    # -- After a failure

    def decide(self, error: BaseException, fallback: Retry | None, otherwise: Return = NEVER) -> Return:
        """Decide how the job is put back: by the fallback if neither the job nor its class has a policy, and otherwise
        as given. The transition itself looks at the field `cancel_on_error`."""
        if isinstance(error, (CodeNotRun, RetriedTooLate, RetriedTooOften, WorkerLost)) or self._is_never_put_back:
            return NEVER
        history, ran, limit = self._run()
        if limit and not otherwise.times:
            fallback = fallback or UNTIL_LIMIT
        decision = history.decide(self.job.ident, error, ran, self.job.default_retry_policy, fallback)
        back = _back_by(decision, otherwise)
        return _within_limit(back, history, ran, limit) if limit and back != NEVER else back

    def check_tries(self, request: Requeue, fallback: Retry | None, times: int = 0) -> None:
        """Raise `RetriedTooOften` if the job asks to be put back, as a try that counts, and has no tries left: by its
        policy, that of its class, or the fallback, or else `times` in all its life."""
        history, ran, limit = self._run()
        if limit and not times:
            fallback = fallback or UNTIL_LIMIT
        until = compute_delayed_until(request.delayed_for, request.delayed_until)
        delay = max((until - utcnow()).total_seconds(), 0.0) if until else 0.0
        is_left = history.has_tries_left(ran, delay, self.job.default_retry_policy, fallback, times)
        if not is_left or (limit and not history.may_begin(ran, limit, delay)):
            raise RetriedTooOften(
                f"It asked to be put back, which counts as a try, but has none left after {history.tries or 0} of them"
            ).with_traceback(request.__traceback__) from request.__cause__

    def _run(self) -> tuple[History, float, float | None]:
        """Return what is stored of the runs of the job, how long this one took, and for how long it is tried again."""
        is_claimed = self.delivery.outcome == "claimed"
        history = self.delivery.history if is_claimed else self._stored_history()
        limit = history.limit(getattr(type(self.job), "retry_for", None))
        return history, monotonic() - self.began if is_claimed else 0.0, limit

    def check_is_in_time(self) -> None:
        """Raise `RetriedTooLate` if the job, which failed before, is not to be tried again any more."""
        limit = getattr(type(self.job), "retry_for", None)
        if self.delivery.history.is_over(limit):
            seconds, since = self.delivery.history.limit(limit), self.delivery.history.failing_since
            raise RetriedTooLate(
                f"It first failed at {since} (UTC), and is tried again for {seconds:g} s only, "
                "which were over when its turn came"
            )

    def _stored_history(self) -> History:
        names = ("_retry_policy", "tries", "_uncounted_tries", "start", "added", "_requeued_at")
        policy, tries, uncounted, start, added, requeued_at, *limit = self.job.hmget(
            *names, "_retry_for", "_failing_since"
        )
        return History(policy, tries, uncounted, start, requeued_at or added, *limit)

    @property
    def _is_never_put_back(self) -> bool:
        job = self.job
        return bool(job.must_be_cancelled_on_error if self._decides_itself else job.always_cancel_on_error)

    @property
    def _decides_itself(self) -> bool:
        """Whether the class of the job has its own `must_be_cancelled_on_error`, instead of the field."""
        return overrides(type(self.job), JobRecord, "must_be_cancelled_on_error")

    def priority_after(self, back: Return) -> str:
        """The priority that the job is put back with."""
        queue = self.queue
        priority = read_priority(getattr(queue, "_cached_priority", None) or queue.priority.hget()) or 0
        return nearest_priority(priority + (back.priority_delta or 0))


def next_step(waiting: Iterator[Held], claim_of: Callable[[Held], JobClaim], stack: ExitStack) -> list[Renewing[Held]]:
    """Return as many of the holders of claims that still hold as are renewed in one step, each with what to keep of its
    job until the stack is closed."""
    step: list[Renewing[Held]] = []
    kept = size = 0
    for holder in waiting:
        claim = claim_of(holder)
        if not claim.is_held or claim.is_lost:  # it ended meanwhile
            continue
        keeping = stack.enter_context(claim.keeping(waits=False))
        step.append((holder, keeping))
        if keeping.request:
            kept, size = kept + 1, size + len(keeping.request["cursor"])
        if len(step) == MAX_RENEWED or kept == MAX_KEPT or size > MAX_KEPT_TEXT:
            break
    return step


def release_all(claims: Sequence[JobClaim]) -> None:
    """Give jobs of one database back, whose code was begun, in one round trip, to be run in this order. Their tries are
    not counted. A claim that could not be ended is as it was."""
    claims = [claim for claim in reversed(claims) if claim.is_held]
    calls = [transitions.release.call(*claim.names, begun=True, kept=claim._cursors_to_keep()) for claim in claims]
    for claim, reply in zip(claims, send_all(redis_of(claims[0].names[0]), calls) if claims else (), strict=True):
        if not isinstance(reply, Exception):
            claim.ended("released")


def _back_by(decision: Again | GiveUp | None, otherwise: Return) -> Return:
    """How a job is put back by a decision; otherwise, without one."""
    if not isinstance(decision, Again):
        return otherwise if decision is None else NEVER
    delta = otherwise.priority_delta if decision.priority_delta is None else decision.priority_delta
    return Return(None, delta, decision.delay)


def _within_limit(back: Return, history: History, ran: float, limit: float) -> Return:
    delay = get_delta(back.delay or 0).total_seconds()
    return replace(back, is_limited=True) if history.may_begin(ran, limit, delay) else NEVER


def job_class_of(delivery: Delivery) -> type[JobRecord]:
    """Return the class of a job that came out of a list, as it is in the database of the job."""
    job_class: type[JobRecord] = job_classes.resolve(delivery.path)
    return on(job_class, delivery.database) if delivery.database else job_class


def queue_of(queue_model: type[Queue], delivery: Delivery) -> Queue:
    """Return the object of the queue that a job came from."""
    if delivery.database:
        queue_model = on(queue_model, delivery.database)
    return attached_queue(queue_model, delivery.queue_pk, delivery.queue_name, delivery.queue_priority)


def held_by(job: JobRecord) -> str | None:
    """Return who holds the claim that came with the object of a job, as the history of the job names it; None if it
    came without."""
    return transitions.owner_of(vars(job).get("_held_token"))
