"""Jobs of APScheduler, and looks at them, for the tests of its store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("apscheduler")
from apscheduler.schedulers.background import BackgroundScheduler

from limpyd_jobs.contrib.apscheduler import LimpydJobStore, ScheduledJob

NOW = datetime.now(timezone.utc)


PARIS = ZoneInfo("Europe/Paris")


PAST, FUTURE = NOW - timedelta(minutes=1), NOW + timedelta(hours=1)


ran: list[Any] = []


def note(*args: Any, **kwargs: Any) -> None:
    ran.append((args, kwargs))


def other_note() -> None:
    ran.append("other")


def round_of(scheduler: BackgroundScheduler) -> float | None:
    """Let a scheduler look once; return in how many seconds it would look again."""
    return scheduler._process_jobs()


def store_of(scheduler: BackgroundScheduler) -> LimpydJobStore:
    return scheduler._jobstores["default"]


def stored(job_id: str) -> dict[str, str]:
    found: dict[str, str] = ScheduledJob.get_connection().hgetall(f"apscheduler:scheduledjob:{job_id}:hash")
    return found


TO_DO: list[Callable[[], Any]] = []


class Meanwhile:
    """Does something when it is read from a pickle, once."""

    def __reduce__(self) -> Any:
        return meanwhile, ()


def meanwhile() -> None:
    if TO_DO:
        TO_DO.pop()()
