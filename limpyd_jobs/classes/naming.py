"""How a model is named in its keys. limpyd makes that name of the name of the class, in lower case."""

from __future__ import annotations

from typing import Any

from limpyd.model import RedisModel

from limpyd_jobs.redis.cluster.names import without_prefix


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
