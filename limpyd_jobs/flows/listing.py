"""The flows of a database: those that go on, and those that have ended and are still kept."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from limpyd_jobs.dates import parse_datetime
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.records import flows
from limpyd_jobs.redis.calls import chunks
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.search.classes import classes_of, connection_to, replies_to

# How many flows of a kind are listed at most, and how many are read at once.
MOST, CHUNK = 1000, 200


class FlowSummary(NamedTuple):
    """A flow, and how far it is.

    Attributes
    ----------
    id: str
    name: str
        Empty for a flow without one.
    state: str
        ``building``, ``held``, ``running`` or ``ended``.
    size: int
        How many jobs it has.
    open: int
        How many of them have not ended.
    failed: int
        How many did not succeed.
    added: datetime or None
        When it was made, naive UTC.
    ended: datetime or None
        When its last job ended, naive UTC.
    canceled: str
        Why it was canceled, if it was.
    spawner: str
        The ident of the job that spawned it; empty if none did.
    turn: str
        The text of `one_at_a_time` that it shares with others; empty if it was given none.
    """

    id: str
    name: str
    state: str
    size: int
    open: int
    failed: int
    added: datetime | None
    ended: datetime | None
    canceled: str
    spawner: str = ""
    turn: str = ""

    @property
    def label(self) -> str:
        """Its name; without one, what spawned it, or else its id."""
        return self.name or (f"spawned by {self.spawner}" if self.spawner else self.id)


def flows_of(database: Any = None) -> list[FlowSummary]:
    """Return the flows of a database: those that are made, those that run, and those that have ended and are kept, the
    last ones first; a thousand of each at most.

    Parameters
    ----------
    database: JobsDatabase
        By default the one of ``BaseJobsModel``.
    """
    connection = connection_to(database or BaseJobsModel.database)
    keys = [at(connection, key) for key in (flows.BUILDING, flows.LIVE, flows.ENDED)]
    found = replies_to(connection, [("ZREVRANGE", key, 0, MOST - 1) for key in keys])
    ids = dict.fromkeys(flow for some in found for flow in some or ())
    return [each for some in chunks(ids, CHUNK) for each in _read(connection, some, database)]


def flow_summary(flow: str, database: Any = None) -> FlowSummary | None:
    """Return how far a flow is, by its id; None if there is none, or no longer."""
    return next(iter(flow_summaries([flow], database)), None)


def flow_summaries(ids: list[str], database: Any = None) -> list[FlowSummary]:
    """Return how far some flows are, by their ids, without those that are gone."""
    return _read(connection_to(database or BaseJobsModel.database), ids, database)


def _read(connection: Any, ids: list[str], database: Any) -> list[FlowSummary]:
    names = ("name", "state", "size", "added", "ended", "canceled", "spawner", "turn")
    commands = [
        command
        for flow in ids
        for command in (
            ("HMGET", flows.key_of(connection, flow), *names),
            ("SCARD", flows.key_of(connection, flow, ":open")),
            ("HLEN", flows.key_of(connection, flow, ":failed")),
        )
    ]
    replies = replies_to(connection, commands)
    rows = zip(ids, replies[::3], replies[1::3], replies[2::3], strict=True)
    found = [_summary(flow, *row) for flow, *row in rows if row[0] and row[0][1]]
    return _with_idents(found, database) if any(each.spawner for each in found) else found


def _with_idents(found: list[FlowSummary], database: Any) -> list[FlowSummary]:
    """Put the ident of each job that spawned a flow in place of the beginning of its keys."""
    paths = {known.name: path for path, known in classes_of(database or BaseJobsModel.database).items()}
    parts = [each.spawner.rpartition(":") for each in found]
    idents = [f"{paths.get(name, name)}{colon}{pk}" for name, colon, pk in parts]
    return [each._replace(spawner=ident) for each, ident in zip(found, idents, strict=True)]


def _summary(flow: str, stored: list[str | None], number: int | None, failed: int | None) -> FlowSummary:
    """Return what was read. Another program may have written anything there."""
    name, state, size, added, ended, canceled, spawner, turn = stored
    jobs = flows.size_in(size)
    when = parse_datetime(added), parse_datetime(ended)
    texts = canceled or "", spawner or "", turn or ""
    return FlowSummary(flow, name or "", state or "", jobs, number or 0, failed or 0, *when, *texts)
