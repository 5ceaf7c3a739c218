"""The workers that are there, what each does, and how to steer them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from limpyd import fields

from limpyd_jobs.models.presence import AlivePresence, Presence
from limpyd_jobs.records import presences
from limpyd_jobs.records.audit import entry_request, refusing_if_unaudited, user_and_process
from limpyd_jobs.texts import one_line

# What can be asked of a worker.
ORDERS = ("quiet", "resume", "stop", "dump", "log-level")

# The status of a worker whose next sign of life is overdue.
SILENT = "silent"

# For how many seconds, at least, an order that no worker takes is kept. Workers give a sign of life each quarter lease.
ORDER_LASTS = 60.0


class Order(NamedTuple):
    """What a worker is asked to do: one of `ORDERS`, the level of ``log-level``, and who asks."""

    verb: str
    value: str
    by: str

    @classmethod
    def parse(cls, text: str) -> Order:
        """Read a text that `as_json` made, else raise `ValueError`."""
        try:
            order = cls(*json.loads(text))
        except (RecursionError, TypeError) as error:
            raise ValueError("no order") from error
        if order.verb not in ORDERS or not all(isinstance(each, str) for each in order):
            raise ValueError("no order")
        return order

    def as_json(self) -> str:
        """Return it as it is stored."""
        return json.dumps(self)


class RunningJob(NamedTuple):
    """A job that a worker runs.

    Attributes
    ----------
    ident: str
    identifier: str
    since: str
        When the job was started: a date, UTC.
    """

    ident: str
    identifier: str
    since: str


@dataclass(frozen=True)
class AliveWorker(AlivePresence):
    """A worker that is there, as it was at its last sign of life.

    It has the attributes of `AlivePresence`, and these:

    Attributes
    ----------
    last_seen: datetime
        When it gave its last sign of life, naive UTC.
    id: str
        The six digits that its log lines begin with.
    queues: list of str
        The names of the queues that it takes jobs from.
    queue_model: str
        What the keys of these queues begin with.
    status: str
        ``starting``, ``no queue`` (none of its queues exists yet), ``busy``, ``idle``, ``quiet`` (it begins no other
        job), ``stopping``; or ``silent`` if its next sign of life is overdue, so that it is not known what it does.
    running: list of RunningJob
        The jobs that it runs.
    done, failed: int
        How many jobs it ran that succeeded, and that failed.
    memory: int
        The memory of its process, in bytes; 0 if the system does not say.
    unresolved: list of str
        The paths of job classes that it could not import, up to 100.
    versions: dict
        The versions of the ``library`` and of ``python``.
    options: dict
        Some of its parameters.
    parent: int
        The pid of the process that started it, with ``--processes``; 0 without.
    """

    last_seen: datetime
    id: str
    queues: list[str]
    queue_model: str
    status: str
    running: list[RunningJob]
    done: int
    failed: int
    memory: int
    unresolved: list[str]
    versions: dict[str, str]
    options: dict[str, Any]
    parent: int

    @classmethod
    def of(cls, alive: AlivePresence) -> AliveWorker:
        """Read what a worker told of itself. Values that another program wrote count as empty."""
        told = _Told(alive.details)
        return cls(
            **vars(alive),
            last_seen=alive.until - timedelta(seconds=told.lease),
            id=told.text("id"),
            queues=told.texts("queues"),
            queue_model=told.text("queue_model"),
            status=SILENT if alive.silent_for else told.text("status"),
            running=[RunningJob(*job) for job in told.items("running") if _is_job(job)],
            done=told.number("done"),
            failed=told.number("failed"),
            memory=told.number("memory"),
            unresolved=told.texts("unresolved"),
            versions={name: str(version) for name, version in told.mapping("versions").items()},
            options={name: value for name, value in told.mapping("options").items() if isinstance(value, _PLAIN)},
            parent=told.number("parent"),
        )

    def is_named(self, name: str) -> bool:
        """Whether a text names this worker: by its name, its id, its ``host:pid``, or the ``host:pid`` of its
        parent."""
        host = self.name.partition(":")[0]
        pids = {self.pid, self.parent} - {0}
        return name in (self.name, self.id) or name in {f"{each}:{pid}" for each in (host, self.host) for pid in pids}


class WorkerPresence(Presence):
    """The record that a worker is there. Each worker registers by itself, a second after its start.

    >>> for worker in WorkerPresence.alive():
    ...     print(worker.name, worker.status, worker.queues)
    ...     WorkerPresence.order(worker, "quiet")
    """

    __module__ = "limpyd_jobs.models"  # the check shows its path

    pk = fields.PKField()  # chosen by the worker: what is sent twice makes no second record
    orders = fields.ListField()

    @classmethod
    def alive(cls, kind: str | None = None) -> list[AliveWorker]:  # type: ignore[override]
        """Return the workers that are there, in the order of registration."""
        return [AliveWorker.of(alive) for alive in super().alive(kind)]

    @classmethod
    def order(cls, worker: AliveWorker, verb: str, value: str = "", *, unaudited: bool = False) -> None:
        """Ask something of a worker. It obeys with its next heartbeat, after a quarter of its lease at most.

        If the worker gives no sign of life for a lease, it is not done.

        Parameters
        ----------
        verb: str
            ``quiet``: begin no other job; ``resume``: begin jobs again; ``stop``: end after the running job, as on
            SIGTERM; ``dump``: write to the log what it does, and where each thread is; ``log-level``.
        value: str
            The level of ``log-level``: a name, or a number.
        unaudited: bool
            True to do it even if Redis refuses to write it to the audit.

        Raises
        ------
        ValueError
            If there is no such verb, or no such level.
        LookupError
            If the worker is not there any more.
        NotAudited
            If Redis refuses to write it to the audit.
        """
        if verb not in ORDERS:
            raise ValueError(f"Nothing to ask of a worker: {verb!r} is not one of {', '.join(ORDERS)}")
        if verb == "log-level":
            value = checked_level(value)
        elif value:
            raise ValueError(f"{verb} takes no value")
        order = Order(verb, value, user_and_process())
        lasts = max((worker.until - worker.last_seen).total_seconds(), ORDER_LASTS)
        audit = entry_request(unaudited, verb=f"{verb} {value}".strip(), filter=f"worker={worker.name}", done=1)
        with refusing_if_unaudited(needs_room=True):
            is_there = presences.give_order(cls, worker.pk, order.as_json(), lasts, **audit)
        if not is_there:
            raise LookupError(f"The worker {one_line(worker.name)} is not there any more")


def checked_level(text: str) -> str:
    """Return the name or the number of a level of the log."""
    level = text.upper()
    if level.isdecimal() or isinstance(logging.getLevelName(level), int):
        return level
    raise ValueError(f"{text!r} is not a level of the log, as DEBUG, INFO or WARNING, nor a number")


# What the value of an option may be.
_PLAIN = (str, int, float, bool, type(None))


class _Told:
    """What a worker told of itself, maybe overwritten by another program."""

    def __init__(self, details: Any) -> None:
        self._details: Mapping[str, Any] = details if isinstance(details, dict) else {}

    @property
    def lease(self) -> float:
        value = self._details.get("lease")
        is_lease = isinstance(value, (int, float)) and 0 <= value <= 1e9
        return float(value) if is_lease else 0.0  # type: ignore[arg-type]

    def text(self, name: str) -> str:
        value = self._details.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        value = self._details.get(name)
        return value if type(value) is int and abs(value) < 2**63 else 0

    def items(self, name: str) -> list[Any]:
        value = self._details.get(name)
        return value if isinstance(value, list) else []

    def texts(self, name: str) -> list[str]:
        return [each for each in self.items(name) if isinstance(each, str)]

    def mapping(self, name: str) -> dict[str, Any]:
        value = self._details.get(name)
        return value if isinstance(value, dict) else {}


def _is_job(told: Any) -> bool:
    return isinstance(told, list) and len(told) == 3 and all(isinstance(each, str) for each in told)
