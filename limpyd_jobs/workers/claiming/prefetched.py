"""The jobs that a worker has claimed already, and runs next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from math import inf
from threading import Lock
from time import monotonic

from limpyd_jobs import transitions
from limpyd_jobs.models import job_classes
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers.backoff import is_denied, is_transient


class Prefetched:
    """Deliveries that wait for their turn in a worker. Any thread may release them."""

    def __init__(self) -> None:
        # The thread that takes a job out of it has to run it or release it: nothing else can.
        self.deliveries: deque[Delivery] = deque()
        # Those on their way back to their lists. Before they are back, no other job is claimed.
        self.releasing: deque[Delivery] = deque()
        self.release_at = inf  # when they will have waited for too long, by the clock of `monotonic`
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

    @property
    def are_late(self) -> bool:
        """Whether they have waited for too long, or are on their way back."""
        return monotonic() >= self.release_at or bool(self.releasing)

    def release(self, *, if_late: bool = False) -> list[Exception]:
        """Put them back to the front of their lists; return what failed.

        It raises `RedisError` if Redis may accept it later: then the next call tries again.
        """
        with self._lock:
            return self._release() if self.are_late or not if_late else []

    def _release(self) -> list[Exception]:
        self._begin_release()
        if monotonic() >= self.release_at:  # else there is a new batch by now
            self.release_at = inf
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
