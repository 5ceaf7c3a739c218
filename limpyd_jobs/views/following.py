"""A requeue that is followed: what becomes of the jobs that were put back, and whether to go on.

Nothing is added to the jobs, nor to what workers do: whoever requeues looks at the jobs that it put back, until they
ended. It lets only so many be open at once: at first a hundred, then twice as many as ended. The counts are written in
the entry of the audit, where each process can read them, and write an order.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple
from uuid import uuid4

from limpyd_jobs.arguments import read_priority
from limpyd_jobs.dates import parse_datetime, utcnow
from limpyd_jobs.query import AuditEntry, Enough, Outcomes, audit_entries
from limpyd_jobs.records.audit import Entry, write_to_begun
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import connection_to, replies_to
from limpyd_jobs.search.walk import CHANGES_PER_STEP
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import count_of

# Above which part of failures a requeue stops by itself, unless another one is given; and after how many outcomes that
# is judged first.
STOP_ABOVE, JUDGED_AFTER = 0.2, 10

# How many jobs may be open at first.
FIRST_OPEN = 100

# At how many jobs it looks at once, the first that were put back; and how many of those that were put back it keeps in
# mind. What goes beyond is not followed, and said so.
LOOKED_AT, MAX_FOLLOWED = 2_000, 200_000

# After how many seconds it looks again, at least and at most: longer while nothing ends.
SHORTEST_WAIT, LONGEST_WAIT = 0.2, 5.0

# After how many seconds it reads orders, while it waits.
ORDERS_AFTER = 1.0

# How many entries of the audit are looked through.
MAX_ENTRIES = 500

PAUSE, GO_ON, STOP = "pause", "go on", "stop"

Told = Callable[[int, int, str], object]


def new_token() -> str:
    """Return the name of a requeue that is about to be followed."""
    return uuid4().hex


class Following:
    """Follows a requeue: see `limpyd_jobs.search.filter.Follower`.

    Parameters
    ----------
    progress: callable
        Is called with how many jobs were looked at, how many there are, and what became of them so far.
    stop_above: float
        Above which part of failures it stops; None to go on whatever fails.
    rate: float
        How many jobs a second are put back at most; None for as many as end.
    database: JobsDatabase
    token: str
        Of the entry in the audit; a new one by default.
    """

    def __init__(
        self,
        progress: Told | None = None,
        stop_above: float | None = STOP_ABOVE,
        rate: float | None = None,
        database: JobsDatabase | None = None,
        token: str = "",
    ) -> None:
        self.token = token or new_token()
        self.step = CHANGES_PER_STEP if rate is None else max(1, min(CHANGES_PER_STEP, int(rate)))
        self.why_stopped = ""
        self._progress, self._stop_above, self._rate = progress, stop_above, rate
        self._connection = connection_to(database)
        self._open: dict[str, bool] = {}  # the key of each job that has not ended: whether it is being retried
        self._counts = Counter[str]()
        self._taken, self._looked, self._size = 0, 0, 0
        self._began, self._next_note, self._wait = time.monotonic(), 0.0, SHORTEST_WAIT
        self._entry: Entry | None = None
        self._order = ""

    @property
    def told(self) -> str:
        rate = f"rate={self._rate:g}/s" if self._rate else ""
        stop = "" if self._stop_above is None else f"stop_if_failing={self._stop_above:.0%}"
        return f"{rate} {stop}".strip()

    @property
    def outcomes(self) -> Outcomes:
        """What became of the jobs so far."""
        retrying = sum(self._open.values())
        return Outcomes(
            self._counts["succeeded"],
            self._counts["failed"],
            retrying,
            self._counts["others"],
            len(self._open) - retrying,
            self._counts["not_followed"],
        )

    @property
    def numbers(self) -> Mapping[str, Any]:
        stop_above = "" if self._stop_above is None else self._stop_above
        how_far = {"taken": self._taken, "looked": self._looked, "size": self._size}  # all of one moment
        return {**self.outcomes._asdict(), **how_far, "stop_above": stop_above}

    def begins(self, entry: Entry) -> None:
        self._entry = entry

    def took(self, name: str, pks: Sequence[str]) -> None:
        """Take note of jobs that were put back, of a class whose keys begin so."""
        self._taken += len(pks)
        room = MAX_FOLLOWED - len(self._open)
        self._open |= {f"{name}:{pk}:hash": False for pk in pks[:room]}
        self._counts["not_followed"] += max(len(pks) - room, 0)

    def __call__(self, looked: int, size: int) -> None:
        """Wait, between two steps, until the next jobs may be put back; raise `Enough` if no more are."""
        self._looked, self._size = looked, size
        if looked < size:
            self._look_until(self._may_go_on)
            if self.why_stopped:
                raise Enough

    def ends(self) -> None:
        """Wait until all have ended, or it is ordered to stop."""
        self._look_until(lambda: not self._open)
        self._note(is_last=True)
        if self._entry and self.why_stopped:
            self._entry.outcome = self.why_stopped

    def _may_go_on(self) -> bool:
        if self._order == PAUSE:
            return False
        if self._rate and self._taken >= (time.monotonic() - self._began) * self._rate:
            return False
        ended = self.outcomes.known
        return self._stop_above is None or len(self._open) < max(FIRST_OPEN, 2 * ended)

    def _look_until(self, is_enough: Callable[[], bool]) -> None:
        while True:
            self._look()
            self._judge()
            self._note()
            if self._progress:
                self._progress(self._looked, self._size, f"{self.outcomes}")
            if self.why_stopped or is_enough():
                return
            time.sleep(self._wait if not self._rate else min(self._wait, 1 / self._rate, SHORTEST_WAIT))

    def _look(self) -> None:
        """Look at the jobs that were put back first, and forget those that ended."""
        keys = [*islice(self._open, LOOKED_AT)]
        replies = replies_to(self._connection, [("HMGET", key, "status", "_failing_since") for key in keys])
        ended = 0
        for key, reply in zip(keys, replies, strict=True):
            status, failing_since = reply if isinstance(reply, list) else (None, None)
            outcome = _OUTCOMES.get(status, "") if status else "others"
            if outcome:
                self._counts[outcome] += 1
                ended += 1
                del self._open[key]
            else:
                self._open[key] = bool(failing_since)
        if len(self._open) > LOOKED_AT and not ended:  # the next ones may have ended before these
            self._open = {**dict(islice(self._open.items(), LOOKED_AT, None)), **{key: self._open[key] for key in keys}}
        self._wait = SHORTEST_WAIT if ended else min(self._wait * 1.5, LONGEST_WAIT)

    def _judge(self) -> None:
        found = self.outcomes
        if self._stop_above is None or self.why_stopped:
            return
        is_judged = found.known >= JUDGED_AFTER or (found.known and not found.open)
        if is_judged and found.failing > self._stop_above and self._looked < self._size:
            self.why_stopped = f"stopped by itself: {found.failing:.0%} failed again, more than {self._stop_above:.0%}"

    def _note(self, *, is_last: bool = False) -> None:
        """Write the counts in the audit, and read what it is ordered to do."""
        if not self._entry or (time.monotonic() < self._next_note and not is_last):
            return
        self._next_note = time.monotonic() + ORDERS_AFTER
        found = self._entry.noting(self.numbers)
        self._order = found.get("order", self._order)
        if self._order == STOP and not self.why_stopped:
            self.why_stopped = f"stopped by {found.get('ordered_by') or 'a user'}"


# The outcome of each status at which a job has ended.
_OUTCOMES: Mapping[str, str] = {
    STATUSES.SUCCESS: "succeeded",
    STATUSES.ERROR: "failed",
    STATUSES.CANCELED: "others",
}


class Requeue(NamedTuple):
    """A requeue that is, or was, followed.

    Attributes
    ----------
    token: str
    who, filter, how: str
        As in the audit.
    begun, at: str
        When it began, and when it ended, or noted something last: dates in UTC.
    state: str
        ``running``, ``paused``, ``over``, ``stopped``, or ``interrupted``.
    outcome: str
        As in the audit.
    done: int
        How many jobs it put back.
    looked, size: int
        At how many jobs it looked, and how many there were to look at.
    stop_above: float
        Above which part of failures it stops; None if it does not.
    outcomes: Outcomes
    """

    token: str
    who: str
    filter: str
    how: str
    begun: str
    at: str
    state: str
    outcome: str
    done: int
    looked: int
    size: int
    stop_above: float | None
    outcomes: Outcomes

    @property
    def is_over(self) -> bool:
        return self.state not in ("running", "paused")

    @property
    def left(self) -> int:
        """How many jobs it has not put back, as far as it is known."""
        return max(self.size - self.looked, 0)

    @property
    def to_come(self) -> int:
        """How many jobs it will still put back."""
        return 0 if self.is_over else self.left

    @property
    def seconds(self) -> float:
        """How long it has run."""
        begun, at = parse_datetime(self.begun), parse_datetime(self.at)
        until = at if self.is_over and at else utcnow()
        return max((until - begun).total_seconds(), 0.0) if begun else 0.0

    def __str__(self) -> str:
        return f"{count_of(self.done, 'job')}: {self.outcomes}"


def requeues(database: JobsDatabase | None = None, most: int = 20) -> list[Requeue]:
    """Return the last requeues that are, or were, followed, the newest first."""
    entries = audit_entries(MAX_ENTRIES, database)
    return [_requeue_of(each) for each in entries if each.token][:most]


def requeue_of(token: str, database: JobsDatabase | None = None) -> Requeue | None:
    """Return one of the last requeues; None if the audit has no such one any more."""
    entries = audit_entries(MAX_ENTRIES, database)
    return next((_requeue_of(each) for each in entries if each.token == token), None)


def order_requeue(token: str, order: str, by: str = "", database: JobsDatabase | None = None) -> None:
    """Order a requeue that runs, in whatever process, to ``pause``, ``go on`` or ``stop``, within about a second.

    Raises
    ------
    LookupError
        If it does not run any more.
    """
    if order not in (PAUSE, GO_ON, STOP):
        raise ValueError(f"a requeue can {PAUSE}, {GO_ON} or {STOP}, not {order!r}")
    if not write_to_begun(connection_to(database), token, {"order": order, "ordered_by": by}):
        raise LookupError("this requeue does not run any more")


def _requeue_of(entry: AuditEntry) -> Requeue:
    is_running = entry.outcome == "running"
    state = "running" if is_running else "over" if entry.outcome == "complete" else "interrupted"
    if entry.outcome.startswith("stopped"):
        state = "stopped"
    if is_running and entry.order == PAUSE:
        state = "paused"
    number = {
        name: read_priority(entry.followed.get(name, "")) or 0
        for name in (*Outcomes._fields, "taken", "looked", "size")
    }
    stop = entry.followed.get("stop_above", "")
    return Requeue(
        token=entry.token,
        who=entry.who,
        filter=entry.filter,
        how=entry.how,
        begun=entry.begun or entry.at,
        at=entry.at if not is_running else "",
        state=state,
        outcome=entry.outcome,
        done=number["taken"] if is_running else entry.done or 0,
        looked=number["looked"],
        size=number["size"],
        stop_above=float(stop) if stop else None,
        outcomes=entry.outcomes or Outcomes(),
    )
