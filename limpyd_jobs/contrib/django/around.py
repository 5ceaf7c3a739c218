"""What Django does before and after each request, done before and after each job."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet, ref

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections, reset_queries
from django.db.backends.signals import connection_created
from django.utils import timezone, translation

from limpyd_jobs.integration import Instrument, Running

# Where backends keep pools of connections, each by the alias of its database.
POOLS = ("django.db.backends.postgresql.base", "django.db.backends.oracle.base")


def close_old_connections() -> None:
    """Do as Django's function of that name, but leave the connections alone that are in a transaction, such as that of
    a `TestCase`: they are not in autocommit mode, and Django closes those."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


class AroundJobs(Instrument):
    """Stands around each job that this process runs.

    Before the job, connections to databases that were cut, or are older than ``CONN_MAX_AGE``, are closed, so that the
    job gets new ones; and the queries that ``DEBUG`` keeps are forgotten. The job begins with the language and the time
    zone of the settings, and what it activates ends with it. After it, connections are closed as at the end of a
    request.

    Each thread has connections of its own. So that is done in the thread of the worker, which calls the hooks; in that
    of the code of the job, if it has another one; and for coroutines in the thread where asgiref runs their queries.
    """

    def running(self, running: Running) -> AbstractContextManager[None]:
        """Do as `Instrument.running` says."""
        return _as_for_a_request()

    def in_thread(self, job: Any) -> AbstractContextManager[None]:
        """Do as `Instrument.in_thread` says."""
        return _as_for_a_request()

    @asynccontextmanager
    async def in_task(self, job: Any) -> AsyncIterator[None]:
        """Do as `Instrument.in_task` says."""
        task = asyncio.current_task()
        await of_coroutines.look()
        of_coroutines.tasks.add(task)
        token = _is_coroutine.set(True)
        try:
            with _as_in_settings():
                yield
        finally:
            _is_coroutine.reset(token)
            of_coroutines.tasks.discard(task)
            await of_coroutines.look()


@contextmanager
def _as_for_a_request() -> Iterator[None]:
    reset_queries()
    close_old_connections()
    try:
        with _as_in_settings():
            yield
    finally:
        close_old_connections()


@contextmanager
def _as_in_settings() -> Iterator[None]:
    with translation.override(settings.LANGUAGE_CODE), timezone.override(None):
        yield


# Whether the code that runs belongs to a coroutine of a job: what it calls in another thread has the same context.
_is_coroutine: ContextVar[bool] = ContextVar("limpyd_jobs_django_is_coroutine", default=False)


class OfCoroutines:
    """The connections of all coroutines of jobs. They share one thread of asgiref, so they share them.

    While others run, one that works is not closed, whatever its age: they may be reading from it.
    """

    def __init__(self) -> None:
        self.tasks: WeakSet[Any] = WeakSet()  # those that run
        self._made: tuple[Any, ...] = ()  # references to the connections that coroutines made, in whatever thread
        connection_created.connect(self._note)

    def _note(self, connection: Any, **_: Any) -> None:
        if _is_coroutine.get():
            self._made = (*(each for each in self._made if each() not in (None, connection)), ref(connection))

    async def look(self) -> None:
        """Close what is to be closed. A coroutine that asks no database waits for those who do only if it comes first,
        or last, or something failed."""
        made = [connection for each in self._made if (connection := each()) is not None]
        is_open = [each for each in made if each.connection is not None]
        if is_open and (not self.tasks or any(each.errors_occurred for each in is_open)):
            await sync_to_async(self._close, thread_sensitive=True)()

    def _close(self) -> None:
        if not self.tasks:
            reset_queries()
            close_old_connections()
        for connection in connections.all(initialized_only=True):
            if connection.errors_occurred and not connection.in_atomic_block:
                if connection.is_usable():
                    connection.errors_occurred = False
                else:
                    connection.close()
        self._made = tuple(map(ref, connections.all(initialized_only=True)))  # without those of other threads


of_coroutines = OfCoroutines()

# Connections that this process inherited. They are kept, because whatever closes one tells the server so, for all.
_inherited: list[Any] = []


def forget_inherited_connections() -> None:
    """Let a process that was forked make connections to databases of its own: two that share one get each other's
    answers, or wait for ever. A database in memory is copied by the fork."""
    for connection in connections.all(initialized_only=True):
        if not (connection.vendor == "sqlite" and connection.is_in_memory_db()):
            _inherited.append(connection)
            del connections[connection.alias]
    for pools in _all_pools():
        _inherited.extend(pools.values())
        pools.clear()


def close_connections() -> None:
    """Close the connections of this thread, and the pools of this process, which is about to fork workers and to ask no
    database. A transaction, as of a test, is left alone."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
    for pools in _all_pools():
        while pools:
            pools.popitem()[1].close()


def _all_pools() -> list[dict[str, Any]]:
    """Return the pools of each backend that is used: Django keeps them by the aliases of databases, for all threads."""
    classes = [getattr(sys.modules.get(name), "DatabaseWrapper", None) for name in POOLS]
    return [pools for each in classes if (pools := getattr(each, "_connection_pools", None))]
