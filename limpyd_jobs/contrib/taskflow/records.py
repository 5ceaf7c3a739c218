"""Boards and postings as queues and jobs of ours."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

from taskflow.jobs import base

from limpyd_jobs import Argument, Error, Job, Queue

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
        restart: bool = False,
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
        super().requeue(name, priority, queue_model=queue_model, restart=restart)

    def _board_name(self) -> str | None:
        """Return the name of the board that it is on, or was on last; None if that is not known."""
        pk = (self.queue_key.hget() or "").rpartition(":")[2]
        name: str | None = self.queue_model.lazy_connect(pk).name.hget() if pk else None
        return name


def number_of(pk: str) -> int:
    """Return a pk as a number; 0 if no posting has it."""
    return int(pk) if pk.isascii() and pk.isdigit() and len(pk) < 20 else 0


def date_of(text: str | None) -> datetime | None:
    """Return the moment of a stored text, in UTC; None if there is no text."""
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc) if text else None
