"""Interrupting jobs that run at once: at their time limit, at the end of the grace period, when they are canceled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from limpyd_jobs.redis.connections import PinnedConnection, shorter_than_timeout
from limpyd_jobs.redis.servers import is_transient
from limpyd_jobs.retrying import Cancel
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.threads import OnDeath, WakeupTimer, start_thread
from limpyd_jobs.workers.run import Run
from limpyd_jobs.workers.running.event_loop import CANCEL_AGAIN_AFTER, LAST_SECONDS
from limpyd_jobs.workers.running.slots import Slot, Slots, name_of
from limpyd_jobs.workers.timers import JobTimer

# How many seconds there are to record that jobs are released that go on.
RECORD_WITHIN = 1.0


# With how many limits more than there may be jobs at once those of ended ones are dropped.
MIN_SWEPT = 100


class Limits:
    """Interrupts jobs when their time is over, and gives them up if they go on for some more seconds.

    A thread does so, because the worker may wait for Redis. The timer knows of the grace period, which a signal begins.
    """

    def __init__(
        self,
        slots: Slots,
        timer: JobTimer,
        last_chance: Callable[[float], None],
        stop_waiting: Callable[[], None],
        on_death: OnDeath,
    ) -> None:
        self._slots = slots
        self._timer = timer
        self._last_chance = last_chance  # takes the moment when the worker has to end, whatever its jobs do
        self._stop_waiting = stop_waiting  # ends the waits for Redis from then on
        self._waker = WakeupTimer(self._look, on_death)
        self._lock, self._numbers = Lock(), count()
        # When to interrupt which job, why, and until when to wait for its end; 0 for one that is not interrupted yet.
        self._heap: list[tuple[float, int, Slot, BaseException, float]] = []
        self._is_last = False

    def __enter__(self) -> None:
        self._timer.on_set = lambda: self._waker.set(monotonic())  # a signal handler may do so
        self._waker.__enter__()

    def __exit__(self, *exc_info: object) -> None:
        self._timer.on_set = None
        self._waker.__exit__(*exc_info)

    def cancel(self, slot: Slot) -> None:
        """Interrupt a job that was canceled. Any thread may do so.

        A coroutine that goes on is given up; code in a thread may go on.
        """
        reason = Cancel("it was canceled while it ran")
        slot.interrupt(reason)
        self.set(slot, 0, reason)

    def set(self, slot: Slot, seconds: float, reason: BaseException, until: float = 0) -> None:
        """Interrupt a job after some seconds, for a reason."""
        moment = monotonic() + seconds
        with self._lock:
            if len(self._heap) > 2 * self._slots.limit + MIN_SWEPT:  # most of them have ended long before
                self._heap = [each for each in self._heap if not each[2].is_over]
                heapify(self._heap)
            heappush(self._heap, (moment, next(self._numbers), slot, reason, until))
            is_first = self._heap[0][0] == moment
        if is_first:
            self._waker.set(moment)

    def _look(self) -> None:
        with suppress(RuntimeError):  # the set of slots changed meanwhile: look again soon
            self._end_grace_period()
        self._waker.set(min(self._interrupt_late_ones(), monotonic() + self._timer.seconds_left()))

    def _interrupt_late_ones(self) -> float:
        """Interrupt the jobs whose time is over; return when to do so next."""
        while True:
            with self._lock:
                while self._heap and self._heap[0][2].is_over:
                    heappop(self._heap)
                if not self._heap or self._heap[0][0] > monotonic():
                    return self._heap[0][0] if self._heap else inf
                _, _, slot, reason, until = heappop(self._heap)
            self._interrupt(slot, reason, until)

    def _interrupt(self, slot: Slot, reason: BaseException, until: float) -> None:
        slot.interrupt(reason)
        if not slot.is_coroutine and isinstance(reason, Cancel):
            return
        now = monotonic()
        if until and now >= until:
            slot.give_up(reason)
            return
        if until:
            slot.interrupt_again()
        until = until or now + LAST_SECONDS
        self.set(slot, min(until - now, CANCEL_AGAIN_AFTER), reason, until)

    def _end_grace_period(self) -> None:
        moment, reason = self._timer.due()
        if reason is None:
            return
        for slot in list(self._slots.taken):
            slot.interrupt(reason)
            if monotonic() >= moment + LAST_SECONDS:
                slot.give_up(reason)
        last_moment = moment + LAST_SECONDS + RECORD_WITHIN
        if not self._is_last:
            self._is_last = True
            self._last_chance(last_moment)
        if monotonic() > last_moment:
            self._stop_waiting()


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
        self.early: dict[str, None] = {}  # the names of jobs that are canceled, and do not run
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
        if slot.name in self.early:
            self.early.pop(slot.name, None)
            self._interrupt(slot)

    def cancel(self, run: Run) -> None:
        """Interrupt a job of which the renewal of its lease told. Any thread may do so."""
        self._cancel(name_of(run))

    def _cancel(self, name: str) -> None:
        if len(self.early) >= MAX_EARLY:
            self.early = {}
        self.early[name] = None  # before it looks: who takes a slot later finds it
        slot = self._slots.named.get(name)
        if slot is not None:
            self.early.pop(name, None)
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
