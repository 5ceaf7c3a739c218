"""What a job store listens to, so that it wakes its scheduler up in time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from apscheduler.events import EVENT_EXECUTOR_ADDED, SchedulerEvent
from redis.exceptions import RedisError

from limpyd_jobs.models import Change, Changes

if TYPE_CHECKING:
    from limpyd_jobs.contrib.apscheduler.store import LimpydJobStore


class StoreEvents:
    """Hears the changes of the jobs by other processes. Wakes the scheduler up if one is to be run before it would look
    again.

    Attributes
    ----------
    planned: datetime
        When the scheduler looks again; None if it looks only once it is woken up.
    """

    def __init__(self, store: LimpydJobStore) -> None:
        self._store = store
        self._changes: Changes | None = None
        self.planned: datetime | None = None

    def listen(self) -> None:
        """Begin to listen to changes, in a thread, unless that was done before. If Redis fails, try again later."""
        if self._store._scheduler is None or self._changes is not None:
            return
        try:
            self._changes = self._store.model.changes()
        except RedisError as error:
            text = "Redis fails, so changes by others are only found at the next look: %s"
            self._store._logger.warning(text, error)
            return
        self._changes.follow_many(self._on_changes, name=f"jobstore {self._store._alias}")
        self._store._scheduler.add_listener(self._on_executor, EVENT_EXECUTOR_ADDED)

    def close(self) -> None:
        """Stop hearing changes. May be called twice."""
        if self._changes is not None:
            self._changes.close()
            self._changes = None
            self._store._scheduler.remove_listener(self._on_executor)

    def _on_changes(self, changes: Iterable[Change]) -> None:
        try:
            if self.is_early({change.pk for change in changes}):
                self._store._scheduler.wakeup()
        finally:
            if self._changes is None:  # the store was closed meanwhile
                self._store.model.database.close_idle()

    def _on_executor(self, event: SchedulerEvent) -> None:
        if self._store.reader.waits_for(event.alias):
            self._store._scheduler.wakeup()

    def is_early(self, changed: set[str]) -> bool:
        """Whether the scheduler is to look earlier than planned, because some jobs were changed."""
        if self._store.reader.forget(changed):
            return True
        if self._store.round.is_open:  # at its end, the scheduler looks what is due next
            return False
        due = self._store.model.next_due(skipped=self._store.reader.skipped()).due
        return due is not None and (self.planned is None or due < self.planned.timestamp())
