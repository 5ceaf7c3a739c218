"""A job in a worker, from its delivery until its end is recorded."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from limpyd_jobs.models import Job, JobClaim, Queue
from limpyd_jobs.models.claims.job_claim import queue_of
from limpyd_jobs.transitions import Delivery, KeptResult
from limpyd_jobs.workers.log import ClassNames, ident_of


class Way(Protocol):
    """What is done around the code of a job."""

    def start(self, run: Run) -> None:
        """The code of the job is about to begin."""

    def executed(self, run: Run, result: Any) -> None:
        """The code of the job returned: record that it succeeded, unless it gave the job another status."""

    def succeeded(self, run: Run) -> None:
        """The success of the job is recorded: say so."""


class Run(JobClaim):
    """What a worker knows of one job: the claim on it, with its objects, and how its code ran."""

    is_unrecorded = False  # whether it ran, and its success will be recorded with others
    result: Any = None  # what its code returned
    kept: KeptResult | None = None  # the part of the result to keep; None for nothing
    ended_at = 0.0  # when its code returned, by the clock of `monotonic`
    ran = 0.0  # for how many seconds its code ran
    is_running = False  # whether its code runs
    is_erased = False  # whether the job is deleted once it succeeded
    is_success: bool | None = None  # whether it returned, or raised; None if it was interrupted, or has not ended yet
    way: Any = None  # a `Way`, once it is taken up
    strategy: Any = None  # a `Strategy`, if it is known
    label = ""  # how it is named in the log, once that was made

    def living_queue(self) -> Queue:
        """The queue of the job, even if the job deleted it."""
        queue: Queue = self.queue
        return queue if "_pk" in vars(queue) else queue_of(type(queue), self.delivery)


class Runs:
    """The runs of one worker. Any thread may read them."""

    def __init__(self) -> None:
        # By ident: those of which the application makes the objects, and may choose another job.
        self.offered: dict[str, Run] = {}
        # Those that run, until their end is recorded or given up. An ident is not enough: another job may have
        # the same one in another shard.
        self.running: dict[Run, None] = {}
        self.unrecorded: deque[Run] = deque()  # those that ran, and whose success is not recorded yet
        self.class_names = ClassNames()
        self.done = self.failed = 0  # how many jobs returned, and how many raised

    def offer(self, delivery: Delivery) -> None:
        """A job came out of its list."""
        self.offered[delivery.ident] = Run(delivery)

    def accept(self, job: Job, queue: Queue) -> Run:
        """Return the run of a job that is to be run: a new one if it was not offered."""
        offered: Run | None = vars(job).get("_run_in_worker")
        ident = offered.delivery.ident if offered else ident_of(job)
        run = self.offered.pop(ident, None) or Run()
        run.job, run.queue = job, queue
        return run

    def of(self, job: Job) -> Run | None:
        """Return the run of a job that runs, whatever object of it this is."""
        ident, database = ident_of(job), type(job).database
        found = {each.delivery.database: each for each in self.now_running() if each.delivery.ident == ident}
        return found.get(database) or found.get(None)

    def now_running(self) -> list[Run]:
        """Those that run, at this moment."""
        return list(self.running)
