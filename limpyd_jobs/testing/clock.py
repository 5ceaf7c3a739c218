"""Moving the time of this library: of its scripts in Redis, and of its Python code in this process."""

from __future__ import annotations

from datetime import datetime, timedelta

from limpyd_jobs import dates
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.redis import scripting


class Clock:
    """The time by which jobs are due, leases lapse and schedules are enqueued. It goes on by itself, and can be moved.

    It belongs to this process, and to processes that it forks later. The server and other processes have their own. The
    ``datetime.now()`` and ``time.time()`` of the application, and of systems such as APScheduler, are not moved. If
    others freeze or move those, this clock still counts from the time of the server.

    >>> clock.move(hours=1)
    >>> clock.reset()
    """

    @property
    def moved(self) -> timedelta:
        """How far the time is moved."""
        return dates.moved_time

    def now(self) -> datetime:
        """Return the time, as a naive UTC datetime: that of the server, as far as it is moved."""
        seconds, microseconds = BaseJobsModel.get_connection().time()
        return dates.EPOCH + timedelta(seconds=seconds, microseconds=microseconds) + self.moved

    def move(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, by: timedelta | None = None
    ) -> None:
        """Let time pass: the sum of the arguments. A negative sum moves the time back."""
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        self._set(self.moved + span + (by or timedelta()))

    def move_to(self, moment: datetime) -> None:
        """Set the time to this moment: naive UTC, or aware. From there, the time goes on."""
        self.move(by=dates.as_naive_utc(moment) - self.now())

    def reset(self) -> None:
        """Go back to the real time."""
        if self.moved:
            self._set(timedelta())

    @staticmethod
    def _set(moved: timedelta) -> None:
        dates.moved_time = moved
        scripting.reload_all()


clock = Clock()
