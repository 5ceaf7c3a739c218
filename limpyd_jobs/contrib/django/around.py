"""What Django does before and after each request, done before and after each job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import close_old_connections, connections, reset_queries
from django.utils import timezone, translation

from limpyd_jobs.integration import Instrument, Running


class AroundJobs(Instrument):
    """Stands around each job that this process runs, in the thread that runs it.

    Before the job, connections to databases that were cut, or are older than ``CONN_MAX_AGE``, are closed, so that the
    job gets new ones; and the queries that ``DEBUG`` keeps are forgotten. The job begins with the language and the time
    zone of the settings, and what it activates ends with it. After it, connections are closed as at the end of a
    request.
    """

    @contextmanager
    def running(self, running: Running) -> Iterator[None]:
        """Do as `Instrument.running` says."""
        reset_queries()
        close_old_connections()
        try:
            with translation.override(settings.LANGUAGE_CODE), timezone.override(None):
                yield
        finally:
            close_old_connections()


# Connections that this process inherited. They are kept, because whatever closes one tells the server so, for all.
_inherited: list[Any] = []


def forget_inherited_connections() -> None:
    """Let a process that was forked make connections to databases of its own: two that share one get each other's
    answers, or wait for ever. A database in memory is copied by the fork."""
    for connection in connections.all(initialized_only=True):
        if not (connection.vendor == "sqlite" and connection.is_in_memory_db()):
            _inherited.append(connection)
            del connections[connection.alias]
