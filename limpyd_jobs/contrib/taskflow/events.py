"""What a board tells those who wait: that a job was posted, or is gone."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from taskflow.exceptions import JobFailure
from taskflow.jobs import base
from taskflow.types.notifier import Notifier
from taskflow.types.timing import Timeout

from limpyd_jobs import STATUSES
from limpyd_jobs.contrib.taskflow.posting import LimpydJob
from limpyd_jobs.models import Changes, JobChange

if TYPE_CHECKING:
    from limpyd_jobs.contrib.taskflow.board import LimpydJobBoard


# The statuses of postings that are off the board.
ENDED = (STATUSES.SUCCESS, STATUSES.ERROR, STATUSES.CANCELED)

# After how many seconds to try again to listen, if Redis fails.
AGAIN = 1.0

# How soon to look again after a job ended, in seconds: its conductor counts it as one that runs for a moment more.
SOON = 0.05


class BoardNotifier(Notifier):
    """Tells registered callbacks which jobs are posted and removed."""

    def __init__(self, board: LimpydJobBoard) -> None:
        super().__init__()
        self._board = board

    def register(self, event_type: str, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Register a callback: see TaskFlow. If Redis fails, it is not registered."""
        is_first = not len(self)
        super().register(event_type, callback, *args, **kwargs)
        try:
            if self._board.connected:
                self._board.notify_of_changes(anew=is_first)
        except JobFailure:
            self.deregister(event_type, callback)
            raise


class BoardTimeout(Timeout):
    """How long a conductor waits if it found no job, or runs as many as it may: until a job is posted, or one of this
    board ends."""

    def __init__(self, board: LimpydJobBoard, value: float) -> None:
        super().__init__(value)
        self._board = board
        self._news = Event()  # also a job that was posted before the wait began
        self._pause = value
        board.wakes.append(self._news.set)
        board.at_ends.append(self._on_end)

    def _on_end(self) -> None:
        """Look now, and soon again, then less and less often."""
        self._pause = min(SOON, self.value)
        self._news.set()

    def wait(self) -> None:
        """Wait until a job is posted, or one of this board ends, or the conductor is stopped."""
        try:
            has_begun = self._board.connected and self._board.listen()
        except JobFailure:  # TaskFlow does not expect one here: it would end the conductor
            self._news.wait(min(AGAIN, self.value))
            return
        if not (has_begun or self.is_stopped()):  # only another look tells of jobs that were posted before
            pause, self._pause = self._pause, min(2 * self._pause, self.value)
            self._news.wait(pause)
            self._news.clear()

    def interrupt(self) -> None:
        """Stop the conductor."""
        super().interrupt()
        self._news.set()


class BoardEvents:
    """Hears the changes of a board, once it listens. Tells them to those who wait, and to registered callbacks."""

    def __init__(self, board: LimpydJobBoard) -> None:
        self._board = board
        self._changes: Changes | None = None
        self._before: dict[str, LimpydJob] = {}  # the jobs that were posted before callbacks were registered
        self._posted: dict[str, LimpydJob] = {}  # those that were told
        self._own: dict[str, LimpydJob] = {}  # the jobs that are posted here, until they are told
        self._beginning, self._posting, self._learning = Lock(), Lock(), Lock()
        self._is_closed = self._has_learned = False

    def listen(self) -> bool:
        """Begin to listen to changes, in a thread; return False if that was done before."""
        with self._beginning:
            if self._is_closed:
                raise JobFailure(f"The board {self._board.name!r} was closed meanwhile")
            if self._changes is not None:
                return False
            self._changes = self._board.model.changes()
            self._changes.follow(self._on_change, f"board {self._board.name}")
            return True

    def learn(self, anew: bool = False) -> None:
        """Read what is posted already, to tell its removal, unless that was done before.

        Removals meanwhile are told after that. While no callback is registered, nothing is known of what comes and
        goes: then it is to be read anew.
        """
        with self._learning:
            if anew or not self._has_learned:
                self._posted.clear()
                self._before = {job.pk: job for job in self._board.iterjobs()}
                self._has_learned = True

    def close(self) -> None:
        """Stop hearing changes."""
        with self._beginning:
            self._is_closed = True
            if self._changes is not None:
                self._changes.close()

    def post(self, make: Callable[[], LimpydJob]) -> LimpydJob:
        """Call the function that posts a job. Once, even if another conductor consumes it before the change is
        heard."""
        with self._posting:
            job = make()
            if len(self._board.notifier):
                self._own[job.pk] = job
        return job

    def _on_change(self, change: JobChange) -> None:
        try:
            self._notify(change)
        finally:
            if not self._board.connected:  # any more
                self._board.model.database.close_idle()

    def _notify(self, change: JobChange) -> None:
        if change.status == STATUSES.WAITING:
            for wake in [*self._board.wakes]:
                wake()
        if len(self._board.notifier):
            if change.what == "deleted" or change.status in ENDED:
                self._notify_removal(change)
            elif change.what == "made" or change.status_before in ENDED:
                self._notify_posted(change)

    def _notify_posted(self, change: JobChange) -> None:
        with self._posting:  # a job that is posted here is known, even if it is consumed by now
            own = self._own.pop(change.pk, None)
        if change.pk in self._posted:
            return
        for job in [own] if own else self._board.reader.of(change.queue_key, change.pk):
            self._posted[change.pk] = job
            self._board.notifier.notify(base.POSTED, {"job": job})

    def _notify_removal(self, change: JobChange) -> None:
        with self._learning:
            before = self._before.pop(change.pk, None)
            job = self._posted.pop(change.pk, before)
        if job:
            self._board.notifier.notify(base.REMOVAL, {"job": job})
