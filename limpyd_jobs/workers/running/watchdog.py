"""Noticing that the code of a job holds the event loop, and with it all other jobs that run there."""

from __future__ import annotations

import linecache
import sys
from asyncio import AbstractEventLoop, BaseEventLoop, Handle, TimerHandle
from collections.abc import Callable
from inspect import CO_COROUTINE
from threading import Event, get_ident
from time import monotonic
from types import FrameType
from typing import Any

from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.threads import OnDeath, start_thread
from limpyd_jobs.workers.log import label_of
from limpyd_jobs.workers.running.threads import Stepped

# For how many seconds a step of a coroutine may hold the loop before it is logged.
LIMIT = 0.1

# Every how many seconds the loop gives a sign, while coroutines run, and while none does.
TICK, IDLE_TICK = 0.05, 5.0

# After how many missing signs the loop is looked at; at how many looks it must stand still to be dead; and how many
# seconds pass between two looks.
MISSED, LOOKS, LOOK_AGAIN_AFTER = 3, 4, 1.0

# For how many seconds a line that was logged is not logged again; and how many lines are remembered.
SILENCE, MAX_LINES = 60.0, 1000


class Watchdog:
    """Looks from a thread of its own whether an event loop gives its signs. It is made in the thread of the loop.

    Parameters
    ----------
    loop: asyncio.AbstractEventLoop
    log: callable
        Takes a message and its level. It is called by the thread of the watchdog.
    on_death: callable
        Is given why the loop, or this thread, is of no use any more. It is called by the same thread.
    """

    def __init__(self, loop: AbstractEventLoop, log: Callable[[str, str], None], on_death: OnDeath) -> None:
        self._loop, self._log, self._on_death = loop, log, on_death
        self._thread_of_loop = get_ident()
        self._running = 0  # how many coroutines run
        self._is_awake = self._is_closed = False
        self._ticked = monotonic()
        self._next_tick: TimerHandle | None = None
        self._wake = Event()
        self._silent_until: dict[tuple[str, int], float] = {}
        self._stands_still = 0  # for how many looks the loop has waited, and given no sign
        self._tick()
        start_thread("limpyd-jobs-watchdog", self._run, on_death)

    @property
    def held_for(self) -> float:
        """For how many seconds coroutines have waited for a sign; 0 if none runs."""
        return monotonic() - self._ticked if self._is_awake else 0.0

    # -- In the thread of the loop

    def begin(self) -> None:
        """A coroutine begins to run."""
        self._running += 1
        if not self._is_awake:
            self._is_awake = True
            self._tick()
            self._wake.set()

    def end(self) -> None:
        """A coroutine has ended."""
        self._running -= 1

    def close(self) -> None:
        """Let the thread end. Any thread may do so."""
        self._is_closed = True
        self._wake.set()

    def _tick(self) -> None:
        if self._next_tick:
            self._next_tick.cancel()
        self._ticked = monotonic()
        if self._is_awake and not self._running:
            self._is_awake = False
        self._next_tick = self._loop.call_later(TICK if self._is_awake else IDLE_TICK, self._tick)

    # -- In its own thread

    def _run(self) -> None:
        while not self._is_closed:
            left = self._ticked + TICK + LIMIT - monotonic()
            if self._stands_still or monotonic() > self._ticked + MISSED * IDLE_TICK:
                self._look_whether_it_turns()
                self._pause(LOOK_AGAIN_AFTER)
            elif not self._is_awake:
                self._pause(IDLE_TICK)
            elif left > 0:
                self._pause(left)
            else:
                self._look()
                self._pause(LIMIT)

    def _pause(self, seconds: float) -> None:
        if self._wake.wait(seconds):
            self._wake.clear()

    def _look_whether_it_turns(self) -> None:
        """Look at a loop that has given no sign for long: it is dead if it runs no code, but waits all the time."""
        is_late = monotonic() > self._ticked + MISSED * IDLE_TICK
        self._stands_still = self._stands_still + 1 if is_late and self._only_waits() else 0
        if self._stands_still >= LOOKS:
            self._is_closed = True
            self._on_death("The event loop turns no more")
        elif is_late and self._is_awake:
            self._look()

    def _only_waits(self) -> bool:
        """Whether the loop runs no callback, and so no coroutine. One like that of uvloop does not show it."""
        frame, has_turn = sys._current_frames().get(self._thread_of_loop), False
        while frame is not None and frame.f_code is not _CALLBACK:
            has_turn = has_turn or frame.f_code is _TURN
            frame = frame.f_back
        return has_turn and frame is None

    def _look(self) -> None:
        """Log which line holds the loop, if that is code of a job."""
        frame = sys._current_frames().get(self._thread_of_loop)
        innermost, coroutine = frame, None
        while frame is not None and frame.f_code is not _STEP:
            if coroutine is None and frame.f_code.co_flags & CO_COROUTINE:
                coroutine = frame
            frame = frame.f_back
        if innermost is None or coroutine is None or frame is None:
            return
        job = frame.f_locals["self"].job
        if self._is_new(coroutine):
            label = "[?]" if job is None else label_of(job)
            also = "" if innermost is coroutine else f", now at {_place_of(innermost)}"
            text = f"{label} holds the event loop for longer than {LIMIT:g} s: {_line_of(coroutine)}{also}"
            self._log(text, "warning")

    def _is_new(self, frame: FrameType) -> bool:
        """Whether a line was not logged a moment ago."""
        now, line = monotonic(), (frame.f_code.co_filename, frame.f_lineno)
        if now < self._silent_until.get(line, 0.0):
            return False
        if len(self._silent_until) >= MAX_LINES:
            self._silent_until.clear()
        self._silent_until[line] = now + SILENCE
        return True


_STEP = Stepped._step.__code__
_TURN: Any = BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]
_CALLBACK: Any = Handle._run.__code__  # type: ignore[attr-defined]


def _place_of(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"


def _line_of(frame: FrameType) -> str:
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return f"{_place_of(frame)}: {one_line(text, MESSAGE)}" if text else _place_of(frame)
