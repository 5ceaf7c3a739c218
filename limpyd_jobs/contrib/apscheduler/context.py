"""What the parts of a job store have in common."""

from __future__ import annotations

from dataclasses import dataclass
from logging import Logger
from typing import Any

from apscheduler.schedulers.base import STATE_RUNNING

from limpyd_jobs.contrib.apscheduler.records import ScheduledJob


@dataclass
class StoreContext:
    """Whose jobs these are, and for which scheduler they are read: None as long as none has started the store."""

    model: type[ScheduledJob]
    owner: str
    lease: float
    logger: Logger
    scheduler: Any
    alias: str | None

    @property
    def is_stopped(self) -> bool:
        """Whether the scheduler is paused, or shut down."""
        return self.scheduler is not None and self.scheduler.state != STATE_RUNNING

    def has_executor(self, name: str) -> bool:
        return self.scheduler is None or name in self.scheduler._executors
