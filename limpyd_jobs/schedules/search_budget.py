"""How long triggers may search for their times: counted in steps, so that it does not depend on the machine."""

from __future__ import annotations

from contextvars import ContextVar

# How many steps a trigger may take, with all its parts. They last half a second at most.
MAX_STEPS = 50_000


class SearchTooLong(ValueError):
    """A trigger found no time in the steps that it may take."""


class SearchBudget:
    """A context with the number of steps that all triggers that are asked in it may take together. One more raises
    `ValueError`.

    Parameters
    ----------
    limit: int
        How many steps; by default as many as a schedule may take.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = self._left = MAX_STEPS if limit is None else limit

    def __enter__(self) -> None:
        self._token = _current.set(self)

    def __exit__(self, *exception: object) -> None:
        _current.reset(self._token)

    @staticmethod
    def is_given() -> bool:
        return _current.get() is not None

    @staticmethod
    def take(number: int = 1) -> None:
        budget = _current.get()
        if budget is not None:
            budget._left -= number
            if budget._left < 0:
                raise SearchTooLong(f"its trigger finds no time in {budget._limit:,} steps: give it a simpler one")


_current: ContextVar[SearchBudget | None] = ContextVar("search_budget", default=None)
