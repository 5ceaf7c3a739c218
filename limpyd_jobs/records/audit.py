"""A stream with the last actions on many jobs at once, and who did them.

An entry is written before the first step, and each step notes how many it did, in the same script: so it is there even
if the process is killed. Until it ends, it is in a hash beside the stream, by its token.
"""

from __future__ import annotations

import json
import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any
from uuid import uuid4

from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.dates import EPOCH, parse_datetime
from limpyd_jobs.exceptions import NotAudited, Part, naming, parts_of
from limpyd_jobs.redis.calls import Call, Steps, commanded, finish, given, listed, log_not_audited, outcome_of, send
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.texts import MESSAGE, host_and_pid, kind_of, one_line

KEY, BEGUN = "limpyd-jobs:audit", "limpyd-jobs:audit:begun"

# How many entries that never ended are kept apart.
MAX_BEGUN = 100

# After how many seconds without a step an action is taken for killed: a step takes some milliseconds.
SILENCE = 60

COMPLETE = "complete"

_REMEDY = ("To do it all the same, give ", ("unaudited", "unaudited=True"))
_MAKE_ROOM = "Make room in Redis first: there is none for this step either"
_BUT_NEW_QUEUES = ", but a new queue needs room in Redis, too"
_REPAIR = "limpyd-jobs check --repair puts that right"

_acting_for: ContextVar[str] = ContextVar("acting_for", default="")

_begin_entry = Script("audit/begin_entry")
_end_entry = Script("audit/end_entry")
_last_entries = Script("audit/last_entries")
_note_entry = Script("audit/note_entry")


@dataclass
class Entry:
    """Something that is being done in several steps: what is written at its beginning, what the scripts of the steps
    need in their request to note it, and the tally."""

    connection: Any
    values: Mapping[str, str]
    names: Mapping[str, str]
    numbers: Mapping[str, Any] = field(default_factory=dict)
    outcome: str = COMPLETE

    def note(self, number: int) -> Steps[None]:
        """Add a number of those that were done by no script that notes it."""
        if number and "entry" in self.names:
            yield Call(self.connection, _note_entry, {**self.names, "number": number}, outcome_of)

    def noting(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Write other values of what is being done, and return all that it has, with what others wrote there."""
        token = self.names.get("entry")
        return write_to_begun(self.connection, token, values) if token else {}

    def end(self, outcome: str) -> Steps[None]:
        """Write what was done in the end. As it is done already, a failure to write is only logged."""
        values = {**self.values, "done": 0, **self.numbers, "outcome": outcome}
        try:
            request = {"entry": self.names.get("entry", ""), "audit": _flat(values)}
            yield Call(self.connection, _end_entry, request, outcome_of)
        except RedisError as error:
            log_not_audited(values.items(), _why(error) or error)
            with suppress(RedisError):
                yield from self._keep_outcome(values)

    def _keep_outcome(self, values: Mapping[str, Any]) -> Steps[None]:
        """Let the entry stay among those that have not ended, with its outcome."""
        token = self.names.get("entry", "")
        begun = _read((yield from commanded(self.connection, "HGET", at(self.connection, BEGUN), token)) or "")
        if begun:
            done = max(int(begun.get("done", 0)), int(values["done"]))
            whole = json.dumps({**begun, **values, "done": done})
            yield from commanded(self.connection, "HSET", at(self.connection, BEGUN), token, whole)

    def fail(self, error: BaseException, refusals: tuple[type[Exception], ...] = ()) -> Steps[None]:
        """Write that it was refused, or interrupted; raise another error than that if some is done."""
        if isinstance(error, refusals):
            self.numbers = {"refused": 1}
            yield from self.end(f"refused: {one_line(error, MESSAGE)}")
        else:
            is_ours = isinstance(error, NotAudited)
            yield from self.end(f"interrupted by {type(error).__name__ if is_ours else kind_of(error)}")
        if isinstance(error, NotAudited) and self.numbers.get("done"):
            raise of_the_rest(error) from error


@contextmanager
def audited(
    connection: Any,
    *,
    unaudited: bool = False,
    needs_room: bool | None = False,
    refusals: tuple[type[Exception], ...] = (),
    **values: Any,
) -> Iterator[Entry]:
    """Write that the block begins, and how it ends. If Redis refuses to, `NotAudited` is raised, unless it may be
    unaudited. The `refusals` are what the block raises if it did nothing; for `needs_room` see
    `refusing_if_unaudited`."""
    entry = finish(beginning(connection, values, unaudited=unaudited, needs_room=needs_room))
    try:
        with refusing_if_unaudited(needs_room=needs_room):
            yield entry
    except BaseException as error:
        finish(entry.fail(error, refusals))
        raise
    finish(entry.end(entry.outcome))


def of_the_rest(error: NotAudited) -> NotAudited:
    """Return an error that says that some is done."""
    return naming(NotAudited, "the rest is ", *parts_of(error))


def beginning(
    connection: Any, told: Mapping[str, Any], *, unaudited: bool = False, needs_room: bool | None = False
) -> Steps[Entry]:
    """Write that something begins. For the parameters see `audited`."""
    values = _entry(told)
    token = values.get("token") or uuid4().hex  # known before, if people follow what is done
    request = {"entry": token, "values": json.dumps(values), "most": MAX_BEGUN}
    try:
        with refusing_if_unaudited(needs_room=needs_room):
            yield Call(connection, _begin_entry, request, outcome_of)
    except NotAudited:
        if not unaudited:
            raise
        return Entry(connection, values, {})
    return Entry(connection, values, given(entry=token, unaudited=bool(unaudited)))


def entry_request(unaudited: bool = False, **values: Any) -> dict[str, Any]:
    """Return what a script of one step needs in its request, to write an entry."""
    return given(audit=_flat({**_entry(values), "outcome": COMPLETE}), unaudited=bool(unaudited))


@contextmanager
def refusing_if_unaudited(*, needs_room: bool | None = False) -> Iterator[None]:
    """Raise `NotAudited` if a script in the block cannot write to the audit, and so did nothing. Whether the script
    needs room itself, None if only for a new queue, says what helps while Redis is full."""
    try:
        yield
    except ResponseError as error:
        why = _why(error)
        if not why:
            raise
        remedy: Sequence[Part] = (f"{_REPAIR}. ", *_REMEDY) if "exhausted" in why else _REMEDY
        if why.startswith("OOM") and needs_room is not False:
            remedy = (_MAKE_ROOM,) if needs_room else (*_REMEDY, _BUT_NEW_QUEUES)
        told = f"not done, because it cannot be written to the audit: {why}. "
        raise naming(NotAudited, told, *remedy) from error


def _why(error: RedisError) -> str:
    """Return why Redis refused to write to the audit; empty if it refused something else."""
    why = str(error).partition("NOT AUDITED: ")[2].partition(" script: ")[0].rstrip(".")
    return re.sub(r"^@\w+: \d+: -", "", why)  # as Redis 6.2 has it


def _entry(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: one_line(value, MESSAGE) for name, value in {**who(), **values}.items()}


def _flat(values: Mapping[str, Any]) -> str:
    return listed([f"{each}" for pair in values.items() for each in pair])


@contextmanager
def acting_for(name: str) -> Iterator[None]:
    """Write a name to the audit, in front of that of the process, with all that is done in the block in this thread.

    It is the name of a user that the process authenticated, as the dashboard does.
    """
    token = _acting_for.set(one_line(name))
    try:
        yield
    finally:
        _acting_for.reset(token)


def who() -> dict[str, str]:
    """Return who this process is: its user, host and pid; and the user that its environment names, if another one. If
    it acts for a user that it authenticated, the name of that user is in front."""
    user = _user()
    names = (os.environ.get(name) for name in ("SUDO_USER", "LOGNAME", "USER", "LNAME", "USERNAME"))
    claimed = next((name for name in names if name and name != user), "")
    process = f"{user}@{host_and_pid()}"
    name = _acting_for.get()
    return {"who": f"{name} by {process}" if name else process, **given(claimed=claimed)}


def user_and_process() -> str:
    """Return the name of the user, the host and the pid."""
    return who()["who"]


def _user() -> str:
    """Return the name of the user of this process. What the environment says may be wrong."""
    uid = os.getuid()
    with suppress(KeyError):  # there may be no name for the number of a user
        return pwd.getpwuid(uid).pw_name
    return f"{uid}"


def write_to_begun(connection: Any, token: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Write values in an entry that has not ended, and return all that it has; nothing if it ended."""
    texts = {name: one_line(value, MESSAGE) for name, value in values.items()}
    request = {"entry": token, "number": 0, "values": json.dumps(texts)}
    reply = send(Call(connection, _note_entry, request, dict))
    return _read(reply["entry"])


def last_entries(connection: Any, most: int) -> list[dict[str, str]]:
    """Return the last entries, the newest first, each with ``at``: the date, naive UTC, or empty if it has none.

    The ``outcome`` of one that has not ended says whether it seems to go on.
    """
    reply = send(Call(connection, _last_entries, {"most": most}, dict, keys=[KEY]))
    pairs = ((pk, dict(zip(texts[::2], texts[1::2], strict=False))) for pk, texts in reply["ended"])
    found = [{**fields, "at": _date(pk)} for pk, fields in pairs]
    found += [{**entry, "at": entry.get("begun", "")} for entry in map(_read, reply["begun"]) if entry]
    now = EPOCH + timedelta(seconds=int(reply["moment"]))
    return [{**entry, **_outcome(entry, now)} for entry in sorted(found, key=itemgetter("at"), reverse=True)[:most]]


def _read(text: str) -> dict[str, str]:
    """Read an entry that has not ended; another program may have written something else."""
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, dict):
            return {name: f"{value}" for name, value in found.items()}
    return {}


def _outcome(entry: Mapping[str, str], now: datetime) -> dict[str, str]:
    """Return the outcome of an entry that has none, but says when its last step was."""
    last = parse_datetime(entry.get("last"))
    if "outcome" in entry or last is None:
        return {}
    if (now - last).total_seconds() < SILENCE:
        return {"outcome": "running"}
    return {"outcome": f"killed or interrupted after {entry.get('done', '?')}, last step at {entry['last']}"}


def last_id_ahead(connection: Any) -> str:
    """Return the last id of the stream if it is more than a day ahead, as after XADD with an id: the entries after it
    have no true date, and after the greatest one there can be none. Else return an empty text."""
    with suppress(ResponseError):
        last = f"{connection.xinfo_stream(at(connection, KEY))['last-generated-id']}"
        return last if _moment(last) > (connection.time()[0] + 86400) * 1000 else ""
    return ""


def redate(connection: Any) -> None:
    """Write the stream anew: its entries that are ahead get the present date."""

    key = at(connection, KEY)

    def rewrite(pipe: Any) -> None:
        now, entries = (connection.time()[0] + 1) * 1000, pipe.xrange(key)
        pipe.multi()
        pipe.delete(key)
        for pk, fields in entries:
            pipe.xadd(key, fields, id=pk if _moment(pk) < now else "*")

    connection.transaction(rewrite, key)


def _moment(pk: str) -> int:
    return int(pk.partition("-")[0])


def _date(pk: str) -> str:
    with suppress(OverflowError):
        return str(EPOCH + timedelta(seconds=_moment(pk) // 1000))
    return ""
