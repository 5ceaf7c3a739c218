"""Relaying: adding the jobs of the outbox.

A job is added for the token of its entry, then the entry is deleted. So whatever dies in between, or relays at the same
time, the job is added once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from django.db import InterfaceError, OperationalError, connections, transaction
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from limpyd_jobs import Job, NotReplicated
from limpyd_jobs.contrib.django import settings
from limpyd_jobs.contrib.django.around import close_old_connections
from limpyd_jobs.contrib.django.outbox.entries import after, entries_of, is_due, relayed_later
from limpyd_jobs.integration import (
    WorkerTask,
    adding_once,
    described,
    imported_job_class,
    is_transient,
    one_line,
    read_call,
)

# How many entries are relayed in one transaction, at most.
BATCH = 50

# How many seconds to wait after the first failure; twice as many after the next one, up to the second number.
FIRST_PAUSE, MAX_PAUSE = 10.0, 600.0

# How often an entry is tried that others, or this process later, may be able to relay: its class is not known to an
# older release, Redis refuses it until a key or a right is put right, its row cannot be read. That takes an hour.
MAX_TRIES = 12

MAX_COUNT = 1_000_000  # of tries

MAX_ERROR = 1000  # in characters

# For how many seconds a process that commits leaves its entries to others, once Redis did not answer it: a request that
# writes several, and the next requests, would wait for it each time.
LEFT_TO_OTHERS = 10.0

_left_until: WeakKeyDictionary[Any, float] = WeakKeyDictionary()  # by the client of Redis


class UnknownClass(LookupError):
    """An entry names a job class that this process has not imported."""


class Silent(RedisConnectionError):
    """The Redis of an entry did not answer when another one was relayed."""


class Relayed(NamedTuple):
    """What was done with an entry: what `add_job` returned; or why the job was not added."""

    entry: Any
    job: Job | None
    error: str = ""
    is_silent: bool = False  # whether Redis did not answer


def relay_entry(database: str, pk: int) -> Relayed | None:
    """Relay one entry, due or not; None if another process did so, or does so now."""
    found = _Round(database).relay(entries_of(database).filter(pk=pk))
    return found[0] if found else None


def relay_at_commit(database: str, pk: int, job_class: type[Job]) -> Relayed | None:
    """Do so with an entry of this process; but leave it to others, and return None, if Redis did not answer lately."""
    client = job_class.get_connection()
    if _left_until.get(client, 0.0) > monotonic():
        return None
    relayed = relay_entry(database, pk)
    if relayed and relayed.is_silent:
        _left_until[client] = monotonic() + LEFT_TO_OTHERS
    return relayed


def relay_due(database: str, seconds: float) -> tuple[list[Relayed], bool]:
    """Relay the entries that are due, the oldest first, for some seconds at most; return what was done with each, and
    whether more are due."""
    until, found = monotonic() + seconds, list[Relayed]()
    this_round = _Round(database)
    while batch := this_round.relay(entries_of(database).filter(**is_due())[:BATCH]):
        found += batch
        for each in batch:
            if not each.error:
                relayed_later.send(type(each.entry), job=each.job)
        if monotonic() >= until:
            return found, True
    return found, False


class _Round:
    """Relays entries of a database, and knows which Redis did not answer meanwhile."""

    def __init__(self, database: str) -> None:
        self._entries = entries_of(database)
        self._database = database
        self._locks = bool(connections[database].features.has_select_for_update_skip_locked)
        self._silent: dict[Any, str] = {}

    def relay(self, entries: Any) -> list[Relayed]:
        """Relay some entries, but those that another process relays now."""
        if self._locks:
            entries = entries.select_for_update(skip_locked=True)
        with self._transaction():
            tried = [(each, None) if isinstance(each, Relayed) else self._try(each) for each in self._read(entries)]
            added = [entry.pk for (entry, _, error, _), _ in tried if not error]
            if added:
                self._entries.filter(pk__in=added).delete()
        for _, once in tried:
            if once is not None:
                once.done()
        return [relayed for relayed, _ in tried]

    def _transaction(self) -> AbstractContextManager[Any]:
        """Keep the locks. Without any, as on SQLite, a transaction that read before it writes may be refused."""
        return transaction.atomic(using=self._database) if self._locks else nullcontext()

    def _read(self, entries: Any) -> list[Any]:
        """Return entries. If one of them cannot be read, because another program wrote it, it holds up no other."""
        try:
            return list(entries)
        except Exception:
            return [self._read_one(pk, tries) for pk, tries in entries.values_list("pk", "tries")]

    def _read_one(self, pk: int, tries: Any) -> Any:
        try:
            return self._entries.get(pk=pk)
        except Exception as error:
            entry = self._entries.model(pk=pk, job_class="(cannot be read)", tries=tries)
            self._entries.filter(pk=pk).update(token=entry.token, created=entry.created)  # most likely, it was these
            return self._failed(entry, error)

    def _try(self, entry: Any) -> tuple[Relayed, Any]:
        try:
            job_class = self._class_of(entry)
            args, kwargs = read_call(job_class, entry.arguments)
            with self._transaction(), adding_once(entry.token.hex) as once:
                return Relayed(entry, job_class.add_job(*args, **kwargs)), once
        except (RedisConnectionError, RedisTimeoutError) as error:
            if not isinstance(error, Silent):
                self._silent[job_class.database] = one_line(error)
            return self._failed(entry, error, most=None)._replace(is_silent=True), None
        except RedisError as error:
            return self._failed(entry, error, most=None if is_transient(error) else MAX_TRIES), None
        except (NotReplicated, InterfaceError, OperationalError) as error:
            return self._failed(entry, error, most=None), None
        except UnknownClass as error:
            return self._failed(entry, error), None
        except Exception as error:
            return self._failed(entry, error, most=1), None

    def _class_of(self, entry: Any) -> type[Job]:
        job_class: type[Job] | None = imported_job_class(entry.job_class)
        if job_class is None:
            raise UnknownClass(
                f"{one_line(entry.job_class)} is not a job class that this process has imported: define it in jobs.py "
                "of an application, or name its module in LIMPYD_JOBS['MODULES']"
            )
        if job_class.database in self._silent:
            raise Silent(self._silent[job_class.database])
        return job_class

    def _failed(self, entry: Any, error: Exception, most: int | None = MAX_TRIES) -> Relayed:
        """Set an entry aside, so that it holds up no other: for a time, and for good once it was tried often enough."""
        tried = entry.tries if isinstance(entry.tries, int) else 0
        entry.tries, entry.error = min(tried, MAX_COUNT) + 1, described(error)[:MAX_ERROR]
        pause = min(FIRST_PAUSE * 2 ** min(tried, 10), MAX_PAUSE)
        entry.due = None if most and entry.tries >= most else after(pause)
        self._entries.filter(pk=entry.pk).update(tries=entry.tries, error=entry.error, due=entry.due)
        return Relayed(entry, None, entry.error)


class RelayTask(WorkerTask):
    """Lets a worker relay what was left: because a process died, or Redis did not answer, after a commit."""

    name = "relay_outbox"
    interval = 10.0

    MAX_SECONDS = 0.5  # in which no job is run
    BUSY_INTERVAL, FAILURE_INTERVAL = 0.1, 60.0

    def __init__(self) -> None:
        self._absent_until: dict[str, float] = {}

    def run(self, log: Callable[[str, str], object]) -> float | None:
        """Relay the entries that are due."""
        close_old_connections()
        now = monotonic()
        present = [each for each in settings.outbox_databases() if self._absent_until.get(each, now) <= now]
        pauses = [self._relay(database, log) for database in present]
        close_old_connections()
        return min(pauses, default=None)

    def _relay(self, database: str, log: Callable[[str, str], object]) -> float:
        try:
            found, has_more = relay_due(database, self.MAX_SECONDS)
        except Exception as error:  # the other databases may be there
            log(f"The outbox in the database {database} cannot be relayed: {described(error)}", "error")
            self._absent_until[database] = monotonic() + self.FAILURE_INTERVAL
            return self.interval
        added = sum(not each.error for each in found)
        if added:
            log(f"{added} jobs of the outbox added", "info")
        aside = [each for each in found if each.entry.is_set_aside]
        if aside:
            first = f"{one_line(aside[0].entry)}: {aside[0].error}"
            log(f"{len(aside)} entries of the outbox set aside, as {aside[0].entry.pk}, {first}", "error")
        return self.BUSY_INTERVAL if has_more else self.interval
