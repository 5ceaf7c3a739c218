"""The worker, and the command line that runs one."""

from limpyd_jobs.classes.imports import import_class as import_class
from limpyd_jobs.commandline.parameters import LOGGER_NAME as LOGGER_NAME
from limpyd_jobs.dates import compute_delayed_until as compute_delayed_until
from limpyd_jobs.exceptions import ConfigurationException as ConfigurationException
from limpyd_jobs.exceptions import LimpydJobsException as LimpydJobsException
from limpyd_jobs.models import Error as Error
from limpyd_jobs.models import Job as Job
from limpyd_jobs.models import Queue as Queue
from limpyd_jobs.statuses import STATUSES as STATUSES
from limpyd_jobs.workers.config import WorkerConfig as WorkerConfig
from limpyd_jobs.workers.process.pool import WorkerPool as WorkerPool
from limpyd_jobs.workers.worker import Worker as Worker
from limpyd_jobs.workers.worker import logger as logger
