"""How the postings of a board are read: in pages, in the order in which they are to be claimed."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from taskflow.jobs import base

from limpyd_jobs import STATUSES
from limpyd_jobs.contrib.taskflow.job import LimpydJob
from limpyd_jobs.contrib.taskflow.records import BY_NUMBER, Board, Posting, date_of, number_of
from limpyd_jobs.integration import described, one_line

LOG = logging.getLogger(__name__)

FIELDS = ("identifier", "title", "details", "book", "added", "status")


class Postings(Iterator[LimpydJob]):
    """The postings of a board, by priority, then the oldest first. They are read once the first one is asked for."""

    def __init__(
        self, board: base.JobBoard, found: Iterator[LimpydJob], only_unclaimed: bool, ensure_fresh: bool
    ) -> None:
        self.board, self.only_unclaimed, self.ensure_fresh = board, only_unclaimed, ensure_fresh
        self._found = found

    def __next__(self) -> LimpydJob:
        return next(self._found)


class PostingReader:
    """Reads the postings of a board, a page at a time. A broken posting is set aside, and the others are returned."""

    def __init__(self, model: type[Posting], queue_name: str, make_job: Callable[..., LimpydJob]) -> None:
        self.model, self._queue_name, self._make_job = model, queue_name, make_job
        self._path = model.get_model_repr()

    def of(self, queue_key: str, pk: str) -> Iterable[LimpydJob]:
        """Return the posting of a pk; nothing if its queue, by its key, belongs to another board."""
        queue = self.model.queue_model.lazy_connect(queue_key.rpartition(":")[2])
        name, number = queue.hmget("name", "priority")
        is_of_board = name == self._queue_name and number in BY_NUMBER
        return self._read([pk], queue, number) if is_of_board else ()

    def all(self, only_unclaimed: bool) -> Iterator[LimpydJob]:
        """Yield the postings of all priorities, as of one moment: others take the first ones meanwhile."""
        for queue, _, number, running, waiting in self._queues(lapsed=only_unclaimed):
            pks = sorted(map(self._pk_of, [*running, *waiting]), key=number_of)
            lapsed = set(map(self._pk_of, running)) if only_unclaimed else None
            yield from self._read(pks, queue, number, lapsed)

    def count(self) -> int:
        """Count the postings, apart from those whose records are gone."""
        idents = (ident for each in self._queues() for ident in (*each.running, *each.waiting))
        return sum(1 for _ in self.model.read_many(filter(None, map(self._pk_of, idents)), "status"))

    def _queues(self, lapsed: bool = False) -> list[Any]:
        """Return what stands on the board, as `Queue.read_all` does, the highest priority first."""
        found = self.model.queue_model.read_all(self._queue_name, lapsed=lapsed)
        return [each for each in found if each.priority in BY_NUMBER]

    def _pk_of(self, ident: str) -> str:
        """Return the pk of a posting, given its ident; nothing if it is not the ident of a posting."""
        path, _, pk = ident.rpartition(":")
        return pk if path == self._path else ""

    def _read(
        self, pks: Iterable[str], queue: Board, number: str, lapsed: Collection[str] | None = None
    ) -> Iterator[LimpydJob]:
        """Read postings. If it is given which claims lapsed, those that were claimed meanwhile are left out."""
        for pk, stored in self.model.read_many(filter(None, pks), *FIELDS):
            if lapsed is not None and pk not in lapsed and stored.get("status") == STATUSES.RUNNING:
                continue
            try:
                yield self._job(pk, stored, number)
            except (KeyError, RecursionError, TypeError, ValueError) as error:
                self._set_aside(f"{self._path}:{pk}", queue, error)

    def _job(self, pk: str, stored: Mapping[str, str], number: str) -> LimpydJob:
        details = json.loads(stored["details"])
        book = None if stored["book"] == "null" else json.loads(stored["book"])  # mostly there is none
        if not isinstance(details, dict) or not isinstance(book, (dict, type(None))):
            raise TypeError("its details, or its book, are not a mapping")
        return self._make_job(
            pk,
            BY_NUMBER[number],
            created=date_of(stored["added"]),
            name=stored["title"],
            uuid=stored["identifier"],
            details=details,
            book_data=book,
        )

    def _set_aside(self, ident: str, queue: Board, error: Exception) -> None:
        """Take a broken posting off the board, so that it is reported only once."""
        if queue.waiting.lrem(0, ident):
            queue.quarantine.rpush(ident)
            LOG.error(
                "The posting %s is broken, and set aside in the quarantine of its queue: %s",
                one_line(ident),
                described(error),
            )
