"""All keys of the database that begin with the name of a model: their records, and their types."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from limpyd import fields

from limpyd_jobs.check import scripts
from limpyd_jobs.check.catalogue import Catalogue, Model, Symptom
from limpyd_jobs.check.queues import Queues
from limpyd_jobs.check.reader import Reader
from limpyd_jobs.check.records import BATCH, Records
from limpyd_jobs.models import Queue
from limpyd_jobs.records.layout import HISTORY_KEY, LOG_KEY, OUTPUT_KEY, RESULT_KEY, layout_of
from limpyd_jobs.redis.calls import chunks, passing_over_wrong_types

# Index sets up to this size are looked at as a whole.
SMALL_SET = 50

# Keys of a model that are not fields of a record, with their types; schedules.py checks `due`.
OF_MODEL = {
    **dict.fromkeys(("collection", "paused"), "set"),
    **dict.fromkeys(("idle_workers", "leases"), "zset"),
    **dict.fromkeys(("max_pk", "reconcile_lock", "_once", "_stopping", "_throttle"), "string"),
    **dict.fromkeys(("_signal", "_canceled"), "list"),
    "changes": "stream",
    "_limits": "hash",
    "due": "",
}

# Keys of a limit, by their end.
OF_LIMIT = {"slots": "zset", "rate": "string", "queues": "set"}

# The beginnings of keys of a queue that have a lane, or a limit, behind them.
OF_LANES = ("_lane\n", "_blocked\n", "_passes")

# Those of them that have a name, a token or an identifier behind them.
OF_TOKENS = ("_signal", "_once", "_canceled", "_stopping", "_throttle")

# Keys of a record that are not its fields, also those of version 2.
OF_RECORD = {"hash", "requeue_all_delayed_ready_jobs", RESULT_KEY, LOG_KEY, HISTORY_KEY, OUTPUT_KEY}

TYPES = (
    (fields.ListField, "list"),
    (fields.SetField, "set"),
    (fields.SortedSetField, "zset"),
    (fields.HashField, "hash"),
    (fields.StringField, "string"),
)
OWN_PLACES = {name for name in Queue._fields if not isinstance(Queue.get_field(name), fields.InstanceHashField)}

Index = tuple[Model, str, str]  # the model, the field, the beginning of the keys, or the only key


class Keys:
    """Looks at all keys, and again at the keys that looked wrong."""

    def __init__(
        self, reader: Reader, catalogue: Catalogue, queues: Queues, records: Records, note: Callable[[str], None]
    ) -> None:
        self._reader = reader
        self._note = note  # is called with each key that belongs to none of the models
        self._queues = queues
        self._records = records
        self._models = {model._name: model for model in catalogue.all}
        names = "|".join(re.escape(name) for name in sorted(self._models, key=len, reverse=True))
        self._pattern = re.compile(rf"({names}):([^:]*)(?::(.*))?", re.DOTALL)
        self._indexes = {model: layout_of(model).description for model in catalogue.all}
        self._stale: defaultdict[Index, list[Sequence[str]]] = defaultdict(list)
        self._wrong: dict[str, tuple[Model, str, str]] = {}  # model, pk, type; by the key
        self._no_sets: dict[str, Index] = {}
        self._ownerless: dict[str, tuple[Model, str, str]] = {}  # the same
        self._meaningless: dict[str, Model] = {}

    # The first look

    def look(self) -> Iterator[int]:
        """Look at all keys; yield now and then how many there were."""
        number = 0
        for keys in self._reader.all_keys():
            hashes: defaultdict[Model, list[str]] = defaultdict(list)
            of_fields: defaultdict[Model, list[tuple[str, str, str]]] = defaultdict(list)
            of_indexes: defaultdict[Index, list[Sequence[str]]] = defaultdict(list)
            for key in keys:
                self._sort(key, hashes, of_fields, of_indexes)
            self._look_at_hashes(hashes)
            self._look_at_fields(of_fields)
            for index, values in of_indexes.items():
                self._look_at_index(index, values)
            number += len(keys)
            yield number
        self._note_lost_queues()

    def _note_lost_queues(self) -> None:
        """Note what the indexes have of queues whose hashes may have lost it, unless they contradict each other."""
        values: defaultdict[tuple[Model, str], list[tuple[str, str]]] = defaultdict(list)
        for (model, field, _), members in self._stale.items():
            for value, pk in members if issubclass(model, Queue) else ():
                if pk:  # no queue has an empty one: it is only a wrong entry
                    values[model, pk] += [(field, value)] if value else []
        for (model, pk), found in values.items():
            names = Counter(field for field, _ in found)
            self._queues.lost[model, pk] = {field: value for field, value in found if names[field] == 1}

    def _sort(self, key: str, hashes: Any, of_fields: Any, of_indexes: Any) -> None:
        match = self._pattern.fullmatch(key)
        if not match:
            self._note(key)
            return
        model, first, rest = self._models[match[1]], match[2], match[3]
        if rest is None or first in OF_TOKENS:
            if first in OF_MODEL:
                of_fields[model].append((key, "", OF_MODEL[first]))
            else:
                self._meaningless[key] = model
        elif model.has_field(first) and first != model.get_field("pk").name:
            prefix = self._prefix(model, first, key)
            if prefix:
                of_indexes[model, first, prefix].append((key[len(prefix) :],))
        elif rest == "hash":
            hashes[model].append(first)
        elif rest in OF_RECORD:
            of_fields[model].append((key, first, ""))
        elif first == "_limit" and rest.rpartition(":")[2] in OF_LIMIT:
            of_fields[model].append((key, "", OF_LIMIT[rest.rpartition(":")[2]]))
        elif rest.startswith(OF_LANES) and issubclass(model, Queue):
            of_fields[model].append((key, first, "zset"))
        elif model.has_field(rest) and type_of(model, rest):
            of_fields[model].append((key, first, type_of(model, rest)))
        else:
            self._meaningless[key] = model

    def _prefix(self, model: Model, field: str, key: str) -> str:
        if scripts.is_range(model, field, key):
            return key
        prefixes = self._indexes[model]["indexes"].get(field, ())
        return max((prefix for prefix in prefixes if key.startswith(prefix)), key=len, default="")

    def _look_at_hashes(self, hashes: dict[Model, list[str]]) -> None:
        for model, pks in hashes.items():
            are_listed = [0] * len(pks)
            with passing_over_wrong_types():
                are_listed = self._reader.connection.smismember(f"{model._name}:collection", pks)
            self._records.suspect(model, (pk for pk, is_listed in zip(pks, are_listed, strict=True) if not is_listed))

    def _look_at_fields(self, of_fields: dict[Model, list[tuple[str, str, str]]]) -> None:
        for model, keys in of_fields.items():
            given = {key: (pk, kind) for key, pk, kind in keys}
            for batch in chunks(keys, BATCH):
                for key, problem, _ in scripts.orphan_keys(self._reader.connection, model, batch):
                    pk, kind = given[key]
                    if problem == "no owner":
                        self._ownerless[key] = model, pk, kind
                        if issubclass(model, Queue):
                            self._queues.recordless.add(f"{model._name}:{pk}")
                    else:
                        self._wrong[key] = model, pk, kind

    def _look_at_index(self, index: Index, members: Any) -> None:
        model, field, prefix = index
        for batch in chunks(members, BATCH):
            found, large, wrong = scripts.stale_index_entries(self._reader.connection, *index, batch, SMALL_SET)
            self._stale[index] += [(value, pk) for value, pk in found]
            if field not in self._indexes[model]["special"]:  # those have sets of another kind
                self._no_sets.update({prefix + value: index for value, _ in wrong})
            for value in large:
                for pks in self._members(index, value):
                    self._look_at_index(index, [(value, pk) for pk in pks])

    def _members(self, index: Index, value: str) -> Iterator[list[str]]:
        """Yield the pks that stand in an index key."""
        if scripts.is_range(*index):
            return ([pk for pk, _ in chunk] for chunk in self._reader.scores(index[2]))
        return self._reader.members(index[2] + value)

    @property
    def is_suspicious(self) -> bool:
        return bool(any(self._stale.values()) or self._wrong or self._no_sets or self._ownerless or self._meaningless)

    # The second look

    def restore_queues(self, repair: bool) -> Iterator[Symptom]:
        """Yield the queues that lost their name, their priority or their record, and restore them if asked to; then
        yield their keys that are of a wrong type, which seemed to be left of a deleted queue."""
        for (model, pk), known in [*self._queues.lost.items()]:
            lost = scripts.restore_queue(self._reader.connection, model, pk, known, repair)
            if lost:
                told = ", ".join(f"{field} {value!r}" for field, value in sorted(lost))
                yield model, f"{model._name}:{pk}", "lost by a queue", (told,)
                if not repair:
                    self._records.forget(model, pk)
            else:
                del self._queues.lost[model, pk]
        theirs = {key: of for key, of in self._ownerless.items() if of[:2] in self._queues.lost}
        yield from self._look_at_types(theirs, repair)

    def look_at_types_again(self, repair: bool) -> Iterator[Symptom]:
        """Yield the keys that are still of a wrong type; if asked to, delete the keys that can be made again."""
        yield from self._look_at_types(self._wrong, repair)
        for key, index in self._no_sets.items():
            members = [[key.removeprefix(index[2])]]
            for _, kind in scripts.stale_index_entries(self._reader.connection, *index, members, SMALL_SET, repair)[2]:
                self._records.suspect(index[0], self._pks_of_value(index, members[0][0]))
                yield index[0], key, "not a set", (kind,)

    def _look_at_types(self, keys: Mapping[str, tuple[Model, str, str]], repair: bool) -> Iterator[Symptom]:
        for key, (model, pk, kind) in keys.items():
            what = self._what_is_of_a_wrong_type(model, key, pk)
            is_repaired = repair and what != "wrong type of a field"
            for _, problem, found in scripts.orphan_keys(
                self._reader.connection, model, [(key, pk, kind)], is_repaired
            ):
                if problem == "wrong type":
                    if is_repaired:
                        self._repair_lanes(key, f"{model._name}:{pk}")
                    yield model, key, what, (found,)

    def _repair_lanes(self, key: str, queue: str) -> None:
        """Let workers put parked jobs back whose lane was deleted, or try lanes again that are not known to wait."""
        client = self._reader.connection
        if key.startswith(f"{queue}:_lane\n"):
            client.unlink(f"{queue}:_parked")
        elif key.startswith(f"{queue}:_blocked\n"):
            for lanes in self._reader.scores(f"{queue}:_later"):
                if lanes:
                    client.zadd(f"{queue}:_later", {lane: 0 for lane, _ in lanes}, xx=True)

    @staticmethod
    def _what_is_of_a_wrong_type(model: Model, key: str, pk: str) -> str:
        if not pk:
            return "wrong type of a model"
        name = key.removeprefix(f"{model._name}:{pk}:")
        is_place = issubclass(model, Queue) and (name in OWN_PLACES or name.startswith(OF_LANES))
        return "wrong type" if is_place else "wrong type of a field"

    def _pks_of_value(self, index: Index, value: str) -> Iterator[str]:
        """Yield the pks of the records that belong in an index key that is lost."""
        model, field, _ = index
        for pks in self._reader.members(f"{model._name}:collection"):
            replies = self._reader.all(("HGET", f"{model._name}:{pk}:hash", field) for pk in pks)
            is_range = scripts.is_range(*index)
            yield from (pk for pk, reply in zip(pks, replies, strict=True) if reply == value or (is_range and reply))

    def look_at_indexes_again(self, repair: bool) -> Iterator[Symptom]:
        """Yield the pks that are still in the index of a value they do not have, and remove them if asked to."""
        for index, members in self._stale.items():
            for batch in chunks(members, BATCH):
                stale, *_ = scripts.stale_index_entries(self._reader.connection, *index, batch, SMALL_SET, repair)
                for value, pk in stale:
                    if self._queues.lost.get((index[0], pk), {}).get(index[1]) != value:
                        yield index[0], pk, "stale entry", (index[1], value)

    def look_at_owners_again(self, repair: bool) -> Iterator[Symptom]:
        """Yield the keys that still belong to nothing; if asked to, delete the keys of deleted records."""
        for key, (model, pk, _) in self._ownerless.items():
            if (model, pk) in self._queues.lost:
                continue
            left = self._queues.left_in(f"{model._name}:{pk}") if issubclass(model, Queue) else ""
            for _, problem, kind in scripts.orphan_keys(
                self._reader.connection, model, [(key, pk, "")], repair and not left
            ):
                yield model, key, f"no queue, but {left}" if left else problem, (kind,)
        lifetimes = self._reader.all(("TTL", key) for key in self._meaningless)
        for (key, model), lifetime in zip(self._meaningless.items(), lifetimes, strict=True):
            if lifetime == -1:  # others are gone, or expire, such as keys of a limpyd collection
                yield model, key, "no meaning", ()


def type_of(model: Model, name: str) -> str:
    """Return the type that the key of a field of a record has; '' if the field has no key of its own."""
    field = model.get_field(name)
    return next((kind for cls, kind in TYPES if isinstance(field, cls)), "")
