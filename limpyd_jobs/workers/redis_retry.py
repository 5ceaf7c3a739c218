"""What a worker does while Redis fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from redis.exceptions import RedisError

from limpyd_jobs.exceptions import NotRecorded
from limpyd_jobs.models import job_classes
from limpyd_jobs.records.wrong_types import remedy_of
from limpyd_jobs.redis.servers import is_connection_error, is_denied, is_of_replica, is_transient
from limpyd_jobs.texts import MESSAGE, OncePer, one_line
from limpyd_jobs.workers.backoff import Backoff
from limpyd_jobs.workers.context import Context, Face

P = ParamSpec("P")
T = TypeVar("T")

# How long a worker sleeps at most before it looks whether it has to stop, in seconds.
WAIT_SLICE = 1.0

# For how many seconds another shard is not asked after the end of one of its jobs could not be recorded.
UNUSABLE_FOR = 10.0

OF_ANOTHER_SHARD = (
    "How it ended is not recorded: it is of a shard that cannot be used, and is rescued there when its lease has lapsed"
)


def sleep(seconds: float) -> None:
    """Do nothing for some seconds."""
    threading.Event().wait(seconds)


def nap(seconds: float = WAIT_SLICE) -> None:
    """Do nothing for some seconds, but no longer than until the next look whether the worker has to stop."""
    sleep(max(min(seconds, WAIT_SLICE), 0.0))


@dataclass(eq=False)
class RedisRetry:
    """Logs failures of Redis, and waits until they pass. `on_disconnected` is called if Redis did not answer."""

    worker: Face
    context: Context
    on_disconnected: Callable[[], None]

    def __post_init__(self) -> None:
        self.may_log = OncePer(1)  # whether to say now what may happen thousands of times a second
        self.backoff = Backoff()  # the waits before another try to get a job
        self._has_given_up = False
        self._shard: Any = None  # the database of another shard, while something is recorded there
        self._away_until = 0.0

    def retry(self, record: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Record something in Redis; try again while that fails for a reason that may pass, or is denied.

        Once the worker has to end, it gives up after one lease; then all other steps are tried once.
        """
        backoff, began = None, monotonic()
        while True:
            if self._shard is not None and monotonic() < self.context.state.unusable.get(self._shard, 0.0):
                raise NotRecorded(OF_ANOTHER_SHARD)
            try:
                return record(*args, **kwargs)
            except (RedisError, NotRecorded) as error:
                reason = error.__cause__ if isinstance(error, NotRecorded) else error
                if not (is_transient(reason) or is_denied(reason)) or self._gives_up(began):
                    if self.remedy_of(reason):
                        self._log("Not tried again", reason)
                    raise
                self.log("Unable to record how a job went", reason)
                if self._shard is not None and self._is_too_long(began):
                    self.context.state.unusable[self._shard] = monotonic() + UNUSABLE_FOR
                    raise NotRecorded(OF_ANOTHER_SHARD) from error
                backoff = backoff or Backoff()
                sleep(min(backoff.next(), max(self.context.state.gives_up_at - monotonic(), WAIT_SLICE / 10)))

    def away(self, shard: Any) -> None:
        """What is recorded from now on is in this database of another shard; None if it is not any more. While that
        shard fails, it is tried for half a lease in all, because the worker has jobs of its own, too. Then it is not
        tried for others for a while, either."""
        self._shard, self._away_until = shard, 0.0

    def _is_too_long(self, began: float) -> bool:
        self._away_until = self._away_until or began + self.context.settings.lease / 2
        return monotonic() > self._away_until

    def _gives_up(self, began: float) -> bool:
        now = monotonic()
        is_over = (
            self._has_given_up or now - began > self.context.settings.lease or now > self.context.state.gives_up_at
        )
        self._has_given_up = self.worker.end_forced and is_over
        return self._has_given_up

    def log(self, what: str, error: BaseException | None) -> None:
        """Log what failed, and drop the connections if they lead to a server that is not a primary any more."""
        self.context.state.turned = monotonic()  # a worker that waits for Redis is alive
        self._log(f"{what}, trying again", error)
        if is_of_replica(error):
            self.disconnect()

    def disconnect(self) -> None:
        """Drop the connections that are not in use; this thread uses none."""
        self.worker.connection.connection_pool.disconnect(inuse_connections=False)

    def wait(self, what: str, error: RedisError) -> None:
        """Log what failed, and wait before the next try, but no longer than until the worker has to end."""
        self.log(what, error)
        until = monotonic() + self.backoff.next()
        while monotonic() < until and not (self.worker.end_forced or self.context.is_over_time):
            nap(until - monotonic())

    def log_lease_not_renewed(self, identifier: str, error: Exception) -> None:
        """Log that the lease of a job was not renewed."""
        self._log(f"[{one_line(identifier)}] lease not renewed", error)

    def _log(self, what: str, error: BaseException | None) -> None:
        if is_connection_error(error):
            self.on_disconnected()
        if self.may_log():
            self.context.log(f"{what}: {one_line(error, MESSAGE)}{self.remedy_of(error)}", "error")

    def remedy_of(self, error: BaseException | None) -> str:
        """Return which key another program wrote, and what to do, if an error is about that."""
        return remedy_of(error, self.worker.connection, job_classes.all(), self.context.queue_keys)
