"""The queues: which there are, and which are duplicates."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from shlex import quote
from typing import NamedTuple

from limpyd_jobs.arguments import is_servable
from limpyd_jobs.check import scripts
from limpyd_jobs.check.catalogue import Catalogue, Model, Symptom
from limpyd_jobs.check.problems import Choices
from limpyd_jobs.check.reader import Reader
from limpyd_jobs.records import records
from limpyd_jobs.texts import one_line

# How many jobs move at once from a queue to its duplicate, so that it takes a few milliseconds.
MERGE_LIMIT = 200


class StoredQueue(NamedTuple):
    """A queue, as stored: the beginning of its keys, and its name and priority, if it has them."""

    model: Model
    pk: str
    name: str | None
    priority: str | None

    @property
    def key(self) -> str:
        return f"{self.model._name}:{self.pk}"

    @property
    def is_sound(self) -> bool:
        return bool(self.name) and self.priority is not None


class Queues:
    """The queues of some models: `sound` ones, and those without a record, by the beginnings of their keys."""

    def __init__(self, reader: Reader, catalogue: Catalogue, choices: Choices) -> None:
        self._reader = reader
        self._catalogue = catalogue
        self._choices = choices
        self.recordless: set[str] = set()
        self.lost: dict[tuple[Model, str], dict[str, str]] = {}  # what the indexes still have, by field
        self.unplaced: set[str] = set()  # idents of live jobs that have no place in a sound queue
        self.read()

    def read(self) -> None:
        """Read the queues that there are now."""
        self._all = [queue for model in self._catalogue.queues for queue in self._of_model(model)]
        named = [queue for queue in self._all if queue.is_sound]
        others = (queue for model in self._catalogue.other_queues for queue in self._of_model(model))
        self.sound = [queue.key for queue in (*named, *others) if queue.is_sound]
        self._by_rank: dict[tuple[Model, str | None, str | None], str] = {}
        for queue in named:
            self._by_rank.setdefault((queue.model, queue.name, queue.priority), queue.key)

    @property
    def all(self) -> list[str]:
        """The beginnings of the keys of all queues, also of those without a name or a record."""
        return [*(queue.key for queue in self._all), *self.recordless]

    def _of_model(self, model: Model) -> Iterator[StoredQueue]:
        pks = {pk for found in self._reader.members(f"{model._name}:collection") for pk in found}
        pks.update(pk for other, pk in self.lost if other is model)
        in_order = sorted(pks, key=lambda pk: (not pk.isdigit(), len(pk), pk))
        hashes = self._reader.all(("HMGET", f"{model._name}:{pk}:hash", "name", "priority") for pk in in_order)
        exist = self._reader.all(("EXISTS", f"{model._name}:{pk}:hash") for pk in in_order)
        for pk, found, exists in zip(in_order, hashes, exist, strict=True):
            lost, (name, priority) = self.lost.get((model, pk), {}), found if isinstance(found, list) else ("", None)
            if lost.get("name") or (exists and isinstance(found, list)):
                yield StoredQueue(model, pk, name or lost.get("name"), priority or lost.get("priority", priority))

    # Problems of the queues themselves

    @property
    def is_suspicious(self) -> bool:
        unservable = next(self.unservable(), None)
        is_whole = all(queue.is_sound for queue in self._all)
        return bool(self.recordless or unservable) or any(self._twins()) or not is_whole

    def _twins(self) -> Iterator[tuple[StoredQueue, str]]:
        """Yield the queues whose name and priority an older queue has, too."""
        for queue in self._all:
            oldest = self._by_rank.get((queue.model, queue.name, queue.priority), queue.key)
            if oldest != queue.key:
                yield queue, oldest

    def merge(self, repair: bool) -> Iterator[Symptom]:
        """Yield the duplicate queues, and merge each into the oldest one if asked to."""
        self.read()
        for queue in [each for each in self._all if each.name and each.priority is None]:
            if repair:
                records.attached(queue.model, queue.pk).priority.hset("0")
            yield queue.model, queue.key, "no priority", ()
        self.read()
        for queue, oldest in list(self._twins()):
            if repair:
                self._merge(queue, oldest)
            yield queue.model, queue.key, "second queue", (oldest,)
        self.read()

    def _merge(self, queue: StoredQueue, oldest: str) -> None:
        connection, classes = self._reader.connection, self._catalogue.jobs
        while scripts.merge_queues(connection, queue.key, oldest, classes, MERGE_LIMIT):
            pass
        records.attached(queue.model, queue.pk).delete()

    def unservable(self, repair: bool = False) -> Iterator[Symptom]:
        """Yield the queues that no worker can serve because of their names. Only users know where the jobs belong."""
        for queue in self._all:
            name = queue.name or "a"
            if not is_servable(name):
                target = name.replace(",", "").strip() or "NAME"
                command = f"limpyd-jobs jobs move {_quoted(f'queue={name}')} --queue={_quoted(target)} --force"
                yield queue.model, queue.key, "unservable name", (name, command)

    def remove_nameless(self, repair: bool) -> Iterator[Symptom]:
        """Yield the queues without a name, and delete them if asked to: their jobs were put elsewhere."""
        for queue in self._all:
            if not queue.name:
                left = self.left_in(queue.key)
                if repair and not left:
                    records.attached(queue.model, queue.pk).delete()
                yield queue.model, queue.key, f"no name, but {left}" if left else "no name", ()

    def left_in(self, key: str) -> str:
        """Return which jobs a queue without a name or a record still has, so that it must not be deleted; or ''."""
        lists = (self._reader.entries(f"{key}:{name}") for name in ("waiting", "_quarantine"))
        sets = (self._reader.scores(f"{key}:{name}") for name in ("delayed", "_running", "_parked"))
        idents = (ident for chunk in chain(*lists) for ident in chunk)
        for ident in chain(idents, (ident for chunk in chain(*sets) for ident, _ in chunk)):
            if ident in self.unplaced:
                return "live jobs"
            is_given_up = self._choices.unresolved == "delete" and self._catalogue.may_be_given_up(ident)
            if self._catalogue.is_unresolved(ident) and not is_given_up:
                return "unknown jobs"
        return ""


def _quoted(text: str) -> str:
    """Return a word of a command line for bash or zsh, printable."""
    if text.isprintable():
        return quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{one_line(escaped, len(escaped))}'"
