"""Who is there: workers, what each does and how to steer them; and any other process that an application names."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from math import isfinite
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from limpyd import fields
from redis.exceptions import RedisError

from limpyd_jobs.arguments import MAX_LEASE, MAX_OWNER_BYTES, check_size, checked_lease, stored_value
from limpyd_jobs.classes.binding import bound_models, concrete, is_same_database
from limpyd_jobs.dates import as_naive_utc, parse_datetime
from limpyd_jobs.fields.codecs import codec_of
from limpyd_jobs.idents import Ident
from limpyd_jobs.models.base import BaseJobsModel
from limpyd_jobs.records import presences, records
from limpyd_jobs.records.audit import entry_request, refusing_if_unaudited, user_and_process
from limpyd_jobs.redis.forks import this_process
from limpyd_jobs.search.classes import classes_of, connection_to, replies_to
from limpyd_jobs.texts import described, host_and_pid, one_line
from limpyd_jobs.threads import Heartbeat
from limpyd_jobs.transitions import owner_of

log = logging.getLogger("limpyd-jobs.presence")

# How many seconds a sign of life may be late, at least, before the one who owes it is called silent.
LATE = 2

# What can be asked of a worker.
ORDERS = ("quiet", "resume", "stop", "dump", "log-level")

# The status of a worker whose next sign of life is overdue.
SILENT = "silent"

# For how many seconds, at least, an order that no worker takes is kept. Workers give a sign of life each quarter lease.
ORDER_LASTS = 60.0

T = TypeVar("T")


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
        Other values that it wrote.
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
            "pid": str(this_process.pid),
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
        self._pid = this_process.pid
        self._lock = Lock()
        self._is_closed = False
        self.pk, self._values["since"], _ = presences.keep(model, "", values, lease)
        self._heartbeat = Heartbeat(lease / 4, self._beat)
        self._heartbeat.__enter__()

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End the presence; if Redis fails, it ends with its lease. Later calls do nothing."""
        if self._pid != this_process.pid:
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
                    "The presence of %s could not be renewed: %s", one_line(self._values["name"]), described(error)
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
    idle_for: float
        For how many seconds it had been idle, without a job in between, as far as its signs of life show: 0 with the
        first of them.
    memory: int
        The memory of its process, in bytes; 0 if the system does not say.
    unresolved: list of str
        The paths of job classes that it could not import, up to 100.
    versions: dict
        The versions of the ``library``, of ``python``, and of the ``application``, if the environment variable
        LIMPYD_JOBS_APP_VERSION of the worker says it.
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
    idle_for: float
    memory: int
    unresolved: list[str]
    versions: dict[str, str]
    options: dict[str, Any]
    parent: int

    @property
    def slots(self) -> int:
        """How many jobs it runs at once at most."""
        concurrency = self.options.get("concurrency")
        return concurrency if type(concurrency) is int and concurrency > 0 else 1

    @property
    def slots_there(self) -> int:
        """As many, but 0 if it is silent: it is not known whether any of them is there."""
        return 0 if self.status == SILENT else self.slots

    @classmethod
    def of(cls, alive: AlivePresence) -> AliveWorker:
        """Read what a worker told of itself. Values that another program wrote count as empty."""

        def told(name: str, kind: type[T]) -> T:
            value = alive.details.get(name) if isinstance(alive.details, dict) else None
            is_huge = type(value) is int and abs(value) >= 2**63
            return value if type(value) is kind and not is_huge else kind()

        lease = told("lease", float) or told("lease", int)
        return cls(
            **vars(alive),
            last_seen=alive.until - timedelta(seconds=lease if 0 <= lease <= MAX_LEASE else 0),
            id=told("id", str),
            queues=_texts(told("queues", list)),
            queue_model=told("queue_model", str),
            status=SILENT if alive.silent_for else told("status", str),
            running=[RunningJob(*job) for job in told("running", list) if _is_job(job)],
            done=told("done", int),
            failed=told("failed", int),
            idle_for=_seconds(told("idle_for", float)),
            memory=told("memory", int),
            unresolved=_texts(told("unresolved", list)),
            versions={name: str(version) for name, version in told("versions", dict).items()},
            options={name: value for name, value in told("options", dict).items() if isinstance(value, _PLAIN)},
            parent=told("parent", int),
        )

    def is_named(self, name: str) -> bool:
        """Whether a text names this worker: by its name, its id, its ``host:pid``, or the ``host:pid`` of its
        parent."""
        host = self.name.partition(":")[0]
        pids = {self.pid, self.parent} - {0}
        return name in (self.name, self.id) or name in {f"{each}:{pid}" for each in (host, self.host) for pid in pids}


# What workers with this code heed, and those from before do not: they say so with each sign of life.
HEEDED = ("limits",)


class WorkerDump(NamedTuple):
    """What a worker did at a moment.

    Attributes
    ----------
    at: datetime
        By the clock of the worker, naive UTC.
    text: str
        Several lines: who asked, what it runs, and where each of its threads is.
    """

    at: datetime
    text: str


class WorkerPresence(Presence):
    """The record that a worker is there. Each worker registers by itself, a second after its start.

    >>> for worker in WorkerPresence.alive():
    ...     print(worker.name, worker.status, worker.queues)
    ...     WorkerPresence.order(worker, "quiet")
    """

    __module__ = "limpyd_jobs.models"  # the check shows its path

    pk = fields.PKField()  # chosen by the worker: what is sent twice makes no second record
    orders = fields.ListField()
    _dump = fields.StringField()

    @classmethod
    def alive(cls, kind: str | None = None) -> list[AliveWorker]:  # type: ignore[override]
        """Return the workers that are there, in the order of registration. Of the jobs that a silent worker ran, those
        are left out that were released since, or ended."""
        workers = [AliveWorker.of(alive) for alive in super().alive(kind)]
        left = cls._left([it for it in workers if it.silent_for and it.running])
        return [
            replace(it, running=[job for job in it.running if (it.pk, job) not in left]) if it.silent_for else it
            for it in workers
        ]

    @classmethod
    def _left(cls, workers: Sequence[AliveWorker]) -> set[tuple[str, RunningJob]]:
        """Return the jobs that are no longer claimed by the workers that ran them."""
        if not workers:
            return set()
        known = classes_of(cls.database)
        idents = ((worker, job, Ident.of(job.ident)) for worker in workers for job in worker.running)
        found = [
            (worker, job, known[ident.path].name, ident.pk) for worker, job, ident in idents if ident.path in known
        ]
        reads = [("HGET", f"{name}:{pk}:hash", "_claim_token") for _, _, name, pk in found]
        tokens = replies_to(connection_to(cls.database), reads)
        pairs = zip(found, tokens, strict=True)
        return {(worker.pk, job) for (worker, job, *_), token in pairs if owner_of(token) != worker.name}

    @classmethod
    def order(cls, worker: AliveWorker, verb: str, value: str = "", *, unaudited: bool = False) -> None:
        """Ask something of a worker. It obeys with its next heartbeat, after a quarter of its lease at most.

        If the worker gives no sign of life for a lease, and at least 60 seconds, it is not done.

        Parameters
        ----------
        verb: str
            ``quiet``: begin no other job; ``resume``: begin jobs again; ``stop``: end after the running job, as on
            SIGTERM; ``dump``: write to the log what it does, and where each thread is, and keep that for `dump_of`;
            ``log-level``.
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
        audit = entry_request(unaudited, verb=f"{verb} {value}".strip(), filter=f"worker={worker.name}", done=1)
        with refusing_if_unaudited(needs_room=True):
            is_there = presences.give_order(cls, worker.pk, order.as_json(), order_lasts(worker), **audit)
        if not is_there:
            raise LookupError(f"The worker {one_line(worker.name)} is not there any more")

    @classmethod
    def dump_of(cls, worker: AliveWorker) -> WorkerDump | None:
        """Return what a worker answered to the last ``dump``; None if that was more than an hour ago."""
        date, _, text = presences.dump_of(cls, worker.pk).partition("\n")
        moment = parse_datetime(date)
        return WorkerDump(moment, text) if moment else None


def order_lasts(worker: AliveWorker) -> float:
    """Return for how many seconds an order is kept that a worker does not obey."""
    return max((worker.until - worker.last_seen).total_seconds(), ORDER_LASTS)


def checked_level(text: str) -> str:
    """Return the name or the number of a level of the log."""
    level = text.upper()
    if level.isdecimal() or isinstance(logging.getLevelName(level), int):
        return level
    raise ValueError(f"{text!r} is not a level of the log, as DEBUG, INFO or WARNING, nor a number")


# What the value of an option may be.
_PLAIN = (str, int, float, bool, type(None))


def _is_job(told: Any) -> bool:
    return isinstance(told, list) and len(told) == 3 and all(isinstance(each, str) for each in told)


def _seconds(told: float) -> float:
    return told if isfinite(told) and told > 0 else 0.0


def _texts(told: list[Any]) -> list[str]:
    return [each for each in told if isinstance(each, str)]
