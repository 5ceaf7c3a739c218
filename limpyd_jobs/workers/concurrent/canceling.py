"""Interrupting jobs that are canceled while they run, as soon as Redis says so."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from limpyd_jobs.redis.connections import PinnedConnection, shorter_than_timeout
from limpyd_jobs.redis.servers import is_transient
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.threads import OnDeath, start_thread
from limpyd_jobs.workers.concurrent.slots import Slot, Slots, name_of
from limpyd_jobs.workers.run import Run

# How many seconds the listener waits for a message before it asks again; and after a failure.
MAX_WAIT, PAUSE = 10.0, 1.0

# How many messages it takes in one round trip beside the first one.
MAX_MORE = 1000

# How many messages are kept of jobs that do not run: most have ended, some will begin.
MAX_EARLY = 10_000

# For how many seconds the end of the worker waits for its thread.
CLOSE_WITHIN = 0.2


class Canceling:
    """Listens, in a thread and over a connection of its own, which jobs are canceled. What it misses, the renewal of
    the leases tells.

    A message may come before the reply of the claim is handled, so messages of jobs that do not run yet are kept. For
    the messages see ``lua/includes/canceling.lua``.
    """

    def __init__(
        self,
        slots: Slots,
        client: Callable[[], Redis],
        key: str,
        interrupt: Callable[[Slot], None],
        log: Callable[[str, str], None],
        on_death: OnDeath,
    ) -> None:
        self._slots, self._client, self._key, self._log = slots, client, key, log
        self._interrupt, self._on_death = interrupt, on_death
        self._connection = PinnedConnection(client)
        self._closed = Event()
        self._early: dict[str, None] = {}
        self._has_logged = False
        self._thread: Thread

    def __enter__(self) -> None:
        self._thread = start_thread("limpyd-jobs-cancels", self._run, self._on_death)

    def __exit__(self, *exc_info: object) -> None:
        self._closed.set()
        self._connection.interrupt()
        self._thread.join(CLOSE_WITHIN)

    def begun(self, slot: Slot) -> None:
        """Interrupt a job that has a slot now, if it was canceled before."""
        if slot.name in self._early:
            self._early.pop(slot.name, None)
            self._interrupt(slot)

    def cancel(self, run: Run) -> None:
        """Interrupt a job of which the renewal of its lease told. Any thread may do so."""
        self._cancel(name_of(run))

    def _cancel(self, name: str) -> None:
        if len(self._early) >= MAX_EARLY:
            self._early = {}
        self._early[name] = None  # before it looks: who takes a slot later finds it
        slot = self._slots.named.get(name)
        if slot is not None:
            self._early.pop(name, None)
            self._interrupt(slot)

    # -- In its own thread

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                names = self._next()
            except Exception as error:
                self._note(error)
                self._connection.interrupt()  # it may lead to a server that is not a primary any more
                self._closed.wait(PAUSE)
            else:
                for name in names:
                    self._cancel(name)
        self._connection.close()

    def _next(self) -> list[str]:
        """Wait for messages; return those that are there."""
        seconds = shorter_than_timeout(self._client(), MAX_WAIT)
        waited: tuple[Any, ...] = ("BLPOP", self._key, seconds)
        first, more = self._connection.execute_commands(waited, ("LPOP", self._key, MAX_MORE))
        for reply in (first, more):
            if isinstance(reply, ResponseError):
                raise reply
        return [*(first or ())[1:], *(more or ())]

    def _note(self, error: Exception) -> None:
        """Log why it cannot listen, once, unless that passes, as when Redis is away, which others log."""
        if not is_transient(error) and not self._has_logged:
            self._has_logged = True
            text = f"Unable to listen for canceled jobs, which notice it later: {one_line(error, MESSAGE)}"
            self._log(text, "warning")
