"""What must hold in a database of jobs once nothing is in progress: the invariants of every model, checked as stored.

>>> assert violations(client, MyJob, MyQueue, MyError) == []
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import redis
from limpyd.contrib.indexes import MultiIndexes
from limpyd.fields import InstanceHashField
from limpyd.indexes import BaseRangeIndex, EqualIndex
from limpyd.model import RedisModel

from limpyd_jobs import STATUSES, Job, Queue
from limpyd_jobs.dates import datetime_to_score, parse_datetime
from limpyd_jobs.schedules import Schedule

LIVE = {STATUSES.WAITING, STATUSES.DELAYED, STATUSES.RUNNING}
FINAL = {STATUSES.SUCCESS, STATUSES.ERROR, STATUSES.CANCELED}
PLACES = ("waiting", "_parked", "delayed", "_running")
LOCK_OF_VERSION_2 = "requeue_all_delayed_ready_jobs"

Contents = dict[str, Any]


def violations(client: redis.Redis, *models: type[RedisModel]) -> list[str]:
    """Return what is wrong with the records of some models: jobs, queues, errors, schedules.

    Each text begins with the name of the invariant:

    - I1 a pk is in the collection if, and only if, its hash exists
    - I2 the indexes of a field are what limpyd makes of the values in the hashes
    - I3 a job is queued if, and only if, it is waiting, delayed or running
    - I4 one job of an identifier is queued at the most, besides canceled jobs whose code still runs
    - I5 a waiting job stands in one waiting list, or is parked in one queue, and stands nowhere else
    - I6 a delayed job stands in one delayed set, and nowhere else, with the score of its date
    - I7 a running job, and only such a one, has a claim and a lease
    - I8 a job that ended stands nowhere; one that succeeded does not know how far it was
    - I9 there is one queue of a name and a priority, and every list and set is that of a queue
    - I10 every key belongs to a record
    - I11 a schedule is among those that are due if, and only if, it is active, with the score of its next time

    The places of jobs (I5 to I8) are looked for in the queues of the given queue models. `client` has to decode.
    """
    return violations_in(contents(client), *models)


def violations_in(stored: Contents, *models: type[RedisModel]) -> list[str]:
    """Return what is wrong with the records of some models, given all that is stored: see `violations`."""
    records = [each for each in (_Records(model, stored) for model in models) if each.keys]
    queues = [queue for queue in records if issubclass(queue.model, Queue)]
    places = _Places(queues)
    return [
        *(problem for each in records for problem in each.violations()),
        *(problem for queue in queues for problem in _of_queues(queue)),
        *(problem for each in records if issubclass(each.model, Schedule) for problem in _of_schedules(each)),
        *(problem for each in records if issubclass(each.model, Job) for problem in _of_jobs(each, places)),
    ]


def contents(client: redis.Redis) -> Contents:
    """Return all that is in a database, as Python values: sorted sets are dicts of members and scores.

    Which job classes are known to be there, and what was done to many jobs, is left out: it is no part of any record.
    """
    values = {
        "string": lambda text: text,
        "hash": _pairs,
        "list": list,
        "set": set,
        "stream": list,
        "zset": lambda members: {member: float(score) for member, score in _pairs(members).items()},
    }
    return {key: values[kind](value) for key, kind, value in client.eval(_READ_ALL, 0)}


_READ_ALL = """
local read = {
  string = {'GET'}, hash = {'HGETALL'}, list = {'LRANGE', 0, -1}, set = {'SMEMBERS'},
  zset = {'ZRANGE', 0, -1, 'WITHSCORES'}, stream = {'XRANGE', '-', '+'},
}
local keys, found = redis.call('KEYS', '*'), {}
table.sort(keys)
for _, key in ipairs(keys) do
  if string.sub(key, 1, 12) ~= 'limpyd-jobs:' then
    local kind = redis.call('TYPE', key).ok
    found[#found + 1] = {key, kind, redis.call(read[kind][1], key, unpack(read[kind], 2))}
  end
end
return found
"""


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


class _Records:
    """The records of a model, and all the keys under its prefix."""

    def __init__(self, model: type[RedisModel], stored: Contents) -> None:
        self.model = model
        self.prefix = f"{model._name}:"
        self.keys = {key: value for key, value in stored.items() if key.startswith(self.prefix)}
        self.collection: set[str] = self.keys.get(f"{self.prefix}collection", set())
        self.hashes = dict(self._hashes())

    def _hashes(self) -> Iterator[tuple[str, dict[str, str]]]:
        for key, value in self.keys.items():
            pk, _, rest = key.removeprefix(self.prefix).partition(":")
            if rest == "hash" and isinstance(value, dict):
                yield pk, value

    def key(self, pk: str, name: str) -> str:
        return f"{self.prefix}{pk}:{name}"

    def violations(self) -> Iterator[str]:
        if self.collection != self.hashes.keys():
            yield f"I1 {self.prefix} has the hashes {sorted(self.hashes)}, the collection {sorted(self.collection)}"
        for name in self._hash_fields():
            yield from self._of_index(name)
        for key in self.keys:
            if not self._has_owner(key):
                yield f"I10 {key} belongs to nothing"

    def _hash_fields(self) -> list[str]:
        fields = [self.model.get_field(name) for name in self.model._fields]
        return [field.name for field in fields if isinstance(field, InstanceHashField) and field.indexable]

    def _of_index(self, name: str) -> Iterator[str]:
        indexes = self.model.get_field(name)._indexes
        if not all(_is_simple(index) for index in indexes):
            return
        expected: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for pk, record in self.hashes.items():
            if name in record:
                for index in indexes:
                    for key, member, score in _entries(index, pk, record[name]):
                        expected[key][member] = score
        beginning = f"{self.prefix}{name}:"
        actual = {key: _as_scores(value) for key, value in self.keys.items() if key.startswith(beginning)}
        for key in actual.keys() | expected.keys():
            if actual.get(key) != expected.get(key):
                yield f"I2 {key} holds {actual.get(key)}, which should be {expected.get(key)}"

    def _has_owner(self, key: str) -> bool:
        first, separator, rest = key.removeprefix(self.prefix).partition(":")
        if not separator:
            return first in ("max_pk", "collection", "idle_workers", "reconcile_lock", "paused", "due", "_limits")
        if self.model.has_field(first) or first in (
            "_signal",
            "_once",
            "_canceled",
            "_stopping",
            "_throttle",
            "_limit",
        ):
            return True
        of_record = (
            rest in ("hash", LOCK_OF_VERSION_2)
            or self.model.has_field(rest)
            or rest.startswith(("_lane\n", "_blocked\n", "_passes"))
        )
        return first in self.collection and of_record


def _is_simple(index: Any) -> bool:
    """Whether what is in an index depends on nothing but the value of its field."""
    if isinstance(index, MultiIndexes):
        return all(_is_simple(each) for each in index._indexes)
    return type(index).store in (EqualIndex.store, BaseRangeIndex.store) and not hasattr(index, "other_fields")


def _entries(index: Any, pk: str, *value: str) -> Iterator[tuple[str, str, float]]:
    """The keys, with member and score, under which an index has a value. Members of a set are all scored 0."""
    if isinstance(index, MultiIndexes):
        for each in index._indexes:
            yield from _entries(each, pk, *index.prepare_args(value))
    elif isinstance(index, BaseRangeIndex):
        member, score = index.prepare_data_to_store(pk, value[-1])
        yield index.get_storage_key(*value), str(member), float(score)
    else:
        yield index.get_storage_key(*value), pk, 0.0


def _as_scores(value: Any) -> Any:
    return dict.fromkeys(value, 0.0) if isinstance(value, set) else value


class _Places:
    """Where idents stand, in the queues of some models."""

    def __init__(self, queues: list[_Records]) -> None:
        self.of_idents: defaultdict[str, list[str]] = defaultdict(list)
        self.due: dict[str, float] = {}
        for queue in queues:
            for pk in queue.collection:
                for name in PLACES:
                    for ident in self._members(queue, pk, name):
                        self.of_idents[ident].append(name)
                self.due.update(self._members(queue, pk, "delayed"))

    @staticmethod
    def _members(queue: _Records, pk: str, name: str) -> Any:
        """What is in a list or sorted set; nothing if it is of a wrong type."""
        expected = list if name == "waiting" else dict
        members = queue.keys.get(queue.key(pk, name))
        return members if isinstance(members, expected) else expected()


def _of_queues(queues: _Records) -> Iterator[str]:
    by_rank: defaultdict[tuple[str | None, str | None], list[str]] = defaultdict(list)
    for pk, record in queues.hashes.items():
        by_rank[record.get("name"), record.get("priority")].append(pk)
    for (name, priority), pks in by_rank.items():
        if len(pks) > 1:
            yield f"I9 the queues {sorted(pks)} of {queues.prefix} all have the name {name}, the priority {priority}"
        if name is None or priority is None:
            yield f"I9 the queues {sorted(pks)} of {queues.prefix} have the name {name}, the priority {priority}"


def _of_schedules(schedules: _Records) -> Iterator[str]:
    due = schedules.keys.get(f"{schedules.prefix}due", {})
    for pk in due.keys() | schedules.hashes.keys():
        schedule = schedules.hashes.get(pk, {})
        next_run = None if schedule.get("paused") else schedule.get("next_run")
        if (pk in due) != bool(next_run) or (next_run and not _is_due(due.get(pk), next_run)):
            yield f"I11 {schedules.prefix}{pk}, whose next time is {next_run}, is due at {due.get(pk)}"


def _of_jobs(jobs: _Records, places: _Places) -> Iterator[str]:
    queued: defaultdict[str | None, list[str]] = defaultdict(list)
    for pk, job in jobs.hashes.items():
        ident = f"{jobs.model.get_model_repr()}:{pk}"
        status, where = job.get("status"), places.of_idents[ident]
        said = f"{ident}, of status {status},"
        if job.get("queued") == "1" and status != STATUSES.CANCELED and not job.get("_followed_by"):
            queued[job.get("identifier")].append(pk)
        if (job.get("queued") == "1") != (status in LIVE) or job.get("queued") not in ("1", None):
            yield f"I3 {said} has queued {job.get('queued')}"
        if status == STATUSES.WAITING and where not in (["waiting"], ["_parked"]):
            yield f"I5 {said} stands in {where}"
        if status == STATUSES.DELAYED and where != ["delayed"]:
            yield f"I6 {said} stands in {where}"
        if status == STATUSES.DELAYED and not _is_due(places.due.get(ident), job.get("delayed_until")):
            yield f"I6 {said} is due at {places.due.get(ident)}, not at its {job.get('delayed_until')}"
        runs = status == STATUSES.RUNNING
        if not runs == ("_running" in where) == bool(job.get("_claim_token")) or (runs and len(where) > 1):
            yield f"I7 {said} stands in {where}, with the claim {job.get('_claim_token')}"
        if status in FINAL and where:
            yield f"I8 {said} stands in {where}"
        if status == STATUSES.SUCCESS and "_cursor" in job:
            yield f"I8 {said} has the cursor {job['_cursor']}"
    for identifier, pks in queued.items():
        if len(pks) > 1:
            yield f"I4 the jobs {sorted(pks)} of {jobs.prefix}, all of identifier {identifier!r}, are queued"


def _is_due(score: float | None, text: str | None) -> bool:
    """Whether a score is that of a date. After 2255, numbers no longer tell all microseconds apart."""
    moment = parse_datetime(text)
    return score is not None and moment is not None and abs(score - datetime_to_score(moment)) < 0.00001
