"""What the code of jobs does here, and what becomes of their workers."""

from __future__ import annotations

from limpyd_jobs import Job, Queue, Worker


def do_nothing(job: Job, queue: Queue) -> None:
    pass


def fail(job: Job, queue: Queue) -> None:
    raise ValueError("oops")


def let_its_worker_die(identifier: str, queue_name: str, job_class: type[Job] = Job) -> Job:
    """Add a job, and claim it with a lease that lapsed; return it."""
    job = job_class.add_job(identifier, queue_name)
    worker = Worker(queue_name, terminate_gracefuly=False)
    worker.update_keys()
    worker.wait_for_job()
    Queue.get_queue(queue_name).running.zadd({job.ident: 1})
    return job
