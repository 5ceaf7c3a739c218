"""The hash fields of the models: each change is one step, together with the index.

limpyd changes an indexed field in several commands. It reads the old value, takes the record out of the index of the
old value, puts it in the index of the new value, and writes. Its locks stop other processes, but not the scripts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from limpyd.fields import PKField
from redis.client import Pipeline

from limpyd_jobs.arguments import check_indexed
from limpyd_jobs.records import records
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.lazy_fields import why_fixed
from limpyd_jobs.records.limpyd_types import InstanceHashField, RedisModel


class AtomicHashField(InstanceHashField):
    """limpyd's field, whose modifying commands are one script each.

    A field with an index that no script can maintain is changed as limpyd does it.
    """

    # read by layout.py
    stores_the_same = True

    # Whether the value never changes once it is given.
    is_fixed = False

    def _call_command(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self.indexable and name in self.available_modifiers:
            check_indexed(self.name, args)
        if name not in self.available_modifiers or not are_plain(self._instance, [self.name]):
            return super()._call_command(name, *args, **kwargs)
        connect(self._instance)
        result = getattr(self, f"_{name}")(*args, **kwargs)
        return self.post_command(sender=self, name=name, result=result, args=(self.name, *args), kwargs=kwargs)

    def _hset(self, value: Any) -> Any:
        return records.set_fields(self._instance, {self.name: value})

    def _hsetnx(self, value: Any) -> Any:
        return records.set_fields(self._instance, {self.name: value}, only_new=True)

    def _hdel(self) -> Any:
        return records.unset_fields(self._instance, [self.name])

    def _hincrby(self, amount: int = 1) -> Any:
        return _number(int, records.increase_field(self._instance, self.name, amount, "HINCRBY"))

    def _hincrbyfloat(self, amount: float = 1.0) -> Any:
        return _number(float, records.increase_field(self._instance, self.name, amount, "HINCRBYFLOAT"))


class AtomicModel(RedisModel):
    """A model whose fields of type `InstanceHashField` are changed in one step, one by one or several at once."""

    abstract = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the fields atomic before limpyd sees them, so that a subclass declares them like any limpyd model."""
        super().__init_subclass__(**kwargs)
        for field in vars(cls).values():
            if type(field) is InstanceHashField:
                field.__class__ = AtomicHashField

    def _set_pk(self, value: str) -> None:
        """Join the collection before the defaults: limpyd would make a hash without a record for a moment."""
        self.connection.sadd(self.get_field("pk").collection_key, value)
        super()._set_pk(value)

    def hmset(self, **fields: Any) -> Any:
        """Set several fields of the hash, with their indexes, in one step."""
        _refuse_fixed(type(self), fields)
        fields = {name: _stored(type(self), name, value) for name, value in fields.items()}
        for name, value in fields.items():
            if self.has_field(name) and getattr(self.get_field(name), "indexable", False):
                check_indexed(name, value)
        if not fields or not are_plain(self, fields):
            return super().hmset(**fields)
        connect(self)
        reply = records.set_fields(self, fields)
        result = reply if isinstance(reply, Pipeline) else True
        return self.post_command(sender=self, name="hmset", result=result, args=(fields,), kwargs={})

    def hdel(self, *names: str) -> Any:
        """Unset several fields of the hash, with their indexes, in one step; return how many had a value."""
        _refuse_fixed(type(self), names)
        if not names or not are_plain(self, names):
            return super().hdel(*names)
        connect(self)
        result = records.unset_fields(self, names)
        return self.post_command(sender=self, name="hdel", result=result, args=names, kwargs={})

    def delete(self) -> None:
        """Delete the record: first the parts that only limpyd can delete, then all the rest in one step."""
        connect(self)
        plain = layout_of(type(self)).plain
        for field in self.fields:
            if not isinstance(field, PKField) and field.name not in plain:
                field.delete()
        records.delete_record(self)
        del self._pk


def _stored(model: type[RedisModel], name: str, value: Any) -> Any:
    """Return the text that a field which holds values of Python stores for a value."""
    field: Any = model.get_class_field(name) if model.has_field(name) else None
    return field.stored(value) if hasattr(field, "stored") else value


def _refuse_fixed(model: type[RedisModel], names: Iterable[str]) -> None:
    for name in names:
        if model.has_field(name) and getattr(model.get_class_field(name), "is_fixed", False):
            raise AttributeError(why_fixed(model, name))


def are_plain(record: RedisModel, names: Iterable[str]) -> bool:
    """Whether a script can write these fields with all their indexes."""
    return layout_of(type(record)).plain.issuperset(names)


def connect(record: RedisModel) -> None:
    """Do as limpyd before a change: make a new record, or raise `DoesNotExist` if the record with its pk is gone."""
    record.pk.get()
    if not record.connected:
        record.connect()


def _number(kind: type, reply: Any) -> Any:
    return reply if isinstance(reply, Pipeline) else kind(reply)
