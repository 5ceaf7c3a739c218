"""The fields that this library stores with a record in addition to those of version 2.

An application may have a field or a method of any name. So ours are stored under names that begin with an underscore,
which limpyd does not allow to applications. They are read by a public name, unless the application uses it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from limpyd.fields import InstanceHashField, RedisField
from limpyd.model import RedisModel

Model = TypeVar("Model", bound=type[RedisModel])

_settings: set[str] = set()  # the names of the fields of settings


class Alias:
    """Another name of a field of a model. A subclass may use that name for a field or method of its own.

    With a property, limpyd could not give a field of that name to an instance.
    """

    def __init__(self, field_name: str) -> None:
        self.field_name = field_name

    def __get__(self, record: Any, owner: type) -> Any:
        return self if record is None else getattr(record, self.field_name)


class OwnField(Alias):
    """A field of this library, and its public name: ``rescues = OwnField(fields.InstanceHashField())`` is stored as
    ``_rescues``. The class needs the decorator `with_own_fields`."""

    def __init__(self, field: RedisField) -> None:
        self.field = field

    def __set_name__(self, owner: type, name: str) -> None:
        super().__init__(f"_{name}")


class OwnSetting(OwnField):
    """A field of this library for a setting that a class has as an attribute, of the same name: ``start_within``. Each
    job may have a value of its own, stored as ``_start_within``."""


def with_own_fields(model: Model) -> Model:
    """Make own fields of a model fields of limpyd, which ignores names that begin with an underscore."""
    for own in [value for value in vars(model).values() if isinstance(value, OwnField)]:
        field = own.field
        field.name = own.field_name
        field._attach_to_model(model)
        setattr(model, f"_redis_attr_{field.name}", field)
        model._fields.append(field.name)
        if isinstance(field, InstanceHashField):
            model._instancehash_fields.append(field.name)
        if isinstance(own, OwnSetting):
            _settings.add(own.field_name)
            setattr(model, own.field_name.removeprefix("_"), None)
    return model


def stored_name(model: type[RedisModel], name: str) -> str:
    """Return the name by which a model stores a field of a public name."""
    return f"_{name}" if is_own(model, name) else name


def is_own(model: type[RedisModel], name: str) -> bool:
    """Whether a public name stands for an own field in a model, and the model uses it for nothing else."""
    own = getattr(model, name, None)
    is_ours = isinstance(own, OwnField) or (f"_{name}" in _settings and is_setting(own))
    return is_ours and name not in model._fields


def is_setting(value: object) -> bool:
    """Whether the attribute of a class is a setting, or may be meant as one: no method, for example."""
    return value is None or (isinstance(value, (int, float, timedelta)) and not isinstance(value, bool))
