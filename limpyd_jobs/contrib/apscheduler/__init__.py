"""A job store for APScheduler 3, which any number of schedulers may have in common.

>>> scheduler = BackgroundScheduler()
>>> scheduler.add_jobstore("limpyd", url="redis://localhost/0")
"""

from limpyd_jobs.contrib.apscheduler.records import ScheduledJob
from limpyd_jobs.contrib.apscheduler.store import LimpydJobStore, RedisJobStore

__all__ = ["LimpydJobStore", "RedisJobStore", "ScheduledJob"]
