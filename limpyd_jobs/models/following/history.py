"""The statuses that a job had, and when. They are kept if its class says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from limpyd_jobs.dates import parse_datetime
from limpyd_jobs.records.layout import HISTORY_KEY
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.records.records import list_of
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.transitions import owner_of


class StatusChange(NamedTuple):
    """A job got another status.

    Attributes
    ----------
    at: datetime
        When, naive UTC.
    status: str
        Its name, such as ``RUNNING``.
    owner: str
        Who held the claim that began or ended with it; None if it was not claimed.
    reason: str
        Why it was canceled, if it was because of a deadline; else empty.
    """

    at: datetime
    status: str
    owner: str | None
    reason: str = ""


def read_history(job: Any) -> list[StatusChange]:
    """Do what `Job.read_history` says."""
    return list(changes_of(list_of(job, history_key(type(job)._name, pk_of(job)))))


def history_key(name: str, pk: str) -> str:
    """Return the key of the history of a job, given the name of its model."""
    return f"{name}:{pk}:{HISTORY_KEY}"


def changes_of(entries: Iterable[str]) -> Iterator[StatusChange]:
    """Read the stored changes. Entries that another program wrote are passed over."""
    for entry in entries:
        date, _, rest = entry.partition(" ")
        time, _, rest = rest.partition(" ")
        status, _, rest = rest.partition(" ")
        token, _, reason = rest.partition("\t")
        at = parse_datetime(f"{date} {time}")
        if at:
            yield StatusChange(at, STATUSES.by_value(status, status), owner_of(token or None), reason)
