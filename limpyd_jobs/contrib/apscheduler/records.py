"""The records of the jobs of APScheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone, tzinfo

from apscheduler.job import Job
from limpyd import fields
from limpyd.indexes import NumberRangeIndex

from limpyd_jobs import TimedRecord

Stored = Mapping[str, str]  # the fields of a record

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICROSECOND = timedelta(microseconds=1)

# How many times a job may have missed. To go through them takes a second or two.
MOST = 1_000_000

# Up to this number of seconds, in the year 2106, a float has the microseconds right.
EXACT = 2**32


class ScheduledJob(TimedRecord):
    """A job of APScheduler. Its pk is the job's id.

    `next_run_time` is in seconds since the epoch, and absent if the job is paused, or parked. `parked` is ``1`` if a
    scheduler could not restore the job, for the `reason`. `timezone` is the one of the trigger, if it is not UTC.
    """

    namespace = "apscheduler"
    due_field = "next_run_time"
    tells_changes = True

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
    """A job as it was read.

    Attributes
    ----------
    as_read: mapping of str to str
        Its stored fields.
    is_refused: bool
        Whether its run could not be submitted.
    set_aside: callable
        Sets the job aside, as its trigger fails. Takes the exception.
    """

    __slots__ = ("as_read", "is_refused", "set_aside")
    as_read: Stored
    is_refused: bool
    set_aside: Callable[[Exception], None]

    def _get_run_times(self, now: datetime) -> list[datetime]:
        """Return the run times up to now: the last one, if that is all that is run.

        APScheduler asks for them where an exception would end the scheduler.
        """
        found: deque[datetime] = deque(maxlen=1 if self.coalesce else None)
        try:
            for moment in self._moments(now):
                found.append(moment)
        except Exception as error:
            self.set_aside(error)
            return []
        return [*found]

    def _moments(self, now: datetime) -> Iterator[datetime]:
        moment, number = self.next_run_time, 0
        while moment and moment.timestamp() <= now.timestamp():
            if number == MOST:
                raise OverflowError(f"it has more than {MOST:,} run times since {self.next_run_time}")
            yield moment
            moment, number = self.trigger.get_next_fire_time(moment, now), number + 1


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
