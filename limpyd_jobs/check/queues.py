"""The queues: which there are, and which are duplicates."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import NamedTuple

from limpyd_jobs.arguments import is_servable
from limpyd_jobs.check import scripts
from limpyd_jobs.check.catalogue import Catalogue, Found, Model
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


class Queues:
    """The queues of some models: `sound` ones, and those without a record, by the beginnings of their keys."""

    def __init__(self, reader: Reader, catalogue: Catalogue, choices: Choices) -> None:
        self._reader = reader
        self._catalogue = catalogue
        self._choices = choices
        self.recordless: set[str] = set()
        self.read()

    def read(self) -> None:
        """Read the queues that there are now."""
        self._all = [queue for model in self._catalogue.queues for queue in self._of_model(model)]
        named = [queue for queue in self._all if queue.name and queue.priority is not None]
        self.sound = [queue.key for queue in named]
        self._by_rank: dict[tuple[Model, str | None, str | None], str] = {}
        for queue in named:
            self._by_rank.setdefault((queue.model, queue.name, queue.priority), queue.key)

    def _of_model(self, model: Model) -> Iterator[StoredQueue]:
        pks = {pk for found in self._reader.members(f"{model._name}:collection") for pk in found}
        in_order = sorted(pks, key=lambda pk: (not pk.isdigit(), len(pk), pk))
        hashes = self._reader.all(("HMGET", f"{model._name}:{pk}:hash", "name", "priority") for pk in in_order)
        exist = self._reader.all(("EXISTS", f"{model._name}:{pk}:hash") for pk in in_order)
        for pk, found, exists in zip(in_order, hashes, exist, strict=True):
            if exists and isinstance(found, list):
                yield StoredQueue(model, pk, *found)

    # Problems of the queues themselves

    @property
    def is_suspicious(self) -> bool:
        unservable = next(self.unservable(), None)
        return bool(self.recordless or unservable) or any(self._twins()) or len(self.sound) < len(self._all)

    def _twins(self) -> Iterator[tuple[StoredQueue, str]]:
        """Yield the queues whose name and priority an older queue has, too."""
        for queue in self._all:
            oldest = self._by_rank.get((queue.model, queue.name, queue.priority), queue.key)
            if oldest != queue.key:
                yield queue, oldest

    def merge(self, repair: bool) -> Iterator[Found]:
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

    def unservable(self, repair: bool = False) -> Iterator[Found]:
        """Yield the queues that no worker can serve because of their names. Only users know where the jobs belong."""
        for queue in self._all:
            name = queue.name or "a"
            if not is_servable(name):
                target = name.replace(",", "").strip() or "NAME"
                command = f"limpyd-jobs jobs move {_quoted(f'queue={name}')} --queue={_quoted(target)}"
                yield queue.model, queue.key, "unservable name", (name, command)

    def remove_nameless(self, repair: bool) -> Iterator[Found]:
        """Yield the queues without a name, and delete them if asked to: their jobs were put elsewhere."""
        for queue in self._all:
            if not queue.name:
                is_kept = self.is_kept(queue.key)
                if repair and not is_kept:
                    records.attached(queue.model, queue.pk).delete()
                yield queue.model, queue.key, "no name, but jobs" if is_kept else "no name", ()

    def is_kept(self, key: str) -> bool:
        """Whether a queue without a name must not be deleted, because it has jobs whose class cannot be resolved."""
        if self._choices.unresolved == "delete":
            return False
        in_lists = (ident for chunk in self._reader.entries(f"{key}:waiting") for ident in chunk)
        in_sets = (ident for chunk in self._reader.scores(f"{key}:delayed") for ident, _ in chunk)
        return any(map(self._catalogue.is_unresolved, in_lists)) or any(map(self._catalogue.is_unresolved, in_sets))


def _quoted(text: str) -> str:
    """Return a word of a command line for bash or zsh, printable."""
    if text.isprintable():
        return quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{one_line(escaped, len(escaped))}'"
