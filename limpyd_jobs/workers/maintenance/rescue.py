"""Putting back jobs that were lost: those of workers that died, and those that are not where their status says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from limpyd_jobs import dates, transitions
from limpyd_jobs.classes.binding import concrete
from limpyd_jobs.classes.job_classes import path_of
from limpyd_jobs.exceptions import WorkerLost
from limpyd_jobs.idents import Ident
from limpyd_jobs.limiting.limit import limits_of_class
from limpyd_jobs.models import Job, Queue, job_classes
from limpyd_jobs.models.presence import WorkerPresence, presence_models
from limpyd_jobs.records import presences
from limpyd_jobs.redis.calls import passing_over_wrong_types
from limpyd_jobs.search.classes import replies_to
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.transitions import ClaimRequest, Delivery
from limpyd_jobs.workers.context import Context

# How many seconds to let pass between two looks, at least: claims of applications may have very short leases.
SHORTEST_WAIT = 1.0

# How many idents are read at once.
CHUNK = 1000

# The owner of the claims of a worker: its host, its process, and a name. Applications give others.
WORKER = re.compile(r".+:\d+:[0-9a-f]{12}")

# An orphan is put back once it was seen twice, with these seconds between. Version 2 starts a job in less time.
ORPHAN_SEEN_FOR = 6.0


@dataclass(eq=False)
class Rescuer:
    """Puts jobs whose lease lapsed back in their waiting lists. A job that was rescued too often ends in error.

    It also deletes the presences of those who are not there any more.
    """

    name = "rescue_jobs"

    queue_model: type[Queue]
    lease: float
    max_rescues: int
    request: Callable[[], ClaimRequest]  # without waiting lists
    on_looked: Callable[[transitions.Rescue], None]  # it may be this worker's turn to reconcile, or there are flows
    on_rescued: Callable[[Delivery], Any]
    on_exhausted: Callable[[Delivery, WorkerLost], Any]

    def __post_init__(self) -> None:
        self.interval = self.lease / 4
        self._next_lapse: float | None = None
        self._has_run = False
        self._lost: list[tuple[str, str]] = []  # the claims that lapsed: their tokens, and the names of the queues
        self._is_starting = not dates.moved_time  # else tests let leases lapse, on a server that has just begun

    def run(self, context: Context) -> float | None:
        self._next_lapse = None
        queue_keys = context.queue_keys
        more = bool(queue_keys)
        while more:
            more = self._rescue_some(context, queue_keys)
        if self._lost:
            self._note_lost()
        if self._has_run:  # a worker that only begins has jobs to run
            self._sweep()
        self._has_run = True
        return self._next_lapse

    def _sweep(self) -> None:
        for model in presence_models(self.queue_model.database):
            while presences.sweep(model):
                pass

    def _rescue_some(self, context: Context, queue_keys: Sequence[str]) -> bool:
        found = transitions.rescue(self.queue_model, queue_keys, self.max_rescues, self.request(), self._is_starting)
        is_resolved = self._resolve(found.unknown)
        self._is_starting = bool(found.spared) or (self._is_starting and is_resolved)
        if found.next_lapse < self.interval:  # it was not renewed when it was time
            self._next_lapse = min(self._next_lapse or inf, max(found.next_lapse, SHORTEST_WAIT))
        self.on_looked(found)
        for ident, reason in found.broken:
            quarantined = "put in the quarantine of its queue"
            context.log_repeated(quarantined, f"[{one_line(ident)}] is {quarantined}: {one_line(reason, MESSAGE)}")
        self._lost += found.lost
        for delivery in found.rescued:
            self.on_rescued(delivery)
        if found.exhausted:
            self.on_exhausted(found.exhausted, WorkerLost(f"Its workers died, {self.max_rescues + 1} times in a row"))
        return bool(found.rescued or found.exhausted or found.broken or found.spared or is_resolved)

    def _note_lost(self) -> None:
        """Note the workers of claims that lapsed: one that died in its first second has left no other trace."""
        claims, self._lost = self._lost, []
        by_owner: dict[str, list[str]] = {}
        for token, queue in claims:
            owner = transitions.owner_of(token)
            if owner and WORKER.fullmatch(owner):
                by_owner.setdefault(owner, []).append(queue)
        for model in presence_models(self.queue_model.database) if by_owner else ():
            if issubclass(model, WorkerPresence):
                for owner, queues in by_owner.items():
                    presences.note_lost(model, owner, sorted({*queues}), len(queues))

    @staticmethod
    def _resolve(idents: Sequence[str]) -> bool:
        """Resolve the classes of some jobs, if possible. Workers that know the others will do so."""
        known = job_classes.known
        for ident in idents:
            with suppress(Exception):
                job_classes.resolve(Ident.of(ident).path)
        return job_classes.known is not known


class Repaired(NamedTuple):
    """A job that was put where its status says: its ident, its status, and the beginning of the keys of the queue."""

    ident: str
    status: str
    queue_key: str


class Reconciler:
    """Puts queued jobs that stand in no queue, of any model, back in their queues, for all queues of one model."""

    name = "reconcile_jobs"

    def __init__(self, queue_model: type[Queue], lease: float) -> None:
        self.interval = lease / 4
        self._queue_model = queue_model
        self._lease = lease
        self._suspects: set[str] = set()
        self.is_busy = False
        self._look_again_at = 0.0
        self._unplaceable: set[str] = set()

    def begin(self) -> None:
        """Note that it is time to look for orphans."""
        self.is_busy = True

    def run(self, context: Context) -> float | None:
        repaired, unplaceable = self.reconcile()
        for job in repaired:
            name, found = one_line(job.ident), f"was {STATUSES.by_value(job.status)}, but in no queue"
            context.log_repeated(found, f"[{name}] {found}: put in {one_line(job.queue_key)}", "warning")
        for ident in unplaceable:
            lost = "is in no queue, and nothing says in which it belongs: use enqueue_or_delay"
            context.log_repeated(lost, f"[{one_line(ident)}] {lost}")
        return ORPHAN_SEEN_FOR if self.is_busy else None

    def reconcile(self) -> tuple[list[Repaired], list[str]]:
        """Look for orphans if it is time to, and put back the ones that were seen before.

        Return the jobs that were put back, and the idents of jobs whose queue is not known, if not returned before.
        """
        if not self.is_busy or monotonic() < self._look_again_at:
            return [], []
        found = self._look() if self._are_some_missing() else set()
        suspects, self._suspects = self._suspects & found, found - self._suspects
        repaired, unplaceable = self._repair(suspects)
        self.is_busy = bool(self._suspects)
        self._look_again_at = monotonic() + ORPHAN_SEEN_FOR if self.is_busy else 0.0
        return repaired, unplaceable

    @property
    def has_to_look_again(self) -> bool:
        """Whether it saw jobs that stand nowhere, and has not yet looked again. A look that fails is not waited for."""
        return bool(self._suspects) and monotonic() < self._look_again_at + ORPHAN_SEEN_FOR

    def _repair(self, idents: set[str]) -> tuple[list[Repaired], list[str]]:
        repaired, unplaceable = [], []
        for job_class in self._job_classes():
            own = (ident for ident in idents if Ident.of(ident).path == path_of(job_class))
            while chunk := list(islice(own, transitions.RECONCILE_LIMIT)):
                placed, without_queue = transitions.reconcile(self._queue_model, job_class, chunk, self._lease)
                repaired += [Repaired(*row) for row in placed]
                unplaceable += without_queue
        new = [ident for ident in unplaceable if ident not in self._unplaceable]
        self._unplaceable = {*islice(self._unplaceable, CHUNK), *new}
        return repaired, new

    # -- Looking

    def _job_classes(self) -> list[type[Job]]:
        """Return the classes whose jobs may stand in these queues, because their hash, or else their class, says so."""
        database = self._queue_model.database
        return [cls for cls in job_classes.all() if cls.database is database]

    def _look(self) -> set[str]:
        """Return the idents of the queued jobs that stand nowhere.

        The jobs are read before the places where they stand, so that a new job is not taken for an orphan.
        """
        queued = {
            f"{path_of(job_class)}:{pk}"
            for job_class in self._job_classes()
            for pk in self._pks(self._queued_key(job_class))
        }
        if queued:
            for ident in self._placed():
                queued.discard(ident)
        return queued

    def _placed(self) -> Iterator[str]:
        """Yield the entries of the queues, in the order in which jobs go through the places."""
        queues = self._queues()
        for queue in queues:
            yield from self._members(f"{queue}:delayed")
        for queue in queues:
            yield from self._waiting(f"{queue}:waiting")
        for queue in queues:
            yield from filter(self._is_limited, self._members(f"{queue}:_parked"))
        for queue in queues:
            yield from self._members(f"{queue}:_running")

    @staticmethod
    def _is_limited(ident: str) -> bool:
        """Whether workers with this code look for a job among those that are parked."""
        job_class = job_classes.known.get(ident.rpartition(":")[0])
        return bool(job_class and limits_of_class(job_class))

    def _members(self, key: str) -> Iterator[str]:
        with passing_over_wrong_types():
            for ident, _ in self._redis.zscan_iter(key, count=CHUNK):
                yield ident

    def _waiting(self, key: str) -> Iterator[str]:
        """Yield the idents of a list, the last ones first, so that none is missed while workers take the first ones."""
        end = -1
        with passing_over_wrong_types():
            while idents := self._redis.lrange(key, end - CHUNK + 1, end):
                yield from idents
                end -= CHUNK

    def _are_some_missing(self) -> bool:
        """Whether more jobs are queued than stand in all places together, or some are parked, which is looked at."""
        pipe = self._redis.pipeline(transaction=False)
        for job_class in self._job_classes():
            pipe.scard(self._queued_key(job_class))
        classes = len(pipe)
        for queue in self._queues():
            pipe.llen(f"{queue}:waiting")
            pipe.zcard(f"{queue}:delayed")
            pipe.zcard(f"{queue}:_running")
        numbers = [number if isinstance(number, int) else 0 for number in pipe.execute(raise_on_error=False)]
        return sum(numbers[:classes]) > sum(numbers[classes:])

    @property
    def _redis(self) -> Any:
        return self._queue_model.get_connection()

    def _queues(self) -> list[str]:
        """Return the beginnings of the keys of all queues: a job may stand in those of another model."""
        names = sorted({model._name for model in (self._queue_model, *concrete(Queue))})
        pks = replies_to(self._redis, [("SMEMBERS", f"{name}:collection") for name in names])
        return [f"{name}:{pk}" for name, found in zip(names, pks, strict=True) for pk in found or ()]

    def _pks(self, key: str) -> Iterator[str]:
        with passing_over_wrong_types():
            yield from self._redis.sscan_iter(key, count=CHUNK)

    @staticmethod
    def _queued_key(job_class: type[Job]) -> str:
        return f"{job_class._name}:queued:1"
