"""Values as JSON: the same document for ``--json``, for programs that ask the dashboard, and for Django's admin.

A value is an object with the names of its fields, unless `_NAMED` says otherwise. A date is a text in UTC, as it
is stored. A number that may be higher has ``…at_least`` beside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from functools import partial
from math import isfinite
from typing import Any

from limpyd_jobs.dates import EPOCH
from limpyd_jobs.models.presence import AliveWorker
from limpyd_jobs.query import Count, ErrorGroup, ErrorMessage, Facets, Incident, QueueState, Tally

# How many queues of an incident are named.
MAX_QUEUES = 50

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
    found = _fields_of(value)
    if found is not None:
        of_counts = {name: each for name, each in found.items() if isinstance(each, Count)}
        plain = {str(name): each.number if name in of_counts else document(each) for name, each in found.items()}
        return {**plain, **{f"{name}_at_least": True for name, each in of_counts.items() if not each.is_exact}}
    if isinstance(value, (set, frozenset)):
        return sorted(map(document, value))
    return [*map(document, value)] if isinstance(value, Iterable) else str(value)


def _fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the fields of a value, by the names that they have in JSON; None if it has none."""
    if named := next((_NAMED[kind] for kind in type(value).__mro__ if kind in _NAMED), None):
        return named(value)
    if isinstance(value, Mapping):
        return value
    for name in ("as_dict", "_asdict"):
        if hasattr(value, name):
            found: Mapping[str, Any] = getattr(value, name)()
            return found
    return {each.name: getattr(value, each.name) for each in fields(value)} if is_dataclass(value) else None


def _stored(value: date) -> str:
    """Return a date as it is stored: in UTC, without saying so."""
    if isinstance(value, datetime) and value.tzinfo:
        value = value.astimezone(timezone.utc).replace(tzinfo=None)
    return str(value)


def _at_least(is_exact: bool) -> Mapping[str, bool]:
    return {} if is_exact else {"at_least": True}


def _of_worker(worker: AliveWorker) -> Mapping[str, Any]:
    return {name: value for name, value in vars(worker).items() if name not in _NOT_OF_WORKERS}


def _of_queue(state: QueueState) -> Mapping[str, Any]:
    others = state._asdict()
    first = {"name": others.pop("name"), "priority": others.pop("priority"), "paused": others.pop("is_paused")}
    return {**first, **others, "next_due": _date_of(state.next_due)}


def _date_of(epoch: float | None) -> datetime | None:
    """Return seconds since the epoch as a date in UTC; None if there are none, or they are beyond all dates."""
    with suppress(OverflowError):
        return None if epoch is None else EPOCH + timedelta(seconds=epoch)
    return None


def _of_cause(group: ErrorGroup) -> Mapping[str, Any]:
    return {"count" if name == "number" else name: value for name, value in group._asdict().items()}


def _of_tally(tally: Tally) -> Mapping[str, Any]:
    return {**tally._asdict(), **({"until": tally.until} if tally.until else {}), **_at_least(tally.is_exact)}


def _of_incident(incident: Incident) -> Mapping[str, Any]:
    queues = {"queues": incident.queues[:MAX_QUEUES], "queues_count": len(incident.queues)}
    return {**incident._asdict(), **queues, "queue": incident.queue, "is_grave": incident.is_grave}


# What has other names in JSON.
_NAMED: Mapping[type, Callable[[Any], Mapping[str, Any]]] = {
    AliveWorker: _of_worker,
    Count: lambda found: {"count": found.number, **_at_least(found.is_exact)},
    ErrorGroup: _of_cause,
    ErrorMessage: lambda each: {"message": each.pattern, "count": each.number, "examples": each.examples},
    Facets: lambda found: {"counts": found.counts, "others": found.others, **_at_least(found.is_exact)},
    Incident: _of_incident,
    QueueState: _of_queue,
    Tally: _of_tally,
}
