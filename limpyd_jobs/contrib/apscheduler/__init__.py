"""For APScheduler 3: a job store, which any number of schedulers may share, and an executor.

>>> scheduler = BackgroundScheduler()
>>> scheduler.add_jobstore("limpyd", url="redis://localhost/0")
>>> scheduler.add_executor("limpyd", url="redis://localhost/0")
"""

from limpyd_jobs.contrib.apscheduler.executor import LimpydExecutor, PickledRun, ScheduledRun
from limpyd_jobs.contrib.apscheduler.records import ScheduledJob
from limpyd_jobs.contrib.apscheduler.redis_store import RedisJobStore
from limpyd_jobs.contrib.apscheduler.store import LimpydJobStore

__all__ = ["LimpydExecutor", "LimpydJobStore", "PickledRun", "RedisJobStore", "ScheduledJob", "ScheduledRun"]
