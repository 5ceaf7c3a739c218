"""The records of each model: their hashes, their values, and their indexes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from limpyd.fields import InstanceHashField

from limpyd_jobs.check import scripts
from limpyd_jobs.check.catalogue import Model, Symptom, path_of_model
from limpyd_jobs.check.reader import Reader
from limpyd_jobs.idents import EXACT_DIGITS, read_pk
from limpyd_jobs.indexes import special_indexes
from limpyd_jobs.models import Error, Job, TimedRecord
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.redis.calls import chunks

# How many records one call of the script looks at, so that it takes about a millisecond.
BATCH = 50

Live = Callable[[Model, list[list[str]]], None]


class Records:
    """Looks at all records, and again at the records that looked wrong."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._suspects: defaultdict[Model, set[str]] = defaultdict(set)
        self._odd: defaultdict[Model, set[str]] = defaultdict(set)
        self._highest: dict[Model, int] = {}
        self.counts: dict[Model, int] = {}

    def look(self, model: Model, on_live: Live) -> Iterator[int]:
        """Look at all records of a model; yield now and then how many there were.

        `on_live` is called with the pk, status and identifier of each job that is not at rest, and '1' if these
        cannot be right.
        """
        self.counts[model] = 0
        unlisted = list(chunks(self._suspects[model], BATCH))
        for pks in chain(unlisted, self._reader.members(f"{model._name}:collection")):
            for batch in chunks(pks, BATCH):
                problems, live = self._check_records(model, batch)
                self._suspects[model].update(pk for pk, *_ in problems)
                on_live(model, live)
            highest = max((read_pk(pk) or 0 for pk in pks if len(pk) <= EXACT_DIGITS), default=0)
            if not issubclass(model, TimedRecord):  # those have given pks
                self._highest[model] = max(highest, self._highest.get(model, 0))
            self._note_odd(model, pks)
            self.counts[model] += len(pks)
            yield self.counts[model]

    def _note_odd(self, model: Model, pks: Iterable[str]) -> None:
        """Note jobs and errors that filters do not see."""
        if issubclass(model, (Job, Error)):
            self._odd[model].update(pk for pk in pks if read_pk(pk) is None)

    def suspect(self, model: Model, pks: Iterable[str]) -> None:
        """Note records that were found elsewhere, to look at them."""
        self._suspects[model].update(pks)

    def forget(self, model: Model, pk: str) -> None:
        """Forget a record that a repair would have made again."""
        self._suspects[model].discard(pk)

    @property
    def is_suspicious(self) -> bool:
        return any(self._suspects.values()) or any(self._odd.values()) or any(self._wrong_counters())

    def look_again(self, repair: bool) -> Iterator[Symptom]:
        """Yield the problems that are still there, and repair them if asked to."""
        for model, suspects in self._suspects.items():
            for batch in chunks(sorted(suspects), BATCH):
                for pk, kind, *details in self._check_records(model, batch, repair)[0]:
                    yield model, pk, kind, tuple(details)
        for model, odd in self._odd.items():
            for batch in chunks(sorted(odd), BATCH):
                exist = self._reader.all(("EXISTS", f"{model._name}:{pk}:hash") for pk in batch)
                yield from ((model, pk, "odd pk", ()) for pk, exists in zip(batch, exist, strict=True) if exists)
        for model, counter in self._wrong_counters(repair):
            yield model, f"{model._name}:max_pk", "wrong counter", (counter, self._highest[model])

    def _check_records(self, model: Model, pks: list[str], repair: bool = False) -> tuple[Any, Any]:
        return scripts.check_records(self._reader.connection, model, pks, hash_fields(model), integers(model), repair)

    def _wrong_counters(self, repair: bool = False) -> Iterator[tuple[Model, str]]:
        for model, highest in self._highest.items():
            counter = scripts.raise_counter(self._reader.connection, model, highest, repair)
            if counter is not None:
                yield model, counter


def hash_fields(model: Model) -> str:
    names = [name for name in model._fields if isinstance(model.get_field(name), InstanceHashField)]
    return json.dumps(names)


def integers(model: Model) -> str:
    """Return the hash fields that hold an integer, each with a value to repair it with, as JSON."""
    return json.dumps({name: "0" for name in ("priority", "tries") if name in json.loads(hash_fields(model))})


def unchecked_indexes(model: Model) -> Iterator[str]:
    """Yield the indexes that only limpyd knows, with their fields."""
    for name in dict.fromkeys(model._fields):
        field = model.get_field(name)
        if getattr(field, "indexable", False):
            is_known = name in layout_of(model).description["indexes"]
            for index in special_indexes(field) if is_known else field._indexes:
                yield f"the {type(index).__name__} of {path_of_model(model)}.{name}"
