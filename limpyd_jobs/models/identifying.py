"""Identifiers that are made for jobs whose caller gives none."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from inspect import signature
from types import SimpleNamespace
from typing import Any

from limpyd.model import RedisModel

from limpyd_jobs.arguments import stored_identifier
from limpyd_jobs.classes.job_classes import path_of
from limpyd_jobs.fields.argument import arguments_of
from limpyd_jobs.fields.codecs import Stored
from limpyd_jobs.functions import memoized, takes


class _LeftOut:
    def __repr__(self) -> str:
        return "<made>"


# The default of the parameter: an explicit None is refused, because it is a mistake of the caller.
LEFT_OUT: Any = _LeftOut()


def identifier_of_new(job_class: type[RedisModel], identifier: Any, fields: Mapping[str, Any]) -> str:
    """Return the identifier of a new job, as it is stored: the given one; else the one that its class makes of its
    arguments, by its attribute `identify`; else one that no other job has, of which later ones are greater.

    Raises
    ------
    TypeError, ValueError
        If it is not one, or `identify` needs an argument that is missing.
    """
    if identifier is not LEFT_OUT:
        return stored_identifier(identifier)
    identify = getattr(job_class, "identify", None)
    if identify is None or not _is_for_arguments(identify):
        return sortable_identifier()
    made = identify(_values(job_class, fields))
    try:
        return stored_identifier(made)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path_of(job_class)}.identify: {error}") from None


@memoized
def _is_for_arguments(identify: Callable[..., Any]) -> bool:
    """Whether it is a function of arguments, and not a method, a field or an attribute of the application's own."""
    return callable(identify) and takes(identify, None) and next(iter(signature(identify).parameters)) != "self"


def _values(job_class: type[RedisModel], fields: Mapping[str, Any]) -> SimpleNamespace:
    """Return the arguments of a new job, with the defaults of those that are not given."""
    arguments = arguments_of(job_class)
    missing = [name for name, field in arguments.items() if field.is_needed and name not in fields]
    if missing:
        raise TypeError(f"{job_class.__name__} needs the argument {', '.join(map(repr, missing))}")
    given = {name: fields[name] if name in fields else Stored(field.default) for name, field in arguments.items()}
    return SimpleNamespace(
        **{name: arguments[name].codec.load(v) if isinstance(v, Stored) else v for name, v in given.items()}
    )


_lock = threading.Lock()
_last = 0


_MADE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def is_made(identifier: str) -> bool:
    """Whether an identifier looks like one that `sortable_identifier` made."""
    return bool(_MADE.fullmatch(identifier))


def sortable_identifier() -> str:
    """Return a UUID of version 7, as RFC 9562 has it: later ones are greater, in one process strictly so."""
    global _last
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    moment = milliseconds << 12 | nanoseconds * 4096 // 1_000_000
    with _lock:
        moment = _last = max(moment, _last + 1)
    random = int.from_bytes(os.urandom(8), "big") >> 2
    number = (moment >> 12) << 80 | 7 << 76 | (moment & 0xFFF) << 64 | 2 << 62 | random
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
