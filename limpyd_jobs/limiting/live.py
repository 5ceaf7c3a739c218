"""What holds for a limit now: what was set for it, and else what its class says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

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


def limits_in(lane: str) -> list[str]:
    """Return the keys of the limits of a lane, given its name: see ``lua/includes/lanes.lua``."""
    return lane.partition("\t")[0].split("\n")


def waits_for_ever(connection: Any, queue_key: str) -> bool:
    """Return whether all jobs that wait in a queue are parked for limits that let none begin: they are paused, or 0."""
    pipe = connection.pipeline(transaction=False)
    pipe.llen(f"{queue_key}:waiting").zrange(f"{queue_key}:_turns", 0, -1).zrange(f"{queue_key}:_later", 0, -1)
    number, *places = pipe.execute(raise_on_error=False)
    if number or any(isinstance(place, Exception) for place in places):
        return False
    pipe = connection.pipeline(transaction=False)
    lanes = [lane for place in places for lane in place if lane.strip("\n")]
    for lane in lanes:
        pipe.exists(f"{queue_key}:_lane\n{lane}")
        keys = [each for key in limits_in(lane) for each in (_prefix_of_key(key), key)]
        pipe.hmget(f"{queue_key.rpartition(':')[0]}:_limits", keys)
    replies = pipe.execute(raise_on_error=False)
    return all(not is_there or _is_stuck(texts) for is_there, texts in zip(replies[::2], replies[1::2], strict=True))


def _prefix_of_key(key: str) -> str:
    """Return what the keys of a limit begin with, given one of them."""
    owner, begins, rest = key.partition(":_limit:")
    return f"{owner}{begins}{rest.partition(':')[0]}"


def _is_stuck(texts: Any) -> bool:
    """Return whether one of some limits lets no job begin, given what was set for all of it, and for its key."""
    if not isinstance(texts, list):
        return False
    for of_all, of_key in zip(texts[::2], texts[1::2], strict=True):
        live = LiveLimit.of(None, {**words_of(of_all), **words_of(of_key)})
        if live.rest_until == FOREVER or live.allowed == 0:
            return True
    return False
