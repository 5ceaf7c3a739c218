"""Values as JSON: the same document for ``--json``, for programs that ask the dashboard, and for Django's admin.

A value is an object with the names of its fields, unless `fields_of` says otherwise. A date is a text in UTC, as it
is stored. A number that may be higher has ``…at_least`` beside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields as fields_of_class
from dataclasses import is_dataclass
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from functools import partial, singledispatch
from math import isfinite
from typing import Any

from limpyd_jobs.dates import EPOCH
from limpyd_jobs.models.presence import AliveWorker
from limpyd_jobs.query import Count, ErrorGroup, ErrorMessage, Facets, QueueState, Tally

# What a worker told of itself, as it is stored: all that is known of it stands beside.
_NOT_OF_WORKERS = ("kind", "until", "details")


def document(value: Any, longest: int = sys.maxsize) -> Any:
    """Return a value in the types of JSON. Of a text of more than `longest` characters, it has the beginning."""
    if isinstance(value, Enum):
        return value.name.lower()
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return value if len(value) <= longest else f"{value[:longest]}… ({len(value):,} characters)"
    if isinstance(value, float):
        return value if isfinite(value) else json.dumps(value)  # JSON has no infinite numbers: they become texts
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, date):
        return _stored(value)
    return _container(value, partial(document, longest=longest))


def text_of(value: Any, indent: int | None = None) -> str:
    """Return a value as the text of JSON."""
    return json.dumps(document(value), indent=indent)


def _container(value: Any, document: Callable[[Any], Any]) -> Any:
    fields = fields_of(value)
    if fields is not None:
        of_counts = {name: each for name, each in fields.items() if isinstance(each, Count)}
        plain = {str(name): each.number if name in of_counts else document(each) for name, each in fields.items()}
        return {**plain, **{f"{name}_at_least": True for name, each in of_counts.items() if not each.is_exact}}
    if isinstance(value, (set, frozenset)):
        return sorted(map(document, value))
    return [*map(document, value)] if isinstance(value, Iterable) else str(value)


@singledispatch
def fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the fields of a value, by the names that they have in JSON; None if it has none."""
    if isinstance(value, Mapping):
        return value
    for name in ("as_dict", "_asdict"):
        if hasattr(value, name):
            fields: Mapping[str, Any] = getattr(value, name)()
            return fields
    return {each.name: getattr(value, each.name) for each in fields_of_class(value)} if is_dataclass(value) else None


def _stored(value: date) -> str:
    """Return a date as it is stored: in UTC, without saying so."""
    if isinstance(value, datetime) and value.tzinfo:
        value = value.astimezone(timezone.utc).replace(tzinfo=None)
    return str(value)


def _at_least(is_exact: bool) -> Mapping[str, bool]:
    return {} if is_exact else {"at_least": True}


@fields_of.register
def _(worker: AliveWorker) -> Mapping[str, Any]:
    return {name: value for name, value in vars(worker).items() if name not in _NOT_OF_WORKERS}


@fields_of.register
def _(state: QueueState) -> Mapping[str, Any]:
    fields = state._asdict()
    first = {"name": fields.pop("name"), "priority": fields.pop("priority"), "paused": fields.pop("is_paused")}
    return {**first, **fields, "next_due": _date_of(state.next_due)}


def _date_of(epoch: float | None) -> datetime | None:
    """Return seconds since the epoch as a date in UTC; None if there are none, or they are beyond all dates."""
    with suppress(OverflowError):
        return None if epoch is None else EPOCH + timedelta(seconds=epoch)
    return None


@fields_of.register
def _(group: ErrorGroup) -> Mapping[str, Any]:
    return {"count" if name == "number" else name: value for name, value in group._asdict().items()}


@fields_of.register
def _(message: ErrorMessage) -> Mapping[str, Any]:
    return {"message": message.pattern, "count": message.number, "examples": message.examples}


@fields_of.register
def _(found: Count) -> Mapping[str, Any]:
    return {"count": found.number, **_at_least(found.is_exact)}


@fields_of.register
def _(found: Facets) -> Mapping[str, Any]:
    return {"counts": found.counts, "others": found.others, **_at_least(found.is_exact)}


@fields_of.register
def _(tally: Tally) -> Mapping[str, Any]:
    return {**tally._asdict(), **({"until": tally.until} if tally.until else {}), **_at_least(tally.is_exact)}
