"""The worker, and the command line that runs one."""

from limpyd_jobs.workers.config import WorkerConfig
from limpyd_jobs.workers.worker import LOGGER_NAME, Worker, logger

__all__ = ["LOGGER_NAME", "Worker", "WorkerConfig", "logger"]
