"""When jobs are due that are put back, but must not all be run at once."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from limpyd_jobs.arguments import is_number
from limpyd_jobs.exceptions import naming
from limpyd_jobs.redis.calls import Steps, commanded

KEY = "limpyd-jobs:turns:"

# In seconds: beyond it, there are no dates.
LONGEST = 10**10


# The seconds of a spread that has not ended, and the microseconds from one job to the next, beside the next turn.
_KEPT = re.compile(r"[\d.]+@([\d.]{1,30})/([\d.]{1,30})(?: .*)?", re.ASCII | re.DOTALL)


class Pace(NamedTuple):
    """How many jobs are due per second, or in how many seconds all are; the other is None. The key keeps the next
    turn, so that who does it again goes on there; `kept` is the interval of a spread that was interrupted."""

    rate: float | None
    spread: float | None
    key: str
    kept: float | None = None

    @classmethod
    def of(cls, spread: float | timedelta | None, rate: float | None, what: object) -> Pace | None:
        """Check the arguments of a verb about the jobs that `what` names; return None if there are none."""
        if spread is rate is None:
            return None
        if spread is not None and rate is not None:
            raise naming(ValueError, "give ", ("spread", "a spread"), " or ", ("rate", "a rate"), ", not both")
        if isinstance(spread, timedelta):
            spread = spread.total_seconds()
        _check("spread", "timedelta or a number of seconds", spread)
        _check("rate", "number of jobs per second", rate)
        return cls(rate, spread, f"{KEY}{sha256(f'{what}'.encode(errors='backslashreplace')).hexdigest()[:16]}")

    def __str__(self) -> str:
        return f"rate={self.rate:g}/s" if self.rate else f"spread={self.spread:g}s"

    def interval(self, number: int) -> float:
        """Return the seconds from one of so many jobs to the next; 0 if that depends on the number, and it is 0.

        The rest of a spread that was interrupted goes on as it began, unless there are more jobs by now.
        """
        if self.rate:
            return min(1 / self.rate, LONGEST)
        interval = self.seconds / number if number else 0
        return interval if self.kept is None else min(interval, self.kept)

    def going_on(self, connection: Any) -> Steps[Pace]:
        """Return the pace with the interval that is kept of the same spread, if that was interrupted."""
        text = None
        with suppress(ResponseError):  # another program may have put something else there
            text = yield from commanded(connection, "GET", self.key)
        kept = _KEPT.fullmatch(text or "")
        with suppress(ValueError):
            if kept and float(kept[1]) == float(f"{self.seconds:f}"):
                return self._replace(kept=float(kept[2]) / 1_000_000)
        return self

    @property
    def seconds(self) -> float:
        """In how many seconds all jobs are due, as far as there are dates; 0 for a rate."""
        return min(self.spread or 0, LONGEST)


def _check(name: str, what: str, value: Any) -> None:
    if not (value is None or (is_number(value) and 0 < value < math.inf)):
        raise naming(ValueError, "the ", (name, name), f" must be a {what}, more than 0, not {value!r}")
