"""Postings: as jobs of ours, and as TaskFlow sees them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from taskflow.jobs import base

from limpyd_jobs import Argument, Error, Job, Queue

if TYPE_CHECKING:
    from limpyd_jobs.contrib.taskflow.board import LimpydJobBoard

# The priorities of the queues, the highest first, as they are served.
PRIORITIES = dict(zip(base.JobPriority, range(2, -3, -1), strict=True))

BY_NUMBER = {f"{number}": priority for priority, number in PRIORITIES.items()}


class Board(Queue):
    """The postings of a board, of one priority. A consumed posting is deleted; a trashed one is in `errors`."""

    __module__ = "limpyd_jobs.contrib.taskflow"

    namespace = "taskflow"
    keep_success = 0

    @classmethod
    def pause(cls, name: str, *, unaudited: bool = False) -> bool:
        """Raise `ValueError`: conductors take no notice of a pause."""
        raise ValueError(f"The board {name!r} cannot be paused, because conductors take no notice of a pause")


class PostingError(Error):
    """Why a posting was trashed. On the command line, name it:
    ``--error-model=limpyd_jobs.contrib.taskflow.PostingError``."""

    __module__ = "limpyd_jobs.contrib.taskflow"

    namespace = "taskflow"


class Posting(Job):
    """A posting on a board. Its identifier is the uuid of TaskFlow's job, its queue is the board."""

    __module__ = "limpyd_jobs.contrib.taskflow"  # its path stands in the queues

    namespace = "taskflow"
    queue_model = Board
    notify_changes = True

    title = Argument()
    details = Argument(json, default={})
    book = Argument(json, default=None)

    def requeue(
        self,
        queue_name: str | None = None,
        priority: int | str | None = None,
        delayed_for: float | timedelta | None = None,
        delayed_until: datetime | None = None,
        queue_model: type[Queue] | None = None,
    ) -> None:
        """Put a posting that was trashed back on its board, or on the one that is named: see `Job.requeue`.

        Raises
        ------
        ValueError
            If it is to be delayed: no worker serves a board, so it would never be posted.
        """
        if delayed_for is not None or delayed_until is not None:
            raise ValueError("A posting cannot be delayed: requeue it when it is time")
        name = self._board_name() if queue_name is None else queue_name
        super().requeue(name, priority, queue_model=queue_model)

    def _board_name(self) -> str | None:
        """Return the name of the board that it is on, or was on last; None if that is not known."""
        pk = (self.queue_key.hget() or "").rpartition(":")[2]
        name: str | None = self.queue_model.lazy_connect(pk).name.hget() if pk else None
        return name


class LimpydJob(base.Job):
    """A posting, as TaskFlow sees it.

    Parameters
    ----------
    record: str or Posting
        The pk of the posting, or the posting itself.
    created: datetime
        When it was posted, if that is known.
    """

    def __init__(
        self,
        board: LimpydJobBoard,
        record: str | Posting,
        priority: base.JobPriority,
        created: datetime | None = None,
        **known: Any,
    ) -> None:
        super().__init__(board, **known)
        self.__dict__["pk" if isinstance(record, str) else "posting"] = record
        self._priority = priority
        self._created = created

    @cached_property
    def pk(self) -> str:
        """The pk of the posting."""
        return str(self.posting.pk.get())

    @cached_property
    def posting(self) -> Posting:
        """The posting."""
        found: Posting = self.board.model.lazy_connect(self.pk)
        return found

    @property
    def priority(self) -> base.JobPriority:
        """Its priority."""
        return self._priority

    @property
    def state(self) -> str:
        """UNCLAIMED, CLAIMED, or COMPLETE if the posting is gone."""
        found: str = self.board.look(self)[0]
        return found

    @property
    def created_on(self) -> datetime | None:
        """When it was posted, in UTC."""
        if self._created is None:
            with self.board.failures():
                self._created = date_of(self.posting.added.hget())
        return self._created

    @property
    def last_modified(self) -> datetime | None:
        """When it was claimed last, in UTC; None if it was never claimed."""
        with self.board.failures():
            return date_of(self.posting.start.hget())

    def expires_in(self) -> float | None:
        """Return in how many seconds the claim lapses; None if there is no claim."""
        left: float | None = self.board.look(self)[2]
        return left

    def extend_expiry(self, expiry: float) -> bool:
        """Let the claim of this board last for that many seconds from now; return whether this worked."""
        return bool(self.board.extend(self, expiry))

    def wait(self, timeout: float | None = None, *args: Any, **kwargs: Any) -> bool:
        """Wait until it is complete; return False if it is not within `timeout` seconds."""
        return bool(self.board.wait_for_end(self, timeout))

    def __lt__(self, other: Any) -> Any:
        return _rank(self) < _rank(other) if isinstance(other, LimpydJob) else NotImplemented


def _rank(job: LimpydJob) -> tuple[int, int]:
    return -PRIORITIES[job.priority], number_of(job.pk)


def number_of(pk: str) -> int:
    """Return a pk as a number; 0 if no posting has it."""
    return int(pk) if pk.isascii() and pk.isdigit() and len(pk) < 20 else 0


def date_of(text: str | None) -> datetime | None:
    """Return the moment of a stored text, in UTC; None if there is no text."""
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc) if text else None
