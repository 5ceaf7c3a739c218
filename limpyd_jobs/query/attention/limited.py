"""What limits keep jobs waiting, as they are now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from math import inf

from limpyd_jobs.dates import span
from limpyd_jobs.query.attention.evidence import Glance
from limpyd_jobs.query.attention.values import WARNING, Fact, Incident
from limpyd_jobs.query.limits.keys import LimitKey
from limpyd_jobs.texts import count_of, one_line, some_named

# How many keys are named at most, and how many characters of one.
MAX_KEYS, LONGEST_LABEL = 3, 100


def limited(seen: Glance, long: float) -> Iterator[Incident]:
    """Yield the keys of limits for which jobs wait, and will for ever; and those for which they have for long."""
    stuck = [key for key in seen.limits if _why(key)]
    if stuck:
        what = f"{_label(stuck[0])} {_why(stuck[0])}" if len(stuck) == 1 else f"{len(stuck):,} limits let no job begin"
        named = "" if len(stuck) == 1 else f": {some_named([f'{_label(key)} {_why(key)}' for key in stuck], MAX_KEYS)}"
        yield _incident(seen, "limit_stuck", stuck, what, named)
    slow = [key for key in seen.limits if not _why(key) and (key.waited or 0) > long]
    if slow:
        what = f"A limit keeps jobs of {_label(slow[0])}" if len(slow) == 1 else f"{len(slow):,} limits keep jobs"
        named = (
            "" if len(slow) == 1 else f", those of {some_named([_label(key) for key in slow], MAX_KEYS)} for longest"
        )
        yield _incident(seen, "limit_waits", slow, f"{what} waiting for long", named)


def _incident(seen: Glance, code: str, keys: Sequence[LimitKey], what: str, named: str) -> Incident:
    longest, numbers = max(key.waited or 0.0 for key in keys), Counter[tuple[str, str]]()
    for key in keys:
        numbers[key.owner, key.name] += key.parked
    parked = max(numbers.values())
    jobs = f"{'' if len(numbers) == 1 else 'at least '}{count_of(parked, 'job')}"  # one may wait for several limits
    waiting = f"{jobs} waiting, the first for {span(longest)}"
    return Incident(
        code,
        WARNING,
        what,
        f"{what}{named}: {waiting}.",
        since=seen.at - timedelta(seconds=longest),
        numbers={"waiting": parked, "latency_s": longest},
        facts=[Fact("Waiting", jobs), Fact("Oldest", span(longest))],
    )


def _why(key: LimitKey) -> str:
    """Return why no job of a key will begin; empty if some will."""
    return "is paused" if key.rests_for == inf else "is 0" if key.allowed == 0 else ""


def _label(key: LimitKey) -> str:
    return one_line(key.label, LONGEST_LABEL)
