"""The scripts of the check, which look at some records, or repair them: see the headers in ``lua/check/``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter, methodcaller
from typing import Any

from limpyd.model import RedisModel
from redis import Redis

from limpyd_jobs.arguments import is_servable
from limpyd_jobs.records.layout import classes_argument, layout_of
from limpyd_jobs.records.records import due_key
from limpyd_jobs.redis.calls import Call, listed, send
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.transitions.placing import where_to

_check_records = Script("check/check_records")
_merge_queues = Script("check/merge_queues")
_raise_counter = Script("check/raise_counter")
_repair_placement = Script("check/repair_placement")
_repair_schedules = Script("check/repair_schedules")
_restore_queue = Script("check/restore_queue")
_stale_index_entries = Script("check/stale_index_entries")
_orphan_keys = Script("check/orphan_keys")
_unresolved = Script("check/unresolved")

Rows = list[list[str]]


def check_records(
    connection: Redis, model: type[RedisModel], pks: Sequence[str], names: str, integers: str, repair: bool = False
) -> tuple[Rows, Rows]:
    """Look at some records: hash, collection, plain indexes, values; return the problems, and the jobs not at rest."""
    request = {**_looking(model, repair), "pks": listed(pks), "names": names, "integers": integers}
    return send(Call(connection, _check_records, request, _lists("problems", "live"), [model]))


def stale_index_entries(
    connection: Redis,
    model: type[RedisModel],
    field: str,
    prefix: str,
    members: Iterable[Sequence[str]],
    largest: int,
    repair: bool = False,
) -> tuple[Rows, list[str], Rows]:
    """Look for pks in the index of a field whose hashes have another value; return them, the sets that are too large to
    look at as a whole, and the keys that are not sets."""
    index = {"field": field, "prefix": prefix, "largest": largest, "members": listed(members)}
    request = {**_looking(model, repair), **index, "range": is_range(model, field, prefix)}
    return send(Call(connection, _stale_index_entries, request, _lists("stale", "large", "wrong")))


def is_range(model: type[RedisModel], field: str, key: str) -> bool:
    """Whether a key is a range index of a field, which scripts maintain."""
    return key in layout_of(model).description["ranges"].get(field, ())


def orphan_keys(
    connection: Redis, model: type[RedisModel], keys: Iterable[tuple[str, str, str]], repair: bool = False
) -> Rows:
    """Look for keys of missing records, and keys of a wrong type; or delete them."""
    request = {**_looking(model, repair), "keys": listed(keys)}
    return send(Call(connection, _orphan_keys, request, _lists("found")))


def repair_placement(
    connection: Redis,
    job_class: type[RedisModel] | None,
    ident: str,
    queue_keys: Sequence[str],
    *,
    in_no_list: bool = False,
    repair: bool = False,
    **details: Any,
) -> Rows:
    """Look whether a job, or a text that is not an ident, stands only where its hash says; or repair that."""
    request = {"ident": ident, "repair": repair, "in_no_list": in_no_list, **details}
    models: list[type[RedisModel]] = []
    if job_class:
        queue_model, name = job_class.queue_model, job_class.queue_name or ""
        models = [job_class, queue_model]
        where = where_to(queue_model, name, is_servable=is_servable(name))
        request |= {"job_model": layout_of(job_class).json, **where}
    return send(Call(connection, _repair_placement, request, _lists("problems"), models, queue_keys))


def unresolved(connection: Redis, queue_key: str, place: str, idents: Iterable[str], choice: str) -> list[str]:
    """Return the jobs of unresolved classes that do not run, and treat them as was chosen."""
    request = {"idents": listed(idents), "kind": place, "choice": choice}
    return send(Call(connection, _unresolved, request, _lists("idents"), keys=[queue_key]))


def repair_schedules(connection: Redis, model: type[RedisModel], pks: Iterable[str], repair: bool = False) -> Rows:
    """Look whether schedules stand in the sorted set as their hashes say; or repair that."""
    request = {**_looking(model, repair), "pks": listed(pks)}
    return send(Call(connection, _repair_schedules, request, _lists("found"), keys=[due_key(model)]))


def restore_queue(
    connection: Redis, model: type[RedisModel], pk: str, fields: Mapping[str, str], repair: bool = False
) -> Rows:
    """Look which of these fields, which indexes have, a queue has lost; or set them."""
    request = {**_looking(model, repair), "pk": pk}
    return send(Call(connection, _restore_queue, request, _lists("fields"), [model], fields=fields))


def merge_queues(
    connection: Redis, origin: str, target: str, classes: Mapping[str, type[RedisModel]], limit: int
) -> int:
    """Move entries of a queue, up to a limit, to another one of the same name and priority; return how many."""
    request = {"limit": limit, "classes": classes_argument(classes)}
    return send(Call(connection, _merge_queues, request, itemgetter("moved"), list(classes.values()), [origin, target]))


def raise_counter(connection: Redis, model: type[RedisModel], highest: int, repair: bool = False) -> str | None:
    """Look whether the counter of a model gives no new pk, or set it to its highest pk; if so return it, else None."""
    request = {**_looking(model, repair), "highest": highest}
    return send(Call(connection, _raise_counter, request, methodcaller("get", "counter")))


def _looking(model: type[RedisModel], repair: bool) -> dict[str, Any]:
    return {"model": layout_of(model).json, "repair": repair}


def _lists(*names: str) -> Callable[[dict[str, Any]], Any]:
    """Return a function that reads some lists of a reply, or the only one: empty lists come as objects."""

    def read(reply: dict[str, Any]) -> Any:
        lists = tuple(list(reply[name]) for name in names)
        return lists if len(names) > 1 else lists[0]

    return read
