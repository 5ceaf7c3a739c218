"""The fields that are given for a new record: whether they are allowed, and how they are stored.

These are functions, not methods of the models, because an application may have methods of any name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any

from limpyd.model import RedisModel

from limpyd_jobs.arguments import check_indexed, read_seconds, stored_duration, stored_priority, stored_timeout
from limpyd_jobs.fields.argument import arguments_of, stored_arguments, value_fields_of, with_stored_values
from limpyd_jobs.fields.codecs import Stored
from limpyd_jobs.fields.own_fields import is_own, stored_name
from limpyd_jobs.functions import memoized
from limpyd_jobs.retrying import stored_policy

# The fields of a job that a transition sets.
RESERVED = ("identifier", "status", "priority", "added", "start", "end", "delayed_until", "queued")

# The own fields of this library that can be given, each with a function that returns the stored text of a value.
_OWN: dict[str, Callable[[Any], str]] = {
    "job_timeout": stored_timeout,
    "retry_policy": stored_policy,
    "start_within": partial(stored_duration, "start_within"),
    "retry_for": partial(stored_duration, "retry_for"),
    "unique_for": partial(stored_duration, "unique_for"),
}

# Those that may be None: then the attribute of the class counts.
_MAY_BE_NONE = ("start_within", "retry_for", "unique_for")


def check_fields(model: type[RedisModel], fields: Mapping[str, Any], reserved: Iterable[str] = ()) -> None:
    """Check that a model has some fields, that none is reserved or the pk, and that it can index their values."""
    usual = _usual_fields(model)
    for name, value in fields.items():
        is_indexed = usual[name] if name in usual and name not in reserved else _check_unusual(model, name, reserved)
        if is_indexed:
            check_indexed(name, value)


@memoized
def _usual_fields(model: type[RedisModel]) -> dict[str, bool]:
    """Return for each public field of a model whether it is indexed; without the pk, and dynamic fields."""
    names = [name for name in model._fields if not name.startswith("_") and not model._field_is_pk(name)]
    return {name: bool(getattr(model.get_field(name), "indexable", False)) for name in names}


def _check_unusual(model: type[RedisModel], name: str, reserved: Iterable[str]) -> bool:
    if not model.has_field(name) or name.startswith("_"):
        raise AttributeError(_why_unknown(model, name, reserved))
    if name in reserved or model._field_is_pk(name):
        raise ValueError(f"The field {name!r} of {model.__name__!r} cannot be given a value here")
    return bool(getattr(model.get_field(name), "indexable", False))


# What other libraries call something, and what it is called here.
_OF_OTHERS = {
    "countdown": "delayed_for",
    "delay": "delayed_for",
    "eta": "delayed_until",
    "expires": "start_within",
    "expires_in": "start_within",
    "queue": "queue_name",
    "retries": "retry_policy",
    "retry": "retry_policy",
    "run_at": "delayed_until",
    "timeout": "job_timeout",
}

# What can be given for a new job, and is not a field of it.
_PARAMETERS = ("queue_name", "priority", "prepend", "delayed_for", "delayed_until", "on_duplicate")


def _why_unknown(model: type[RedisModel], name: str, reserved: Iterable[str]) -> str:
    public = [field for field in model._fields if not field.startswith("_")]
    own = [field for field in _OWN if f"_{field}" in model._fields]
    known = [field for field in (*public, *own) if field not in reserved and not model._field_is_pk(field)]
    parameters = _PARAMETERS if own else ()  # of jobs
    near = get_close_matches(name, [*known, *parameters], n=1)
    if own and name in _OF_OTHERS:
        near = [_OF_OTHERS[name]]
    hint = f"is {near[0]!r} meant?" if near else f"the fields to be given are {', '.join(map(repr, known))}"
    return f"{model.__name__!r} object has no attribute {name!r}: {hint}"


def checked_fields(job_class: type[RedisModel], fields: dict[str, Any], *, is_new: bool = True) -> dict[str, Any]:
    """Check the fields given for a new job, or to change one, and return them."""
    if arguments_of(job_class):
        try:
            fields.update(stored_arguments(job_class, fields, is_new=is_new))
        except TypeError:  # maybe as the name of an argument is misspelt
            check_fields(job_class, {name: None for name in fields if not is_own(job_class, name)}, RESERVED)
            raise
    if value_fields_of(job_class):
        fields.update(with_stored_values(job_class, fields))
    if fields:
        own = _OWN.keys() & fields.keys()
        if own:
            own = {name for name in own if is_own(job_class, name)}
        theirs = {name: value for name, value in fields.items() if name not in own} if own else fields
        check_fields(job_class, theirs, reserved=RESERVED)
        for name in own:
            if fields[name] is not None or name not in _MAY_BE_NONE:
                fields[name] = _stored_own(name, fields[name])
            elif is_new:
                del fields[name]
    return fields


def _stored_own(name: str, value: Any) -> str:
    """Return the text of the value of an own field, which may have been stored before."""
    is_text_of_seconds = isinstance(value, Stored) and name != "retry_policy"
    return _OWN[name](read_seconds(value) if is_text_of_seconds else value)


def stored_names(job_class: type[RedisModel], fields: dict[str, Any]) -> dict[str, Any]:
    """Return checked fields for a new job by their stored names."""
    if not _OWN.keys() & fields.keys():
        return fields
    return {stored_name(job_class, name): value for name, value in fields.items()}


def default_priority(model: type[RedisModel], priority: int | str | None) -> str:
    """Return the text of a priority; if it is None, of the default one of the model."""
    return stored_priority(getattr(model.get_field("priority"), "default", 0) if priority is None else priority)
