"""Jobs that are added at set times: `Schedule`, which any worker enqueues when they are due."""

from limpyd_jobs.schedules.model import Schedule

__all__ = ["Schedule"]
