"""What holds for a limit now: what was set for it, and else what its class says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from limpyd_jobs.limiting.limit import Limit, interval_of

# A rest without an end: the largest number that scripts read exactly, in microseconds.
FOREVER = 2**53 - 1


@dataclass(frozen=True, slots=True)
class LiveLimit:
    """What holds for a key of a limit.

    So many jobs as are `allowed` run at once; None for any number, or if the class is not known. The `interval` is the
    seconds of a unit of the rate, None without a rate; `burst` units may be used at once.
    """

    allowed: int | None
    interval: float | None
    burst: int
    rest_until: int

    @classmethod
    def of(cls, limit: Limit | None, words: Mapping[str, str]) -> LiveLimit:
        """Return what holds, given what was set: for the key in place of what was set for all of the limit."""
        numbers = {name: number for name, word in words.items() if (number := _number(word)) is not None}
        allowed = numbers.get("concurrency", limit.concurrency if limit else None)
        rate = numbers.get("rate", interval_of(limit.rate) if limit and limit.rate else None)
        burst = int(numbers.get("burst", limit.burst if limit else 1))
        return cls(None if allowed is None else int(allowed), rate and rate / 1e6, burst, int(numbers.get("rest", 0)))

    def rests_for(self, moment: float) -> float:
        """Return for how many seconds from a moment on no job begins: ``inf`` if it is paused."""
        return inf if self.rest_until == FOREVER else max(self.rest_until / 1e6 - moment, 0.0)

    def free_in(self, stored: str | None, moment: float) -> float | None:
        """Return in how many seconds the next unit of the rate is free, given what is stored; None without a rate."""
        if self.interval is None:
            return None
        return max(int(stored or 0) / 1e6 - (self.burst - 1) * self.interval - moment, 0.0)


def _number(word: str) -> float | None:
    """Return the number of a word; None if another program wrote something else there."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number if 0 <= number <= FOREVER else None


def words_of(text: str | None) -> dict[str, str]:
    """Return what was set, by name, as scripts store it."""
    return {name: value for name, _, value in (word.partition("=") for word in (text or "").split())}
