"""Who is there: workers, schedulers, and any other process that an application wants to know of."""

from __future__ import annotations

import json
import logging
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from math import isfinite
from threading import Lock
from typing import Any

from limpyd import fields
from redis.exceptions import RedisError

from limpyd_jobs.arguments import MAX_OWNER_BYTES, check_size, checked_lease, stored_value
from limpyd_jobs.classes.binding import bound_models, is_same_database
from limpyd_jobs.classes.job_classes import concrete
from limpyd_jobs.dates import as_naive_utc
from limpyd_jobs.fields.codecs import codec_of
from limpyd_jobs.heartbeat import Heartbeat
from limpyd_jobs.models.base import BaseJobsModel
from limpyd_jobs.records import presences, records
from limpyd_jobs.texts import described, host_and_pid, one_line

log = logging.getLogger("limpyd-jobs.presence")

# How many seconds a sign of life may be late, at least, before the one who owes it is called silent.
LATE = 2


@dataclass(frozen=True)
class AlivePresence:
    """A process, or a part of one, that is there.

    Attributes
    ----------
    pk: str
        Of its record.
    name, kind: str
        As given to `Presence.register`.
    host: str
        The name of its machine.
    pid: int
        The number of its process there.
    since: datetime
        When it was registered, naive UTC.
    until: datetime
        Until when it counts as there without another sign of life, naive UTC.
    details: dict
        Other values that it told of itself.
    lease_left: float
        For how many more seconds it counts as there, when it was read, by the clock of Redis.
    silent_for: float
        For how many seconds it had been silent then, if its next sign of life was overdue; else 0.
    """

    pk: str
    name: str
    kind: str
    host: str
    pid: int
    since: datetime
    until: datetime
    details: dict[str, Any]
    lease_left: float = field(default=0.0, kw_only=True, compare=False)
    silent_for: float = field(default=0.0, kw_only=True, compare=False)


class Presence(BaseJobsModel):
    """The record that a process, or a part of it, is there, as long as it gives signs of life.

    >>> with Presence.register("importer", feed="news"):
    ...     print([alive.name for alive in Presence.alive("importer")])
    """

    __module__ = "limpyd_jobs.models"  # the check shows its path

    _lapses = True  # read by layout.py

    name = fields.InstanceHashField(indexable=True)
    kind = fields.InstanceHashField(indexable=True)
    host = fields.InstanceHashField(indexable=True)
    pid = fields.InstanceHashField()
    since = fields.InstanceHashField()
    details = fields.InstanceHashField()
    _lease = fields.InstanceHashField()

    @classmethod
    def register(cls, kind: str, name: str | None = None, lease: float = 60, **details: Any) -> Registration:
        """Let others know that this process, or a part of it, is there, until the end of the registration.

        A thread renews the presence each quarter of the lease. If the process dies, the presence ends with the lease.

        Parameters
        ----------
        kind: str
            Such as ``worker``, up to 1 kB.
        name: str
            Up to 1 kB. Several presences may have the same name. By default the name of the host and the number of the
            process.
        lease: float
            For how many seconds it counts as there without a sign of life. At most 1,000,000,000.
        **details
            Other values for others to know: all that JSON can hold.

        Raises
        ------
        TypeError, ValueError
            If an argument is not one of the above.
        """
        values = {
            "kind": _checked("kind", kind),
            "name": _checked("name", host_and_pid() if name is None else name),
            "host": socket.gethostname(),
            "pid": str(os.getpid()),
            "details": codec_of(json).stored("The details of a presence", details),
        }
        return Registration(cls, values, checked_lease(lease))

    @classmethod
    def alive(cls, kind: str | None = None) -> list[AlivePresence]:
        """Return who is there, in the order of registration. Nothing is written.

        Parameters
        ----------
        kind: str
            None for all.
        """
        now, records = presences.alive(cls, "" if kind is None else _checked("kind", kind))
        found = [alive for record in records if (alive := _alive(now, *record))]
        return sorted(found, key=lambda each: (each.since, each.pk))


class Registration:
    """A presence that is kept up until `close`, or the end of the context. A forked process has no part in it.

    Attributes
    ----------
    pk: str
        Of the record.
    """

    def __init__(self, model: type[Presence], values: dict[str, str], lease: float) -> None:
        self._model = model
        self._values = values
        self._lease = lease
        self._pid = os.getpid()
        self._lock = Lock()
        self._is_closed = False
        self.pk, self._values["since"] = presences.keep(model, "", values, lease)
        self._heartbeat = Heartbeat(lease / 4, self._beat)
        self._heartbeat.__enter__()

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End the presence; if Redis fails, it ends with its lease. Later calls do nothing."""
        if self._pid != os.getpid():
            return
        self._heartbeat.stop()
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                with suppress(RedisError):
                    records.delete_many(self._model, [self.pk])

    def _beat(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            try:
                presences.keep(self._model, self.pk, self._values, self._lease)
            except Exception as error:
                log.warning(
                    "The presence of %s could not be told: %s", one_line(self._values["name"]), described(error)
                )


def presence_models(database: Any) -> list[type[Presence]]:
    """Return the models of presences on a database that this process knows."""
    known = [*concrete(Presence), *bound_models(database, Presence)]
    return [model for model in known if is_same_database(model.database, database)]


def _checked(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"The {what} of a presence must be a string, not {value!r}")
    if not value:
        raise ValueError(f"The {what} of a presence must not be empty")
    check_size(f"The {what} of a presence", value, MAX_OWNER_BYTES)
    return stored_value(what, value)


def _alive(now: float, pk: str, until: float, stored: dict[str, str]) -> AlivePresence | None:
    """Return the `AlivePresence` of a record; None if the record is broken."""
    with suppress(KeyError, OSError, OverflowError, RecursionError, TypeError, ValueError):
        return AlivePresence(
            pk=pk,
            name=stored["name"],
            kind=stored["kind"],
            host=stored["host"],
            pid=int(stored["pid"]),
            since=as_naive_utc(datetime.fromisoformat(stored["since"])),
            until=datetime.fromtimestamp(until, timezone.utc).replace(tzinfo=None),
            details=codec_of(json).load(stored["details"]),
            lease_left=until - now,
            silent_for=_silent_for(until - now, float(stored.get("_lease", 0))),
        )
    return None


def _silent_for(left: float, lease: float) -> float:
    """Return for how many seconds there was no sign of life, if the next one is overdue; else 0.

    A sign comes each quarter of a lease, and may be somewhat late.
    """
    silent = lease - left
    return silent if isfinite(silent) and silent > max(lease / 3, lease / 4 + LATE) else 0.0
