"""What becomes of a delivery before it runs: the application makes its objects, and may run another job, or none."""

from __future__ import annotations

from dataclasses import dataclass

from limpyd.exceptions import DoesNotExist

from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.idents import QueueKey
from limpyd_jobs.models import Job, JobClaim, Queue, job_classes
from limpyd_jobs.models.claims.job_claim import DEFAULT_DELAY, job_class_of, queue_of
from limpyd_jobs.records import records
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers.claiming.claimer import Claimer
from limpyd_jobs.workers.context import Face
from limpyd_jobs.workers.log import still_claimed
from limpyd_jobs.workers.run import Run, Runs


@dataclass(eq=False)
class Offers:
    """Offers deliveries to the application, and releases those that it does not want."""

    worker: Face
    claimer: Claimer
    runs: Runs

    def take(self, key: str, ident: str) -> Delivery:
        """Claim a job of a waiting list that was taken by other means: see `Claimer.take`."""
        return self.claimer.take(key, ident)

    # -- Making the objects

    def objects_of(self, delivery: Delivery) -> tuple[Queue, Job] | None:
        """Let the application make the objects; None if another worker was faster.

        A job whose class cannot be resolved is still in its list: the application may know it.
        """
        self.runs.offer(delivery)
        try:
            found = self.worker.get_queue(delivery.key), self.worker.get_job(delivery.ident)
        except Exception as error:
            if delivery.error:
                self.claimer.defer(delivery, error)
            raise
        is_taken = not delivery.error or self.worker.connection.lrem(delivery.key, 1, delivery.ident)
        return found if is_taken else None

    def run_of(self, delivery: Delivery) -> Run:
        """Let the application make the objects of a job that is not run."""
        self.runs.offer(delivery)
        queue, job = self.worker.get_queue(delivery.key), self.worker.get_job(delivery.ident)
        self.runs.offered.pop(delivery.ident, None)
        return Run(delivery, job, queue)

    def get_queue(self, key: str) -> Queue:
        """Return the queue of a waiting list; what `Worker.get_queue` does."""
        queue_model = self.worker.queue_model
        for run in self.runs.offered.values():
            if run.delivery.key == key and run.delivery.queue_name:
                return queue_of(queue_model, run.delivery)
        queue_key = QueueKey.of_list(key)
        if queue_key == key or not queue_key.pk or queue_key != f"{queue_model._name}:{queue_key.pk}":
            raise DoesNotExist(f"Unable to get the queue from the key {key}")
        return queue_model.get(queue_key.pk)

    def get_job(self, ident: str) -> Job:
        """Return the job of an ident; what `Worker.get_job` does."""
        run = self.runs.offered.get(ident)
        if run is None:
            return Job.get_from_ident(ident)
        delivery = run.delivery
        if delivery.error or delivery.outcome != "claimed":
            self.claimer.check(delivery)
        cls = job_class_of(delivery) if delivery.database else job_classes.resolve(delivery.path)
        job: Job = records.attached(cls, delivery.pk)
        job.__dict__["_run_in_worker"] = run
        return job

    # -- Jobs that the application does not want

    def release_unwanted(self) -> None:
        """Release, for later, the claimed jobs that the application did not choose to run."""
        while self.runs.offered:
            _, run = self.runs.offered.popitem()
            if run.is_only_taken:
                self.abandon(run.delivery)
            elif run.is_held:
                self.release(run, delay_argument(delayed_for=DEFAULT_DELAY))

    def release(self, claim: JobClaim, delay: str = "") -> None:
        """Put a claimed job back, to the front of its list or for later."""
        try:
            claim.release(delay)
        except Exception as error:
            self.worker.log(still_claimed(claim.delivery.ident, error), "error")

    def abandon(self, delivery: Delivery) -> None:
        """Leave a job that is only taken where the application put it; else put it back for later."""
        try:
            job = records.attached(job_class_of(delivery), delivery.pk)
            claim = JobClaim(delivery, job, queue_of(self.worker.queue_model, delivery))
            if not claim.abandon(delay_argument(delayed_for=DEFAULT_DELAY), self.worker.keys):
                claim.delay(claim.stored_delay())
        except Exception as error:
            self.worker.log(still_claimed(delivery.ident, error), "error")
