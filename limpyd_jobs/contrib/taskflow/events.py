"""What a board tells those who wait: that something was posted, or is gone."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from taskflow.jobs import base
from taskflow.types.notifier import Notifier
from taskflow.types.timing import Timeout

from limpyd_jobs import STATUSES
from limpyd_jobs.contrib.taskflow.posting import LimpydJob
from limpyd_jobs.models import Changes, JobChange

if TYPE_CHECKING:
    from limpyd_jobs.contrib.taskflow.board import LimpydJobBoard


class BoardNotifier(Notifier):
    """Tells who registers what is posted and removed."""

    def __init__(self, board: LimpydJobBoard) -> None:
        super().__init__()
        self._board = board

    def register(self, *args: Any, **kwargs: Any) -> None:
        """Register a callback: see TaskFlow."""
        super().register(*args, **kwargs)
        if self._board.connected:
            self._board.listen()


class BoardTimeout(Timeout):
    """How long a conductor waits when it found nothing: until something is posted."""

    def __init__(self, board: LimpydJobBoard, value: float) -> None:
        super().__init__(value)
        self._board = board
        self._news = Event()  # also what came before the wait began
        board.wakes.append(self._news.set)

    def wait(self) -> None:
        """Wait until something is posted, or the conductor is stopped."""
        has_begun = self._board.connected and self._board.listen()
        if not (has_begun or self.is_stopped()):  # of what was posted before it began, only another look tells
            self._news.wait(self.value)
            self._news.clear()

    def interrupt(self) -> None:
        """Stop the conductor."""
        super().interrupt()
        self._news.set()


class BoardEvents:
    """Hears what is done on a board, once it listens; tells it those who wait there, and who is registered."""

    def __init__(self, board: LimpydJobBoard) -> None:
        self._board = board
        self._changes: Changes | None = None
        self._posted: dict[str, LimpydJob] = {}
        self._own: dict[str, LimpydJob] = {}  # those that are posted here, until they are told
        self._beginning, self._posting = Lock(), Lock()

    def listen(self) -> bool:
        """Begin to hear, by a thread; return False if that was done before."""
        with self._beginning:
            if self._changes is not None:
                return False
            self._changes = self._board.model.changes()
            self._changes.follow(self._hear, f"board {self._board.name}")
            return True

    def close(self) -> None:
        """Hear nothing more."""
        if self._changes is not None:
            self._changes.close()

    def post(self, make: Callable[[], LimpydJob]) -> LimpydJob:
        """Call what posts a job. It is told once, also if somebody consumes it before that is heard."""
        with self._posting:
            job = make()
            if len(self._board.notifier):
                self._own[job.posting.pk.get()] = job
        return job

    def _hear(self, change: JobChange) -> None:
        try:
            self._tell(change)
        finally:
            if not self._board.connected:  # any more
                self._board.model.database.close_idle()

    def _tell(self, change: JobChange) -> None:
        if change.status == STATUSES.WAITING:
            for wake in [*self._board.wakes]:
                wake()
        if len(self._board.notifier):
            if change.what == "made":
                self._tell_posted(change)
            elif _is_removal(change) and change.pk in self._posted:
                self._board.notifier.notify(base.REMOVAL, {"job": self._posted.pop(change.pk)})

    def _tell_posted(self, change: JobChange) -> None:
        with self._posting:  # whoever posts it here knows it, be it consumed by now
            own = self._own.pop(change.pk, None)
        if change.pk in self._posted:
            return
        for job in [own] if own else self._board.reader.of(change.queue_key, change.pk):
            self._posted[change.pk] = job
            self._board.notifier.notify(base.POSTED, {"job": job})


def _is_removal(change: JobChange) -> bool:
    return change.what == "deleted" or change.status in (STATUSES.SUCCESS, STATUSES.ERROR, STATUSES.CANCELED)
