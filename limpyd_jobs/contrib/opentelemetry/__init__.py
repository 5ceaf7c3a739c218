"""Traces of jobs, by OpenTelemetry: from the code that adds a job to all that run it.

>>> from limpyd_jobs import events
>>> from limpyd_jobs.contrib.opentelemetry import Tracing
>>> events.subscribe(Tracing())
"""

from limpyd_jobs.contrib.opentelemetry.tracing import Tracing

__all__ = ["Tracing"]
