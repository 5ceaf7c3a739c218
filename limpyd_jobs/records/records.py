"""Making, finding, changing and deleting records of the models, in one step each. These are not transitions of a job.

Their scripts are in ``lua/``; no header of them names a status.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, cast

from limpyd.exceptions import DoesNotExist, UniquenessError
from limpyd.model import RedisModel
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import NoScriptError, RedisError

from limpyd_jobs.arguments import check_servable, is_servable
from limpyd_jobs.classes.binding import is_same_database
from limpyd_jobs.records.audit import entry_request, refusing_if_unaudited
from limpyd_jobs.records.known_classes import unwritten, was_written
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.lazy_fields import attached as attached
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.records.lazy_fields import queue_key_of as queue_key_of
from limpyd_jobs.records.wrong_types import naming_wrong_keys
from limpyd_jobs.redis.calls import (
    Call,
    Requests,
    Steps,
    Verb,
    chunks,
    commanded,
    finish,
    listed,
    outcome_of,
    passing_over_wrong_types,
    reindexed,
    run,
    send,
)
from limpyd_jobs.redis.database import redis_of as redis_of
from limpyd_jobs.redis.database import sender_of as sender_of
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.texts import too_long

_add_error = Script("errors/add_error")
_delete_record = Script("records/delete_record")
_delete_records = Script("records/delete_records")
_due_schedules = Script("timed/due_schedules")
_get_queue = Script("queues/get_queue")
_increase_field = Script("records/increase_field")
_list_queues = Script("queues/list_queues")
_read_beside = Script("records/read_beside")
_read_hashes = Script("records/read_hashes")
_read_ends = Script("records/read_ends")
_read_records = Script("records/read_records")
_set_fields = Script("records/set_fields")
_set_schedule = Script("timed/set_schedule")
_notify_all = Script("queues/notify_all")
_notify_one = Script("queues/notify_one")
_pause_queues = Script("queues/pause_queues")
_resume_queues = Script("queues/resume_queues")
_unset_fields = Script("records/unset_fields")

Reply = dict[str, Any]

# How many records one script reads or deletes: it takes about a millisecond.
PAGE = 200


def get_queue(queue_model: type[RedisModel], name: str, priority: str, fields: Mapping[str, Any]) -> str:
    """Find the queue of a name and a priority, or create it with the given fields; return its pk. If no worker could
    serve a new one, `ValueError` is raised."""
    if not is_servable(name) and not any(row[1:3] == (name, priority) for row in list_queues(queue_model, [name])):
        check_servable(name)
    layout = layout_of(queue_model)
    registry = unwritten(queue_model=queue_model)
    request = {"queue_model": layout.json, "queue_name": name, "priority": priority, "registry": registry}
    pk = finish(creating(queue_model, fields, layout.plain | layout.special, _get_queue, request))["pk"]
    if registry:
        was_written(queue_model=queue_model)
    return pk


def list_queues(
    queue_model: type[RedisModel], names: Iterable[str], connection: Redis | None = None
) -> list[tuple[str, str, str, int, int, int]]:
    """Return the pk, name, priority, number of waiting jobs, number of delayed jobs, and whether it is paused (1 or 0),
    of the queues of some names, without queues of other programs whose keys would not fit in a line."""
    return [tuple(row) for row in _listed_queues(connection or redis_of(queue_model), queue_model, names)]


def read_queues(
    queue_model: type[RedisModel], names: Iterable[str], *, lapsed: bool
) -> list[tuple[str, str, str, list[str], list[str]]]:
    """Return the pk, name and priority of the queues of some names, the idents that run, and the idents that wait."""
    rows = _listed_queues(sender_of(queue_model), queue_model, names, members="lapsed" if lapsed else "all")
    return [(*row[:2], row[2] or "0", [*row[6]], [*row[7]]) for row in rows]


def _listed_queues(sender: Any, queue_model: type[RedisModel], names: Iterable[str], **how: str) -> list[list[Any]]:
    request = {"queue_model": layout_of(queue_model).json, "names": listed(map(_text_of, names)), **how}
    rows = send(Call(sender, _list_queues, request, itemgetter("queues")))
    return [row for row in rows if "\n" not in row[0]]


def _text_of(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def some_queue_names(queue_model: type[RedisModel]) -> list[str]:
    """Return the names of some queues; of all queues if there are at most some dozens."""
    client = redis_of(queue_model)
    pks: Any = client.srandmember(f"{queue_model._name}:collection", 100)
    pipe = client.pipeline(transaction=False)
    for pk in pks:
        pipe.hget(f"{queue_model._name}:{pk}:hash", "name")
    return sorted({name for name in pipe.execute(raise_on_error=False) if isinstance(name, str)})


def count_jobs(queue_model: type[RedisModel], names: Iterable[str]) -> tuple[int, int]:
    """Return how many jobs wait, and how many are delayed, in the queues of some names."""
    rows = list_queues(queue_model, names)
    return sum(row[3] for row in rows), sum(row[4] for row in rows)


def change_pause(connection: Redis, model: str, name: str, *, pauses: bool, unaudited: bool = False) -> bool:
    """Pause or resume the queues of a name, of the model whose keys begin so; return whether that changes something."""
    verb, script = ("pause", _pause_queues) if pauses else ("resume", _resume_queues)
    request = {"name": name, **entry_request(unaudited, verb=verb, filter=f"queue={name}", done=1)}
    with refusing_if_unaudited(needs_room=pauses):
        is_changed = bool(send(Call(connection, script, request, outcome_of, keys=[f"{model}:paused"])) != "unchanged")
    if is_changed and not pauses:
        notify_all(connection, f"{model}:_signal:{name}")
    return is_changed


def signal_key(queue_model: type[RedisModel], name: str) -> str:
    """Return the key of the list that idle workers of a name wait for: see `lua/queues/notify_all.lua`."""
    return f"{queue_model._name}:_signal:{name}"


def canceled_key(queue_model: type[RedisModel], owner: str) -> str:
    """Return the key of the list that tells a worker, as its tokens name it, which of its jobs were canceled: see
    ``lua/includes/canceling.lua``."""
    return f"{queue_model._name}:_canceled:{owner}"


def say_that_it_ends(queue_model: type[RedisModel], owner: str) -> None:
    """Let the jobs of a worker, as its tokens name it, be no suspects if it is killed before it has ended: see
    ``lua/recovering/rescue.lua``. That is forgotten after a day, or by `has_ended`."""
    redis_of(queue_model).set(_stopping_key(queue_model, owner), "1", ex=86400)


def has_ended(queue_model: type[RedisModel], owner: str) -> None:
    """Such a worker has ended, and left no job."""
    redis_of(queue_model).delete(_stopping_key(queue_model, owner))


def _stopping_key(queue_model: type[RedisModel], owner: str) -> str:
    return f"{queue_model._name}:_stopping:{owner}"


def notify_all(connection: Redis, key: str) -> None:
    """End the wait of all idle workers that wait for that key. If that fails, because Redis is full for example, they
    look again when their wait ends."""
    with suppress(RedisError):
        send(Call(connection, _notify_all, {}, outcome_of, keys=[key]))


def notify_one(connection: Redis, queue_key: str, *, leaves_lanes: bool = False) -> None:
    """End the wait of an idle worker, if there is one, because there is a job in a queue; and if the worker that looks
    at the lanes of the queue is to run a job, leave that to another."""
    send(Call(connection, _notify_one, {"leaves_lanes": leaves_lanes}, outcome_of, keys=[queue_key]))


def notify_next(connection: Redis, key: str) -> None:
    """End the wait of the worker that waits for that key, or its next wait."""
    pipe: Any = connection.pipeline(transaction=False)
    pipe.rpush(key, "1").expire(key, 10).execute()


def paused_names_of(connection: Redis, model: str) -> set[str]:
    """Return the names of the queues that are paused, of the model whose keys begin so."""
    with passing_over_wrong_types():
        return cast("set[str]", connection.smembers(f"{model}:paused"))
    return set()


def add_error(error_model: type[RedisModel], fields: Mapping[str, Any], *, again: bool = False) -> str:
    """Create an error; return its pk. If an earlier call with the same fields failed, the error that it may have made
    is completed."""

    layout = layout_of(error_model)
    scripted = layout.plain | layout.special
    registry = unwritten(error_model=error_model)
    request = {"error_model": layout.json, "again": again, "registry": registry}
    with naming_wrong_keys(redis_of(error_model), error_model, fields):
        reply = finish(creating(error_model, fields, scripted, _add_error, request))
    if registry:
        was_written(error_model=error_model)
    if reply["outcome"] == "existing":
        record, (_, others) = attached(error_model, reply["pk"]), layout.split(fields, scripted)
        for name in others:
            record.get_field(name).delete()
        record.set_fields(**others)
    return str(reply["pk"])


class NewError:
    """An error that the script which records a failure creates in the same step. `read` takes its reply."""

    def __init__(self, error_model: type[RedisModel], fields: Mapping[str, Any]) -> None:
        self._model, self._fields = error_model, fields
        self._registry = unwritten(error_model=error_model)
        self._pk, self._is_missing = "", False

    @staticmethod
    def is_possible(error_model: type[RedisModel], job_class: type[RedisModel], names: Iterable[str]) -> bool:
        """Whether a script that ends a job can create an error with these fields."""
        if not is_same_database(error_model.database, job_class.database):
            return False
        layout = layout_of(error_model)
        return not layout.other_defaults and not layout.has_unique and set(names) <= layout.plain | layout.special

    def request(self) -> dict[str, Any]:
        """Return the names of a request, without the fields."""
        return {"error_model": layout_of(self._model).json, "error_registry": self._registry}

    def fields(self) -> Mapping[str, str]:
        """Return the fields as scripts take them."""
        layout = layout_of(self._model)
        return layout.split(self._fields, layout.plain | layout.special)[0]

    def read(self, reply: Mapping[str, Any]) -> None:
        """Note what became of it. It is missing if the failure is recorded, and the script could not create it."""
        self._pk = reply.get("failure", {}).get("pk", "")
        self._is_missing = not self._pk and reply["outcome"] in ("error", "requeued") and not reply.get("status")
        if self._pk and self._registry:
            was_written(error_model=self._model)

    def complete(self) -> None:
        """Do what the script could not do: maintain special indexes, or create the error; raise why that fails."""
        model, fields = self._model, self._fields
        if self._is_missing:
            add_error(model, fields, again=True)
        elif self._pk:
            with naming_wrong_keys(redis_of(model), model, fields):
                special = layout_of(model).special & fields.keys()
                reindexed(model, self._pk, [(name, None, fields[name]) for name in special])


def due_key(schedule_model: type[RedisModel]) -> str:
    """Return the key of the sorted set of the active schedules, by when they are due."""
    return f"{schedule_model._name}:due"


@Verb
def set_schedule(
    schedule_model: type[RedisModel],
    pk: str,
    due: str,
    fields: Mapping[str, str],
    heard_by: str = "",
    seen: Mapping[str, str] | None = None,
) -> Call[str]:
    """Make (without a pk) or change a schedule, and when it is due; return its pk. `heard_by` is the key of a signal,
    to notify an idle worker if no other schedule is due before. If one of the fields that were `seen` is not so any
    more, do nothing, and return an empty text."""

    def read(reply: Reply) -> str:
        if unique(schedule_model, reply)["outcome"] == "gone":
            raise DoesNotExist(f"No {schedule_model.__name__} found with pk {pk}")
        return str(reply.get("pk", ""))

    request = {"model": layout_of(schedule_model).json, "pk": pk, "due": due, "seen": json.dumps(seen) if seen else ""}
    keys = [due_key(schedule_model), *([heard_by] if heard_by else ())]
    return Call(redis_of(schedule_model), _set_schedule, request, read, [schedule_model], keys, fields=fields)


class DueSchedules(NamedTuple):
    """The schedules that are due.

    Attributes
    ----------
    moment: float
        Now, in seconds since the epoch.
    upcoming: float
        When the next one is due after that; None for never.
    number: int
        How many are due.
    found: list of pairs
        The pk and the fields of some of them.
    """

    moment: float
    upcoming: float | None
    number: int
    found: list[tuple[str, dict[str, str]]]


def due_schedules(schedule_model: type[RedisModel], limit: int, part: float = 0.0) -> DueSchedules:
    """Return schedules that are due, at most so many: the first ones for the part 0, the last ones for the part 1."""

    def read(reply: Reply) -> DueSchedules:
        schedules = [(pk, list(flat)) for pk, flat in reply["schedules"]]
        found = [(pk, dict(zip(flat[::2], flat[1::2], strict=True))) for pk, flat in schedules]
        upcoming = float(reply["upcoming"]) if "upcoming" in reply else None
        return DueSchedules(float(reply["moment"]), upcoming, reply["number"], found)

    request = {"model": layout_of(schedule_model).json, "limit": limit, "part": part}
    return send(Call(redis_of(schedule_model), _due_schedules, request, read, keys=[due_key(schedule_model)]))


def set_fields(record: RedisModel, fields: Mapping[str, Any], *, only_new: bool = False) -> Any:
    """Set plain fields (see `Layout.plain`) of a record, with their indexes; return how many had no value before.
    Inside one of limpyd's pipelines, return the pipeline: then a refusal is one of the results."""
    return _write(_set_fields, record, {"only_new": only_new}, fields)


def unset_fields(record: RedisModel, names: Iterable[str]) -> Any:
    """Unset plain fields of a record, with their indexes; return how many had a value. See `set_fields`."""
    return _write(_unset_fields, record, {"names": listed(names)})


def increase_field(record: RedisModel, name: str, amount: float, command: str) -> Any:
    """Add to a plain field of a record, by HINCRBY or HINCRBYFLOAT; return its new value. See `set_fields`."""
    return _write(_increase_field, record, {"command": command, "field": name, "amount": amount})


def read_many(
    model: type[RedisModel], pks: Iterable[str], names: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the pk and the hash fields, all or the named ones, of the records that exist, a page in one round trip."""

    def read(reply: Reply) -> list[tuple[str, dict[str, str]]]:
        return [(pk, fields_of(values)) for pk, values in reply["records"]]

    def fields_of(values: list[Any]) -> dict[str, str]:
        pairs = zip(names, values, strict=True) if names else zip(values[::2], values[1::2], strict=True)
        return {name: value for name, value in pairs if value is not False}

    for page in chunks(list(pks), PAGE):
        request = {"model": layout_of(model).json, "pks": listed(page), "names": listed(names)}
        yield from send(Call(sender_of(model), _read_records, request, read))


def read_hashes(connection: Any, keys: Sequence[str], most: int) -> list[dict[str, str]]:
    """Return the fields of some hashes, in one round trip. Instead of a value of more than `most` bytes, and of the
    largest ones if a hash has four times as many, it is said how many it has."""

    def read(reply: Reply) -> list[dict[str, str]]:
        return [
            {name: value if isinstance(value, str) else too_long(value) for name, value in fields or ()}
            for fields in reply["hashes"]
        ]

    return send(Call(connection, _read_hashes, {"hashes": listed(keys), "most": most}, read)) if keys else []


class ListRead(NamedTuple):
    """Some entries of a list, in order, and how many it has."""

    size: int
    entries: list[str]


def read_ends(connection: Any, keys: Sequence[str], most: int) -> list[ListRead]:
    """Return the last entries of some lists, in one round trip: fewer, if they have several MB."""

    def read(reply: Reply) -> list[ListRead]:
        return [ListRead(size, [*entries][::-1]) for size, entries in reply["ends"]]

    return send(Call(connection, _read_ends, {"lists": listed(keys), "most": most}, read))


def read_beside(connection: Any, keys: Sequence[str], most: int, longest: int) -> list[tuple[str, int, list[str]]]:
    """Return the type of some keys, how many entries or bytes each has, and the first ones."""
    request = {"beside": listed(keys), "most": most, "longest": longest}
    return send(Call(connection, _read_beside, request, lambda reply: reply["values"])) if keys else []


def delete_many(model: type[RedisModel], pks: Iterable[str]) -> int:
    """Delete records, a page in one round trip if they have only plain fields, else one by one; return how many there
    were."""
    layout, number = layout_of(model), 0
    if not layout.erasable or layout.special or layout.description["keys"]:
        for pk in pks:
            with suppress(DoesNotExist):
                model(pk).delete()
                number += 1
        return number
    for page in chunks(list(pks), PAGE):
        request = {"model": layout.json, "pks": listed(page)}
        number += send(Call(sender_of(model), _delete_records, request, itemgetter("number")))
    return number


def delete_record(record: RedisModel) -> None:
    """Delete the part of a record that a script can delete: its hash, plain indexes, and entry in the collection."""
    _write(_delete_record, record, {})


def list_of(record: RedisModel, key: str) -> list[str]:
    """Return a list that is kept beside a record; a key of a wrong type counts as empty."""
    with passing_over_wrong_types():
        return cast("list[str]", redis_of(record).lrange(key, 0, -1))
    return []


def creating(
    model: type[RedisModel],
    fields: Mapping[str, Any],
    scripted: frozenset[str],
    script: Script,
    request: Mapping[str, Any],
    **options: Any,
) -> Requests[Reply]:
    """Return what creates a record with some fields, of which the script writes these; with options of the `Call`."""
    plain, others = layout_of(model).split(fields, scripted)
    whole, read = {**request, "reserve": bool(others)}, partial(unique, model)
    call = Call(redis_of(model), script, whole, read, [model], fields=plain, **options)
    return creating_with(others, model, call) if others else call


def creating_with(others: Mapping[str, Any], model: type[RedisModel], call: Call[Reply]) -> Steps[Reply]:
    """Create a record by a script, to which these fields belong that only limpyd can write: it reserves a pk (see
    `add.lua`), they are written, and the script is called again."""
    reply: Reply = yield call
    if reply["outcome"] != "reserved":
        return reply
    pk = reply["pk"]
    record = attached(model, pk)
    undo = partial(_delete_fields, record, others)
    try:
        yield partial(record.set_fields, **others)
        reply = yield call.but(reserve="", reserved_pk=pk)
    except GeneratorExit:
        raise
    except BaseException:
        yield undo
        raise
    if reply.get("pk") != pk:
        yield undo
    return reply


def _write(
    script: Script, record: RedisModel, request: Mapping[str, Any], fields: Mapping[str, Any] | None = None
) -> Any:
    """Run a script that changes fields of a record. Its reply is a number: it may be a command of a pipeline."""
    connection, call = record.get_connection(), _writing(script, record, request, fields)
    if isinstance(connection, Pipeline):
        # a script that Redis does not know would make all commands fail
        known, keys = script.at(connection, ())
        reply = connection.eval(known.source, len(keys), *keys, *call.words())
    else:
        reply = run(script, connection, (), call.words())
    return _written(record, call, reply)


def setting(record: RedisModel, fields: Mapping[str, Any], token: str = "") -> Steps[None]:
    """Set plain fields of a record, as `set_fields` does, in steps; nothing of a job if the run that had the claim with
    that token has lost it."""
    call = _writing(_set_fields, record, {"only_new": False, "of_run": token}, fields)
    script, keys = _set_fields.at(redis_of(record), ())
    rest = (len(keys), *keys, *call.words())
    try:
        reply = yield from commanded(redis_of(record), "EVALSHA", script.sha, *rest)
    except NoScriptError:
        reply = yield from commanded(redis_of(record), "EVAL", script.source, *rest)
    _written(record, call, reply)


def _writing(
    script: Script, record: RedisModel, request: Mapping[str, Any], fields: Mapping[str, Any] | None
) -> Call[Reply]:
    request = {"model": layout_of(type(record)).json, "pk": pk_of(record), **request}
    return Call(redis_of(record), script, request, partial(unique, type(record)), fields=fields)


def _written(record: RedisModel, call: Call[Reply], reply: Any) -> Any:
    if not isinstance(reply, str) or not reply.startswith("{"):
        return reply
    if call.accept(reply)["outcome"] == "gone":
        raise DoesNotExist(f"No {type(record).__name__} found with pk {record.pk.get()}")
    return None


def _delete_fields(record: RedisModel, names: Iterable[str]) -> None:
    with suppress(RedisError):
        for name in names:
            record.get_field(name).delete()


def unique(model: type[RedisModel], reply: Reply) -> Reply:
    """Return the reply of a script. If another record has the value of a unique field, raise `UniquenessError`."""
    if reply["outcome"] == "not unique":
        raise UniquenessError(
            f'Value "{reply["value"]}" already indexed for unique field {model.__name__}.{reply["field"]} '
            f"(for instance {reply['pk']})"
        )
    return reply
