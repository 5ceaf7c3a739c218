"""The identifiers of the jobs of a function whose arguments are to be unique while a job is queued."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from limpyd_jobs.fields.forms import dump_json
from limpyd_jobs.models.functions.parameters import Parameter
from limpyd_jobs.models.functions.refusing import refuse

# The longest identifier that shows the arguments, in characters; a longer one is a digest of them.
MAX_SHOWN = 200

Unique = bool | str | Sequence[str] | Callable[[Any], str]


def identify_by(function: Any, unique: Any, parameters: Sequence[Parameter]) -> Callable[[Any], str] | None:
    """Return the `identify` of the job class of a function; None if each job is to have an identifier of its own."""
    if unique is None or unique is False:
        return None
    if callable(unique):
        return lambda values: unique(SimpleNamespace(**{each.name: getattr(values, each.field) for each in parameters}))
    names = [each.name for each in parameters] if unique is True else [unique] if isinstance(unique, str) else unique
    if not isinstance(names, (list, tuple)):
        refuse(function, f"unique is True, names of parameters, or a function of the arguments, not {unique!r}")
    by_name = {each.name: each for each in parameters}
    for name in names:
        if name not in by_name:
            refuse(function, f"unique: there is no parameter {name!r}, but {', '.join(by_name) or 'none'}")
    chosen = [by_name[name] for name in names]
    return lambda values: _identifier(chosen, values)


def _identifier(chosen: Sequence[Parameter], values: Any) -> str:
    texts = {
        each.name: each.argument.codec.stored(f"The argument {each.name!r}", getattr(values, each.field))
        for each in chosen
    }
    text = dump_json(texts)
    return text if len(text) <= MAX_SHOWN else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
