"""The changes that a job store listens to, so that its scheduler looks in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from apscheduler.events import EVENT_EXECUTOR_ADDED, SchedulerEvent
from redis.exceptions import RedisError

from limpyd_jobs.contrib.apscheduler.context import StoreContext
from limpyd_jobs.integration import Change, Changes


class StoreEvents:
    """Listens to changes by other processes, and to new executors. `is_early`: look earlier than planned."""

    def __init__(
        self, context: StoreContext, is_early: Callable[[set[str]], bool], waits_for: Callable[[str], bool]
    ) -> None:
        self._context, self._is_early, self._waits_for = context, is_early, waits_for
        self._changes: Changes | None = None

    def listen(self) -> None:
        """Begin to listen, in a thread, unless that was done before. If Redis fails, try again later."""
        if self._context.scheduler is None or self._changes is not None:
            return
        try:
            self._changes = self._context.model.changes()
        except RedisError as error:
            text = "Redis fails, so changes by others are not heard of, and found at the next look only: %s"
            self._context.logger.warning(text, error)
            return
        self._changes.follow_many(self._on_changes, name=f"jobstore {self._context.alias}")
        self._context.scheduler.add_listener(self._on_executor, EVENT_EXECUTOR_ADDED)

    def close(self) -> None:
        """Stop listening. May be called twice."""
        if self._changes is not None:
            self._changes.close()
            self._changes = None
            self._context.scheduler.remove_listener(self._on_executor)

    def _on_changes(self, changes: Iterable[Change]) -> None:
        try:
            if self._is_early({change.pk for change in changes}):
                self._context.scheduler.wakeup()
        finally:
            if self._changes is None:  # the store was closed meanwhile
                self._context.model.database.close_idle()

    def _on_executor(self, event: SchedulerEvent) -> None:
        if self._waits_for(event.alias):
            self._context.scheduler.wakeup()
