"""Who did what to many jobs at once, or to queues, schedules and workers."""

from __future__ import annotations

from typing import NamedTuple

from limpyd_jobs.arguments import read_priority
from limpyd_jobs.records.audit import last_entries
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import connection_to


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


_NUMBERS = {"done", "skipped", "refused"}


def audit_entries(most: int = 50, database: JobsDatabase | None = None) -> list[AuditEntry]:
    """Return the last entries of the audit, the newest first."""
    return [
        AuditEntry(
            *(
                read_priority(entry.get(name)) if name in _NUMBERS else entry.get(name, "")  # type: ignore[arg-type]
                for name in AuditEntry._fields
            )
        )
        for entry in last_entries(connection_to(database), most)
    ]
