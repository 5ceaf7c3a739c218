"""Reports of failed jobs to Sentry, grouped as this library groups errors.

>>> from limpyd_jobs import events
>>> from limpyd_jobs.contrib.sentry import Sentry
>>> events.subscribe(Sentry())
"""

from limpyd_jobs.contrib.sentry.reporting import Sentry

__all__ = ["Sentry"]
