"""The cursors of a job: how far each of its loops is, and which of its steps are done."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from limpyd_jobs import transitions
from limpyd_jobs.arguments import check_size, own_duration, stored_value
from limpyd_jobs.exceptions import ClaimLost, JobInterrupted
from limpyd_jobs.fields.codecs import CODECS, dump_compact, load_json
from limpyd_jobs.models.following.progress import progress_text, setting_progress
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import finish
from limpyd_jobs.retrying import Cancel
from limpyd_jobs.texts import MESSAGE, one_line

# The longest cursor of one loop, and the longest text of all cursors of a job, as UTF-8.
MAX_CURSOR_BYTES, MAX_BYTES = 4 * 1024, 64 * 1024

MAX_NAME = 100  # characters

# What is raised for a text that is not one of cursors.
_WRONG = (TypeError, ValueError, OverflowError, RecursionError)

logger = logging.getLogger("limpyd-jobs")


class Entry(NamedTuple):
    """How far a loop is: how many items are done, and either by its index (the same number), or by the key of the last
    item; or that it, or a step, is done."""

    kind: str
    value: Any = None
    number: int = 0

    def written(self) -> dict[str, Any]:
        """Return what is stored."""
        return {self.kind: self.value, "count": self.number} if self.kind == "key" else {self.kind: self.value}

    @classmethod
    def read(cls, stored: Any) -> Entry:
        """Return what was stored; raise `ValueError` if it is anything else."""
        if stored == {"done": True}:
            return DONE
        if isinstance(stored, dict):
            number = stored.get("index", stored.get("count"))
            if type(number) is int and 0 <= number < 2**63:
                if stored.keys() == {"index"}:
                    return cls("index", number, number)
                if stored.keys() == {"key", "count"}:
                    return cls("key", stored["key"], number)
        raise ValueError(f"not a cursor: {one_line(stored, MESSAGE)}")


DONE = Entry("done", True)


@dataclass(slots=True)
class Keeping:
    """What is sent to be kept, by the names of scripts; and whether Redis has said that it was done."""

    request: Mapping[str, Any] = field(default_factory=dict)
    is_done: bool = False


class Cursors:
    """The cursors of one run of a job. The code of the job moves them; the thread that renews the lease keeps them.

    A job that is not claimed has cursors, too, but they are not kept.
    """

    def __init__(self, job: Any) -> None:
        known = vars(job)
        self._job = job
        self._delivery = known.get("_delivery") if known.get("_held_token") else None
        self._began: float = known.get("_began", monotonic())
        self._limit = own_duration(getattr(type(job), "max_run_time", None))
        self._entries = self._read(self._delivery.cursor) if self._delivery else {}
        self._used: set[str] = set()
        self.spawned: set[str] = set()  # the names by which this run has called spawn
        self._open = ""
        self._moves = self._kept = 0
        self._failure: Exception | None = None
        self._progress: tuple[int, int] | None = None  # how many items of how many are done
        self._tells_progress = bool(self._entries)  # whether there may be a stored one
        self._keeping = Lock()

    def _read(self, text: str) -> dict[str, Entry]:
        """Read the stored text. What another program wrote, or another version of this one, counts as nothing."""
        if not text:
            return {}
        try:
            stored = load_json(text)
            if not isinstance(stored, dict):
                raise ValueError("not an object")
            return {name: Entry.read(value) for name, value in stored.items()}
        except _WRONG as error:
            why = one_line(error, MESSAGE)
            logger.warning(f"[{self._label}] its cursor cannot be read, so it begins anew: {why}")
            return {}

    @property
    def _label(self) -> str:
        return one_line(vars(self._job).get("_cached_identifier", ""))

    # -- What loops and steps ask

    def begin(self, name: str) -> Entry | None:
        """Begin a loop or a step; return how far it was, None for one that is new."""
        if self._open:
            raise RuntimeError(f"{name!r} begins inside {self._open!r}: end one loop or step before the next begins")
        if name in self._used:
            raise RuntimeError(f"{name!r} was used before in this run: give each loop and each step a name of its own")
        self.check()
        self._open = name
        self._used.add(name)
        return self._entries.get(name)

    def end(self, name: str) -> None:
        """End a loop or a step, done or not."""
        if self._open == name:
            self._open = ""

    def move(self, name: str, entry: Entry, total: int | None = None) -> None:
        """Note how far a loop is, or that something is done."""
        if name not in self._entries:
            self._check_value(name, entry)
        self._entries[name] = entry
        if total is not None:
            self._progress = entry.number, total
        self._moves += 1

    @staticmethod
    def _check_value(name: str, entry: Entry) -> None:
        what = f"The cursor of {name!r}"
        text = CODECS[json].stored(what, entry.value)
        check_size(what, text, MAX_CURSOR_BYTES)
        stored_value(name, text)

    def finish(self, name: str, total: int | None = None) -> None:
        """Note that a loop or a step is done."""
        if total is not None and self._progress:
            self._progress = total, total
        self.move(name, DONE)

    def tell_end(self) -> None:
        """Let the progress be that of a loop that is done, if one was told, in one round trip."""
        delivery = self._delivery
        told = self._progress_request() if self._tells_progress else {}
        with suppress(RedisError):  # as `Job.progress`
            if told and delivery and not asyncio._get_running_loop():
                finish(setting_progress(self._job, told["progress"], delivery.token))

    def check(self) -> None:
        """Raise the exception by which the code of the job ends here, if it has to."""
        known = vars(self._job)
        if self._failure:
            raise self._failure
        if known.get("_claim_lost"):
            raise ClaimLost(f"The claim on [{self._label}] is lost: another worker may run it")
        if known.get("_is_told_to_end"):
            raise Cancel("it was canceled while it ran")
        ends = known.get("_worker_ends")
        if ends and ends():
            raise JobInterrupted("its worker has to end")
        if self._limit and self._delivery and self._moves and monotonic() - self._began > self._limit:
            raise JobInterrupted(f"it ran for more than {self._limit:g} s, and goes on later", goes_last=True)

    # -- What is kept

    def request(self, *, failed: bool = False) -> dict[str, Any]:
        """Return what to keep in the step that ends the claim, by the names of scripts."""
        if failed and getattr(type(self._job), "restart_after_error", False) is True:
            return {"restart": True}
        return self.pending()[0]

    def pending(self) -> tuple[dict[str, Any], int]:
        """Return what is not kept yet, by the names of scripts, and how many moves that has. Any thread may ask."""
        moves = self._moves
        if moves == self._kept or self._delivery is None:
            return {}, moves
        try:
            text = dump_compact({name: entry.written() for name, entry in self._entries.copy().items()})
            check_size("The text of all cursors of a job", text, MAX_BYTES)
            stored_value("cursor", text)  # which raises if it is not valid text
        except Exception as error:  # for the code of the job: the renewal of its lease must not fail
            self._failure = error
            return {}, moves
        return {"cursor": text, **self._progress_request()}, moves

    def _progress_request(self) -> dict[str, str]:
        if not self._progress or "_next_progress" in vars(self._job):  # the code tells its progress itself
            return {}
        count, total = self._progress
        self._tells_progress = True
        return {"progress": progress_text(count / total if total else 1.0, f"{count:,} of {total:,}")}

    @contextmanager
    def keeping(self, *, waits: bool = True) -> Iterator[Keeping]:
        """Send, inside the block, what is not kept yet. If the reply was lost, it is sent once more.

        One thread at a time does so, lest an older cursor follows. Another one waits, or else has nothing to send.
        """
        if not self._keeping.acquire(blocking=waits):
            yield Keeping()
            return
        try:
            request, moves = self.pending()
            keeping = Keeping(request)
            yield keeping
            if keeping.is_done:
                self._kept = max(self._kept, moves)
        finally:
            self._keeping.release()

    def keep(self) -> None:
        """Keep the cursors now, in one round trip. If Redis does not answer, the next renewal of the lease does so.

        Raise the exception by which the code of the job ends here, if it has to: the reply tells of a cancel.
        """
        delivery = self._delivery
        try:
            with self.keeping() as keeping:
                if keeping.request and delivery:
                    held = type(self._job), delivery.ident, delivery.token, delivery.queue_key
                    reply = transitions.renew(redis_of(self._job), *held, kept=keeping.request)
                    keeping.is_done = True
                    if reply["outcome"] == "canceled":
                        known = vars(self._job)
                        known["_is_told_to_end"] = known.get("_is_told_to_end") or True
        except RedisError as error:
            logger.warning(f"[{self._label}] its cursor is not kept yet: {one_line(error, MESSAGE)}")
        self.check()


class AttemptToken:
    """The name of the claim of a job, for effects that must happen once; None if it is not claimed. No other run of any
    job has the same."""

    def __get__(self, job: Any, owner: type) -> Any:
        return self if job is None else vars(job).get("_held_token") or None


def cursors_of(job: Any) -> Cursors:
    """Return the cursors of this run of a job."""
    known = vars(job)
    if known.get("_cursors") is None:
        known["_cursors"] = Cursors(job)
    found: Cursors = known["_cursors"]
    return found


def checked_name(name: Any) -> str:
    """Return the name of a loop or a step."""
    if not isinstance(name, str):
        raise TypeError(f"The name of a loop or a step must be a string, not {name!r}")
    if not 0 < len(name) <= MAX_NAME:
        raise ValueError(f"The name of a loop or a step has 1 to {MAX_NAME} characters, not {len(name):,}")
    return name
