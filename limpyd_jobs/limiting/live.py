"""What holds for a limit now: what was set for it, and else what its class says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from limpyd_jobs.limiting.limit import Limit, interval_of

# A rest without an end: the largest number that scripts read exactly, in microseconds.
FOREVER = 2**53 - 1

# What classes say of their limits, by the beginning of their keys, or none if classes share it, and the name.
Declared = Mapping[tuple[str | None, str], Limit]


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
    def of(cls, limit: Limit | None, of_all: Mapping[str, str], of_key: Mapping[str, str]) -> LiveLimit:
        """Return what holds, given what was set: for the key in place of what was set for all of the limit. It rests
        as long as one of both does."""
        numbers = {name: number for name, word in {**of_all, **of_key}.items() if (number := _number(word)) is not None}
        rests = (_number(words.get("rest", "")) or 0 for words in (of_all, of_key))
        allowed = numbers.get("concurrency", limit.concurrency if limit else None)
        rate = numbers.get("rate", interval_of(limit.rate) if limit and limit.rate else None)
        burst = int(numbers.get("burst", limit.burst if limit else 1))
        return cls(None if allowed is None else int(allowed), rate and rate / 1e6, burst, int(max(rests)))

    def rests_for(self, moment: float) -> float:
        """Return for how many seconds from a moment on no job begins: ``inf`` if it is paused."""
        return inf if self.rest_until == FOREVER else max(self.rest_until / 1e6 - moment, 0.0)

    def free_in(self, stored: str | None, moment: float) -> float | None:
        """Return in how many seconds the next unit of the rate is free, given what is stored; None without a rate."""
        if self.interval is None:
            return None
        until, _, noted = (stored or "").partition(" ")
        put_back = max(int(noted or 0) / 1e6 - moment, 0.0)  # the clock, since that was noted
        return max(int(until or 0) / 1e6 - put_back - (self.burst - 1) * self.interval - moment, 0.0)


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


def declared_by(limits: Iterable[tuple[str, Iterable[Limit]]]) -> Declared:
    """Return what job classes say of their limits, given the name of each, and its limits."""
    return {(None if limit.name else name, limit.label): limit for name, some in limits for limit in some}


def parts_of(key: str) -> tuple[str, str, str | None]:
    """Return whose limit a key is of, a class or a queue model, the name, and the value; None if there is none."""
    owner, _, rest = key.partition(":_limit:")
    name, has_value, value = rest.partition(":")
    return owner, name, value if has_value else None


def is_left_to_elder(key: str, elder: str | None, moment: float) -> bool:
    """Return whether a slot of a limit is left to the elder, as ``lua/includes/limits.lua`` stores that."""
    words = (elder or "").split(" ", 4)
    keys = limits_in(words[-1].partition("\n")[2])
    if len(words) < 5 or key not in keys or moment >= (_number(words[0]) or 0) / 1e6:
        return False
    return words[2] == f"{keys.index(key) + 1}" or moment <= (_number(words[3]) or 0) / 1e6


def waits_for_ever(connection: Any, queue_key: str, declared: Declared) -> bool:
    """Return whether all jobs that wait in a queue are parked for limits that let none begin: they are paused, or 0."""
    pipe = connection.pipeline(transaction=False)
    pipe.llen(f"{queue_key}:waiting").zrange(f"{queue_key}:_turns", 0, -1).zrange(f"{queue_key}:_later", 0, -1)
    number, *places = pipe.execute(raise_on_error=False)
    if number or any(isinstance(place, Exception) for place in places):
        return False
    pipe = connection.pipeline(transaction=False)
    model = queue_key.rpartition(":")[0]
    lanes = [lane for place in places for lane in place if lane.strip("\n")]
    for lane in lanes:
        keys = [each for key in limits_in(lane) for each in (_prefix_of(key), key)]
        pipe.exists(f"{queue_key}:_lane\n{lane}").hmget(f"{model}:_limits", keys)
    replies = pipe.execute(raise_on_error=False)
    found = zip(map(limits_in, lanes), replies[::2], replies[1::2], strict=True)
    return all(not is_there or _is_stuck(keys, texts, model, declared) for keys, is_there, texts in found)


def limit_of(key: str, queue_model: str, declared: Declared) -> Limit | None:
    """Return the limit that a key is of; None if no class is known that has it."""
    owner, name, _ = parts_of(key)
    return declared.get((None if owner == queue_model else owner, name))


def _prefix_of(key: str) -> str:
    """Return what the keys of a limit begin with, given one of them."""
    owner, name, _ = parts_of(key)
    return f"{owner}:_limit:{name}"


def _is_stuck(keys: Sequence[str], texts: Any, queue_model: str, declared: Declared) -> bool:
    """Return whether one of some limits lets no job begin, given what was set for all of it, and for its key."""
    if not isinstance(texts, list):
        return False
    for key, of_all, of_key in zip(keys, texts[::2], texts[1::2], strict=True):
        live = LiveLimit.of(limit_of(key, queue_model, declared), words_of(of_all), words_of(of_key))
        if live.rest_until == FOREVER or live.allowed == 0:
            return True
    return False
