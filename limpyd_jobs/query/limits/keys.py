"""The keys of limits that are in use: who holds their slots, and who is parked for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import Any, NamedTuple

from limpyd_jobs.arguments import read_seconds
from limpyd_jobs.classes.job_classes import job_class_of
from limpyd_jobs.dates import span
from limpyd_jobs.limiting.limit import PERIODS, Limit, limits_of_class
from limpyd_jobs.limiting.live import Declared, LiveLimit, declared_by, limit_of, limits_in, parts_of, words_of
from limpyd_jobs.models import Job
from limpyd_jobs.models.functions.function import JobFunction
from limpyd_jobs.query.queues import QueueState
from limpyd_jobs.redis.calls import chunks
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import KnownModels, connection_to, models_of, replies_to

# How many keys are read in one round trip; how many holders of slots are named; how many lanes of a queue are read.
KEYS_PER_STEP, MOST_HOLDERS, MOST_LANES = 500, 20, 20_000


class LimitKey(NamedTuple):
    """One key of a limit, that is one value of its field, as it was when it was read.

    Attributes
    ----------
    name: str
        The name of the limit, or its field.
    value: str
        The value of the field; None for a limit of all jobs. A long one is shown as ``#`` and its SHA-1.
    owner: str
        What the keys of its jobs begin with; or those of their queues, if several classes share the limit.
    taken: int
        How many jobs hold a slot.
    allowed: int
        How many may at once; None if there is no such number, or no process wrote the class.
    parked: int
        How many jobs wait for it. One that needs several limits counts for each.
    waited: float
        For how many seconds the first of them has waited; None without any.
    free_in: float
        In how many seconds the next unit of the rate is free; 0 if one is; None without a rate in use.
    rests_for: float
        For how many seconds no job of it begins; ``inf`` if it is paused, 0 if it may.
    set: mapping
        What was set for this key in place of what the class says: ``{"concurrency": "10"}``.
    holders: list of str
        The idents of some jobs that hold a slot.
    field: str
        The field whose value it is; None if classes share the limit, and no process wrote one of them.
    rate: str
        How many may begin, such as ``5/s``; None without a rate, or if no process wrote the class.
    """

    name: str
    value: str | None
    owner: str
    taken: int
    allowed: int | None
    parked: int
    waited: float | None
    free_in: float | None
    rests_for: float
    set: Mapping[str, str]
    holders: Sequence[str]
    field: str | None = None
    rate: str | None = None

    @property
    def label(self) -> str:
        """The name, and the value if there is one: ``customer=acme``."""
        return self.name if self.value is None else f"{self.name}={self.value}"

    @property
    def state(self) -> str:
        """In a few words, why no job of it may begin now; empty if one may."""
        if self.rests_for == inf:
            return "paused"
        if self.rests_for:
            return f"rests for {span(self.rests_for)}"
        if self.allowed == 0:
            return "none may begin"
        if self.allowed is not None and self.taken >= self.allowed:
            return "full"
        return f"next in {span(self.free_in)}" if self.free_in else ""


@dataclass(slots=True)
class _Seen:
    """What is added up of one key."""

    holders: list[str] = field(default_factory=list)
    taken: int = 0
    parked: int = 0
    first: float | None = None


def limits_of(
    job_class: type[Job] | JobFunction[..., Any, Any], database: JobsDatabase | None = None
) -> list[LimitKey]:
    """Return the keys of the limits of a class, or a function, that are in use: a job holds a slot, waits, or something
    was set."""
    found: type[Job] = job_class_of(job_class)
    owners = {(owner_of(found, limit), limit.label) for limit in limits_of_class(found)}
    return [each for each in limit_keys(database or found.database) if (each.owner, each.name) in owners]


def limit_keys(database: JobsDatabase | None = None) -> list[LimitKey]:
    """Return the keys of all limits that are in use: those that keep most jobs waiting first."""
    connection = connection_to(database)
    found: list[LimitKey] = []
    models = models_of(database)
    for model in models.queue_models:
        found += _keys_of(connection, models, model.name, _bases_of(connection, model.name))
    return sorted(found, key=lambda each: (-each.parked, -each.taken, each.owner, each.label))


class LimitSums(NamedTuple):
    """The keys in use of one limit together.

    Attributes
    ----------
    name, owner: str
        As of a `LimitKey`.
    taken, parked: int
        How many jobs hold a slot, and wait. One that needs several limits counts for each.
    allowed: int
        How many may hold one at once; None if no key has such a number.
    """

    name: str
    owner: str
    taken: int
    allowed: int | None
    parked: int


def limit_sums(queues: Iterable[QueueState], database: JobsDatabase | None = None) -> list[LimitSums]:
    """Return the sums of all limits that are in use in some queues, by owner and name. Without classes that have
    limits, nothing is read for it inside `asking_once`."""
    bases: defaultdict[str, list[str]] = defaultdict(list)
    for queue in queues:
        if queue.running or queue.parked:
            bases[queue.model].append(f"{queue.model}:{queue.pk}")
    if not bases:
        return []
    models = models_of(database)
    if not any(each.limits for each in models.classes.values()):
        return []
    connection, found = connection_to(database), dict[tuple[str, str], LimitSums]()
    for key in chain.from_iterable(_keys_of(connection, models, model, some) for model, some in bases.items()):
        seen = found.get((key.owner, key.name), LimitSums(key.name, key.owner, 0, None, 0))
        allowed = seen.allowed if key.allowed is None else (seen.allowed or 0) + key.allowed
        sums = LimitSums(key.name, key.owner, seen.taken + key.taken, allowed, seen.parked + key.parked)
        found[key.owner, key.name] = sums
    return [found[each] for each in sorted(found)]


def keys_with_parked(queues: Iterable[QueueState], database: JobsDatabase | None = None) -> list[LimitKey]:
    """Return the keys of limits for which jobs wait in some queues, those of the job that has waited longest first.
    Without parked jobs, nothing is read."""
    bases: defaultdict[str, list[str]] = defaultdict(list)
    for queue in queues:
        if queue.parked:
            bases[queue.model].append(f"{queue.model}:{queue.pk}")
    if not bases:
        return []
    connection, models = connection_to(database), models_of(database)
    keys = chain.from_iterable(_keys_of(connection, models, model, some) for model, some in bases.items())
    return sorted((key for key in keys if key.parked), key=lambda key: (-(key.waited or 0), key.label))


def shown(words: Mapping[str, str]) -> dict[str, str]:
    """Return what was set as people set it: scripts take a rate as the microseconds of a unit."""
    shown = {name: value for name, value in words.items() if name not in ("rest", "most")}
    interval = read_seconds(shown.get("rate"))
    if interval:  # else another program wrote something else there
        shown["rate"] = _rate_of(interval / 1e6)
    return shown


def _rate_of(interval: float) -> str:
    """Return a rate as people set it, given the seconds of a unit."""
    rates = [(seconds / interval, unit) for unit, seconds in PERIODS.items()]
    return next((f"{rate:g}/{unit}" for rate, unit in rates if rate >= 1), f"{rates[-1][0]:g}/d")


def _bases_of(connection: Any, queue_model: str) -> list[str]:
    (pks,) = replies_to(connection, [("SMEMBERS", f"{queue_model}:collection")])
    return [f"{queue_model}:{pk}" for pk in sorted(pks or ())]


def _keys_of(connection: Any, models: KnownModels, queue_model: str, bases: Sequence[str]) -> list[LimitKey]:
    """Return the keys in use of limits whose jobs are in some queues of a model."""
    stored, (now, microseconds) = replies_to(connection, [("HGETALL", f"{queue_model}:_limits"), ("TIME",)])
    seen: defaultdict[str, _Seen] = defaultdict(_Seen)
    for ident, slots in _held(connection, models, bases):
        for line in (slots or "").split("\n"):
            if line.startswith("s "):
                of_key = seen[line[2:]]
                of_key.taken += 1
                of_key.holders += [ident] if len(of_key.holders) < MOST_HOLDERS else []
            elif line.startswith("r ") and line.count(" ") > 2:  # else another program wrote it
                seen[line.split(" ", 3)[3]]  # it used something of a rate
    for lane, number, first in _lanes(connection, bases):
        for key in limits_in(lane):
            of_key = seen[key]
            of_key.parked += number
            of_key.first = first if of_key.first is None else min(of_key.first, first)
    set_words = {key: words_of(text) for key, text in dict(stored or {}).items() if "\n" not in key}
    for key in set_words:
        seen[key]  # a key that something was set for counts as in use
    seen.pop("", None)
    moment = now + microseconds / 1e6
    rates = dict(zip(seen, _replies(connection, [("GET", f"{key}:rate") for key in seen]), strict=True))
    declared = declared_by((each.name, each.limits) for each in models.all_classes.values()) if seen else {}
    return [_key(key, each, set_words, rates[key], moment, queue_model, declared) for key, each in seen.items()]


def _held(connection: Any, models: KnownModels, bases: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the jobs that run, and what they hold."""
    running = _replies(connection, [("ZRANGE", f"{base}:_running", 0, -1) for base in bases])
    idents = [*chain.from_iterable(each or () for each in running)]
    names = {path: each.name for path, each in models.all_classes.items()}
    known = [(ident, names[path], pk) for ident in idents for path, _, pk in [ident.rpartition(":")] if path in names]
    replies = _replies(connection, [("HGET", f"{name}:{pk}:hash", "_slots") for _, name, pk in known])
    return zip((ident for ident, _, _ in known), replies, strict=True)


def _lanes(connection: Any, bases: Sequence[str]) -> Iterator[tuple[str, int, float]]:
    """Yield the lanes with parked jobs: the name, how many there are, and when the first one came."""
    asked = [("ZRANGE", f"{base}:{place}", 0, MOST_LANES) for base in bases for place in ("_turns", "_later")]
    replies = _replies(connection, asked)
    lanes = [(base, lane) for number, base in enumerate(bases) for found in replies[2 * number : 2 * number + 2]
             for lane in found or () if lane]  # fmt: skip
    keys = [f"{base}:_lane\n{lane}" for base, lane in lanes]
    sizes = _replies(connection, [("ZCARD", key) for key in keys])
    firsts = _replies(connection, [("ZRANGE", key, 0, 0, "WITHSCORES") for key in keys])
    for (_, lane), size, first in zip(lanes, sizes, firsts, strict=True):
        if size and first:
            yield lane, size, abs(float(first[0][1] if isinstance(first[0], (list, tuple)) else first[1]))


def _replies(connection: Any, commands: Iterable[Sequence[Any]]) -> list[Any]:
    return [reply for some in chunks([*commands], KEYS_PER_STEP) for reply in replies_to(connection, some)]


def _key(
    key: str,
    seen: _Seen,
    set_words: Mapping[str, Mapping[str, str]],
    rate: str | None,
    moment: float,
    queue_model: str,
    declared: Declared,
) -> LimitKey:
    owner, name, value = parts_of(key)
    limit = limit_of(key, queue_model, declared)
    live = LiveLimit.of(limit, set_words.get(f"{owner}:_limit:{name}", {}), set_words.get(key, {}))
    return LimitKey(
        name,
        value,
        owner,
        seen.taken,
        live.allowed,
        seen.parked,
        None if seen.first is None else max(moment - seen.first, 0.0),
        live.free_in(rate, moment),
        live.rests_for(moment),
        shown(set_words.get(key, {})),
        seen.holders,
        limit.field if limit else None if owner == queue_model else name,
        _rate_of(live.interval) if live.interval else None,
    )


def owner_of(job_class: type[Job], limit: Limit) -> str:
    return job_class.queue_model._name if limit.name else job_class._name
