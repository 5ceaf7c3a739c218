"""Following the output of a job: what its code emits, from any place on, until the job has ended."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import TIMEOUT_MAX, Event
from time import monotonic
from typing import Any, NamedTuple, Self

from limpyd_jobs.fields.codecs import codec_of
from limpyd_jobs.models.following.changes import checked_timeout, refusing_other_keys
from limpyd_jobs.models.following.emitting import output_key
from limpyd_jobs.models.following.output_reader import (
    COUNT,
    Caller,
    Entry,
    Follower,
    at_once,
    entry_of,
    follow,
    has_ended,
    order_of,
)
from limpyd_jobs.models.following.waiting import deadline_of, in_turn
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import Commands, Steps, finish

_ID = re.compile(r"\d{1,19}(?:-\d{1,19})?")

# Before all chunks; and behind all of them: nothing can be read after an entry there, which another program wrote.
_BEGINNING, _NEVER = "0-0", (2**64 - 1,)


class Chunk(NamedTuple):
    """A part of the output of a job.

    Attributes
    ----------
    id: str
        Where it stands in the output: `after` takes it. It has the number of the run, and its number in that run.
    value: object
        What the code of the job emitted, as JSON keeps it.
    run: int
        Which of the runs of the job that emitted something this one is of, from 1 on. A greater number than before says
        that the job began anew, after an error, or because its worker died: what was read of the runs before is void,
        unless the job goes on from its cursors.
    """

    id: str
    value: Any
    run: int


class Place(NamedTuple):
    """Where the output of a job stands: what sends commands to its database, the key of its hash, and of the output."""

    client: Callable[[], Any]
    hash_key: str
    key: str


def place_at(client: Callable[[], Any], name: str, pk: str) -> Place:
    """Return where the output of a job is, given the name of its model."""
    return Place(client, f"{name}:{pk}:hash", output_key(name, pk))


def place_of(job: Any) -> Place:
    """Return where the output of a job is."""
    model = type(job)
    return place_at(partial(redis_of, model), model._name, pk_of(job))


class Following:
    """What `Output` and `AwaitedOutput` have in common. It sends nothing.

    Attributes
    ----------
    has_ended: bool
        Whether the job has ended, or is gone, and all that is kept of its output was read.
    is_closed: bool
        Whether the iteration was ended before.
    """

    def __init__(self, place: Place, after: str | None = None, timeout: float | None = None) -> None:
        self._place = place
        self._after = _checked_id(after)
        self._timeout = checked_timeout(timeout)
        self._waiting: deque[Chunk] = deque()
        self._follower: Follower | None = None
        self._leave: Callable[[], None] | None = None
        self._has_to_look, self.is_closed, self.has_ended = True, False, False

    def __del__(self) -> None:
        follower = vars(self).get("_follower")
        if follower is not None:
            follower.is_gone = True

    def _begin_following(self, wake: Callable[[], object], call: Caller) -> None:
        client, hash_key, key = self._place
        self._follower = Follower(hash_key, key, self._after, wake, call)
        self._leave = follow(client, self._follower)

    def _is_cut_off(self, call: Caller) -> bool:
        """Whether nothing wakes it any more: it followed in the process that this one was forked from, or in another
        event loop. It has to begin anew, with an event of its own: a lock of the other one may be held for ever."""
        follower = self._follower
        if follower is None or (follower.is_served() and follower.call == call):
            return False
        if follower.is_served():
            self._stop_following()
        self._follower, self._leave, self._has_to_look = None, None, True
        return True

    def _stop_following(self) -> None:
        leave, self._leave = self._leave, None
        if leave:
            leave()

    def _look(self) -> Steps[tuple[list[Chunk], bool]]:
        """Ask for what comes next; return that, and whether it is all until the end of the job."""
        client, hash_key, key = self._place
        commands = [
            ("HMGET", hash_key, "status", "queued"),
            ("XRANGE", key, f"({self._after}", "+", "COUNT", COUNT),
        ]
        status, rows = yield Commands(client(), commands)
        for kind, other, reply in (("the hash of a job", hash_key, status), ("a stream", key, rows)):
            if isinstance(reply, Exception):
                with refusing_other_keys(kind, other):
                    raise reply
        found = self._accept([entry_of(*row) for row in rows])
        is_all = len(rows) < COUNT
        self._has_to_look = not is_all
        return found, is_all and has_ended(status)

    def _accept(self, entries: Sequence[Entry]) -> list[Chunk]:
        """Return the chunks among some entries that were not read yet."""
        found, last = [], order_of(self._after)
        for name, fields in entries:
            order = order_of(name)
            if last < order < _NEVER:
                last, self._after = order, name
                if "value" in fields:
                    found.append(chunk_of(name, fields["value"]))
        return found

    def _taken(self) -> list[Chunk]:
        """Return what came since; nothing if it has to look anyway, as some before that may be missing."""
        entries, looks = self._follower.take() if self._follower else ([], True)
        self._has_to_look = self._has_to_look or looks
        return [] if self._has_to_look else self._accept(entries)


class Output(Following):
    """An iterator over the output of a job, from its beginning, or after some chunk, until the job has ended.

    It ends, too, if no chunk comes for some time; `has_ended` tells which it was. You may iterate over it again: it
    goes on where it was. While Redis does not answer, it waits on. Only one thread may iterate at a time. All that
    follow jobs of one database share a thread that listens, and its connection.

    Parameters
    ----------
    place: Place
        Of the output.
    after: str
        The id of the last chunk that is known, to go on after it, as far as the output is kept; None for all.
    timeout: float
        After how many seconds without a chunk it ends; None for never.

    Raises
    ------
    TypeError, ValueError
        If `after` is not the id of a chunk, or the timeout not None or a number of 0 or more.
    LimpydJobsException
        By the iteration, if another program wrote something to the key of the output.
    """

    def __init__(self, place: Place, after: str | None = None, timeout: float | None = None) -> None:
        super().__init__(place, after, timeout)
        self._event = Event()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        if not self._waiting:
            self._waiting.extend(self.read())
        if not self._waiting:
            raise StopIteration
        return self._waiting.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def read(self, timeout: float | None = None) -> list[Chunk]:
        """Wait for chunks and return them. The result is empty if the job has ended, none came in time, or after
        `close`.

        Parameters
        ----------
        timeout: float
            For how many seconds to wait; None for the timeout with which it was made.
        """
        deadline = deadline_of(self._timeout if timeout is None else checked_timeout(timeout))
        if self._is_cut_off(at_once):
            self._event = Event()
        while not (self.has_ended or self.is_closed):
            self._event.clear()
            found = self._taken() if self._follower else []
            if not found and (self._has_to_look or not self._follower):
                try:
                    found, self.has_ended = in_turn(
                        self._place.client().connection_pool, lambda: finish(self._look()), deadline
                    )
                except TimeoutError:
                    return []
            if self.has_ended:
                self._stop_following()
            if found or self.has_ended:
                return found
            if self._has_to_look:
                continue
            if not self._follower:
                if monotonic() >= deadline:
                    return []
                self._begin_following(self._event.set, at_once)
                self._has_to_look = True  # for what came meanwhile
            elif not self._event.wait(min(max(deadline - monotonic(), 0), TIMEOUT_MAX)):
                return []
        return []

    def close(self) -> None:
        """End the iteration, also of another thread."""
        self.is_closed = True
        self._stop_following()
        self._event.set()


def chunk_of(name: str, text: str) -> Chunk:
    """Return a chunk, given the id of its entry and its value as it is stored."""
    try:
        value = codec_of(json).load(text)
    except (ValueError, RecursionError):  # another program wrote it
        value = text
    return Chunk(name, value, int(name.partition("-")[0]))


def _checked_id(after: Any) -> str:
    if after is None or after == "":
        return _BEGINNING
    if not isinstance(after, str):
        raise TypeError(f"The output of a job is read after the id of a chunk, not {after!r}")
    if not _ID.fullmatch(after):
        raise ValueError(f"The output of a job is read after the id of a chunk, such as '2-17', not {after!r}")
    return after
