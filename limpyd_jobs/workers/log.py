"""Writing a line of a worker to its log."""

from __future__ import annotations

import logging

from limpyd_jobs.texts import LOGGED, as_lines

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
