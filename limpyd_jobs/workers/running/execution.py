"""One job in the hands of a worker."""

from __future__ import annotations

from typing import Any

from limpyd_jobs.models import JobClaim, Queue
from limpyd_jobs.models.claims.job_claim import queue_of
from limpyd_jobs.transitions import KeptResult, Success


class Execution:
    """What a worker knows of one job, from its claim until its end is recorded.

    Attributes
    ----------
    claim: JobClaim
        The claim on the job, which knows the objects of the job and its queue.
    is_buffered: bool
        Whether it ran, and its success will be recorded with others.
    result: object
        What its code returned.
    kept: KeptResult
        The part of the result to keep; None for nothing.
    is_erased: bool
        Whether the job is deleted once it succeeded.
    ended: float
        When its code returned, by the clock of `monotonic`.
    is_running: bool
        Whether its code runs.
    ran: float
        For how many seconds it ran.
    is_success: bool
        Whether it returned, or raised; None if it was interrupted, or has not ended yet.
    """

    __slots__ = ("claim", "ended", "is_buffered", "is_erased", "is_running", "is_success", "kept", "ran", "result")

    def __init__(self, claim: JobClaim) -> None:
        self.claim = claim
        self.is_buffered = False
        self.result: Any = None
        self.kept: KeptResult | None = None
        self.ended = self.ran = 0.0
        self.is_running = self.is_erased = False
        self.is_success: bool | None = None

    @property
    def success(self) -> Success:
        """What is recorded of its success together with others."""
        claim = self.claim
        return Success(claim.job, claim.delivery, claim.began, self.ended, self.is_erased, self.kept)

    def remember(self) -> None:
        """Keep the values that hooks may read on the objects."""
        claim = self.claim
        delivery = claim.delivery
        claim.remember(_cached_status=delivery.status, _cached_start=delivery.start, _execution=self)
        claim.queue.__dict__["_cached_name"] = delivery.queue_name

    def forget(self) -> None:
        """Remove the reference from the job to this object, so that the garbage collector need not find the cycle."""
        self.claim.job.__dict__.pop("_execution", None)

    def living_queue(self) -> Queue:
        """The queue of the claim, even if the job deleted it."""
        queue: Queue = self.claim.queue
        return queue if "_pk" in vars(queue) else queue_of(type(queue), self.claim.delivery)
