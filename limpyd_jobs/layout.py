"""What a script must know of a limpyd model: its keys, and which of its fields it can write itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from limpyd.fields import InstanceHashField
from limpyd.indexes import EqualIndex
from limpyd.model import RedisModel

from limpyd_jobs.arguments import stored_value
from limpyd_jobs.utils import memoized


@dataclass(frozen=True)
class Layout:
    """How the records of a model are stored.

    Attributes
    ----------
    json: str
        The model as the scripts take it (see ``lua/includes/records.lua``).
    plain: frozenset of str
        The fields that a script can write with all their indexes: hash fields with no index but `EqualIndex`.
    special: frozenset of str
        The hash fields that a script can write, but that have indexes which only limpyd can maintain, afterwards.
    other_defaults: dict
        The default values of all the fields but the plain ones.
    """

    json: str
    plain: frozenset[str]
    special: frozenset[str]
    other_defaults: Mapping[str, Any]

    @property
    def needs_limpyd(self) -> bool:
        """Whether making a record takes more than a script, even one with no fields but its defaults."""
        return bool(self.other_defaults or self.special)

    def split(self, fields: Mapping[str, Any], scripted: frozenset[str]) -> tuple[dict[str, str], dict[str, Any]]:
        """Divide the fields of a new record in those a script writes, and those limpyd has to write before."""
        fields = {**self.other_defaults, **fields}
        by_script = {name: stored_value(name, value) for name, value in fields.items() if name in scripted}
        by_limpyd = {name: value for name, value in fields.items() if name not in scripted}
        return by_script, by_limpyd


@memoized
def layout_of(model: type[RedisModel]) -> Layout:
    """Return the layout of a model class."""
    fields = {name: model.get_field(name) for name in model._fields if name != model.get_field("pk").name}
    hash_fields = {name: field for name, field in fields.items() if type(field) is InstanceHashField}
    special = {name for name, field in hash_fields.items() if special_indexes(field)}
    plain = hash_fields.keys() - special
    defaults = {name: field.default for name, field in fields.items() if hasattr(field, "default")}
    description = {
        "name": model._name,
        "indexes": {name: _prefixes(field) for name, field in hash_fields.items() if field.indexable},
        "special": dict.fromkeys(special, True),
        "unique": {name: _prefixes(hash_fields[name])[0] for name in plain if hash_fields[name].unique},
        "defaults": {name: stored_value(name, defaults[name]) for name in defaults.keys() & plain},
    }
    return Layout(
        json=json.dumps(description, separators=(",", ":")),
        plain=frozenset(plain),
        special=frozenset(name for name in special if not hash_fields[name].unique),
        other_defaults={name: value for name, value in defaults.items() if name not in plain},
    )


def special_indexes(field: Any) -> list[Any]:
    """Return the indexes of a field that only limpyd can maintain: all but plain `EqualIndex` ones."""
    return [index for index in field._indexes if type(index) is not EqualIndex]


def _prefixes(field: Any) -> list[str]:
    return [index.get_storage_key("") for index in field._indexes if type(index) is EqualIndex]
