"""Reporting on standard error how far a long step is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ProgressLine:
    """A line on standard error that is written again and again; a new line now and then if that is not a terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._pause = 0.1 if self._is_terminal else 5
        self._last = float("-inf")

    def __call__(self, line: str) -> None:
        """Show a line, unless the last one was shown a moment ago."""
        if time.monotonic() - self._last >= self._pause:
            self._last = time.monotonic()
            sys.stderr.write(f"\r\x1b[K{line}" if self._is_terminal else f"{line}\n")
            sys.stderr.flush()

    def end(self) -> None:
        """Take the line away."""
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")


@contextmanager
def shown_progress(line: str) -> Iterator[Callable[..., object] | None]:
    """Give a function that shows a line with some numbers; None if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    progress = ProgressLine()
    try:
        yield lambda *numbers: progress(line.format(*numbers))
    finally:
        progress.end()
