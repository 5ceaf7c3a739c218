"""What the check asks Redis for: to look at some records, atomically, or to put them right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any

from limpyd.model import RedisModel
from redis import Redis

from limpyd_jobs.store.calls import Call, flag, listed, send
from limpyd_jobs.store.layout import classes_argument, layout_of
from limpyd_jobs.store.records import due_key
from limpyd_jobs.store.scripting import Script

_check_records = Script("check_records")
_merge_queues = Script("merge_queues")
_raise_counter = Script("raise_counter")
_repair_placement = Script("repair_placement")
_repair_schedules = Script("repair_schedules")
_stale_index_entries = Script("stale_index_entries")
_orphan_keys = Script("orphan_keys")
_unresolved = Script("unresolved")


def check_records(
    connection: Redis, model: type[RedisModel], pks: Sequence[str], names: str, integers: str, repair: bool = False
) -> tuple[list[list[str]], list[list[str]]]:
    """Look at some records: hash, collection, plain indexes, values; or put them right.

    Parameters
    ----------
    names, integers: str
        As JSON: the names of the hash fields, and those of integers with what to set them to if they hold none.

    Returns
    -------
    tuple of list
        The (pk, problem, field, value) of what is wrong; the (pk, status, identifier) of jobs that are not at rest.
    """
    request = {**_looking(model, repair), "pks": listed(pks), "names": names, "integers": integers}
    read = partial(_lists, "problems", "live")
    problems, live = send(Call(connection, _check_records, request, read, [model]))
    return problems, live


def stale_index_entries(
    connection: Redis,
    model: type[RedisModel],
    field: str,
    prefix: str,
    members: Iterable[tuple[str, str]],
    largest: int,
    repair: bool = False,
) -> tuple[list[list[str]], list[str], list[list[str]]]:
    """Look for pks in the index of a field whose hashes have another value; or remove them.

    Parameters
    ----------
    members: iterable of tuple of str
        The (value, pk) to look at; an empty pk is for all of the value, if there are not more than `largest`.

    Returns
    -------
    tuple of list
        The (value, pk) of the stale entries; the values of too many pks; the (value, type) of keys that are no sets.
    """
    index = {"field": field, "prefix": prefix, "largest": largest, "members": listed(members)}
    request = {**_looking(model, repair), **index}
    read = partial(_lists, "stale", "large", "wrong")
    stale, large, wrong = send(Call(connection, _stale_index_entries, request, read))
    return stale, large, wrong


def orphan_keys(
    connection: Redis, model: type[RedisModel], keys: Iterable[tuple[str, str, str]], repair: bool = False
) -> list[list[str]]:
    """Look for keys of records that do not exist, or keys of a wrong type; or delete them.

    Parameters
    ----------
    keys: iterable of tuple of str
        The key, the pk it is of, and its type if that matters.

    Returns
    -------
    list
        Of (key, problem, type).
    """
    request = {**_looking(model, repair), "keys": listed(keys)}
    (found,) = send(Call(connection, _orphan_keys, request, partial(_lists, "found")))
    return found


def repair_placement(
    connection: Redis,
    job_class: type[RedisModel] | None,
    ident: str,
    queue_keys: Sequence[str],
    *,
    in_no_list: bool = False,
    repair: bool = False,
    **details: Any,
) -> list[list[str]]:
    """Look whether a job stands where its hash says and nowhere else; or put that right.

    Parameters
    ----------
    job_class: RedisModel
        None for what is no ident.
    queue_keys: sequence of str
        All queues it may stand in.
    in_no_list, details
        See ``lua/repair_placement.lua``.

    Returns
    -------
    list
        Of (problem, place, "1" if it can be repaired).
    """
    model = layout_of(job_class).json if job_class else ""
    request = {"job_model": model, "ident": ident, "repair": flag(repair), "in_no_list": flag(in_no_list), **details}
    models = [job_class] if job_class else []
    (problems,) = send(Call(connection, _repair_placement, request, partial(_lists, "problems"), models, queue_keys))
    return problems


def unresolved(connection: Redis, queue_key: str, place: str, idents: Iterable[str], choice: str) -> list[str]:
    """Tell which jobs of classes that cannot be had may be taken out of a place, or take them out.

    Parameters
    ----------
    place: str
        ``waiting``, ``delayed`` or ``_running``.
    choice: str
        ``leave`` only to tell; ``quarantine``; ``delete``.

    Returns
    -------
    list of str
        The idents, without those that somebody runs.
    """
    request = {"idents": listed(idents), "kind": place, "choice": choice}
    (found,) = send(Call(connection, _unresolved, request, partial(_lists, "idents"), keys=[queue_key]))
    return found


def repair_schedules(
    connection: Redis, model: type[RedisModel], pks: Iterable[str], repair: bool = False
) -> list[list[str]]:
    """Look whether schedules stand among those that are due as their hashes say; or put that right.

    Returns
    -------
    list
        Of (pk, problem, detail); the pk is empty for what is wrong with the sorted set.
    """
    request = {**_looking(model, repair), "pks": listed(pks)}
    (found,) = send(Call(connection, _repair_schedules, request, partial(_lists, "found"), keys=[due_key(model)]))
    return found


def merge_queues(
    connection: Redis, origin: str, target: str, classes: Mapping[str, type[RedisModel]], limit: int
) -> int:
    """Move what is in a queue, up to a limit, to another one of the same name and priority; return how much it was."""
    request = {"limit": limit, "classes": classes_argument(classes)}
    return send(Call(connection, _merge_queues, request, itemgetter("moved"), list(classes.values()), [origin, target]))


def raise_counter(connection: Redis, model: type[RedisModel], highest: int, repair: bool = False) -> str | None:
    """Look whether the counter of a model is below its highest pk, or raise it; return what it is if so, else None."""
    request = {**_looking(model, repair), "highest": highest}
    return send(Call(connection, _raise_counter, request, methodcaller("get", "counter")))


def _looking(model: type[RedisModel], repair: bool) -> dict[str, Any]:
    return {"model": layout_of(model).json, "repair": flag(repair)}


def _lists(*args: Any) -> list[Any]:
    """Read some lists of a reply."""
    *names, reply = args
    return [list(reply[name]) for name in names]
