"""A limit for code that nothing in its process can interrupt: the parent of a pool kills the child. The child says
before, in memory that both share, until when each of its jobs may run; its successor records what became of them."""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterable, Iterator
from math import inf
from struct import Struct
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

from limpyd_jobs.arguments import own_seconds
from limpyd_jobs.exceptions import JobTimeout
from limpyd_jobs.idents import Ident
from limpyd_jobs.models import JobClaim, Queue, job_classes
from limpyd_jobs.models.claims.job_claim import queue_of
from limpyd_jobs.records.lazy_fields import attached
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import chunks
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers.run import Run

# How many jobs of a child may have such a limit at once, and how long what is known of each may be, in bytes. Memory
# that is not used takes no room.
PLACES, PLACE_SIZE = 4096, 2048

# After how many seconds the parent looks again, at most.
LOOK_EVERY = 1.0

# How many running jobs of a queue are looked at.
MOST = 10_000

_HEAD = Struct("=qq")  # how many places were used; whether the successor has recorded what was killed
_PLACE = Struct("=dI")  # the deadline, by the monotonic clock, 0 for none; the length of the text behind it


class Overdue(NamedTuple):
    """A job that ran for too long: the token of its claim, the key of its queue, and what its limits were."""

    token: str
    queue_key: str
    seconds: str
    kill_after: str

    @property
    def error(self) -> JobTimeout:
        """What its error says."""
        return JobTimeout(
            f"It ran for more than {self.seconds} seconds, and could not be interrupted: its process was killed after "
            f"{self.kill_after} more"
        )


class Board:
    """What a child tells its parent of the limits of its jobs. The parent makes it, before it forks."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _HEAD.size + PLACES * PLACE_SIZE)

    def clear(self) -> None:
        """Another child begins."""
        used, _ = _HEAD.unpack_from(self._memory)
        _HEAD.pack_into(self._memory, 0, 0, 0)
        for place in range(used):
            self.free(place)

    # -- In the child

    def write(self, place: int, deadline: float, told: Overdue) -> bool:
        """Say that a job begins; return False if too much would have to be said."""
        text, begin = "\n".join(told).encode(), _HEAD.size + place * PLACE_SIZE
        if len(text) > PLACE_SIZE - _PLACE.size:
            return False
        self._memory[begin + _PLACE.size : begin + _PLACE.size + len(text)] = text
        _PLACE.pack_into(self._memory, begin, deadline, len(text))
        used, recorded = _HEAD.unpack_from(self._memory)
        if place >= used:
            _HEAD.pack_into(self._memory, 0, place + 1, recorded)
        return True

    def free(self, place: int) -> None:
        """Say that a job has ended."""
        _PLACE.pack_into(self._memory, _HEAD.size + place * PLACE_SIZE, 0.0, 0)

    def recorded(self) -> None:
        """Say that what became of the jobs of the child before is recorded."""
        used, _ = _HEAD.unpack_from(self._memory)
        _HEAD.pack_into(self._memory, 0, used, 1)

    # -- In the parent

    @property
    def is_recorded(self) -> bool:
        """Whether the child has recorded what became of the jobs of the one before."""
        return bool(_HEAD.unpack_from(self._memory)[1])

    @property
    def look_at(self) -> float:
        """When to look next, by the monotonic clock; never, if the child has no such job."""
        used, _ = _HEAD.unpack_from(self._memory)
        if not used:
            return inf
        deadlines = [_PLACE.unpack_from(self._memory, _HEAD.size + place * PLACE_SIZE)[0] for place in range(used)]
        return min([monotonic() + LOOK_EVERY, *filter(None, deadlines)])

    def overdue(self) -> list[Overdue]:
        """Return the jobs that run for too long."""
        used, _ = _HEAD.unpack_from(self._memory)
        return [*filter(None, map(self._read, range(used)))]

    def _read(self, place: int) -> Overdue | None:
        begin = _HEAD.size + place * PLACE_SIZE
        known = deadline, length = _PLACE.unpack_from(self._memory, begin)
        if not deadline or deadline > monotonic():
            return None
        text = self._memory[begin + _PLACE.size : begin + _PLACE.size + length].decode(errors="replace")
        is_same = _PLACE.unpack_from(self._memory, begin) == known  # it did not end meanwhile
        return Overdue(*text.split("\n")) if is_same and text.count("\n") == len(Overdue._fields) - 1 else None


class HardLimits:
    """Tells the parent of a child which of its jobs may run until when."""

    def __init__(self, board: Board, notify: Callable[[], None]) -> None:
        self._board, self._notify = board, notify
        self._lock = Lock()  # jobs may end in several threads
        self._free = [*range(PLACES - 1, -1, -1)]
        self._has_notified = False

    def begin(self, run: Run, seconds: float, of_worker: float | None) -> int | None:
        """A job begins to run that may take some seconds; return its place, if it has such a limit."""
        of_class = own_seconds(getattr(type(run.job), "kill_after", None))
        kill_after = of_worker if of_class is None else of_class
        if not kill_after:
            return None
        delivery = run.delivery
        told = Overdue(delivery.token, delivery.queue_key, f"{seconds}", f"{kill_after}")
        with self._lock:
            place = self._free.pop() if self._free else None
            if place is None or not self._board.write(place, monotonic() + seconds + kill_after, told):
                return None
        if not self._has_notified:
            self._has_notified = True
            self._notify()  # the parent looks now and then, from now on
        return place

    def end(self, place: int | None) -> None:
        """A job has ended, in some thread."""
        if place is not None:
            with self._lock:
                self._board.free(place)
                self._free.append(place)


class Killed(NamedTuple):
    """What a child that was killed held: the jobs that ran for too long, with their errors, and the others."""

    overdue: list[tuple[Delivery, JobTimeout]]
    others: list[JobClaim]


def held_by_killed(queue_model: type[Queue], queue_keys: Iterable[str], killed: Iterable[Overdue]) -> Killed:
    """Return what a child held that was killed because of some jobs. It is still claimed, by its tokens."""
    by_token = {each.token: each for each in killed}
    owners = {owner for token in by_token if (owner := _owner_of(token))}
    found = Killed([], [])
    for queue_key in {*queue_keys, *(each.queue_key for each in by_token.values())}:
        for delivery in _running(queue_model, queue_key):
            if delivery.token in by_token:
                found.overdue.append((delivery, by_token[delivery.token].error))
            elif _owner_of(delivery.token) in owners:
                job = attached(job_classes.resolve(delivery.path), delivery.pk)
                found.others.append(JobClaim(delivery, job, queue_of(queue_model, delivery)))
    return found


def _owner_of(token: str) -> str | None:
    """Return the worker that a token names, as ``owner_of`` of rescue.lua does."""
    match = re.search("@([^/]+)", token)
    return match and match[1]


def _running(queue_model: type[Queue], queue_key: str) -> Iterator[Delivery]:
    """Yield the jobs of a queue that run, as if they were claimed now."""
    redis: Any = redis_of(queue_model)
    name, priority = redis.hmget(f"{queue_key}:hash", "name", "priority")
    for idents in chunks(redis.zrange(f"{queue_key}:_running", 0, MOST - 1), 500):
        known = [(ident, Ident.of(ident)) for ident in idents if _is_known(ident)]
        pipe = redis.pipeline(transaction=False)
        for _, (path, pk) in known:
            names = ("_claim_token", "status", "identifier", "start", "tries")
            pipe.hmget(f"{job_classes.resolve(path)._name}:{pk}:hash", *names)
        for (ident, _), values in zip(known, pipe.execute(raise_on_error=False) if known else (), strict=True):
            if isinstance(values, list) and values[0]:
                token, status, identifier, start, tries = (value or "" for value in values)
                state = status or STATUSES.RUNNING, identifier, name or "", priority or "0", start, tries
                yield Delivery("claimed", f"{queue_key}:waiting", ident, *state, token=token)


def _is_known(ident: str) -> bool:
    try:
        job_classes.resolve(Ident.of(ident).path)
    except Exception:  # whatever its module raises: another worker knows it
        return False
    return True
