"""The triggers of APScheduler, with an end to their search for a time."""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime, timedelta
from typing import Any

from apscheduler.triggers import calendarinterval, combining, cron, date, interval

from limpyd_jobs.schedules.search_budget import SearchBudget


class _Bounded:
    """A trigger that takes its steps out of a budget; of one of its own if it is asked outside of a `SearchBudget`."""

    cost = 1

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        if not SearchBudget.is_given():
            with SearchBudget():
                return self.get_next_fire_time(previous_fire_time, now)
        SearchBudget.take(self.cost)
        return super().get_next_fire_time(previous_fire_time, now)  # type: ignore[misc,no-any-return]


class AndTrigger(_Bounded, combining.AndTrigger):
    pass


class OrTrigger(_Bounded, combining.OrTrigger):
    pass


class DateTrigger(_Bounded, date.DateTrigger):
    pass


class IntervalTrigger(_Bounded, interval.IntervalTrigger):
    pass


class CronTrigger(_Bounded, cron.CronTrigger):
    @property
    def cost(self) -> int:  # type: ignore[override]
        return sum(len(field.expressions) for field in self.fields) // len(self.fields)

    def _increment_field_value(self, dateval: datetime, fieldnum: int) -> Any:
        """Go to the next value of a field, by the clock on the wall.

        APScheduler adds the difference to the time in UTC. Where clocks go forward on that way, it arrives an hour
        late: behind a midnight that does not exist, so that a time of that day is never found.
        """
        SearchBudget.take(self.cost)
        try:
            found, number = super()._increment_field_value(dateval, fieldnum)
        except IndexError:  # at the last second that there is, APScheduler looks for a field before the year
            raise OverflowError("no second after 9999-12-31T23:59:59") from None
        forward = found.utcoffset() - dateval.utcoffset()
        return (found - forward if forward > timedelta() else found), number


class CalendarIntervalTrigger(_Bounded, calendarinterval.CalendarIntervalTrigger):
    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._times: list[datetime] = []

    @property
    def years(self) -> int:
        SearchBudget.take()  # it is asked in each round of loops that may never end
        return self._years

    @years.setter
    def years(self, number: int) -> None:
        self._years = number

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time after a moment. Each time follows from the one before, so all are kept."""
        while not self._times or self._times[-1] <= moment:
            time = self.get_next_fire_time(self._times[-1] if self._times else None, moment)
            if time is None:
                return None
            self._times.append(time)
        return self._times[bisect_right(self._times, moment)]


TRIGGERS = {
    "cron": CronTrigger,
    "interval": IntervalTrigger,
    "calendar": CalendarIntervalTrigger,
    "date": DateTrigger,
    "and": AndTrigger,
    "or": OrTrigger,
}
