"""Waking a thread that waits for Redis, or for nothing else."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import Any

BROKEN = "The pipe that wakes the worker is closed (the code of a job may have closed its files)"


class BrokenBell(Exception):
    """No other thread can wake this one any more."""


class Bell:
    """Any thread, and a signal handler, may ring it; one thread waits for it, and for descriptors."""

    def __init__(self) -> None:
        self._read = self._write = -1
        self._has_rung = True  # as long as it is not there

    def open(self) -> None:
        """Make it ready, in the process that will wait for it."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._file = os.fstat(self._read)
        self._has_rung = False

    def ring(self) -> None:
        """End the wait, or the next one."""
        if not self._has_rung:
            self._has_rung = True
            with suppress(OSError):
                os.write(self._write, b"\0")

    def wait(self, seconds: float, *others: Any) -> bool:
        """Wait until it rings, another descriptor can be read, or for some seconds; return whether it rang.

        Raises
        ------
        BrokenBell
        """
        ready = _ready((self._read, *others), seconds)
        if not ready:
            self._check()
        if self._read not in ready:
            return False
        try:
            heard = os.read(self._read, 4096)
        except OSError:
            heard = b""
        if heard.strip(b"\0") or not heard:
            raise BrokenBell(BROKEN)
        self._has_rung = False  # later than that: who rang before this line put its news before
        return True

    def _check(self) -> None:
        """Raise `BrokenBell` if its file is closed, or another one has its number now."""
        try:
            is_same = os.path.samestat(os.fstat(self._read), self._file)
        except OSError:
            is_same = False
        if not is_same:
            raise BrokenBell(BROKEN)

    def __del__(self) -> None:  # no thread can ring it any more
        if self._read >= 0:
            os.close(self._read)
            os.close(self._write)


def can_read(descriptor: Any) -> bool:
    """Whether there is something to read."""
    return bool(_ready((descriptor,), 0))


def _ready(descriptors: tuple[Any, ...], seconds: float) -> list[int]:
    numbers = [each if isinstance(each, int) else each.fileno() for each in descriptors]
    if not hasattr(select, "poll"):
        return select.select(numbers, (), (), seconds)[0]
    poll = select.poll()
    for number in numbers:
        poll.register(number, select.POLLIN)
    return [number for number, _ in poll.poll(seconds * 1000)]
