"""Reading the output of jobs as it comes. All threads and tasks of a process that follow jobs of one database share a
reader, and its connection."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Condition, Event, Lock, Thread
from time import monotonic, sleep
from typing import Any

from limpyd_jobs.models.following.changes import FIRST_RETRY, MAX_RETRY, is_interruption, slice_of
from limpyd_jobs.models.following.waiting import FINAL, turn_of
from limpyd_jobs.redis.calls import Commands, chunks
from limpyd_jobs.redis.connections import PinnedConnection
from limpyd_jobs.texts import described

log = logging.getLogger("limpyd-jobs.changes")

# How many entries of each job one command reads.
COUNT = 100

# How many entries may wait for one follower: it reads the rest by itself, as far as they are kept.
MOST_WAITING = 1000

# For how many seconds to gather what comes after each reply, so that much output is few commands; and for how many more
# for each job that is followed: a command that reads n streams keeps Redis for 4 µs n.
GATHER, GATHER_EACH = 0.005, 0.00004

# After how many seconds, at most, to ask whether the jobs have ended: of most ends, the output tells.
LOOK_AGAIN = 1.0

# For how many seconds to wait for the reader to take notice of a new follower, and how often to try.
NOTICE, TRIES = 0.01, 100

Entry = tuple[str, Mapping[str, str]]

# How to call a function where a follower waits: an event loop has `call_soon_threadsafe`.
Caller = Callable[..., object]


class Follower:
    """One that follows the output of a job: what came for it, and whether it has to look by itself. Its `wake` is
    called, by means of `call`, once until it has taken what there is. If it `is_gone`, because the garbage collector
    took it, which may happen wherever a lock is held, the reader leaves it out."""

    def __init__(self, hash_key: str, key: str, after: str, wake: Callable[[], object], call: Caller) -> None:
        self.hash_key, self.key, self.after = hash_key, key, after
        self.wake, self.call = wake, call
        self._process = _process
        self._entries: deque[Entry] = deque()
        self._has_to_look = self._is_woken = self.is_gone = False
        self._lock = Lock()

    def is_served(self) -> bool:
        """Whether the reader is of this process, not of one that this one was forked from."""
        return self._process is _process

    def give(self, entries: Sequence[Entry]) -> None:
        """Some entries came."""
        with self._lock:
            self._entries.extend(entries)
            if len(self._entries) > MOST_WAITING or any("end" in fields for _, fields in entries):
                self._has_to_look = True
            if self._has_to_look:
                self._entries.clear()

    def look(self) -> None:
        """Let it look by itself what there is."""
        self._has_to_look = True

    def take(self) -> tuple[list[Entry], bool]:
        """Return what came, and whether to look."""
        with self._lock:
            looks = self._has_to_look
            found = [] if looks else [*self._entries]  # some before these may be missing
            self._entries.clear()
            self._has_to_look = self._is_woken = False
        return found, looks

    def is_to_wake(self) -> bool:
        """Whether to wake it, as something came; from now on, it counts as woken."""
        with self._lock:
            was_woken, self._is_woken = self._is_woken, True
        return not was_woken


class Reader:
    """Reads the output of the jobs that are followed, in a thread of its own, as long as there are any."""

    def __init__(self, client: Callable[[], Any], pool: Any) -> None:
        self._client, self._pool = client, pool
        self._followers: dict[str, list[Follower]] = {}
        self._after: dict[str, str] = {}
        self._read_from: set[str] = set()  # of which an entry came
        self._heard: set[str] = set()  # whose output came since it was asked the last time whether the jobs have ended
        self._line = PinnedConnection(client)
        self._changed = Condition(_lock)  # it was noticed that followers came
        self._asked = self._came = 0
        self._is_cut_off = False
        self._wake = Event()

    def add(self, follower: Follower) -> int:
        """Take in a follower; return the number with which to wait for that. The caller holds the lock."""
        self._followers.setdefault(follower.key, []).append(follower)
        after = self._after.setdefault(follower.key, follower.after)
        if follower.key not in self._read_from:  # the other one may follow from a place that will never come
            self._after[follower.key] = min(after, follower.after, key=order_of)
        self._came += 1
        return self._came

    def remove(self, follower: Follower) -> None:
        """Leave out a follower. The caller holds the lock."""
        followers = self._followers.get(follower.key, [])
        if follower in followers:
            followers.remove(follower)
        if not followers:
            self._followers.pop(follower.key, None)
            self._after.pop(follower.key, None)
            self._read_from.discard(follower.key)

    def notice(self, number: int) -> None:
        """Wait until the reader asks for the output of a follower that was added: a command that waits for others is
        cut off."""
        for _ in range(TRIES):
            self._is_cut_off = True
            self._line.interrupt()
            self._wake.set()
            with _lock:
                if self._changed.wait_for(lambda: self._asked >= number, NOTICE):
                    return

    def run(self) -> None:
        """Give each follower what comes, until there are none."""
        pause, looked_at = FIRST_RETRY, monotonic()
        while self._is_needed():
            try:
                self._read()
                if monotonic() - looked_at > LOOK_AGAIN:
                    looked_at = monotonic()
                    self._look_for_ends()
                pause = FIRST_RETRY
            except Exception as error:
                was_cut_off, self._is_cut_off = self._is_cut_off, False
                if was_cut_off:
                    continue
                if is_interruption(error):
                    log.warning("The output of jobs cannot be read, trying again: %s", described(error))
                self._let_all_look()  # who follows a key of another type finds out
                self._wake.clear()
                self._wake.wait(pause)
                pause = min(2 * pause, MAX_RETRY)
        self._line.close()

    def _is_needed(self) -> bool:
        with _lock:
            for follower in [each for some in self._followers.values() for each in some if each.is_gone]:
                self.remove(follower)
            if not self._followers and _readers.get(self._pool) is self:
                del _readers[self._pool]
            return bool(self._followers)

    def _read(self) -> None:
        with _lock:
            after = dict(self._after)
            self._asked = self._came
            self._changed.notify_all()
        milliseconds = int(1000 * min(slice_of(self._client()), LOOK_AGAIN))
        reply = self._line.execute_command(
            "XREAD", "COUNT", COUNT, "BLOCK", milliseconds, "STREAMS", *after, *after.values()
        )
        if reply:
            found = list(reply.items() if isinstance(reply, Mapping) else reply)
            wake([each for key, rows in found for each in self._give(key, [entry_of(*row) for row in rows])])
            sleep(GATHER + GATHER_EACH * len(after))

    def _give(self, key: str, entries: list[Entry]) -> list[Follower]:
        with _lock:
            followers = [*self._followers.get(key, ())]
            if followers:
                self._after[key] = entries[-1][0]
                self._read_from.add(key)
                self._heard.add(key)
        for follower in followers:
            follower.give(entries)
        return followers

    def _look_for_ends(self) -> None:
        """Let those look whose job has ended: it was deleted, emitted nothing, or a worker of version 2 ran it."""
        with _lock:
            silent = [some for key, some in self._followers.items() if key not in self._heard]
            by_job = {some[0].hash_key: [*some] for some in silent}
            self._heard.clear()
        for some in chunks(by_job, COUNT):
            commands = [("HMGET", key, "status", "queued") for key in some]
            with turn_of(self._client().connection_pool):
                replies = Commands(self._client(), commands)()
            for key, reply in zip(some, replies, strict=True):
                if has_ended(reply):
                    let_look(by_job[key])

    def _let_all_look(self) -> None:
        with _lock:
            followed = [each for some in self._followers.values() for each in some]
        let_look(followed)


def let_look(followers: Sequence[Follower]) -> None:
    """Let some followers look by themselves what there is."""
    for follower in followers:
        follower.look()
    wake(followers)


def wake(followers: Sequence[Follower]) -> None:
    """Wake some followers for which something came: those of one event loop by one call."""
    to_wake: dict[Caller, list[Callable[[], object]]] = {}
    for follower in followers:
        if follower.is_to_wake():
            to_wake.setdefault(follower.call, []).append(follower.wake)
    for call, functions in to_wake.items():
        with suppress(RuntimeError):  # the loop is closed
            call(call_all, functions)


def at_once(function: Callable[..., object], *arguments: Any) -> None:
    """Call a function for a follower that waits in a thread."""
    function(*arguments)


def call_all(functions: Sequence[Callable[[], object]]) -> None:
    """Call some functions."""
    for function in functions:
        function()


def has_ended(reply: Any) -> bool:
    """Whether a job has ended, or is gone, by its status and its field `queued`: a job in error that is put back is
    queued all the time."""
    if isinstance(reply, Exception):
        return False
    status, queued = reply
    return status is None or (status in FINAL and queued != "1")


def entry_of(name: str, fields: Any) -> Entry:
    """Return an entry of a stream, whatever the protocol."""
    return name, fields if isinstance(fields, Mapping) else dict(zip(fields[::2], fields[1::2], strict=True))


def order_of(name: str) -> tuple[int, ...]:
    """Return the id of an entry as numbers, to be compared."""
    return tuple(map(int, name.split("-")))


def follow(client: Callable[[], Any], follower: Follower) -> Callable[[], None]:
    """Let the reader of a database give something to a follower from now on; return what ends that."""
    pool = client().connection_pool  # the database of a model may be moved
    with _lock:
        reader = _readers.get(pool)
        is_new = reader is None
        if reader is None:
            reader = _readers[pool] = Reader(client, pool)
        number = reader.add(follower)
        if is_new:
            Thread(target=reader.run, name="limpyd-jobs-output", daemon=True).start()
    if not is_new:
        reader.notice(number)

    def leave() -> None:
        with _lock:
            reader.remove(follower)

    return leave


def _begin() -> None:
    """Forget all threads: those of a parent process do not exist in its children."""
    global _lock, _process, _readers
    _lock, _process, _readers = Lock(), object(), {}


_lock: Lock
_process: object
_readers: dict[Any, Reader]
_begin()
os.register_at_fork(after_in_child=_begin)
