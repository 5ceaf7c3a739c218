"""The queues of a database: how many jobs stand in each, and for how long the first job has waited."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

from limpyd_jobs.arguments import read_priority, stored_queue_name
from limpyd_jobs.models import BaseJobsModel, Queue
from limpyd_jobs.query.classes import classes_of, connection_to, on, replies_to
from limpyd_jobs.store.audit import audited, entry_request, refusing_if_unaudited
from limpyd_jobs.store.calls import Call, flag, given, listed, outcome_of, passing_over_wrong_types, send
from limpyd_jobs.store.database import JobsDatabase
from limpyd_jobs.store.layout import layout_of
from limpyd_jobs.store.scripting import Script
from limpyd_jobs.utils import parse_datetime

_delete_queue = Script("delete_queue")
_leave_quarantine = Script("leave_quarantine")
_measure_queues = Script("measure_queues")

# How many queues one step looks at: it takes Redis about a millisecond.
STEP = 200


class QueueState(NamedTuple):
    """A queue, as it was when it was read.

    Attributes
    ----------
    name: str
    priority: int or str
        A text if somebody stored a value that is not a number.
    is_paused: bool
    waiting, delayed, running: int
        How many jobs have this status.
    success, errors: int
        How many jobs are in its list of jobs that ended so.
    quarantine: int
        How many entries no worker could do anything with.
    latency: float
        For how many seconds the next job has waited; None if no job waits, or its class is not known.
    next_due: float
        When the next delayed job is due: seconds since the epoch; None if no job is delayed.
    pk: str
    """

    name: str
    priority: int | str
    is_paused: bool
    waiting: int
    delayed: int
    running: int
    success: int
    errors: int
    quarantine: int
    latency: float | None
    next_due: float | None
    pk: str

    @property
    def is_in_use(self) -> bool:
        """Whether a job waits, is delayed or runs."""
        return bool(self.waiting or self.delayed or self.running)


class QuarantineEntry(NamedTuple):
    """An entry of a waiting list that no worker can do anything with.

    Attributes
    ----------
    queue: str
        The name of the queue.
    priority: int or str
    entry: str
        The ident of a job, or any text that somebody put there.
    pk: str
        The pk of the queue.
    """

    queue: str
    priority: int | str
    entry: str
    pk: str


def queue_states(
    names: str | Iterable[str] | None = None,
    database: JobsDatabase | None = None,
    queue_model: type[Queue] = Queue,
) -> list[QueueState]:
    """Look at the queues of some names, or at all queues: by name, and within a name the highest priority first.

    It takes a round trip for 200 queues. These 200 are as of one moment.

    Parameters
    ----------
    names: str, or iterable of str
        None for all.
    database: JobsDatabase
        The database of `BaseJobsModel` by default.

    Raises
    ------
    TypeError, ValueError
        If a name is not valid.
    """
    database = database or BaseJobsModel.database
    model = on(queue_model, database)
    found = list(_states(model, database, _pks_of(model, names)))
    return sorted(found, key=lambda state: (state.name, -state.priority if isinstance(state.priority, int) else 0))


def quarantine_entries(
    names: str | Iterable[str] | None = None,
    database: JobsDatabase | None = None,
    queue_model: type[Queue] = Queue,
) -> list[QuarantineEntry]:
    """Return the entries in quarantine, the oldest of each queue first. For the parameters see `queue_states`."""
    states = [state for state in queue_states(names, database, queue_model) if state.quarantine]
    model = on(queue_model, database or BaseJobsModel.database)
    connection = connection_to(model.database)
    return [
        QuarantineEntry(state.name, state.priority, entry, state.pk)
        for state in states
        for entry in connection.lrange(f"{model._name}:{state.pk}:_quarantine", 0, -1)
    ]


def leave_quarantine(
    entries: Iterable[QuarantineEntry],
    database: JobsDatabase | None = None,
    queue_model: type[Queue] = Queue,
    *,
    drop: bool = False,
    unaudited: bool = False,
) -> int:
    """Put entries of quarantines back in the waiting lists of their queues, for example once their records are mended.

    Parameters
    ----------
    entries: iterable of QuarantineEntry
    drop: bool
        True to drop them instead. The records of jobs stay.
    unaudited: bool
        True to do it even if Redis refuses to write it to the audit.

    Returns
    -------
    int
        How many entries were still there.

    Raises
    ------
    NotAudited
        If Redis refuses to write it to the audit.
    """
    model = on(queue_model, database or BaseJobsModel.database)
    by_queue: dict[str, list[str]] = {}
    for each in entries:
        by_queue.setdefault(each.pk, []).append(each.entry)
    connection, number = connection_to(model.database), sum(map(len, by_queue.values()))
    if not number:
        return 0
    call = partial(Call, connection, _leave_quarantine, read=lambda reply: reply["number"])
    requests = (
        given(queue_key=f"{model._name}:{pk}", idents=listed(some), drop=flag(drop))
        for pk, those in by_queue.items()
        for some in _steps(those)
    )
    verb, what = "drop" if drop else "retry", " ".join(each for those in by_queue.values() for each in those)
    with audited(connection, unaudited=unaudited, verb=f"quarantine {verb}", filter=what) as entry:
        done = sum(send(call(request={**request, **entry.names})) for request in requests)
        entry.numbers = {"done": done, "skipped": number - done, "refused": 0}
    return done


def delete_queue(
    state: QueueState,
    database: JobsDatabase | None = None,
    queue_model: type[Queue] = Queue,
    *,
    unaudited: bool = False,
) -> str:
    """Delete a queue that is empty, with its lists of jobs that ended; these jobs stay.

    Returns
    -------
    str
        ``deleted``; ``gone`` if there is no such queue any more; ``used`` if a job waits in it, is delayed or runs.

    Raises
    ------
    ValueError
        If its model has fields that a script cannot delete.
    NotAudited
        If Redis refuses to write it to the audit, and `unaudited` is not true.
    """
    model = on(queue_model, database or BaseJobsModel.database)
    layout = layout_of(model)
    if not layout.erasable or layout.special or layout.outside:
        raise ValueError(f"{model.__name__} has fields of its own: delete the queue in Python")
    what = f"queue={state.name} priority={state.priority}"
    told = entry_request(unaudited, verb="delete queue", filter=what, done=1)
    request = {"queue_model": layout.json, "pk": state.pk, **told}
    with refusing_if_unaudited():
        return str(send(Call(connection_to(model.database), _delete_queue, request, outcome_of, [model])))


def _pks_of(model: Any, names: str | Iterable[str] | None) -> list[str]:
    connection = connection_to(model.database)
    if names is None:
        with passing_over_wrong_types():
            return list(connection.sscan_iter(f"{model._name}:collection", count=1000))
        return []
    stored = [stored_queue_name(name) for name in ([names] if isinstance(names, str) else names)]
    prefix = layout_of(model).description["indexes"]["name"][0]
    return [
        pk for pks in replies_to(connection, [("SMEMBERS", f"{prefix}{name}") for name in stored]) for pk in pks or ()
    ]


def _states(model: Any, database: JobsDatabase, pks: Sequence[str]) -> Iterator[QueueState]:
    classes = json.dumps({path: known.name for path, known in classes_of(database).items()} or {"": ""})
    asked = {"queue_model": layout_of(model).json, "classes": classes}
    for some in _steps(sorted(set(pks))):
        call = Call(connection_to(database), _measure_queues, {**asked, "pks": listed(some)}, lambda reply: reply)
        reply = send(call)
        yield from (_state(row, reply["moment"]) for row in reply["queues"])


def _state(row: Sequence[Any], moment: str) -> QueueState:
    pk, name, priority, is_paused, waiting, delayed, running, success, errors, quarantine, due, dates = row
    numbers = (waiting, delayed, running, success, errors, quarantine)
    latency = _seconds_between(max(filter(None, dates or ()), default=None), moment)
    return QueueState(name, _number(priority), bool(is_paused), *numbers, latency, _finite(due), pk)


def _finite(text: Any) -> float | None:
    number = float(text or "nan")
    return number if isfinite(number) else None


def _steps(values: Sequence[str]) -> Iterator[Sequence[str]]:
    return (values[first : first + STEP] for first in range(0, len(values), STEP))


def _number(text: str) -> int | str:
    number = read_priority(text)
    return text if number is None else number


def _seconds_between(start: str | None, end: str) -> float | None:
    began, ended = parse_datetime(start), parse_datetime(end)
    return max((ended - began).total_seconds(), 0.0) if began and ended else None
