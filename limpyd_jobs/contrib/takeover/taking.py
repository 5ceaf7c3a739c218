"""Moving jobs from the queues of another library to those here, one after the other.

The two may be on two servers, so no step changes both. These are the steps of a job, and each is a single command:

1. there: it leaves its queue, and is noted as in hand. Its data stays.
2. here: it is added with an identifier made of its old id, and held: it is delayed by a thousand years. Done twice,
   that adds one job.
3. there: it is noted that it was added.
4. here: it is released, unless that was done before: then it may have run, and may be gone.
5. there: its data and the note are deleted.

The next call begins with what the note says. A job that cannot be added goes back to where it stood. A lock keeps
others away: it lapses, and each step there needs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple
from uuid import uuid4

from limpyd.exceptions import DoesNotExist
from redis.exceptions import RedisError

from limpyd_jobs import STATUSES, Job, LimpydJobsException
from limpyd_jobs.contrib.takeover.old_queues import Left, OldJob, OldQueues, Place
from limpyd_jobs.contrib.takeover.targets import Destination, Target

HELD_UNTIL = datetime(2999, 1, 1)

LEASE = 20.0  # seconds after which the lock of a process that was killed lapses

_GUARD = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'lost' end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""

# The keys: the lock, the note, the place, the mark of running, and what is stored of the job.
_TAKE = (
    _GUARD
    + """
local is_list, id, score = ARGV[3], ARGV[4], ''
if redis.call('EXISTS', KEYS[2]) == 1 then return 'lost' end
-- An arq worker that has seen the job, and is about to mark it, watches this key.
if not redis.call('SET', KEYS[4], 'taken over', 'NX', 'PX', 86400000) then return 'runs' end
if is_list == '1' then
    if redis.call('LREM', KEYS[3], 1, id) == 0 then score = nil end
else
    score = redis.call('ZSCORE', KEYS[3], id)
    redis.call('ZREM', KEYS[3], id)
end
if not score then
    redis.call('DEL', KEYS[4])
    return 'gone'
end
for number = 5, #KEYS do redis.call('PERSIST', KEYS[number]) end
redis.call('HSET', KEYS[2], 'key', KEYS[3], 'is_list', is_list, 'id', id, 'score', score)
return 'taken'
"""
)
_NOTE = (
    _GUARD
    + """
redis.call('HSET', KEYS[2], 'ident', ARGV[3], 'queue', ARGV[4], 'destination', ARGV[5])
return 'noted'
"""
)
_PUT_BACK = (
    _GUARD
    + """
if ARGV[3] == '1' then
    redis.call('LPUSH', KEYS[3], ARGV[4])
else
    redis.call('ZADD', KEYS[3], ARGV[5], ARGV[4])
end
redis.call('DEL', KEYS[2], KEYS[4])
return 'back'
"""
)
_END = (
    _GUARD
    + """
for number = 2, #KEYS do redis.call('DEL', KEYS[number]) end
return 'ended'
"""
)
_UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"


class Moved(NamedTuple):
    """A job that is here now, or would be."""

    id: str
    function: str
    path: str
    destination: str = ""  # the queue and the priority, as ``mails:10``, if they are not those of the function


class Lost(LimpydJobsException):
    """Another process has taken the lock."""


class TakeOver:
    """Takes over the jobs of old queues.

    Parameters
    ----------
    old: OldQueues
    targets: dict of str to Target
        What `targets_of` makes of the declaration of the application.
    destinations: dict of str to Destination
        Where the jobs of an old queue go, by its name; by default where the new function says.
    lease: float
        After how many seconds another process may go on if this one is killed.
    tell: callable
        What to call with a line of text if it has to wait for another process.
    """

    def __init__(
        self,
        old: OldQueues,
        targets: Mapping[str, Target],
        destinations: Mapping[str, Destination] = MappingProxyType({}),
        *,
        lease: float = LEASE,
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._old, self._targets, self._destinations, self._lease, self._tell = old, targets, destinations, lease, tell
        self._lock, self._note = f"limpyd-jobs:takeover:{old.name}:lock", f"limpyd-jobs:takeover:{old.name}"
        self._token = uuid4().hex

    @property
    def is_interrupted(self) -> bool:
        """Whether a job is in hand: of a process that works now, or was killed."""
        return bool(self._in_hand())

    def plan(self) -> Iterator[Moved | Left]:
        """Yield what would become of each job. Nothing is changed."""
        if note := self._in_hand():
            yield Left(note["id"], "was being taken over when that was interrupted: to take over goes on with it")
        for place in self._old.places():
            yield self._planned(place)[0]

    def run(self) -> Iterator[Moved | Left]:
        """Take the jobs over, and yield what became of each.

        Raises
        ------
        Lost
            If another process does so, too.
        """
        for _, outcome in self.steps():
            if outcome is not None:
                yield outcome

    def steps(self) -> Iterator[tuple[str, Moved | Left | None]]:
        """Do so, and yield the name of each step once it is done; with the last step of a job, what became of it."""
        self._get_lock()
        try:
            yield "locked", None
            if self._in_hand():
                yield from self._finish()
            for place in self._old.places():
                yield from self._move(place)
        finally:
            with suppress(RedisError):
                self._old.client.eval(_UNLOCK, 1, self._lock, self._token)

    def _planned(self, place: Place) -> tuple[Moved | Left, Target | None]:
        old = self._old.read(place.id)
        if isinstance(old, Left):
            return old, None
        target = self._targets.get(old.function)
        if target is None:
            return Left(old.id, f"{old.function} is not in --map"), None
        try:
            target.check(target.arguments_of(old))
        except Exception as error:  # also of the application's own conversion
            return Left(old.id, f"{old.function}: {error}"), None
        return Moved(old.id, old.function, target.path, str(self._destination(place.key))), target

    def _destination(self, key: str) -> Destination:
        return self._destinations.get(self._old.queue_of(key), Destination())

    def _move(self, place: Place) -> Iterator[tuple[str, Moved | Left | None]]:
        planned, target = self._planned(place)
        if target is None:
            yield "left", planned
            return
        took = self._there(_TAKE, self._keys(place.key, place.id), str(int(place.is_list)), place.id)
        if took != "taken":
            yield "left", Left(place.id, "runs now: call this again once it has ended" if took == "runs" else "is gone")
            return
        yield "taken", None
        yield from self._finish()

    def _finish(self) -> Iterator[tuple[str, Moved | Left | None]]:
        """Do what is left of the job in hand."""
        note = self._in_hand()
        keys = self._keys(note["key"], note["id"])
        old = self._old.read(note["id"])
        target = self._targets.get(old.function) if isinstance(old, OldJob) else None
        if "ident" not in note:
            try:
                destination = self._destination(note["key"])
                job = self._add(old, target, destination)
            except Exception as error:  # of an overridden add_job, for example
                self._there(_PUT_BACK, keys[:4], note["is_list"], note["id"], note["score"])
                yield "put back", Left(note["id"], f"cannot be added: {error}")
                return
            yield "added", None
            note.update(ident=job.ident, queue=destination.queue or "", destination=str(destination))
            self._there(_NOTE, keys[:2], job.ident, note["queue"], note["destination"])
            yield "noted", None
        self._release(note)
        yield "released", None
        self._there(_END, [keys[0], keys[1], *keys[3:]])
        path = note["ident"].rpartition(":")[0]
        function = old.function if isinstance(old, OldJob) else ""
        yield "ended", Moved(note["id"], function, path, note.get("destination", ""))

    def _add(self, old: OldJob | Left, target: Target | None, destination: Destination) -> Job:
        if isinstance(old, Left) or target is None:
            raise TypeError(old.why if isinstance(old, Left) else f"{old.function} is not in --map")
        return target.add(f"{self._old.name}:{old.id}", target.arguments_of(old), HELD_UNTIL, destination)

    def _release(self, note: Mapping[str, str]) -> None:
        """Let the job wait, or be due when it was due there, if it is still held."""
        with suppress(DoesNotExist):
            job = Job.get_from_ident(note["ident"])
            status, until = job.hmget("status", "delayed_until")
            if status == STATUSES.DELAYED and until == str(HELD_UNTIL):
                job.enqueue_or_delay(note.get("queue") or None, delayed_until=self._old.due_of(note["score"]))

    def _in_hand(self) -> dict[str, str]:
        found: dict[str, str] = self._old.client.hgetall(self._note)
        return found

    def _keys(self, place: str, id: str) -> list[str]:
        return [self._lock, self._note, place, f"{self._old.running}{id}", *self._old.data_keys(id)]

    def _get_lock(self) -> None:
        until = 0.0
        while not self._old.client.set(self._lock, self._token, nx=True, px=round(self._lease * 1000)):
            if not until:
                until = time.monotonic() + self._lease + 1
                self._tell(
                    f"another process takes these queues over, or was killed while it did: waiting for up to "
                    f"{self._lease + 1:g} seconds to go on"
                )
            if time.monotonic() > until:
                raise Lost("another process takes these queues over: wait until it has ended")
            time.sleep(min(0.2, self._lease / 4))

    def _there(self, script: str, keys: list[str], *values: str) -> str:
        """Run a script on the old queues."""
        milliseconds = str(round(self._lease * 1000))
        outcome: str = self._old.client.eval(script, len(keys), *keys, self._token, milliseconds, *values)
        if outcome == "lost":
            raise Lost("another process takes these queues over: this one has stopped; each job is in one place")
        return outcome
