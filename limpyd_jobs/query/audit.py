"""Who did what to many jobs at once, or to queues, schedules and workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from limpyd_jobs.arguments import read_priority
from limpyd_jobs.records.audit import KEY, last_entries
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import connection_to


class Outcomes(NamedTuple):
    """What became of the jobs that a requeue put back.

    Attributes
    ----------
    succeeded, failed: int
        How many succeeded, and are in error again.
    retrying: int
        How many failed again, and are tried once more by themselves.
    others: int
        How many were canceled, or are deleted.
    open: int
        How many have not ended yet, without those that are being retried.
    not_followed: int
        How many were put back beyond those that are kept in mind.
    """

    succeeded: int = 0
    failed: int = 0
    retrying: int = 0
    others: int = 0
    open: int = 0
    not_followed: int = 0

    @property
    def known(self) -> int:
        """Of how many something is known."""
        return self.succeeded + self.failed + self.retrying + self.others

    @property
    def failing(self) -> float:
        """Which part failed again, of those of which something is known."""
        return (self.failed + self.retrying) / self.known if self.known else 0.0

    def __str__(self) -> str:
        told = [f"{self.succeeded:,} succeeded", f"{self.failed:,} failed again"]
        told += [f"{self.retrying:,} failed and are tried again"] if self.retrying else []
        told += [f"{self.others:,} canceled or deleted"] if self.others else []
        told += [f"{self.open:,} to go"] if self.open else []
        told += [f"{self.not_followed:,} not followed"] if self.not_followed else []
        return ", ".join(told)


class AuditEntry(NamedTuple):
    """Something that was done, or is being done.

    Attributes
    ----------
    at: str
        When it ended; of what has not ended, when it began. A date in UTC; empty if it is not known.
    who: str
        The user and the process; in front of it, a user that the process authenticated, as the dashboard does.
    claimed: str
        The user that the environment of the process names, if another one.
    verb, filter, how: str
        What was done, to which records, and with which arguments.
    done, skipped, refused: int
        How many records have each outcome; None if that is not written.
    begun: str
        When it began, if that is written.
    outcome: str
        ``complete``, ``running``, or how it was cut short.
    until: str
        When the last of jobs that are spread is due, in UTC; empty if none are.
    token: str
        The name of a requeue that is followed; else empty.
    order: str
        What it is ordered to do.
    followed: dict of str to str
        What became of the jobs that it put back: how many ``succeeded``, ``failed``…
    """

    at: str
    who: str
    claimed: str
    verb: str
    filter: str
    how: str
    done: int | None
    skipped: int | None
    refused: int | None
    begun: str
    outcome: str
    until: str = ""
    token: str = ""
    order: str = ""
    followed: Mapping[str, str] = {}

    @property
    def outcomes(self) -> Outcomes | None:
        """What became of the jobs of a requeue that is followed; None of another entry."""
        numbers = (read_priority(self.followed.get(name)) or 0 for name in Outcomes._fields)
        return Outcomes(*numbers) if self.token else None


FOLLOWED = (*Outcomes._fields, "taken", "looked", "size", "stop_above")

_NUMBERS = {"done", "skipped", "refused"}


def audit_entries(most: int = 50, database: JobsDatabase | None = None) -> list[AuditEntry]:
    """Return the last entries of the audit, the newest first."""
    return [_entry_of(fields) for fields in last_entries(connection_to(database), most)]


def why_no_audit(database: JobsDatabase | None = None) -> str:
    """Return why the audit cannot be read: another program wrote to its key. Empty if it can be."""
    connection = connection_to(database)
    key = at(connection, KEY)
    kind = connection.type(key)
    return "" if kind in ("stream", "none") else f"the audit cannot be read: {key} is a {kind}, not a stream"


def _entry_of(fields: Mapping[str, str]) -> AuditEntry:
    numbers = {name: read_priority(fields.get(name)) for name in _NUMBERS}
    texts = {name: fields.get(name, "") for name in AuditEntry._fields if name not in _NUMBERS}
    followed = {name: fields[name] for name in FOLLOWED if name in fields and "token" in fields}
    return AuditEntry(**{**texts, **numbers, "followed": followed})  # type: ignore[arg-type]
