"""The worker, and the command line that runs one."""

from limpyd_jobs.classes.imports import import_class
from limpyd_jobs.commandline.parameters import LOGGER_NAME
from limpyd_jobs.dates import compute_delayed_until
from limpyd_jobs.exceptions import ConfigurationException, LimpydJobsException
from limpyd_jobs.models import Error, Job, Queue
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.workers.config import WorkerConfig
from limpyd_jobs.workers.process.pool import WorkerPool
from limpyd_jobs.workers.worker import Worker, logger

__all__ = [
    "LOGGER_NAME",
    "STATUSES",
    "ConfigurationException",
    "Error",
    "Job",
    "LimpydJobsException",
    "Queue",
    "Worker",
    "WorkerConfig",
    "WorkerPool",
    "compute_delayed_until",
    "import_class",
    "logger",
]
