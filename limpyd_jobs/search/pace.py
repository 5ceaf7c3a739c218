"""When jobs are due that are put back, but must not all be run at once."""

from __future__ import annotations

import math
from datetime import timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from limpyd_jobs.arguments import is_number
from limpyd_jobs.exceptions import naming

KEY = "limpyd-jobs:turns:"

# In seconds: beyond it, there are no dates.
LONGEST = 10**10


class Pace(NamedTuple):
    """How many jobs are due per second, or in how many seconds all are; the other is None. The key keeps the next
    turn, so that who does it again goes on there."""

    rate: float | None
    spread: float | None
    key: str

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
        return cls(rate, spread, f"{KEY}{sha256(f'{what}'.encode()).hexdigest()[:16]}")

    def __str__(self) -> str:
        return f"rate={self.rate:g}/s" if self.rate else f"spread={self.spread:g}s"

    def interval(self, number: int) -> float:
        """Return the seconds from one of so many jobs to the next; 0 if that depends on the number, and it is 0."""
        if self.rate:
            return min(1 / self.rate, LONGEST)
        return min(self.spread or 0, LONGEST) / number if number else 0


def _check(name: str, what: str, value: Any) -> None:
    if not (value is None or (is_number(value) and 0 < value < math.inf)):
        raise naming(ValueError, "the ", (name, name), f" must be a {what}, more than 0, not {value!r}")
