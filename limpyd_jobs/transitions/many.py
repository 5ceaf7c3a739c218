"""Looking at many records, and changing many: each call is about some of those that meet some conditions.

Which ones, its request says: see ``lua/includes/finding.lua``. All that there are is a sequence of such calls, which
`limpyd_jobs.search.walk.Source` makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from limpyd.model import RedisModel

from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import Call, Verb
from limpyd_jobs.redis.scripting import Script

_cancel_many = Script("many/cancel_many")
_delete_errors = Script("errors/delete_errors")
_delete_many = Script("many/delete_many")
_group_errors = Script("errors/group_errors")
_move_many = Script("many/move_many")
_requeue_many = Script("many/requeue_many")
_search = Script("many/search")

Request = Mapping[str, Any]


class Found(NamedTuple):
    """What a script found among some records.

    Attributes
    ----------
    number: int
        How many records meet the conditions.
    records: sequence of (int, sequence of (str or None))
        The pk of each, and the values that were asked for.
    counts: mapping of str to int
        How many records have each value of the field that was asked for.
    looked: int
        How many records were looked at.
    seen: int
        The pk that was looked at last.
    """

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
    """Some errors by their fingerprint: see ``lua/errors/group_errors.lua``. For the rest see `Found`."""

    groups: Mapping[str, Mapping[str, Any]]
    looked: int
    seen: int

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> Grouped:
        return cls(reply["groups"], reply["looked"], int(reply["seen"]))


class Changed(NamedTuple):
    """How many of some records have each outcome. For the rest see `Found`."""

    outcomes: Mapping[str, int]
    looked: int
    seen: int

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> Changed:
        return cls(reply["outcomes"], reply["looked"], int(reply["seen"]))


@Verb
def search(connection: Any, request: Request) -> Call[Found]:
    """Find records."""
    return Call(connection, _search, request, Found.of)


@Verb
def group_errors(connection: Any, request: Request) -> Call[Grouped]:
    """Count errors by their cause."""
    return Call(connection, _group_errors, request, Grouped.of)


@Verb
def delete_errors(error_model: type[RedisModel], request: Request) -> Call[Changed]:
    """Delete errors."""
    return _change(_delete_errors, error_model, request)


@Verb
def requeue_many(job_class: type[RedisModel], request: Request) -> Call[Changed]:
    """Put jobs that failed back in their queues, or in another one."""
    return _change(_requeue_many, job_class, request)


@Verb
def cancel_many(job_class: type[RedisModel], request: Request) -> Call[Changed]:
    """Cancel jobs that wait, are delayed or run."""
    return _change(_cancel_many, job_class, request)


@Verb
def delete_many(job_class: type[RedisModel], request: Request) -> Call[Changed]:
    """Delete jobs that do not run."""
    return _change(_delete_many, job_class, request)


@Verb
def move_many(job_class: type[RedisModel], request: Request) -> Call[Changed]:
    """Move jobs that wait or are delayed."""
    return _change(_move_many, job_class, request)


def _change(script: Script, model: type[RedisModel], request: Request) -> Call[Changed]:
    return Call(redis_of(model), script, {"model": layout_of(model).json, **request}, Changed.of, [model])
