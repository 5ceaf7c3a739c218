"""The changes of a board, for those who wait for a job that is posted, or gone."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock
from typing import Any

from taskflow.exceptions import JobFailure
from taskflow.jobs import base
from taskflow.types.notifier import Notifier
from taskflow.types.timing import Timeout

from limpyd_jobs import STATUSES
from limpyd_jobs.contrib.taskflow.job import LimpydJob
from limpyd_jobs.contrib.taskflow.reading import PostingReader
from limpyd_jobs.integration import Changes, JobChange

# The statuses of postings that are off the board.
ENDED = (STATUSES.SUCCESS, STATUSES.ERROR, STATUSES.CANCELED)

# After how many seconds to try again to listen, if Redis fails.
LISTEN_PAUSE = 1.0

# How soon to look again after a job ended, in seconds: its conductor counts it as one that runs for a moment more.
SHORTEST_PAUSE = 0.05


class BoardNotifier(Notifier):
    """Calls registered callbacks with the jobs that are posted and removed; `begin` begins it, if the board is open."""

    def __init__(self, begin: Callable[[bool], None]) -> None:
        super().__init__()
        self._begin = begin

    def register(self, event_type: str, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Register a callback: see TaskFlow. If Redis fails, it is not registered."""
        is_first = not len(self)
        super().register(event_type, callback, *args, **kwargs)
        try:
            self._begin(is_first)
        except JobFailure:
            self.deregister(event_type, callback)
            raise


class BoardTimeout(Timeout):
    """How long a conductor waits if it found no job, or runs as many as it may, unless one is posted, or one ends."""

    def __init__(self, value: float, listen: Callable[[], bool]) -> None:
        super().__init__(value)
        self._listen, self._pause = listen, value
        self._is_to_look = Event()  # set also by a job that was posted before the wait began

    def look(self) -> None:
        self._is_to_look.set()

    def look_soon_again(self) -> None:
        """End the wait, and the next ones soon, then less and less often."""
        self._pause = min(SHORTEST_PAUSE, self.value)
        self.look()

    def wait(self) -> None:
        """Wait until a job is posted, or one of this board ends, or the conductor is stopped."""
        try:
            has_begun = self._listen()
        except JobFailure:  # TaskFlow does not expect one here: it would end the conductor
            self._is_to_look.wait(min(LISTEN_PAUSE, self.value))
            return
        if not (has_begun or self.is_stopped()):  # only another look tells of jobs that were posted before
            pause, self._pause = self._pause, min(2 * self._pause, self.value)
            self._is_to_look.wait(pause)
            self._is_to_look.clear()

    def interrupt(self) -> None:
        super().interrupt()
        self.look()


class BoardEvents:
    """Listens to the changes of a board: wakes those who wait if a job is posted, and notifies registered callbacks."""

    def __init__(self, name: str, reader: PostingReader, notifier: Notifier, wake: Callable[[], None]) -> None:
        self._name, self._reader, self._notifier, self._wake = name, reader, notifier, wake
        self._changes: Changes | None = None
        self._before: dict[str, LimpydJob] = {}  # the jobs that were posted before callbacks were registered
        self._posted: dict[str, LimpydJob] = {}  # those that callbacks were called with
        self._own: dict[str, LimpydJob] = {}  # the jobs that are posted here, until then
        self._beginning, self._posting, self._learning = Lock(), Lock(), Lock()
        self._is_closed = self._has_learned = False

    def listen(self) -> bool:
        """Begin to listen, in a thread; return False if that was done before."""
        with self._beginning:
            if self._is_closed:
                raise JobFailure(f"The board {self._name!r} was closed meanwhile")
            if self._changes is not None:
                return False
            self._changes = self._reader.model.changes()
            self._changes.follow(self._on_change, f"board {self._name}")
            return True

    def learn(self, anew: bool = False) -> None:
        """Read what is posted already, to notify of its removal, once or, after a time without callbacks, anew."""
        with self._learning:
            if anew or not self._has_learned:
                self._posted.clear()
                self._before = {job.pk: job for job in self._reader.all(only_unclaimed=False)}
                self._has_learned = True

    def close(self) -> None:
        with self._beginning:
            self._is_closed = True
            if self._changes is not None:
                self._changes.close()

    def post(self, make: Callable[[], LimpydJob]) -> LimpydJob:
        """Call the function that posts a job, and notify of it once, even if it is consumed before its change comes."""
        with self._posting:
            job = make()
            if len(self._notifier):
                self._own[job.pk] = job
        return job

    def _on_change(self, change: JobChange) -> None:
        try:
            self._notify(change)
        finally:
            if self._is_closed:
                self._reader.model.database.close_idle()

    def _notify(self, change: JobChange) -> None:
        if change.status == STATUSES.WAITING:
            self._wake()
        if len(self._notifier):
            if change.what == "deleted" or change.status in ENDED:
                self._notify_removal(change)
            elif change.what == "made" or change.status_before in ENDED:
                self._notify_posted(change)

    def _notify_posted(self, change: JobChange) -> None:
        with self._posting:  # a job that is posted here is known, even if it is consumed by now
            own = self._own.pop(change.pk, None)
        if change.pk in self._posted:
            return
        for job in [own] if own else self._reader.of(change.queue_key, change.pk):
            self._posted[change.pk] = job
            self._notifier.notify(base.POSTED, {"job": job})

    def _notify_removal(self, change: JobChange) -> None:
        with self._learning:
            before = self._before.pop(change.pk, None)
            job = self._posted.pop(change.pk, before)
        if job:
            self._notifier.notify(base.REMOVAL, {"job": job})
