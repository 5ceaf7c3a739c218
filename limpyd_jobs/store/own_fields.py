"""What this library stores with a record beyond the fields of version 2.

An application may have a field or a method of any name. So ours are stored under names that begin with an underscore,
which limpyd allows no application, and whoever wants to read them uses a public name that gives way to theirs.
"""

from __future__ import annotations

from typing import Any, TypeVar

from limpyd.fields import InstanceHashField, RedisField
from limpyd.model import RedisModel

Model = TypeVar("Model", bound=type[RedisModel])


class Alias:
    """A field of a model by another name, which a subclass may take for a field or method of its own.

    A property would keep limpyd from giving a field of that name to an instance.
    """

    def __init__(self, field_name: str) -> None:
        self.field_name = field_name

    def __get__(self, record: Any, owner: type) -> Any:
        return self if record is None else getattr(record, self.field_name)


class OwnField(Alias):
    """A field of ours, and the public name to read it by: ``rescues = OwnField(fields.InstanceHashField())`` is stored
    as ``_rescues``. The class needs the decorator `with_own_fields`."""

    def __init__(self, field: RedisField) -> None:
        self.field = field

    def __set_name__(self, owner: type, name: str) -> None:
        super().__init__(f"_{name}")


def with_own_fields(model: Model) -> Model:
    """Make the own fields of a model fields of limpyd, which passes over names that begin with an underscore."""
    for own in [value for value in vars(model).values() if isinstance(value, OwnField)]:
        field = own.field
        field.name = own.field_name
        field._attach_to_model(model)
        setattr(model, f"_redis_attr_{field.name}", field)
        model._fields.append(field.name)
        if isinstance(field, InstanceHashField):
            model._instancehash_fields.append(field.name)
    return model


def is_own(model: type[RedisModel], name: str) -> bool:
    """Whether a public name is that of a field of ours in that model, which has nothing else of that name."""
    return isinstance(getattr(model, name, None), OwnField) and name not in model._fields
