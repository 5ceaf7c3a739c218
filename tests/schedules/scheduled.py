"""Jobs of schedules, for the tests."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from limpyd import fields

from limpyd_jobs import Job, Queue, Schedule
from limpyd_jobs.records import records
from limpyd_jobs.schedules.model import score_of


class Report(Job):
    namespace = "scheduled"
    queue_name = "reports"
    to = fields.InstanceHashField(indexable=True)
    seen: tuple[Any, ...] = ()

    def run(self, queue: Queue) -> None:
        pass

    def on_scheduled(self, schedule: Schedule, time: datetime) -> None:
        type(self).seen = (*self.seen, (schedule.name.hget(), time))


def make_due(schedule: Schedule, hours: int = 0) -> datetime:
    """Let an hourly schedule be due since the last full hour, or some hours before; return that time, naive UTC."""
    due = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0, tzinfo=None) - timedelta(hours=hours)
    records.set_schedule(Schedule, schedule.pk.get(), score_of(str(due)), {"next_run": str(due)})
    return due


def identifiers() -> list[str]:
    """Of all jobs, the first first."""
    jobs = sorted(Report.collection().instances(), key=lambda job: int(job.pk.get()))
    return [job.identifier.hget() for job in jobs]
