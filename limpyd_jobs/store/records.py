"""Records of the models: made, found, changed and deleted in one step each. None of this is a transition of a job.

The scripts are those of ``lua/`` whose header names no verb.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from limpyd.exceptions import DoesNotExist, UniquenessError
from limpyd.model import RedisModel
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import RedisError

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.store.connections import SharedConnection
from limpyd_jobs.store.database import JobsDatabase
from limpyd_jobs.store.layout import layout_of, special_indexes
from limpyd_jobs.store.lazy_fields import pk_of
from limpyd_jobs.store.scripting import Script
from limpyd_jobs.utils import memoized

_add_error = Script("add_error")
_delete_record = Script("delete_record")
_due_schedules = Script("due_schedules")
_get_queue = Script("get_queue")
_increase_field = Script("increase_field")
_list_queues = Script("list_queues")
_set_fields = Script("set_fields")
_set_schedule = Script("set_schedule")
_notify_all = Script("notify_all")
_notify_one = Script("notify_one")
_unset_fields = Script("unset_fields")

Reindex = Sequence[tuple[str, Any, Any]]


def get_queue(queue_model: type[RedisModel], name: str, priority: str, fields: Mapping[str, Any]) -> str:
    """Find the queue of a name and a priority, or create it with those fields; return its pk.

    Raises
    ------
    UniquenessError
        If another queue has the value of a unique field.
    """

    def call(pk: str, plain: Mapping[str, str], reserve: bool) -> Any:
        args = [
            layout_of(queue_model).json,
            name,
            priority,
            "reserve" if reserve else "create",
            pk,
            *flat(plain),
        ]
        return _get_queue(redis_of(queue_model), args=args)

    layout = layout_of(queue_model)
    return str(create(queue_model, fields, layout.plain | layout.special, call)[1])


def list_queues(queue_model: type[RedisModel], names: Iterable[str]) -> list[tuple[str, str, str, int, int, int]]:
    """Return the pk, name, priority, number of waiting jobs, number of delayed jobs, and whether it is paused (1 or 0),
    of the queues of some names, but for those of strangers whose keys would not fit in a line."""
    reply = _list_queues(redis_of(queue_model), args=[layout_of(queue_model).json, *names])
    return [tuple(row) for row in reply if "\n" not in row[0]]


def some_queue_names(queue_model: type[RedisModel]) -> list[str]:
    """Return the names of some queues, of all if there are at most some dozens."""
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


def pause(queue_model: type[RedisModel], name: str) -> bool:
    """Let the jobs of the queues of a name rest; return False if they do already."""
    return bool(redis_of(queue_model).sadd(_paused_key(queue_model), name))


def resume(queue_model: type[RedisModel], name: str) -> bool:
    """End the pause of the queues of a name; return False if there is none."""
    is_paused = bool(redis_of(queue_model).srem(_paused_key(queue_model), name))
    if is_paused:
        notify_all(redis_of(queue_model), signal_key(queue_model, name))
    return is_paused


def signal_key(queue_model: type[RedisModel], name: str) -> str:
    """Return the key of the list that idle workers of a name wait for: see `lua/notify_all.lua`."""
    return f"{queue_model._name}:_signal:{name}"


def notify_all(connection: Redis, key: str) -> None:
    """End the wait of all idle workers that wait for that key."""
    _notify_all(connection, keys=[key])


def notify_one(queue: RedisModel) -> None:
    """End the wait of an idle worker, if there is one, as there is a job in a queue."""
    _notify_one(redis_of(queue), keys=[queue_key_of(queue)])


def notify_next(connection: Redis, key: str) -> None:
    """End the wait of the worker that waits for that key, be it the next one."""
    pipe: Any = connection.pipeline()
    pipe.rpush(key, "1").expire(key, 10).execute()


def paused_names(queue_model: type[RedisModel]) -> set[str]:
    """Return the names of the queues that are paused."""
    return cast("set[str]", redis_of(queue_model).smembers(_paused_key(queue_model)))


def _paused_key(queue_model: type[RedisModel]) -> str:
    return f"{queue_model._name}:paused"


def add_error(error_model: type[RedisModel], fields: Mapping[str, Any], *, again: bool = False) -> str:
    """Create an error; return its pk.

    Parameters
    ----------
    again: bool
        True if a call before with the same fields failed: the error it may have made is found, and is whole then.

    Raises
    ------
    UniquenessError
        If another error has the value of a unique field.
    """

    def call(pk: str, plain: Mapping[str, str], reserve: bool) -> Any:
        mode = f"{'reserve' if reserve else 'create'}{' again' if again and not pk else ''}"
        return _add_error(redis_of(error_model), args=[layout_of(error_model).json, mode, pk, *flat(plain)])

    layout = layout_of(error_model)
    scripted = layout.plain | layout.special
    reply = create(error_model, fields, scripted, call)
    if reply[0] == "existing":
        reindexed(error_model, reply[1], reply[2])
        record, (_, others) = attached(error_model, reply[1]), layout.split(fields, scripted)
        for name in others:
            record.get_field(name).delete()
        record.set_fields(**others)
    return str(reply[1])


def due_key(schedule_model: type[RedisModel]) -> str:
    """Return the key of the sorted set of the schedules that are active, by when they are due."""
    return f"{schedule_model._name}:due"


def set_schedule(
    schedule_model: type[RedisModel], pk: str, due: str, fields: Mapping[str, str], heard_by: str = ""
) -> str:
    """Make a schedule, or change one, with its place among those that are due; return its pk.

    Parameters
    ----------
    pk: str
        Empty for a new one.
    due: str
        When it is due, in seconds since the epoch; empty for never, ``keep`` for as before.
    fields: mapping of str to str
        An empty value unsets a field.
    heard_by: str
        The key of a signal, to tell an idle worker if no other schedule is due before; empty not to.

    Raises
    ------
    DoesNotExist
        If it was deleted.
    UniquenessError
        If another schedule has the value of a unique field.
    """
    args = [layout_of(schedule_model).json, pk, due, *flat(fields)]
    keys = [due_key(schedule_model), *([heard_by] if heard_by else ())]
    reply = unique(schedule_model, _set_schedule(redis_of(schedule_model), keys=keys, args=args))
    if reply[0] == "gone":
        raise DoesNotExist(f"No {schedule_model.__name__} found with pk {pk}")
    assert reply[0] == "set"
    return str(reply[1])


def due_schedules(
    schedule_model: type[RedisModel], limit: int
) -> tuple[float, float | None, list[tuple[str, dict[str, str]]]]:
    """Return the time, the next time that a schedule is due, and the pk and fields of those that are due now.

    Both times are in seconds since the epoch, by the clock of Redis; the second is None if there is none.
    """
    args = [layout_of(schedule_model).json, limit]
    now, following, *rows = _due_schedules(redis_of(schedule_model), keys=[due_key(schedule_model)], args=args)
    found = [(str(pk), mapping_of(fields)) for pk, fields in rows]
    return float(now), float(following) if following else None, found


def set_fields(record: RedisModel, fields: Mapping[str, Any], *, only_new: bool = False) -> Any:
    """Set plain fields (see `Layout.plain`) of a record, with their indexes.

    Parameters
    ----------
    only_new: bool
        True to set the one field only if it has no value.

    Returns
    -------
    int or Pipeline
        How many of the fields had no value before. Inside one of limpyd's pipelines, it is the pipeline, and a
        refusal stands among the results.

    Raises
    ------
    DoesNotExist
        If the record was deleted.
    UniquenessError
        If another record has the value of a unique field.
    """
    return _write(_set_fields, record, ["1" if only_new else "", *flat(fields)])


def unset_fields(record: RedisModel, names: Iterable[str]) -> Any:
    """Unset plain fields of a record, with their indexes; return how many had a value. See `set_fields`."""
    return _write(_unset_fields, record, names)


def increase_field(record: RedisModel, name: str, amount: float, command: str) -> Any:
    """Add to a plain field of a record, with its indexes, by HINCRBY or HINCRBYFLOAT; return its new value.

    Exceptions, and pipelines: see `set_fields`.
    """
    return _write(_increase_field, record, [command, name, amount])


def delete_record(record: RedisModel) -> None:
    """Delete what a script can delete of a record: its hash and plain indexes, and its entry in the collection."""
    _write(_delete_record, record, [])


def check_database(job_class: type[RedisModel], queue_model: type[RedisModel]) -> None:
    """A script cannot change a job here and a queue there."""
    one, other = job_class.database, queue_model.database
    if one is not other and one.connection_settings != other.connection_settings:
        raise ConfigurationException(
            f"{job_class.__name__} and {queue_model.__name__} are on different databases: "
            "call use_database on both, or on a class both inherit from"
        )


def attached(model: type[RedisModel], pk: str) -> Any:
    """Return the instance of a record that is known to exist, without asking Redis."""
    instance = model()
    vars(instance).update(_pk=_normalizer(model)(pk), _connected=True)
    return instance


@memoized
def _normalizer(model: type[RedisModel]) -> Callable[[str], str]:
    return cast("Callable[[str], str]", model.get_field("pk").normalize)


def queue_key_of(queue: RedisModel) -> str:
    """Return the beginning of the keys of a queue: its model's name and its pk."""
    return f"{queue._name}:{pk_of(queue)}"


def redis_of(model: RedisModel | type[RedisModel]) -> Redis:
    """The connection of a model, even inside one of limpyd's pipelines: a script's reply is needed at once."""
    connection = model.get_connection()
    if isinstance(connection, Pipeline):
        return Redis(connection_pool=connection.connection_pool)
    return connection


def sender_of(model: type[RedisModel]) -> Redis | SharedConnection:
    """What sends a script of a model in the least time."""
    return model.database.sender if isinstance(model.database, JobsDatabase) else redis_of(model)


def mapping_of(flat: Sequence[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def flat(fields: Mapping[str, str]) -> list[str]:
    return [part for pair in fields.items() for part in pair]


def create(
    model: type[RedisModel], fields: Mapping[str, Any], scripted: frozenset[str], call: Callable[..., Any]
) -> Any:
    """Create a record by a script, after the fields that only limpyd can write.

    ``call(pk, scripted fields, reserve)`` calls the script; see `lua/add.lua` for reserving.
    """
    plain, others = layout_of(model).split(fields, scripted)
    reply = unique(model, call("", plain, bool(others)))
    if reply[0] == "reserved":
        pk = reply[1]
        record = attached(model, pk)
        try:
            record.set_fields(**others)
            reply = unique(model, call(pk, plain, False))
        except BaseException:
            _delete_fields(record, others)
            raise
        if reply[1] != pk:
            _delete_fields(record, others)
    if reply[0] == "added":
        reindexed(model, reply[1], reply[2])
    return reply


def _write(script: Script, record: RedisModel, args: Iterable[Any]) -> Any:
    """Run a script that changes fields of a record, maybe as a command of a pipeline."""
    connection = record.get_connection()
    args = [layout_of(type(record)).json, pk_of(record), *args]
    if isinstance(connection, Pipeline):
        reply = connection.eval(script.source, 0, *args)  # a script that is not known would fail all the commands
    else:
        reply = script(connection, args=args)
    if not isinstance(reply, list):
        return reply
    if reply[0] == "gone":
        raise DoesNotExist(f"No {type(record).__name__} found with pk {record.pk.get()}")
    return unique(type(record), reply)


def _delete_fields(record: RedisModel, names: Iterable[str]) -> None:
    with suppress(RedisError):
        for name in names:
            record.get_field(name).delete()


def unique(model: type[RedisModel], reply: Any) -> Any:
    if reply[0] == "not unique":
        _, field, value, pk = reply
        raise UniquenessError(
            f'Value "{value}" already indexed for unique field {model.__name__}.{field} (for instance {pk})'
        )
    return reply


def reindexed(model: type[RedisModel], pk: str, changes: Reindex) -> None:
    """Maintain the indexes that a script cannot, after it changed a field from one value, if it had one, to another."""
    for name, old, new in changes:
        for index in special_indexes(model.get_field(name)):
            if isinstance(old, str):
                index.remove(pk, old)
            if isinstance(new, str):
                index.add(pk, new, check_uniqueness=False)
            index._reset_rollback_cache(pk)
