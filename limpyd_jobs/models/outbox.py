"""Calls of `add_job` as text, for an outbox: written down now, and made later, maybe by another process.

The arguments are JSON, which is read without running any code of its own.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.classes.binding import concrete
from limpyd_jobs.classes.job_classes import path_of
from limpyd_jobs.fields.argument import arguments_of
from limpyd_jobs.fields.codecs import CODECS, Stored
from limpyd_jobs.fields.forms import OF_STRINGS
from limpyd_jobs.fields.new_fields import checked_fields, default_priority, stored_names
from limpyd_jobs.fields.own_fields import is_own
from limpyd_jobs.functions import overrides
from limpyd_jobs.models.calls.duplicates import replaces
from limpyd_jobs.models.identifying import LEFT_OUT, identifier_of_new
from limpyd_jobs.models.job import Job
from limpyd_jobs.models.queue import Queue
from limpyd_jobs.records.sizes import check_job_size

Write = Callable[[Any], Any]

# What JSON does not have, by the name that stands for it: an object with this name as its only key.
_AS_TEXTS: dict[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {Stored: (str, Stored), **OF_STRINGS}
_TEXTS = {kind: (f"${kind.__name__.lower()}", *functions) for kind, functions in _AS_TEXTS.items()}
_LISTS: dict[type, str] = {tuple: "$tuple", set: "$set", frozenset: "$frozenset"}

# Of a subclass of these, such as the texts of Django that are safe in HTML, the plain value is written.
_PLAIN: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int, float: float}

_READ_TEXT = {name: read for name, _, read in _TEXTS.values()}
_READ_LIST = {name: kind for kind, name in _LISTS.items()}


class WrittenCall(NamedTuple):
    """A call of `add_job` as text, and the identifier that its job will have; empty if only the `add_job` of its class
    knows."""

    identifier: str
    text: str


def write_call(job_class: type[Job], args: Sequence[Any], kwargs: Mapping[str, Any]) -> WrittenCall:
    """Return a call of the `add_job` of a class as text. An identifier that is left out is made now.

    The call is checked now, unless the class has an `add_job` of its own.

    Raises
    ------
    TypeError
        If an argument is of a type that cannot be written.
    AttributeError, LimpydJobsException, TypeError, ValueError
        As `Job.add_job` raises them.
    """
    if overrides(job_class, Job, "add_job"):
        given = {name: _own_value(job_class, name, value) for name, value in kwargs.items()}
        first = kwargs.get("identifier", args[0] if args else "")
        return WrittenCall(first if isinstance(first, str) else "", _text(job_class, list(args), given))
    bound = signature(Job.add_job).bind(*args, **kwargs).arguments
    fields = bound.pop("fields_if_new", {})
    if "on_duplicate" in fields and not job_class.has_field("on_duplicate"):
        bound["on_duplicate"] = fields["on_duplicate"]
        replaces(job_class, fields)
    identifier = identifier_of_new(job_class, bound.pop("identifier", LEFT_OUT), fields)
    job_class._get_queue_name(bound.get("queue_name"))
    delay_argument(bound.get("delayed_for"), bound.get("delayed_until"))
    default_priority(job_class, bound.get("priority", 0))
    fields = checked_fields(job_class, dict(fields))
    check_job_size(job_class, identifier, stored_names(job_class, fields))
    given = {name: _as_stored(job_class, name, value) for name, value in fields.items()}
    return WrittenCall(identifier, _text(job_class, [], {"identifier": identifier, **bound, **given}))


def read_call(job_class: type[Job], text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call of the `add_job` of a class. No code runs because of what is written.

    Raises
    ------
    ValueError
        If it is not such a text, or names something that this process does not have.
    """
    others: dict[str, Callable[[Any], Any]] = {"$queue_model": _queue_model, "$argument": partial(_argument, job_class)}
    try:
        args, kwargs = _read(json.loads(text), others)
        return [*args], {**kwargs}
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"what is written of the call cannot be read: {type(error).__name__}: {error}") from None


class _Argument(NamedTuple):
    """The value of an argument of a job, for an `add_job` that wants to see it."""

    name: str
    text: str


def _text(job_class: type[Job], args: list[Any], kwargs: dict[str, Any]) -> str:
    return json.dumps(_written([args, kwargs], partial(_other, job_class)), separators=(",", ":"))


def _other(job_class: type[Job], value: Any) -> Any:
    if type(value) is _Argument:
        return {"$argument": [value.name, value.text]}
    if isinstance(value, type) and issubclass(value, Queue):
        return {"$queue_model": path_of(value)}
    raise TypeError(
        f"{path_of(job_class)}.add_job is given {value!r}, which cannot be written: declare an Argument for it, or "
        "give what JSON can hold, or a date, a timedelta, a Decimal, a UUID or bytes"
    )


def _own_value(job_class: type[Job], name: str, value: Any) -> Any:
    """Return what is written of a named argument: the text of what the class declares, else the value."""
    field = arguments_of(job_class).get(name)
    if field is None:
        if is_own(job_class, name):
            return _as_stored(job_class, name, checked_fields(job_class, {name: value}, is_new=False)[name])
        return value
    text = field.stored(value)
    return text if field.codec is CODECS[pickle] else _Argument(name, str(text))


def _as_stored(job_class: type[Job], name: str, value: Any) -> Any:
    return Stored(value) if type(value) is str and is_own(job_class, name) else value


def _argument(job_class: type[Job], found: Any) -> Any:
    name, text = found
    codec = arguments_of(job_class)[name].codec
    return Stored(text) if codec is CODECS[pickle] else codec.load(text)


def _queue_model(path: Any) -> type[Queue]:
    found: dict[str, type[Queue]] = {path_of(each): each for each in (Queue, *concrete(Queue))}
    return found[path]


# Values as JSON. What it cannot hold is given to a function, which returns something that it can, or raises
# `TypeError`. That is read by the function of the only key of the object.


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
