"""Functions for the configurations of integrations. Their values may come as text, from a file."""

from __future__ import annotations

from typing import Any


def seconds(name: str, value: Any) -> float:
    """Return a number of seconds.

    Raises
    ------
    ValueError
        If it is not a number of seconds, more than 0.
    """
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 < number < 1e9:
        raise ValueError(f"{name} must be a number of seconds, more than 0, not {value!r}")
    return number
