"""What a script must know of a limpyd model: its keys, and which of its fields it can write itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

from limpyd.contrib.related import RelatedModel
from limpyd.fields import InstanceHashField, RedisField
from limpyd.model import RedisModel

from limpyd_jobs.arguments import own_duration, own_seconds, stored_duration, stored_value
from limpyd_jobs.classes.job_classes import check_addable
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.functions import memoized, overrides
from limpyd_jobs.indexes import DateTimeRangeIndex, prefixes, range_keys, special_indexes
from limpyd_jobs.limiting.limit import described_limits, limits_of_class
from limpyd_jobs.observing import instruments
from limpyd_jobs.redis.cluster.names import check_namespace

Model = TypeVar("Model", bound=type)

# The ends of the keys of a job's result, of the lines that it logged, of the changes of its status, and of what it
# emitted. Scripts delete these keys with the job.
RESULT_KEY, LOG_KEY, HISTORY_KEY, OUTPUT_KEY = "_result", "_log", "_history", "_output"

# For how many seconds a result is kept by `keep_result = True`.
A_DAY = 86400.0

# The fields by which scripts find records, by the class of the records.
_LOOKED_UP: dict[type, tuple[str, ...]] = {}


@dataclass(frozen=True)
class Layout:
    """How the records of a model are stored.

    The `description` is that of ``lua/includes/records.lua``, the `json` the same as scripts take it, the `path` that
    of a job class. A script writes the `plain` fields with all their indexes, and the `special` ones but for
    indexes that only limpyd can maintain, afterwards. It deletes an `erasable` record once limpyd has cleared the
    indexes of the special fields and deleted the fields that are `outside`: with indexes, but not in the hash. `dates`
    are the fields of the hash that hold dates.
    """

    description: Mapping[str, Any]
    path: str
    json: str
    plain: frozenset[str]
    special: frozenset[str]
    other_defaults: Mapping[str, Any]
    has_unique: bool
    erasable: bool
    outside: tuple[str, ...]
    dates: frozenset[str]
    needs_limpyd: bool  # whether a script alone cannot make a record, even if no fields are given

    @cached_property
    def travelling(self) -> tuple[str, ...]:
        """The fields that travel with the claim of a job if there are instruments; without, only the arguments."""
        return *self.description["arguments"], instruments.TRACE_CONTEXT

    def split(self, fields: Mapping[str, Any], scripted: frozenset[str]) -> tuple[dict[str, str], dict[str, Any]]:
        """Divide the fields of a new record into those a script writes, and those limpyd has to write before."""
        if not fields and not self.other_defaults:
            return {}, {}
        fields = {**self.other_defaults, **fields}
        by_script = {name: stored_value(name, value) for name, value in fields.items() if name in scripted}
        if len(by_script) == len(fields):
            return by_script, {}
        return by_script, {name: value for name, value in fields.items() if name not in scripted}


@memoized
def layout_of(model: type[RedisModel]) -> Layout:
    """Return the layout of a model class. If no script can work with it, `ConfigurationException` is raised."""
    check_namespace(model)
    fields = {name: model.get_field(name) for name in model._fields if name != model.get_field("pk").name}
    hash_fields = {name: field for name, field in fields.items() if isinstance(field, InstanceHashField)}
    special = {name for name, field in hash_fields.items() if special_indexes(field)}
    plain = {name for name, field in hash_fields.items() if _is_of_no_other_kind(field)} - special
    check_found_by(model, (name for base, names in _LOOKED_UP.items() if issubclass(model, base) for name in names))
    defaults = {name: field.default for name, field in fields.items() if hasattr(field, "default")}
    for name in ("start_within", "unique_for"):  # settings whose value each job has
        seconds = own_duration(getattr(model, name, None)) if f"_{name}" in fields else None
        if seconds:
            defaults[f"_{name}"] = stored_duration(name, seconds)
    has_leases = getattr(model, "due_field", "") or getattr(model, "_lapses", False)
    description = {
        "name": model._name,
        "path": model.get_model_repr() if hasattr(model, "get_model_repr") else "",
        "indexes": {name: prefixes(field) for name, field in hash_fields.items() if field.indexable},
        "ranges": {name: keys for name, field in hash_fields.items() if (keys := range_keys(field))},
        "dates": {key: True for field in hash_fields.values() for key in range_keys(field, DateTimeRangeIndex)},
        "special": dict.fromkeys(special, True),
        "unique": {name: prefixes(hash_fields[name])[0] for name in plain if hash_fields[name].unique},
        "defaults": {name: stored_value(name, defaults[name]) for name in defaults.keys() & plain},
        "keys": [name for name in fields if name not in hash_fields],
        "leases": f"{model._name}:leases" if has_leases else "",
        "tells": _notifies(model, special),
        "history": _kept_history(model),
        "arguments": [name for name, field in hash_fields.items() if getattr(field, "is_fixed", False)],
        "limits": described_limits(model),
    }
    other_defaults = {name: value for name, value in defaults.items() if name not in plain}
    own_special = {name for name in special if _is_of_no_other_kind(hash_fields[name]) and not hash_fields[name].unique}
    return Layout(
        description=description,
        path=description["path"],
        json=as_json(description),
        plain=frozenset(plain),
        special=frozenset(own_special),
        other_defaults=other_defaults,
        has_unique=bool(description["unique"]),
        erasable=not overrides(model, RelatedModel, "delete") and all(map(_is_erasable, fields.values())),
        outside=tuple(name for name in description["keys"] if fields[name].indexable),
        dates=frozenset(name for name, field in hash_fields.items() if _holds_dates(field)),
        needs_limpyd=bool(other_defaults or own_special),
    )


def as_json(description: Mapping[str, Any]) -> str:
    """Return the description of a layout as scripts take it."""
    return json.dumps({name: value for name, value in description.items() if value}, separators=(",", ":"))


@memoized
def layout_to_add(job_class: type[RedisModel]) -> Layout:
    """Return the layout of a class, to add jobs of it. The first time, `check_addable` checks the class."""
    layout = layout_of(job_class)
    check_addable(job_class)
    return layout


def classes_argument(classes: Mapping[str, type[RedisModel]]) -> str:
    """Return some classes, by their path, as scripts take them: the path and the layout of each in a line. The
    first line of the text is empty unless one of them has limits."""
    lines = "".join(map(_line_with_context if instruments.installed else _line_of, classes.items()))
    return f"limits\n{lines}" if any(map(_has_limits, classes.values())) else f"\n{lines}"


@memoized
def _has_limits(job_class: type[RedisModel]) -> bool:
    return bool(limits_of_class(job_class))


@memoized
def _line_of(named: tuple[str, type[RedisModel]]) -> str:
    path, job_class = named
    try:
        return f"{path} {layout_of(job_class).json}\n"
    except ConfigurationException:  # a class that no script can work with counts as unknown
        return ""


@memoized
def _line_with_context(named: tuple[str, type[RedisModel]]) -> str:
    """Return the same, so that what instruments stored with a job travels with its arguments."""
    path, job_class = named
    try:
        layout = layout_of(job_class)
    except ConfigurationException:
        return ""
    return f"{path} {as_json({**layout.description, 'arguments': layout.travelling})}\n"


def _kept_history(model: type[RedisModel]) -> int:
    """Return how many changes of the status of a job to keep; 0 if the application uses ``keep_history`` otherwise."""
    number = getattr(model, "keep_history", 0)
    return number if type(number) is int and number > 0 else 0


@memoized
def kept_for(model: type[RedisModel]) -> float | None:
    """Return for how many seconds the results of a job class are kept; None if they are not, or if the application uses
    the attribute ``keep_result`` otherwise."""
    value = getattr(model, "keep_result", None)
    if value is True:
        return A_DAY
    return own_seconds(value.total_seconds() if isinstance(value, timedelta) else value) or None


def _notifies(model: type[RedisModel], special: set[str]) -> bool:
    """Whether a model notifies of its changes. A job class whose status has an index of limpyd only must not."""
    notifies = getattr(model, "notify_changes", False) is True or bool(kept_for(model))
    if notifies and "status" in special and hasattr(model, "get_model_repr"):
        raise ConfigurationException(
            f"{model.__name__} cannot notify of its changes: its 'status' needs a plain EqualIndex"
        )
    return notifies


def _is_erasable(field: Any) -> bool:
    if isinstance(field, InstanceHashField):
        return _is_of_no_other_kind(field) or not field.indexable
    return not overrides(type(field), RedisField, "delete")


def found_by(*names: str) -> Callable[[Model], Model]:
    """Declare by which fields scripts find the records of a class and of its subclasses."""

    def decorate(model: Model) -> Model:
        _LOOKED_UP[model] = names
        return model

    return decorate


def check_found_by(model: type[RedisModel], names: Iterable[str]) -> None:
    """Raise `ConfigurationException` if a script cannot find records by these fields: they lack plain indexes."""
    for name in names:
        field = model.get_field(name) if model.has_field(name) else None
        if not isinstance(field, InstanceHashField) or not prefixes(field):
            raise ConfigurationException(
                f"The field {name!r} of {model.__name__} must be indexed by a plain EqualIndex"
            )


def _is_of_no_other_kind(field: Any) -> bool:
    """Whether a hash field is of limpyd's class, or of `atomic_fields`, which stores the same."""
    return type(field) is InstanceHashField or "stores_the_same" in vars(type(field))


def _holds_dates(field: Any) -> bool:
    return getattr(field, "kind", None) is datetime or bool(range_keys(field, DateTimeRangeIndex))
