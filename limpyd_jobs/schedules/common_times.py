"""The trigger of APScheduler for times that several triggers share, with an end to its search."""

from __future__ import annotations

from datetime import datetime

from apscheduler.triggers import combining


class AndTrigger(combining.AndTrigger):
    """An `AndTrigger` that raises `ValueError` where the one of APScheduler would search for ever."""

    __slots__ = ()
    max_attempts = 10_000  # which take about a second

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Return the next time that all triggers have; None if one of them has no more times."""
        for _ in range(self.max_attempts):
            times = [trigger.get_next_fire_time(previous_fire_time, now) for trigger in self.triggers]
            if None in times:
                return None
            now = max(times)
            if min(times) == now:
                return now
        raise ValueError(f"the triggers of {self} have no time in common, in {self.max_attempts:,} attempts")
