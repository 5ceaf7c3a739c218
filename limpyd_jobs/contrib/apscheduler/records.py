"""The records of the jobs of APScheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone, tzinfo

from apscheduler.job import Job
from limpyd import fields
from limpyd.indexes import NumberRangeIndex
from redis.exceptions import ResponseError

from limpyd_jobs import TimedRecord
from limpyd_jobs.integration import SearchBudget

Stored = Mapping[str, str]  # the fields of a record

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICROSECOND = timedelta(microseconds=1)

# How many run times that were missed are gone through one by one. If only the last one is run, it is fewer.
MAX_MISSED, MAX_MISSED_COALESCED = 1_000_000, 1_000

# Up to this number of seconds, in the year 2106, a float has the microseconds right.
EXACT = 2**32


class ScheduledJob(TimedRecord):
    """A job of APScheduler. Its pk is the job's id.

    `next_run_time` is in seconds since the epoch, and absent if the job is paused, or parked. `parked` is ``1`` if a
    scheduler could not restore the job, for the `reason`. `timezone` is the one of the trigger, if it is not UTC.
    """

    namespace = "apscheduler"
    due_field = "next_run_time"
    notify_changes = True

    id = fields.PKField()
    name = fields.InstanceHashField(indexable=True)
    func = fields.InstanceHashField(indexable=True)
    executor = fields.InstanceHashField(indexable=True)
    next_run_time = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
    trigger = fields.InstanceHashField()
    timezone = fields.InstanceHashField()
    state = fields.InstanceHashField()
    position = fields.InstanceHashField()
    parked = fields.InstanceHashField(indexable=True)
    parked_run_time = fields.InstanceHashField()
    reason = fields.InstanceHashField()


class StoredJob(Job):
    """A job as it was read."""

    __slots__ = ("as_read", "is_refused", "set_aside")
    as_read: Stored
    is_refused: bool  # its run could not be submitted
    set_aside: Callable[[Exception], None]  # called if its trigger fails

    def _get_run_times(self, now: datetime) -> list[datetime]:
        """Return the run times up to now, or the last one. Here, an exception would end the scheduler."""
        most = MAX_MISSED_COALESCED if self.coalesce else MAX_MISSED
        try:
            with SearchBudget(None if self.coalesce else 4 * most):
                found = [*deque(self._moments(now, most), maxlen=1 if self.coalesce else most)]
            if found and not self.coalesce:  # in fewer steps, as APScheduler will ask
                self.trigger.get_next_fire_time(found[-1], now)
            return found
        except Exception as error:
            self.set_aside(error)
            return []

    def _moments(self, now: datetime, most: int) -> Iterator[datetime]:
        """Yield the run times; if there are many more than `most`, the first and the last ones."""
        first = moment = self.next_run_time
        for _ in range(most):
            if not _is_past(moment, now):
                return
            yield moment
            moment = self.trigger.get_next_fire_time(moment, now)
        if _is_past(moment, now):
            step = (moment.timestamp() - first.timestamp()) / most
            left = int((now.timestamp() - moment.timestamp()) / step)
            if left > most:
                before = datetime.fromtimestamp(moment.timestamp() + (left - most) * step, moment.tzinfo)
                moment = self.trigger.get_next_fire_time(before, now)
        while _is_past(moment, now):
            yield moment
            moment = self.trigger.get_next_fire_time(moment, now)


def _is_past(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment.timestamp() <= now.timestamp()


def run_time_of(stored: Stored) -> str:
    """Return the next run time of a record, also if it is parked; empty if it is paused."""
    return stored.get("next_run_time") or stored.get("parked_run_time") or ""


def text_of(moment: datetime | None) -> str:
    """Return the seconds since the epoch of an aware datetime, to the microsecond; empty for None."""
    if moment is None:
        return ""
    seconds, rest = divmod((moment - EPOCH) // MICROSECOND, 1_000_000)
    return f"{seconds}.{rest:06d}"


def moment_of(text: str | None, zone: tzinfo) -> datetime | None:
    """Return the datetime of such a text, in a time zone; None if it is empty."""
    if not text:
        return None
    whole = float(text)
    if 0 <= whole < EXACT:
        return datetime.fromtimestamp(whole, zone)
    seconds, _, rest = text.partition(".")
    return datetime.fromtimestamp(int(seconds), zone).replace(microsecond=int(rest.ljust(6, "0")[:6] or 0))


def is_of_foreign_key(error: Exception) -> bool:
    """Whether Redis refused something because an application wrote another type of value to a key."""
    return isinstance(error, ResponseError) and "WRONGTYPE" in str(error)
