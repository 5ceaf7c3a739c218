"""The jobs that a worker has claimed and not begun, and how many of them it should have."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from math import inf
from threading import Lock
from time import monotonic

from limpyd_jobs import transitions
from limpyd_jobs.commandline.options import AUTO
from limpyd_jobs.models import job_classes
from limpyd_jobs.redis.servers import is_denied, is_transient
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.transitions import Delivery

# The most jobs of a measured batch: with more, jobs that do nothing are run no faster, and scripts take longer.
MAX_BATCH = 200

# The part of the bound that a batch should take. The rest is for jobs that take longer than the last ones did.
BATCH_SHARE = 0.5

# How much the last batch counts in the mean.
LAST_BATCH_WEIGHT = 0.3

# For how many seconds jobs may wait for a free slot without any of them being begun. Then they are released.
MAX_WAIT_AHEAD = 1.0

# What will end within that many seconds is claimed ahead.
AHEAD = 0.03

# Over about how many seconds it is counted how many jobs end.
COUNTED = 0.1


class Size:
    """How many jobs to claim ahead: always the same number."""

    def __init__(self, jobs: int = 1, bound: float = inf) -> None:
        self._jobs = jobs
        self.bound = bound  # for how long a claimed job may wait for its turn, in seconds

    @property
    def jobs(self) -> int:
        """How many."""
        return self._jobs

    def observe(self, jobs: int, seconds: float) -> None:
        """Note how many jobs were run in how many seconds."""


class MeasuredSize(Size):
    """For one slot: as many as are run well within the bound, if they take as long as the last ones did on average.

    It begins with one, and never more than doubles: the first jobs of another kind tell how long they take.
    """

    def __init__(self, bound: float) -> None:
        super().__init__(1, bound)
        self._mean = 0.0

    def observe(self, jobs: int, seconds: float) -> None:
        each = max(seconds, 1e-6) / jobs
        self._mean += LAST_BATCH_WEIGHT * (each - self._mean) if self._mean else each
        fitting = int(min(BATCH_SHARE * self.bound / self._mean, MAX_BATCH))
        self._jobs = max(1, min(fitting, 2 * self._jobs))


class Ahead(Size):
    """For several slots: as many as will end within `AHEAD` seconds, by how many ended lately.

    No more are claimed ahead: other workers may run them, and what comes meanwhile with a higher priority begins first.
    """

    def __init__(self) -> None:
        super().__init__(0, MAX_WAIT_AHEAD)
        self._rate = 0.0  # jobs a second
        self._since, self._ended = monotonic(), 0

    def observe(self, jobs: int, seconds: float) -> None:
        self._ended += jobs

    @property
    def jobs(self) -> int:
        """How many."""
        now = monotonic()
        seconds = now - self._since
        if seconds > COUNTED:
            self._rate += (self._ended / seconds - self._rate) * seconds / (seconds + COUNTED)
            self._since, self._ended = now, 0
        return int(self._rate * AHEAD)


def size_for(concurrency: int, prefetch: int | str, prefetch_time: float) -> Size:
    """Return how many jobs a worker claims ahead."""
    if prefetch == AUTO:
        return MeasuredSize(prefetch_time)
    if concurrency > 1:
        return Ahead() if prefetch == 1 else Size(int(prefetch), MAX_WAIT_AHEAD)
    return Size(int(prefetch))


class Stock:
    """Deliveries that wait for their turn in a worker. Any thread may release them."""

    def __init__(self, size: Size | None = None) -> None:
        self.size = size or Size()
        # The thread that takes a job out of it has to run it or release it: nothing else can.
        self.deliveries: deque[Delivery] = deque()
        # Those on their way back to their lists. Before they are back, no other job is claimed.
        self.releasing: deque[Delivery] = deque()
        self.late_at = inf  # when they will have waited for too long, by the clock of `monotonic`
        self._lock = Lock()
        self._outcomes: dict[str, str] = {}

    def take(self) -> Delivery | None:
        """Take the next job whose claim is not lost; None without any."""
        delivery = None
        try:
            while delivery is None:
                delivery = self.deliveries.popleft()
                if self._outcomes:
                    delivery = self._as_it_is_now(delivery)
        except IndexError:
            with self._lock:  # no job may overtake those that a thread releases
                return None
        return delivery

    def _as_it_is_now(self, delivery: Delivery) -> Delivery | None:
        outcome = self._outcomes.pop(delivery.token, "")
        if outcome == "canceled":
            return replace(delivery, status=STATUSES.CANCELED)
        return None if outcome else delivery

    def note(self, delivery: Delivery, outcome: str) -> None:
        """Note the outcome of renewing the lease of a job, as of `transitions.renew`. Any thread may do so."""
        if outcome not in ("done", "failed"):
            self._outcomes[delivery.token] = outcome

    def holds(self, delivery: Delivery) -> bool:
        """Whether the claim on a job is not known to be lost. Any thread may ask."""
        return bool(delivery.token) and self._outcomes.get(delivery.token, "canceled") == "canceled"

    # -- Giving them back

    def late_after(self, seconds: float) -> None:
        """Let them be late after some seconds from now."""
        self.late_at = monotonic() + seconds

    @property
    def are_late(self) -> bool:
        """Whether they have waited for too long, or are on their way back."""
        return monotonic() >= self.late_at or bool(self.releasing)

    def release(self, *, if_late: bool = False) -> list[Exception]:
        """Put them back to the front of their lists; return what failed.

        It raises `RedisError` if Redis may accept it later: then the next call tries again.
        """
        with self._lock:
            return self._release() if self.are_late or not if_late else []

    def _release(self) -> list[Exception]:
        self._begin_release()
        if monotonic() >= self.late_at:  # else there is a new batch by now
            self.late_at = inf
        claims = [(job_classes.resolve(delivery.path), delivery) for delivery in self.releasing]
        failures = transitions.release_all(claims) if claims else []
        for failure in failures:
            if is_transient(failure) or is_denied(failure):
                raise failure
        self.releasing.clear()
        return failures

    def _begin_release(self) -> None:
        """Move them to `releasing`. Entries that are not jobs to run stay, to be logged."""
        others: list[Delivery] = []
        with suppress(IndexError):
            while True:
                delivery = self.deliveries.pop()
                (self.releasing.appendleft if delivery.token else others.append)(delivery)
        self.deliveries.extend(others)


def log_not_released(log_repeated: Callable[[str, str], None], failures: Iterable[Exception]) -> None:
    """Log why jobs could not be released."""
    what = "Unable to give a job back"
    for failure in failures:
        log_repeated(what, f"{what}: {one_line(failure, MESSAGE)}")
