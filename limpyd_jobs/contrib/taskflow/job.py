"""A posting as TaskFlow sees it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from taskflow.jobs import base

from limpyd_jobs.contrib.taskflow.records import PRIORITIES, Posting, date_of, number_of


class BoardOfJob(Protocol):
    """What a posting asks of its board."""

    model: type[Posting]

    def look(self, job: LimpydJob) -> tuple[str, str | None, float | None]: ...
    def extend(self, job: LimpydJob, expiry: float) -> bool: ...
    def wait_for_end(self, job: LimpydJob, timeout: float | None = None) -> bool: ...
    def failures(self) -> AbstractContextManager[None]: ...


class LimpydJob(base.Job):
    """A posting, as TaskFlow sees it. Its record is the pk of the posting, or the posting itself."""

    def __init__(
        self,
        board: BoardOfJob,
        record: str | Posting,
        priority: base.JobPriority,
        created: datetime | None = None,
        **known: Any,
    ) -> None:
        super().__init__(board, **known)
        self._board = board
        self.__dict__["pk" if isinstance(record, str) else "posting"] = record
        self._priority = priority
        self._created = created

    @cached_property
    def pk(self) -> str:
        return str(self.posting.pk.get())

    @cached_property
    def posting(self) -> Posting:
        found: Posting = self._board.model.lazy_connect(self.pk)
        return found

    @property
    def priority(self) -> base.JobPriority:
        return self._priority

    @property
    def state(self) -> str:
        """UNCLAIMED, CLAIMED, or COMPLETE if the posting is gone."""
        return self._board.look(self)[0]

    @property
    def created_on(self) -> datetime | None:
        """When it was posted, in UTC."""
        if self._created is None:
            with self._board.failures():
                self._created = date_of(self.posting.added.hget())
        return self._created

    @property
    def last_modified(self) -> datetime | None:
        """When it was claimed last, in UTC; None if it was never claimed."""
        with self._board.failures():
            return date_of(self.posting.start.hget())

    def expires_in(self) -> float | None:
        """Return in how many seconds the claim lapses; None if there is no claim."""
        return self._board.look(self)[2]

    def extend_expiry(self, expiry: float) -> bool:
        """Let the claim of this board last for that many seconds from now; return whether this worked."""
        return self._board.extend(self, expiry)

    def wait(self, timeout: float | None = None, *args: Any, **kwargs: Any) -> bool:
        """Wait until it is complete; return False if it is not within `timeout` seconds."""
        return self._board.wait_for_end(self, timeout)

    def __lt__(self, other: Any) -> Any:
        return self._rank < other._rank if isinstance(other, LimpydJob) else NotImplemented

    @property
    def _rank(self) -> tuple[int, int]:
        return -PRIORITIES[self.priority], number_of(self.pk)
