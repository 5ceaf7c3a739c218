"""Values of Python as JSON, which is read back without running any code of its own."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from limpyd_jobs.fields.codecs import Stored

Write = Callable[[Any], Any]

# What JSON does not have, by the name that stands for it: an object with this name as its only key.
_TEXTS: dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    Stored: ("$stored", str, Stored),
    datetime: ("$datetime", datetime.isoformat, datetime.fromisoformat),
    date: ("$date", date.isoformat, date.fromisoformat),
    time: ("$time", time.isoformat, time.fromisoformat),
    Decimal: ("$decimal", str, Decimal),
    UUID: ("$uuid", str, UUID),
    bytes: ("$bytes", lambda raw: b64encode(raw).decode(), lambda text: b64decode(text, validate=True)),
}
_LISTS: dict[type, str] = {tuple: "$tuple", set: "$set", frozenset: "$frozenset"}

# Of a subclass of these, such as the texts of Django that are safe in HTML, the plain value is written.
_PLAIN: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int, float: float}

_READ_TEXT = {name: read for name, _, read in _TEXTS.values()}
_READ_LIST = {name: kind for kind, name in _LISTS.items()}


def dumped(value: Any, write_other: Write) -> str:
    """Return a value as JSON. What it cannot hold is given to a function, which returns something that it can, or
    raises `TypeError`."""
    return json.dumps(_written(value, write_other), separators=(",", ":"))


def loaded(text: str, read_others: Mapping[str, Callable[[Any], Any]]) -> Any:
    """Return the value of a text. The functions read what was written by others, by the only key of the object.

    Raises
    ------
    ValueError, TypeError, LookupError
        If it is not such a text.
    """
    return _read(json.loads(text), read_others)


def _written(value: Any, other: Write) -> Any:
    kind = type(value)
    if value is None or kind in (str, bool, int, float):
        return value
    if kind is list:
        return [_written(each, other) for each in value]
    if kind is dict:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: _written(each, other) for key, each in value.items()}
        return {"$dict": [[_written(part, other) for part in pair] for pair in value.items()]}
    if kind in _TEXTS:
        name, write, _ = _TEXTS[kind]
        return {name: write(value)}
    if kind in _LISTS:
        return {_LISTS[kind]: [_written(each, other) for each in value]}
    if kind is timedelta:
        return {"$timedelta": [value.days, value.seconds, value.microseconds]}
    for base, plain in _PLAIN.items():
        if isinstance(value, base):
            return plain(value)
    return other(value)


def _read(found: Any, others: Mapping[str, Callable[[Any], Any]]) -> Any:
    if isinstance(found, list):
        return [_read(each, others) for each in found]
    if not isinstance(found, dict):
        return found
    name = next(iter(found), "")
    if not (len(found) == 1 and name.startswith("$")):
        return {key: _read(each, others) for key, each in found.items()}
    value = found[name]
    if name in _READ_TEXT:
        return _READ_TEXT[name](value)
    if name in _READ_LIST:
        return _READ_LIST[name](_read(value, others))
    if name == "$dict":
        return dict(_read(value, others))
    if name == "$timedelta":
        return timedelta(*value)
    return others[name](value)
