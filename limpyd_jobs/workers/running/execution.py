"""The jobs that a worker has claimed, from the moment on when they come out of their lists."""

from __future__ import annotations

from collections import deque
from typing import Any

from limpyd_jobs.models import Job, JobClaim, Queue
from limpyd_jobs.models.claims.job_claim import queue_of
from limpyd_jobs.transitions import Delivery, KeptResult, Success
from limpyd_jobs.workers.naming import ident_of


class Execution:
    """What a worker knows of one job, from its claim until its end is recorded."""

    __slots__ = ("claim", "ended", "is_buffered", "is_erased", "is_running", "is_success", "kept", "ran", "result")

    def __init__(self, claim: JobClaim) -> None:
        self.claim = claim  # the claim on the job, which knows the objects of the job and its queue
        self.is_buffered = False  # whether it ran, and its success will be recorded with others
        self.result: Any = None  # what its code returned
        self.kept: KeptResult | None = None  # the part of the result to keep; None for nothing
        self.ended = 0.0  # when its code returned, by the clock of `monotonic`
        self.ran = 0.0  # for how many seconds its code ran
        self.is_running = False  # whether its code runs
        self.is_erased = False  # whether the job is deleted once it succeeded
        # Whether it returned, or raised; None if it was interrupted, or has not ended yet.
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

    def living_queue(self) -> Queue:
        """The queue of the claim, even if the job deleted it."""
        queue: Queue = self.claim.queue
        return queue if "_pk" in vars(queue) else queue_of(type(queue), self.claim.delivery)


class Executions:
    """The executions of one worker. Any thread may read them."""

    def __init__(self) -> None:
        # By ident: those of which the application makes the objects, and may choose another job.
        self.offered: dict[str, Execution] = {}
        # Those that run, until their end is recorded or given up. An ident is not enough: another job may have
        # the same one in another shard.
        self.running: dict[Execution, None] = {}
        self.unrecorded: deque[Execution] = deque()  # those that ran, and whose success is not recorded yet
        self.done = self.failed = 0  # how many jobs returned, and how many raised

    def offer(self, delivery: Delivery) -> None:
        """A job came out of its list."""
        self.offered[delivery.ident] = Execution(JobClaim(delivery))

    def accept(self, job: Job, queue: Queue) -> Execution:
        """Return the execution of a job that is to be run: a new one if it was not offered."""
        offered: Execution | None = vars(job).get("_execution")
        ident = offered.claim.delivery.ident if offered else ident_of(job)
        execution = self.offered.pop(ident, None) or Execution(JobClaim())
        execution.claim.job, execution.claim.queue = job, queue
        return execution

    def of(self, job: Job) -> Execution | None:
        """Return the execution of a job that runs, whatever object of it this is."""
        ident, database = ident_of(job), type(job).database
        found = {
            each.claim.delivery.database: each for each in self.now_running() if each.claim.delivery.ident == ident
        }
        return found.get(database) or found.get(None)

    def now_running(self) -> list[Execution]:
        """Those that run, at this moment."""
        return list(self.running)
