"""Presences. To keep one, to list them, and to delete those that ended, is one step each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, NamedTuple

from limpyd.model import RedisModel
from redis import Redis
from redis.exceptions import ResponseError

from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import Reply, redis_of, sender_of
from limpyd_jobs.redis.calls import Call, given, outcome_of, passing_over_wrong_types, run, send
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.redis.scripting import Script

_end_presence = Script("presences/end_presence")
_give_order = Script("presences/give_order")
_keep_presence = Script("presences/keep_presence")
_note_lost = Script("presences/note_lost")
_list_presences = Script("presences/list_presences")
_sweep_presences = Script("presences/sweep_presences")

# A stream with the workers that ended within a day, the last ones.
ENDED = "limpyd-jobs:ended-workers"

# How many that ended, without a note of it, are read, the last ones; and which of their fields.
MAX_LAPSED, _OF_LAPSED = 50, ("kind", "name", "host", "pid", "since", "details", "_lease")

Model = type[RedisModel]

# How many orders are kept for one presence: the last ones; and for how many seconds what it told last.
MAX_ORDERS, DUMP_KEPT = 100, 3600


class Sign(NamedTuple):
    """The result of a sign of life: the pk, the date of the first sign, and the orders of others, each told once."""

    pk: str
    since: str
    orders: list[str]


def keep(
    model: Model, pk: str, fields: Mapping[str, str], lease: float, connection: Redis | None = None, **more: str
) -> Sign:
    """Say that a process, without a pk the first time, is there for some seconds. A connection that any thread may use
    can be given, and that the process takes orders."""

    def read(reply: Reply) -> Sign:
        return Sign(reply["pk"], reply.get("since", ""), list(reply.get("orders", ())))

    layout = layout_of(model)
    request = given(model=layout.json, pk=pk, lease=lease, **more)
    keys = [layout.description["leases"]]
    return send(Call(connection or sender_of(model), _keep_presence, request, read, [model], keys=keys, fields=fields))


def leave(connection: Redis, model: Model, pk: str, *, is_noted: bool = True) -> None:
    """Delete the record of a process that leaves, over a connection that any thread may use. Of a worker, it is noted
    that it ended, unless nothing of it is to stay."""
    layout = layout_of(model)
    request, keys = {"model": layout.json, "pk": pk, "unnoted": not is_noted}, [layout.description["leases"]]
    run(_end_presence, connection, keys, Call(connection, _end_presence, request, outcome_of, [model]).words())


def note_lost(model: Model, owner: str, queues: Sequence[str], running: int) -> None:
    """Note that a worker ended whose claims have lapsed, unless its presence did so, or will."""
    place, _, _ = owner.rpartition(":")
    host, _, pid = place.rpartition(":")
    details = {"queues": queues, "running": [None] * running}
    layout = layout_of(model)
    known = {"name": owner, "host": host, "pid": pid, "details": json.dumps(details)}
    request, keys = {"model": layout.json, "pk": pk_of_worker(owner), **known}, [layout.description["leases"]]
    send(Call(sender_of(model), _note_lost, request, outcome_of, [model], keys=keys))


def pk_of_worker(owner: str) -> str:
    """Return the pk of the presence of the worker that is the owner of claims."""
    return f"worker-{owner.rpartition(':')[2]}"


def keep_dump(connection: Redis, model: Model, pk: str, text: str) -> None:
    """Write what a process does for others to read, over a connection that any thread may use."""
    connection.set(_dump_key(model, pk), text, ex=DUMP_KEPT)


def dump_of(model: Model, pk: str) -> str:
    """Return what a process wrote last; empty if it wrote nothing for an hour."""
    with suppress(ResponseError):  # the key is of a wrong type
        found: Any = redis_of(model).get(_dump_key(model, pk))
        return str(found or "")
    return ""


def _dump_key(model: Model, pk: str) -> str:
    return f"{layout_of(model).description['name']}:{pk}:_dump"


def ended(connection: Any) -> list[tuple[str, dict[str, str]]]:
    """Return the last notes of workers that ended: the id of each entry, which begins with the milliseconds since the
    epoch, and its fields; the newest first."""
    found: Any = ()
    with passing_over_wrong_types():
        found = connection.xrevrange(at(connection, ENDED))
    return list(found)


def lapsed(model: Model, kind: str, now: float) -> list[tuple[float, dict[str, str]]]:
    """Return those of a kind whose lease has ended by a moment, and of which no worker has noted so, as if none is
    there any more: when their lease ended, and their fields. Nothing is written."""
    connection, description = redis_of(model), layout_of(model).description
    found: Any = ()
    with passing_over_wrong_types():
        found = connection.zrevrangebyscore(
            description["leases"], f"({now!r}", "-inf", start=0, num=MAX_LAPSED, withscores=True
        )
    pipe: Any = connection.pipeline(transaction=False)
    for pk, _ in found:
        pipe.hmget(f"{description['name']}:{pk}:hash", _OF_LAPSED)
    read: list[tuple[float, dict[str, str]]] = []
    for (_, end), values in zip(found, pipe.execute(raise_on_error=False), strict=True):
        fields = {} if isinstance(values, Exception) else dict(zip(_OF_LAPSED, values, strict=True))
        if fields.get("kind") == kind:
            read.append((end, {name: value or "" for name, value in fields.items()}))
    return read


def give_order(model: Model, pk: str, order: str, lasts: float, **audit: str) -> bool:
    """Give an order, which lapses, to a process; return whether that presence exists."""
    layout = layout_of(model)
    request = {"model": layout.json, "pk": pk, "order": order, "lasts": lasts, "most": MAX_ORDERS, **audit}
    keys = [layout.description["leases"]]
    return send(Call(sender_of(model), _give_order, request, outcome_of, keys=keys)) == "done"


class Alive(NamedTuple):
    """Those who are there: when, by the clock of Redis, and the pk, the end and the fields of each."""

    now: float
    records: list[tuple[str, float, dict[str, str]]]


def alive(model: Model, kind: str = "") -> Alive:
    """Return those who are there, of one kind if it is given. Nothing is written."""

    def read(reply: Reply) -> Alive:
        records = [
            (pk, float(end), dict(zip(flat[::2], flat[1::2], strict=True))) for pk, end, flat in reply["records"]
        ]
        return Alive(float(reply["now"]), records)

    layout = layout_of(model)
    keys = [layout.description["leases"]]
    request = given(model=layout.json, kind=kind)
    return send(Call(sender_of(model), _list_presences, request, read, [model], keys=keys))


def sweep(model: Model) -> int:
    """Delete the records of some who are not there any more; return how many they were."""
    layout = layout_of(model)
    request, keys = {"model": layout.json}, [layout.description["leases"]]
    return send(Call(sender_of(model), _sweep_presences, request, itemgetter("ended"), [model], keys=keys))
