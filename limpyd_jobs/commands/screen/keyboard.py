"""The keys that are typed at a terminal, one by one."""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from select import select
from types import FrameType

# The ends of the escape sequences of keys, behind ``ESC [`` or ``ESC O``.
SEQUENCES = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "H": "home",
    "F": "end",
    "1~": "home",
    "4~": "end",
    "5~": "page up",
    "6~": "page down",
}
NAMED = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\t": "tab"}

# For how many seconds an escape character may be the beginning of a sequence: over a slow line, its rest comes later.
ESCAPE_LASTS = 0.05


class Keyboard:
    """Reads keys. Any thread may end a wait."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._inner, self._outer = os.pipe()
        os.set_blocking(self._outer, False)
        self._rest = b""  # of a character, or a sequence

    def wake(self) -> None:
        """End the wait for keys."""
        with suppress(BlockingIOError):  # it is woken already
            os.write(self._outer, b"x")

    def close(self) -> None:
        os.close(self._inner)
        os.close(self._outer)

    def read(self, seconds: float) -> list[str]:
        """Return the keys that were typed, as ``a``, ``up`` or ``enter``; wait for some seconds if there are none."""
        ready, _, _ = select([self._terminal, self._inner], [], [], seconds)
        if self._inner in ready:
            os.read(self._inner, 1000)
        if self._terminal not in ready:
            return []
        data = self._rest + os.read(self._terminal, 1000)
        if data.endswith((b"\x1b", b"\x1b[", b"\x1bO")) and select([self._terminal], [], [], ESCAPE_LASTS)[0]:
            data += os.read(self._terminal, 1000)
        text = data.decode(errors="ignore")
        self._rest = data if not text else b""
        return [*keys_of(text)]


def keys_of(text: str) -> Iterator[str]:
    """Yield the names of keys, given what a terminal sends for them. A sequence that is not known is no key."""
    at = 0
    while at < len(text):
        if text[at] == "\x1b" and text[at + 1 : at + 2] in ("[", "O"):
            end = at + 2
            while end < len(text) and not ("@" <= text[end] <= "~"):
                end += 1
            if name := SEQUENCES.get(text[at + 2 : end + 1]):
                yield name
            at = end + 1
            continue
        char = text[at]
        at += 1
        if char == "\x1b":
            yield "escape"
        elif char in NAMED:
            yield NAMED[char]
        elif char.isprintable():
            yield char


@contextmanager
def typed_keys() -> Iterator[Keyboard]:
    """Let the terminal give each key at once, and show none; a change of its size ends a wait."""
    terminal = sys.stdin.fileno()
    keyboard, before = Keyboard(terminal), termios.tcgetattr(terminal)

    def resized(signum: int, frame: FrameType | None) -> None:
        keyboard.wake()

    handler = signal.signal(signal.SIGWINCH, resized)
    try:
        tty.setcbreak(terminal)
        yield keyboard
    finally:
        signal.signal(signal.SIGWINCH, handler)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        keyboard.close()
