"""The workers of the application, and how they are configured."""

from datetime import datetime, timedelta

from limpyd_jobs import STATUSES, Worker
from limpyd_jobs.workers import WorkerConfig

from .jobs import AppError, AppQueue, RateLimited

set_up = []


class AppWorker(Worker):
    """Delays jobs that meet a limit, and stops when the remote side is down."""

    queue_model = AppQueue
    error_model = AppError
    requeue_times = 1000
    requeue_delay_delta = 10
    requeue_priority_delta = 0
    timeout = 1
    fetch_priorities_delay = 1
    fetch_delayed_delay = 1

    def execute(self, job, queue):
        try:
            return super().execute(job, queue)
        except RateLimited:
            job.status.hset(STATUSES.DELAYED)
            job.delayed_until.hset(str(datetime.utcnow() + timedelta(seconds=600)))
            job.tries.hset(0)
            return None

    def additional_error_fields(self, job, queue, exception, trace=None):
        if isinstance(exception, ConnectionError):
            self.end_forced = True
        more = super().additional_error_fields(job, queue, exception, trace)
        return {**more, "repository": job.identifier.hget(), "headers": {"retry": "10"}}

    def job_success_message(self, job, queue, job_result):
        return f"{super().job_success_message(job, queue, job_result)}, with {job_result}"


class AppWorkerConfig(WorkerConfig):
    """Sets the framework up before any model is imported."""

    help = "Run a worker of the application"

    def __init__(self, argv=None):
        set_up.append("framework")
        super().__init__(argv)
