"""The jobs of `machine`, and what its processes know of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from limpyd_jobs import Error, Job, Queue
from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.dates import parse_datetime
from limpyd_jobs.records import records


class Counterdesk(Queue):
    namespace = "machine"


class Errand(Job):
    namespace = "machine"
    queue_model = Counterdesk
    queue_name = "q"


class Mishap(Error):
    namespace = "machine"


class Claim(NamedTuple):
    """What a worker knows of a job it runs: it was claimed once, with that token, out of that queue."""

    ident: str
    queue: str
    token: str


class Popped(NamedTuple):
    """What ``BLPOP`` handed to a worker."""

    ident: str
    queue: str


def text_of(delay: int | None) -> str:
    """A delay in seconds as the scripts take it."""
    return "" if delay is None else f"+{delay * 1_000_000}"


def delay_of(ident: str) -> str:
    """The delay that a job asks for."""
    return delay_argument(delayed_until=parse_datetime(job_of(ident).delayed_until.hget()))


def pk_of(ident: str) -> str:
    return ident.rpartition(":")[2]


def job_of(ident: str) -> Any:
    return records.attached(Errand, pk_of(ident))


def queue_of(key: str) -> Any:
    return records.attached(Counterdesk, key.rpartition(":")[2])


def all_of(claims: Any) -> list[Claim]:
    """What a rule returned for its bundle, as a list."""
    return [claims] if isinstance(claims, Claim) else list(claims.values)
