"""Looking at many records, and changing many: each call is about some of those that meet some conditions.

Which ones, its request says: see ``lua/includes/finding.lua``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from limpyd.model import RedisModel

from limpyd_jobs.dates import EPOCH
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import Call, Steps, Verb, outcome_of
from limpyd_jobs.redis.scripting import Script

_cancel_many = Script("many/cancel_many")
_delete_errors = Script("errors/delete_errors")
_delete_many = Script("many/delete_many")
_group_errors = Script("errors/group_errors")
_end_turns = Script("many/end_turns")
_move_many = Script("many/move_many")
_requeue_many = Script("many/requeue_many")
_search = Script("many/search")
_take_turn = Script("many/take_turn")

Request = Mapping[str, Any]


class Found(NamedTuple):
    """How many of some records meet the conditions, the pk and values of each, how many have each value of a field, how
    many were looked at, and the pk that was seen last."""

    number: int
    records: Sequence[tuple[int, Sequence[str | None]]]
    counts: Mapping[str, int]
    looked: int
    seen: int

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> Found:
        found = [(int(pk), [value or None for value in values]) for pk, values in reply["found"]]
        return cls(reply["number"], found, reply["counts"], reply["looked"], int(reply["seen"]))


class Grouped(NamedTuple):
    """Some errors by their fingerprint: see ``lua/errors/group_errors.lua``."""

    groups: Mapping[str, Mapping[str, Any]]
    looked: int
    seen: int

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> Grouped:
        return cls(reply["groups"], reply["looked"], int(reply["seen"]))


class Changed(NamedTuple):
    """How many of some records have each outcome; of jobs that are spread, when the first one is due, and how many
    seconds there are to the next; and which were done, if that was asked for."""

    outcomes: Mapping[str, int]
    looked: int = 0
    seen: int = 0
    first: datetime | None = None
    interval: float = 0
    pks: Sequence[str] = ()

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> Changed:
        changed = cls(reply["outcomes"], reply["looked"], int(reply["seen"]), pks=[*reply.get("pks", ())])
        if "turn" not in reply:
            return changed
        return changed._replace(first=_moment(reply["turn"]), interval=float(reply["interval"]) / 1_000_000)


def last_turn(first: datetime | None, interval: float, number: int) -> datetime | None:
    """Return when the last of so many jobs is due, given when the first one is."""
    try:
        return first and first + timedelta(seconds=interval * max(number - 1, 0))
    except OverflowError:
        return datetime.max


def _moment(microseconds: str) -> datetime:
    return EPOCH + timedelta(microseconds=int(microseconds))


@Verb
def search(connection: Any, request: Request) -> Call[Found]:
    """Find records."""
    return Call(connection, _search, request, Found.of)


@Verb
def group_errors(connection: Any, request: Request) -> Call[Grouped]:
    """Count errors by their cause."""
    return Call(connection, _group_errors, request, Grouped.of)


def _changing(script: Script) -> Verb[[type[RedisModel], Request], Changed]:
    """Return the verb that a script is for records of a model."""

    def call(model: type[RedisModel], request: Request) -> Call[Changed]:
        return Call(redis_of(model), script, {"model": layout_of(model).json, **request}, Changed.of, [model])

    return Verb(call)


cancel_many, delete_many, move_many, requeue_many, delete_errors = map(
    _changing, (_cancel_many, _delete_many, _move_many, _requeue_many, _delete_errors)
)


def changed(
    verb: Verb[[type[RedisModel], Request], Changed], model: type[RedisModel], request: Request, which: Request
) -> Steps[Changed]:
    """Change some of the records of a model."""
    found: Changed = yield verb.call(model, {**request, **which})
    return found


@Verb
def take_turn(connection: Any, request: Request) -> Call[datetime]:
    """Take the next turn, for a job that no script puts in a queue; raise `OverflowError` beyond the year 9999."""

    def read(reply: Mapping[str, Any]) -> datetime:
        if reply["outcome"] == "too late":
            raise OverflowError("beyond the year 9999")
        return _moment(reply["turn"])

    return Call(connection, _take_turn, request, read)


@Verb
def end_turns(connection: Any, turns: str) -> Call[str]:
    """Note that all jobs of a spread have their moment."""
    return Call(connection, _end_turns, {"turns": turns}, outcome_of)
