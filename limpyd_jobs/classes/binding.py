"""Models made at run time: subclasses that are bound to a database, with the same path as the classes they come from;
and how a model is named in its keys. limpyd makes that name of the name of the class, in lower case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from limpyd.contrib.related import RelatedFieldMixin
from limpyd.model import RedisModel

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.redis.cluster.names import without_prefix
from limpyd_jobs.redis.database import JobsDatabase, databases_lock, default_settings

Model = TypeVar("Model", bound=type[RedisModel])


def origin_of(model: Model) -> Model:
    """Return the class that a bound class comes from; for any other class, the class itself."""
    origin: Model = vars(model).get("_bound_from", model)
    return origin


def bound(model: Model, database: JobsDatabase, namespace: str | None = None) -> Model:
    """Return a model on another database: see `BaseJobsModel.bound_to`."""
    if not isinstance(database, JobsDatabase):
        raise TypeError(
            f"A model is bound to a JobsDatabase, as JobsDatabase(url=…) or JobsDatabase.of_client(client), not to "
            f"{database!r}"
        )
    if namespace is not None and (not isinstance(namespace, str) or not namespace):
        raise ValueError(f"A namespace must be a text that is not empty, not {namespace!r}")
    origin, namespace = origin_of(model), model.namespace if namespace is None else namespace
    if (database, namespace) == (origin.database, origin.namespace):
        return origin
    with databases_lock():  # limpyd shows a class to other threads before it is whole
        known: dict[Any, Model] = database.__dict__.setdefault("_bound", {})
        found = known.get((origin, namespace))
        if found is None or found.database is not database:
            found = known[origin, namespace] = _made(origin, database, namespace)
        return found


def bound_like(model: Model, other: type[RedisModel]) -> Model:
    """Return a model bound like another one; if the other one is not bound, the model itself."""
    if origin_of(other) is other:
        return model
    return bound(model, other.database, _new_namespace(origin_of(other), other.namespace))


def is_same_database(one: Any, other: Any) -> bool:
    """Whether two databases are the same one, as far as their settings tell."""
    return one is other or bool(_settings_of(one) == _settings_of(other))


def _settings_of(database: Any) -> Any:
    """Return the settings of a database; the default ones, which it has only once it was used, if it has no others."""
    settings = database.connection_settings
    return settings or (default_settings() if isinstance(database, JobsDatabase) else settings)


def check_database(job_class: Any, queue_model: Any) -> None:
    """Check that jobs and queues are on one database, because a script changes both."""
    one, other = job_class.database, queue_model.database
    if one is not other and not is_same_database(one, other):
        raise ConfigurationException(
            f"{job_class.__name__} and {queue_model.__name__} are on different databases: "
            "call use_database on both, or on a class both inherit from"
        )


def bound_models(database: Any, base: Any) -> list[Any]:
    """Return the subclasses of a class, or of some classes, that are bound to a database."""
    return [model for model in vars(database).get("_bound", {}).values() if issubclass(model, base)]


def concrete(base: Model) -> Iterator[Any]:
    """Yield the class and its imported subclasses, without the abstract ones, and those bound to a database."""
    if "_bound_from" in vars(base):
        return
    if not getattr(base, "abstract", False):
        yield base
    for cls in base.__subclasses__():
        yield from concrete(cls)


def _new_namespace(origin: type[RedisModel], namespace: str) -> str | None:
    """Return a namespace; None if the class has it anyway, so that other classes keep theirs."""
    return None if namespace == origin.namespace else namespace


def _made(origin: Any, database: JobsDatabase, namespace: str) -> Any:
    _check(origin, database, namespace)
    attributes = {
        "__module__": origin.__module__,
        "__qualname__": origin.__qualname__,
        "__doc__": origin.__doc__,
        "_bound_from": origin,
        "database": database,
        "namespace": namespace,
    }
    queues: Any = getattr(origin, "queue_model", None)
    is_model = isinstance(queues, type) and issubclass(queues, RedisModel)
    if is_model and queues.database is origin.database:
        attributes["queue_model"] = bound(queues, database, _new_namespace(origin, namespace))
    return made_model(origin, origin.__name__, key_name_of(origin), attributes)


def _check(origin: Any, database: JobsDatabase, namespace: str) -> None:
    if origin.abstract:
        raise ConfigurationException(f"{origin.__name__} is abstract, so there are no records of it")
    relations = getattr(origin.database, "_relations", {}).get(origin._name.lower())
    if relations or any(isinstance(field, RelatedFieldMixin) for field in origin.get_fields()):
        raise ConfigurationException(f"{origin.__name__} has relations to other models, so it cannot be bound")
    # limpyd would return the other class instead, because both are made here
    name = f"{database.prefix}{namespace}:{key_name_of(origin)}"
    if name in database._models:
        other = origin_of(database._models[name])
        raise ConfigurationException(
            f"{origin.__module__}.{origin.__name__} cannot be bound: on that database, {name!r} is "
            f"{other.__module__}.{other.__name__}"
        )


class KeyName(str):
    """A name of a model in its keys that stays as it is."""

    __slots__ = ()

    def lower(self) -> str:
        return self


def key_name_of(model: type[RedisModel]) -> str:
    """Return the name of a model in its keys, without its namespace: ``sendmail``; of a function, its path."""
    return without_prefix(model).removeprefix(f"{model.namespace}:")


def made_model(base: Any, name: str, key_name: str, attributes: dict[str, Any]) -> Any:
    """Return a new subclass of a model, which has one name in Python, and another one in its keys."""
    model = type(base)(KeyName(key_name), (base,), attributes)
    model.__name__ = name
    return model
