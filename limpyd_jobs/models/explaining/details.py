"""All stored values of one job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

from limpyd_jobs.idents import Ident, read_pk
from limpyd_jobs.models.error import Error
from limpyd_jobs.models.explaining.silence import silence_of_owner
from limpyd_jobs.models.following.history import StatusChange, changes_of, history_key
from limpyd_jobs.models.following.progress import Progress, log_key, read_progress
from limpyd_jobs.observing.instruments import trace_id_of
from limpyd_jobs.records.known_classes import KnownClass
from limpyd_jobs.records.layout import OUTPUT_KEY, RESULT_KEY
from limpyd_jobs.records.records import ListRead, read_beside, read_ends, read_hashes
from limpyd_jobs.redis.calls import given, listed
from limpyd_jobs.redis.cluster.names import prefix_in
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import (
    classes_of,
    connection_to,
    database_of,
    error_models_of,
    models_of,
    queue_models_of,
    replies_to,
    standing_of,
    unread_text,
)
from limpyd_jobs.search.found import name_of_status
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import one_line, too_long
from limpyd_jobs.transitions import owner_of
from limpyd_jobs.transitions.many import search

# How many errors are shown at most, the last ones.
MAX_ERRORS = 20

# How many lines of the log and changes of the status are read at most, the last ones.
MAX_LINES = 1000

# How many characters of a cursor are shown, and how many digits of a number are read.
MAX_CURSOR, DIGITS = 1000, 9

# How many entries of a list, a set or a hash of its own are read, and how many characters of a text.
MAX_ENTRIES, MAX_TEXT = 50, 100_000


class FieldBeside(NamedTuple):
    """A field of a job that is not in its hash.

    Attributes
    ----------
    kind: str
        ``string``, ``list``, ``set``, ``zset`` or ``hash``.
    size: int
        How many entries it has; of a string, how many bytes.
    values: list of str, or dict of str to str
        The first entries, some of those of a set; the scores of a ``zset`` and the values of a ``hash`` by their names;
        the beginning of a string.
    """

    kind: str
    size: int
    values: list[str] | dict[str, str]


class JobDetails(NamedTuple):
    """A job, as it was when it was read.

    Attributes
    ----------
    ident: str
    status: str
        The name of the status, such as ``error``.
    queue: str
        The name of the queue; None if the job does not say.
    owner: str
        Who holds the claim on it; None if it is not claimed.
    fields: dict
        The stored fields of its hash, without the library's own.
    progress: Progress
        How far it is, as it last said; None if it said nothing.
    history: list of StatusChange
        The last changes of its status, if its class keeps them: 1,000 at most.
    log: list of str
        The last lines that its code logged, the oldest first: 1,000 at most.
    result: str
        What its code returned, as JSON; None if no result is kept.
    errors: list of dict
        The fields of the last errors that are recorded of it, the newest first.
    silence: str
        If the owner of the claim gives no sign of life, for how long, and when another can have the job; else empty.
    trace_id: str
        The trace in which it was added; empty if there is none.
    beside: dict of str to FieldBeside
        Its fields that are not in its hash, such as lists, as far as they are not empty.
    cursor: str
        How far its loops and steps are, as JSON, cut off after 1,000 characters; empty if nothing is kept.
    changes_stored, lines_stored: int
        How many changes of its status are stored, and how many lines of its log.
    lost: int
        In how many runs, at least, its worker died since another run ended.
    output: int
        How many chunks of what it emitted are kept, as its output.
    waits_for: str
        ``waiting for a signal``, ``waiting for its children`` or ``waiting for others``, if it does; else empty.
    signal: str
        The name of the signal that it waits for; else empty.
    cancel_reason: str
        Why it was canceled; empty if it was not, or that is not known.
    flow: str
        The id of its flow; empty if it is in none.
    """

    ident: str
    status: str
    queue: str | None
    owner: str | None
    fields: dict[str, str]
    progress: Progress | None
    history: list[StatusChange]
    log: list[str]
    result: str | None
    errors: list[dict[str, str]]
    silence: str = ""
    trace_id: str = ""
    beside: Mapping[str, FieldBeside] = {}
    cursor: str = ""
    changes_stored: int = 0
    lines_stored: int = 0
    lost: int = 0
    output: int = 0
    waits_for: str = ""
    signal: str = ""
    cancel_reason: str = ""
    flow: str = ""


def job_details(
    ident: str,
    database: JobsDatabase | None = None,
    error_model: type[Error] | None = None,
    most: int | None = None,
) -> JobDetails:
    """Read a job, whether this process can import its class or not.

    Parameters
    ----------
    ident: str
    database: JobsDatabase
        The database of `BaseJobsModel` by default.
    error_model: type of Error
        Its errors of this model only; None for all models.
    most: int
        How many bytes of a value are read, and four times as many of all values of the job, or of an error. Instead of
        another value, it is said how many bytes it has. None to read all.

    Raises
    ------
    ValueError
        If it is not an ident.
    LookupError
        If its class is not known in the database, or there is no such job.
    """
    return details_of(ident, stored_job(ident, database, most), database, error_model, most)


def details_of(
    ident: str,
    stored: Mapping[str, str],
    database: JobsDatabase | None,
    error_model: type[Error] | None = None,
    most: int | None = None,
) -> JobDetails:
    from limpyd_jobs.records.flows import read_of_flow, wait_of  # who only adds jobs does not need it

    parsed = Ident.of(ident)
    known = classes_of(database)[parsed.path]
    name = known.name
    queue, history, log, result = _kept_beside(database, name, parsed.pk, stored.get("_queue_key", ""), most)
    is_claimed = bool(stored.get("_claim_token"))
    namespace = name.removeprefix(prefix_in(database_of(database))).rpartition(":")[0]
    place = read_of_flow(stored.get("_flow"), None)
    wait = wait_of(stored.get("status"), stored.get("_waits"), stored.get("delayed_until"))
    return JobDetails(
        ident,
        name_of_status(stored.get("status")),
        queue,
        owner_of(stored.get("_claim_token")),
        {name: value for name, value in sorted(stored.items()) if not name.startswith("_")},
        read_progress(stored.get("_progress_state")),
        list(changes_of(history.entries)),
        log.entries,
        result,
        errors_of(database, error_models_of(database, error_model), parsed, MAX_ERRORS, most),
        silence_of_owner(stored, ident, namespace, database) if is_claimed else "",
        trace_id_of(stored.get("_trace_context")),
        _fields_beside(database, known, parsed.pk),
        one_line(stored.get("_cursor", ""), MAX_CURSOR),
        history.size,
        log.size,
        _lost_runs(stored.get("_rescues", "")),
        _chunks_kept(database, name, parsed.pk) if "_emitted" in stored else 0,
        wait.state if wait else "",
        wait.signal if wait else "",
        stored.get("_cancel_reason", "") if stored.get("status") == STATUSES.CANCELED else "",
        place.flow if place else "",
    )


def _chunks_kept(database: JobsDatabase | None, name: str, pk: str) -> int:
    """Return how many chunks of the output of a job are kept, without the entry that the end of the job adds."""
    key = f"{name}:{pk}:{OUTPUT_KEY}"
    commands = [("XLEN", key), ("XREVRANGE", key, "+", "-", "COUNT", 1)]
    size, last = replies_to(connection_to(database), commands)
    return max((size or 0) - sum("value" not in fields for _, fields in last or ()), 0)


def _lost_runs(rescues: str) -> int:
    """Return how many runs were lost, at least, as ``claims.lua`` notes it: how often alone, or that it was lost with
    others, once or more often."""
    if rescues.isdecimal():
        return int(rescues[:DIGITS])
    return 2 if rescues.startswith("among ") else int(bool(rescues))


def stored_job(ident: str, database: JobsDatabase | None, most: int | None = None) -> dict[str, str]:
    """Return the hash of a job. Exceptions: see `job_details`."""
    parsed = Ident.parse(ident)
    if not parsed:
        raise ValueError(f"{ident!r} is not the ident of a job, for example myapp.jobs.SendMail:12")
    known = classes_of(database).get(parsed.path)
    if not known:
        if unread := models_of(database).all_classes.get(parsed.path):
            raise LookupError(f"The jobs of {parsed.path} are in {unread_text([unread.name], 1)}")
        raise LookupError(
            f"{parsed.path} is not a job class of this database: no process of version 3 added or ran one of its "
            "jobs. If version 2 did, name its module with --job-modules"
        )
    (stored,) = _hashes(database, [f"{known.name}:{parsed.pk}:hash"], most)
    if not stored:
        raise LookupError(f"There is no job {ident}")
    return _with_queue(dict(stored), parsed, known, database)


def _with_queue(
    stored: dict[str, str], ident: Ident, known: KnownClass, database: JobsDatabase | None
) -> dict[str, str]:
    """Add the queue where a job of version 2 stands, which does not say so itself."""
    is_number = read_pk(ident.pk) is not None
    if is_number and "_queue_key" not in stored and stored.get("status") in (STATUSES.WAITING, STATUSES.DELAYED):
        paths = [path for path, each in classes_of(database).items() if each.name == known.name]
        request = {
            "model": json.dumps({"name": known.name}),
            "pks": listed([ident.pk]),
            "names": listed(["_queue_key"]),
        }
        standing = standing_of(queue_models_of(database), paths)
        found = search(connection_to(database), {"conditions": "[]", **request, **standing})
        for _, (key,) in found.records:
            stored.update(given(_queue_key=key))
    return stored


def _hashes(database: JobsDatabase | None, keys: Sequence[str], most: int | None) -> list[dict[str, str]]:
    if most is not None:
        return read_hashes(connection_to(database), keys, most)
    return [dict(each or ()) for each in replies_to(connection_to(database), [("HGETALL", key) for key in keys])]


def _kept_beside(
    database: JobsDatabase | None, name: str, pk: str, queue_key: str, most: int | None
) -> tuple[str | None, ListRead, ListRead, str | None]:
    """Return the name of the queue, the ends of the history and of the log of a job, and its result; None for each that
    is missing."""
    connection, result = connection_to(database), f"{name}:{pk}:{RESULT_KEY}"
    history, log = read_ends(connection, [history_key(name, pk), log_key(name, pk)], MAX_LINES)
    queue, size = replies_to(connection, [("HGET", f"{queue_key}:hash", "name"), ("STRLEN", result)])
    if most is not None and size and size > most:
        return queue, history, log, too_long(size)
    (kept,) = replies_to(connection, [("GET", result)]) if size else [None]
    return queue, history, log, kept


def _fields_beside(database: JobsDatabase | None, known: KnownClass, pk: str) -> dict[str, FieldBeside]:
    """Return what stands in the fields that are not in the hash of a job, without the library's own."""
    names = sorted(name for name in known.keys if not name.startswith("_"))
    found = read_beside(connection_to(database), [f"{known.name}:{pk}:{name}" for name in names], MAX_ENTRIES, MAX_TEXT)
    rows = zip(names, found, strict=True)
    return {name: FieldBeside(kind, size, _values_of(kind, [*entries])) for name, (kind, size, entries) in rows if size}


def _values_of(kind: str, entries: list[str]) -> list[str] | dict[str, str]:
    if kind in ("zset", "hash"):
        return dict(zip(entries[::2], entries[1::2], strict=True))
    return entries


def errors_of(
    database: JobsDatabase | None,
    models: Sequence[KnownClass],
    ident: Ident,
    most: int = MAX_ERRORS,
    longest: int | None = None,
) -> list[dict[str, str]]:
    """Return the fields of the last errors of a job, the newest first."""
    connection, keys = connection_to(database), list[str]()
    models = [model for model in models if model.indexes.keys() >= {"job_pk", "job_model_repr"}]
    of_job = [(f"{it.indexes['job_pk']}{ident.pk}", f"{it.indexes['job_model_repr']}{ident.path}") for it in models]
    for model, pks in zip(models, replies_to(connection, [("SINTER", *each) for each in of_job]), strict=True):
        numbers = (number for number in map(read_pk, pks or ()) if number is not None)
        keys += [f"{model.name}:{pk}:hash" for pk in nlargest(most, numbers)]
    found = [each for each in _hashes(database, keys, longest) if each]
    if len(models) > 1:
        found.sort(key=lambda fields: fields.get("date_time", ""), reverse=True)
    return [{name.removeprefix("_"): value for name, value in fields.items()} for fields in found[:most]]
