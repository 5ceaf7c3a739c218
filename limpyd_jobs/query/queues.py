"""The queues of a database: how many jobs stand in each, and for how long the first job has waited."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import isfinite
from typing import Any, NamedTuple

from limpyd_jobs.arguments import number_or_text, stored_queue_name
from limpyd_jobs.dates import parse_datetime
from limpyd_jobs.models.queue import Queue
from limpyd_jobs.records.audit import audited, entry_request, refusing_if_unaudited
from limpyd_jobs.records.known_classes import KnownClass
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import change_pause, paused_names_of, redis_of
from limpyd_jobs.redis.calls import Call, chunks, given, listed, outcome_of, passing_over_wrong_types, send
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.search.classes import (
    KnownModels,
    connection_to,
    imported_queue_model,
    is_board,
    models_of,
    queue_models_of,
    replies_to,
)

_delete_queue = Script("queues/delete_queue")
_leave_quarantine = Script("queues/leave_quarantine")
_measure_queues = Script("queues/measure_queues")

# How many queues one step looks at: it takes Redis one or two milliseconds.
QUEUES_PER_STEP = 100

# Where the script names them of a queue.
UNKNOWN_CLASSES = 12

# How often it is looked for lists of queues of unknown models, and at how many keys each time.
MAX_SCANS, KEYS_PER_SCAN = 100, 1000

_LIST_OF_QUEUE = re.compile(r"(.+):\d+:(?:waiting|success|errors)", re.DOTALL)

# How many entries of a quarantine a round trip reads, and from how many characters on no more are read.
ENTRIES_PER_STEP, LARGEST = 10, 5_000_000


class QueueState(NamedTuple):
    """A queue, as it was when it was read."""

    name: str
    priority: int | str  # a text if the stored value is not a number
    is_paused: bool
    waiting: int
    delayed: int
    running: int
    success_list: int  # entries: one for each time that a job ended so, also if it is run again
    errors_list: int
    quarantine: int  # entries that no worker could do anything with
    latency: float | None  # in seconds; None if no job waits, or the class of the next one is not known
    next_due: float | None  # of the next delayed job, in seconds since the epoch
    pk: str  # queues of several models may have the same
    model: str  # what the keys of its model begin with
    unknown_classes: list[str]  # as far as the first and last entries tell
    lapsed: int  # of those that run, how many have no lease any more
    deferred: int  # of those that are delayed, how many wait for a worker that can import their class
    parked: int = 0  # of those that wait, how many are kept from beginning by a limit, or were when it was looked

    @property
    def is_in_use(self) -> bool:
        """Whether a job waits, is delayed or runs."""
        return bool(self.waiting or self.delayed or self.running)


# What is summed up of one queue in several databases, and of its priorities.
NUMBERS = ("waiting", "delayed", "running", "success_list", "errors_list", "quarantine", "lapsed", "deferred", "parked")


class QuarantineEntry(NamedTuple):
    """An entry of a waiting list that no worker can do anything with."""

    queue: str
    priority: int | str
    entry: str  # the ident of a job, or any other text
    pk: str  # of the queue
    model: str  # what the keys of its model begin with


def queue_states(
    names: str | Iterable[str] | None = None,
    database: JobsDatabase | None = None,
    queue_model: type[Queue] | None = None,
) -> list[QueueState]:
    """Look at the queues of some names, or at all queues, of all models that are known: by name and priority.

    It takes a round trip for 100 queues. These 100 are as of one moment.
    """
    stored = None if names is None else [*map(stored_queue_name, [names] if isinstance(names, str) else names)]
    connection, classes = connection_to(database), _names_of(models_of(database))
    found = [
        state
        for model in queue_models_of(database, queue_model)
        for state in _states(connection, model, classes, _pks_of(model, connection, stored))
    ]
    return sorted(found, key=rank)


def unknown_classes_by_queue(database: JobsDatabase | None = None) -> list[Sequence[str]]:
    """Return what `queue_states` says of all queues, but only their unknown classes."""
    connection, known = connection_to(database), models_of(database)
    classes = _names_of(known)
    return [
        row[UNKNOWN_CLASSES]
        for model in known.queue_models
        for row, _ in _rows(connection, model, classes, _each_pk(model, connection))
    ]


def together(state: QueueState, other: QueueState) -> QueueState:
    """Return two queues as if they were one: it is paused if one of them is, and has the name of the first."""
    sums = {name: getattr(state, name) + getattr(other, name) for name in NUMBERS}
    return state._replace(
        **sums,
        is_paused=state.is_paused or other.is_paused,
        latency=max((each for each in (state.latency, other.latency) if each is not None), default=None),
        next_due=min((each for each in (state.next_due, other.next_due) if each is not None), default=None),
        unknown_classes=sorted({*state.unknown_classes, *other.unknown_classes}),
    )


def some_queue_states(
    names: Iterable[str], most: int, database: JobsDatabase | None = None
) -> tuple[list[QueueState], int]:
    """Look at so many queues of all models at most: if there are more, first at those of some names. Return what they
    were, in no sequence, and how many queues there are beside them."""
    connection, classes = connection_to(database), _names_of(models_of(database))
    states: list[QueueState] = []
    left_out = 0
    for model in queue_models_of(database):
        number, room = replies_to(connection, [("SCARD", f"{model.name}:collection")])[0] or 0, most - len(states)
        first = _pks_of(model, connection, sorted({*names})) if number > room else []
        pks = _distinct(chain(first, _each_pk(model, connection)), room)
        states += _states(connection, model, classes, pks)
        left_out += max(number - len(pks), 0)
    return states, left_out


def _names_of(known: KnownModels) -> str:
    return json.dumps({path: each.name for path, each in known.all_classes.items()} or {"": ""})


def rank(state: QueueState) -> tuple[str, int, str]:
    """Return by what queues are sorted: by name and priority."""
    return state.name, -state.priority if isinstance(state.priority, int) else 0, state.model


def quarantine_entries(
    names: str | Iterable[str] | None = None,
    database: JobsDatabase | None = None,
    queue_model: type[Queue] | None = None,
) -> list[QuarantineEntry]:
    """Return the entries in quarantine, the oldest of each queue first. For the parameters see `queue_states`."""
    states = [state for state in queue_states(names, database, queue_model) if state.quarantine]
    connection = connection_to(database)
    return [
        QuarantineEntry(state.name, state.priority, entry, state.pk, state.model)
        for state in states
        for entry in connection.lrange(f"{state.model}:{state.pk}:_quarantine", 0, -1)
    ]


def some_quarantine_entries(
    most: int, names: str | Iterable[str] | None = None, database: JobsDatabase | None = None
) -> tuple[list[QuarantineEntry], int]:
    """Return some entries in quarantine, the oldest of each queue first, and how many there are.

    It ends before `most` are read if these have several MB.
    """
    states = [state for state in queue_states(names, database) if state.quarantine]
    found: list[QuarantineEntry] = []
    size = 0
    for state in states:
        for entry in _first_entries(connection_to(database), f"{state.model}:{state.pk}:_quarantine"):
            if len(found) == most or size > LARGEST:
                break
            found.append(QuarantineEntry(state.name, state.priority, entry, state.pk, state.model))
            size += len(entry)
    return found, sum(state.quarantine for state in states)


def _first_entries(connection: Any, key: str) -> Iterator[str]:
    """Yield the entries of a list, a few a round trip: each may be large."""
    start = 0
    while entries := connection.lrange(key, start, start + ENTRIES_PER_STEP - 1):
        yield from entries
        start += ENTRIES_PER_STEP


def leave_quarantine(
    entries: Iterable[QuarantineEntry],
    database: JobsDatabase | None = None,
    *,
    drop: bool = False,
    unaudited: bool = False,
) -> int:
    """Put entries of quarantines back in their waiting lists, or drop them; return how many were still there."""
    by_queue: dict[str, list[str]] = {}
    for each in entries:
        by_queue.setdefault(f"{each.model}:{each.pk}", []).append(each.entry)
    connection, number = connection_to(database), sum(map(len, by_queue.values()))
    if not number:
        return 0
    verb, what = "drop" if drop else "retry", " ".join(each for those in by_queue.values() for each in those)
    with audited(connection, unaudited=unaudited, verb=f"quarantine {verb}", filter=what) as entry:
        done = sum(
            _leave(connection, {**given(queue_key=key, idents=listed(some), drop=drop), **entry.names})
            for key, those in by_queue.items()
            for some in chunks(those, QUEUES_PER_STEP)
        )
        entry.numbers = {"done": done, "skipped": number - done, "refused": 0}
    return done


def _leave(connection: Any, request: Mapping[str, Any]) -> int:
    return int(send(Call(connection, _leave_quarantine, request, dict))["number"])


def lapsed_jobs(states: Iterable[QueueState], database: JobsDatabase | None = None) -> set[str]:
    """Return the idents of the jobs of some queues whose lease ended: up to 100 of each."""
    keys = [f"{state.model}:{state.pk}:_running" for state in states if state.lapsed]
    connection = connection_to(database)
    commands = [("ZRANGEBYSCORE", key, "-inf", connection.time()[0], "LIMIT", 0, 100) for key in keys]
    return {ident for idents in replies_to(connection, commands) for ident in idents or ()}


def delete_queue(state: QueueState, database: JobsDatabase | None = None, *, unaudited: bool = False) -> str:
    """Delete a queue that is empty, with its lists of jobs that ended: return ``deleted``, ``gone``, or ``used``."""
    model = imported_queue_model(database, state.model)
    layout = layout_of(model)
    if not layout.erasable or layout.special or layout.outside:
        raise ValueError(f"{model.__name__} has fields of its own: delete the queue in Python")
    what = f"queue={state.name} priority={state.priority}"
    told = entry_request(unaudited, verb="delete queue", filter=what, done=1)
    request = {"queue_model": layout.json, "pk": state.pk, **told}
    with refusing_if_unaudited():
        outcome: str = send(Call(redis_of(model), _delete_queue, request, outcome_of, [model]))
        return outcome


def unknown_queue_models(database: JobsDatabase | None = None) -> list[str]:
    """Return what the keys of models of queues begin with that are not known, as of version 2. It looks at some 100,000
    keys, for lists of queues."""
    connection, cursor, found = connection_to(database), 0, set[str]()
    pattern = at(connection, "*:[0-9]*:[wse]*")
    for _ in range(MAX_SCANS):
        cursor, keys = connection.scan(cursor, match=pattern, count=KEYS_PER_SCAN, _type="list")
        found.update(match[1] for match in map(_LIST_OF_QUEUE.fullmatch, keys) if match)
        if not cursor:
            break
    return sorted(found - {model.name for model in queue_models_of(database)})


def queue_names(database: JobsDatabase | None = None, queue_model: type[Queue] | None = None) -> set[str]:
    """Return the names of all queues. For the parameters see `queue_states`."""
    connection = connection_to(database)
    keys = [
        f"{model.name}:{pk}:hash"
        for model in queue_models_of(database, queue_model)
        for pk in _pks_of(model, connection)
    ]
    return {name for name in replies_to(connection, [("HGET", key, "name") for key in keys]) if name}


def paused_queues(database: JobsDatabase | None = None, queue_model: type[Queue] | None = None) -> set[tuple[str, str]]:
    """Return the queues that are paused: what the keys of their model begin with, and their name."""
    models, connection = queue_models_of(database, queue_model), connection_to(database)
    return {(model.name, name) for model in models for name in paused_names_of(connection, model.name)}


def pause_queue(
    model: str, name: str, database: JobsDatabase | None = None, *, pauses: bool = True, unaudited: bool = False
) -> bool:
    """Pause the queues of a name, of the model whose keys begin so, or resume them; return whether they changed."""
    if pauses and is_board(model):
        raise ValueError(f"{name!r} is a board of TaskFlow: it cannot be paused, because conductors take no notice")
    connection = connection_to(database)
    return change_pause(connection, model, name, pauses=pauses, unaudited=unaudited)


def _pks_of(model: KnownClass, connection: Any, names: Iterable[str] | None = None) -> list[str]:
    if names is None:
        return [*_each_pk(model, connection)]
    prefix = model.indexes.get("name", f"{model.name}:name:")
    replies = replies_to(connection, [("SMEMBERS", f"{prefix}{name}") for name in names])
    return [pk for pks in replies for pk in pks or ()]


def _each_pk(model: KnownClass, connection: Any) -> Iterator[str]:
    """Yield the pks of all queues of a model, maybe some twice."""
    with passing_over_wrong_types():
        yield from connection.sscan_iter(f"{model.name}:collection", count=1000)


def _distinct(pks: Iterable[str], most: int) -> set[str]:
    found: set[str] = set()
    for pk in pks:
        if len(found) >= most:
            break
        found.add(pk)
    return found


def _states(connection: Any, model: KnownClass, classes: str, pks: Iterable[str]) -> Iterator[QueueState]:
    return (_state(row, moment, model.name) for row, moment in _rows(connection, model, classes, pks))


def _rows(connection: Any, model: KnownClass, classes: str, pks: Iterable[str]) -> Iterator[tuple[Sequence[Any], str]]:
    """Yield what a script says of each queue, and of which moment that is."""
    for some in chunks(sorted(set(pks)), QUEUES_PER_STEP):
        request = {"queue_model": json.dumps({"name": model.name}), "classes": classes, "pks": listed(some)}
        reply = send(Call(connection, _measure_queues, request, dict))
        yield from ((row, reply["moment"]) for row in reply["queues"])


def _state(row: Sequence[Any], moment: str, model: str) -> QueueState:
    pk, name, priority, is_paused, waiting, delayed, running, success, errors, quarantine, due, dates, paths, *rest = (
        row
    )
    numbers = (waiting, delayed, running, success, errors, quarantine)
    latency = _seconds_between(max(filter(None, dates or ()), default=None), moment)
    which = (name, number_or_text(priority), bool(is_paused))
    return QueueState(*which, *numbers, latency, _finite(due), pk, model, list(paths), *rest)


def _finite(text: Any) -> float | None:
    number = float(text or "nan")
    return number if isfinite(number) else None


def _seconds_between(start: str | None, end: str) -> float | None:
    began, ended = parse_datetime(start), parse_datetime(end)
    return max((ended - began).total_seconds(), 0.0) if began and ended else None
