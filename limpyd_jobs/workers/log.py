"""The log of a worker: writing a line, and saying only a few times what may come thousands of times a second."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from limpyd_jobs.texts import LOGGED, as_lines

# How many messages of one kind are logged within a number of seconds.
FEW = 3
PERIOD = 1.0

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def write(logger: logging.Logger, text: str, level: str) -> None:
    """Log a text. What would confuse a terminal is escaped."""
    if not text.isprintable() or len(text) > LOGGED:
        text = as_lines(text)
    number = _LEVELS.get(level)
    if number is None or type(logger) is not logging.Logger:
        getattr(logger, level)(text)
    elif logger.isEnabledFor(number):  # as `Logger.info` does, but it first finds out that this line called it
        logger.handle(logger.makeRecord(logger.name, number, __file__, 0, text, (), None, "log"))


class Repeats:
    """Logs the first messages of each kind, then logs once a second how many more there were."""

    def __init__(self, log: Callable[[str, str], None]) -> None:
        self._log = log  # takes a message and its level
        self.counts: dict[tuple[str, str], int] = {}
        self._until = 0.0

    def log(self, kind: str, message: str, level: str = "error") -> None:
        """Log a message, or count it if enough of its kind were logged less than a second ago."""
        if self.is_among_few(kind, level):
            self._log(message, level)

    def is_among_few(self, kind: str, level: str) -> bool:
        """Count a message; return whether it is to be logged."""
        self.sum_up_if_due()
        if not self.counts:
            self._until = monotonic() + PERIOD
        number = self.counts[kind, level] = self.counts.get((kind, level), 0) + 1
        return number <= FEW

    def sum_up_if_due(self) -> None:
        """Log how many more there were, once a second is over."""
        if self.counts and monotonic() >= self._until:
            self.sum_up()

    def sum_up(self) -> None:
        """Log how many more there were."""
        counts, self.counts = self.counts, {}
        for (kind, level), number in counts.items():
            if number > FEW:
                self._log(f"{kind}: and {number - FEW:,} more like it", level)
