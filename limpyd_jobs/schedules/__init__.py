"""Jobs that are added at set times: `Schedule`, which any worker fires."""

from limpyd_jobs.schedules.model import Schedule

__all__ = ["Schedule"]
