"""The worker, and the command line that runs one."""

from limpyd_jobs.workers.config import WorkerConfig
from limpyd_jobs.workers.parameters import LOGGER_NAME
from limpyd_jobs.workers.processes import Processes
from limpyd_jobs.workers.worker import Worker, logger

__all__ = ["LOGGER_NAME", "Processes", "Worker", "WorkerConfig", "logger"]
