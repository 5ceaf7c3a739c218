"""Checks of parameters: each takes a name and a value, and returns the value or raises `ConfigurationException`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from types import NoneType
from typing import Any

from limpyd_jobs import arguments
from limpyd_jobs.classes.job_classes import module_names
from limpyd_jobs.commandline.observers import INTEGRATIONS, observer_names
from limpyd_jobs.dates import utcnow
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.retrying import Retry, as_policy
from limpyd_jobs.texts import read_size

Check = Callable[[str, Any], Any]


def as_number(value: Any) -> Any:
    """Return a number that is given as text, as in a file of settings, as a number; anything else as it is."""
    if isinstance(value, str):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(value)
    return value


def amount(*, more_than: float | None = None, most: float | None = None) -> Check:
    """Return the check of a finite number of 0 or more, at most `most`, which may be infinite."""

    def check(name: str, value: Any) -> Any:
        number = as_number(value)
        is_small = is_number(number) and (number == most or number < float("inf"))
        if not is_small or number < 0 or number == more_than:
            least = "0 or more" if more_than is None else f"more than {more_than}"
            raise ConfigurationException(f"{name} must be a number, {least}, not {value!r}")
        return number

    return check


def whole_number(least: int, most: float = float("inf"), *, or_word: str | None = None) -> Check:
    def check(name: str, value: Any) -> Any:
        number = as_number(value)
        is_fine = value == or_word if isinstance(number, str) else type(number) is int and least <= number <= most
        if not is_fine:
            which = f", {least} or more" if most == float("inf") else f" from {least} to {most}"
            word = f"{or_word!r} or " if or_word else ""
            raise ConfigurationException(f"{name} must be {word}a number{which}, not {value!r}")
        return number

    return check


def one_of(*choices: Any) -> Check:
    def check(name: str, value: Any) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise ConfigurationException(f"{name} must be one of {', '.join(map(str, choices))}, not {value!r}")
        return value

    return check


def or_none(check: Check, none: Any = None) -> Check:
    """Return a check that replaces None, and passes other values on."""
    return lambda name, value: none if value is None else check(name, value)


def number_or_none(name: str, value: Any) -> Any:
    """Check a number of any sign, or None."""
    number = as_number(value)
    if isinstance(number, str):
        raise ConfigurationException(f"{name} must be a number, not {number!r}")
    return number


def number_or_other(name: str, value: Any) -> Any:
    """Read a number that may be something else, which is checked elsewhere."""
    return as_number(value)


def duration(name: str, value: Any) -> Any:
    """Check a time that a worker may last, and return it as a `timedelta`; None or 0 is no limit."""
    if not value:
        return value
    try:
        found = value if isinstance(value, timedelta) else timedelta(seconds=amount()(name, value))
        utcnow() + found
    except OverflowError as error:
        raise ConfigurationException(f"{name} must end before the year 10000, unlike {value!r}") from error
    return found


def memory(name: str, value: Any) -> int:
    """Check a number of bytes, or a text like ``512MB``, and return the number."""
    if type(value) is int and value > 0:
        return value
    try:
        return read_size(value if isinstance(value, str) else "")
    except ValueError:
        how = "a number of bytes, or a text such as '512MB' or '1.5GiB'"
        raise ConfigurationException(f"{name} must be {how}, not {value!r}") from None


def text(name: str, value: Any) -> str:
    """Check a text that is not empty."""
    if not (isinstance(value, str) and value):
        raise ConfigurationException(f"{name} must be a text, not {value!r}")
    return value


def policy(name: str, value: Any) -> Retry | None:
    try:
        return as_policy(value)
    except (TypeError, ValueError) as error:
        raise ConfigurationException(f"{name}: {error}") from error


# Whether an attribute could be a parameter that version 2 lacks. It may be something else of an application.


def is_number(value: Any) -> bool:
    """Whether a value is a number, or the text of one."""
    return arguments.is_number(as_number(value))


def is_number_or_none(value: Any) -> bool:
    return value is None or is_number(value)


def is_whole_number(value: Any) -> bool:
    return is_number(value) and isinstance(as_number(value), int)


def is_whole_number_or_none(value: Any) -> bool:
    return value is None or is_whole_number(value)


def is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def is_retention(value: Any) -> bool:
    return isinstance(value, (NoneType, timedelta)) or is_whole_number(value)


def is_memory(value: Any) -> bool:
    """Whether a value is None, or a number of bytes, or the text of one."""
    with suppress(ValueError):
        return value is None or is_whole_number(value) or (isinstance(value, str) and read_size(value) > 0)
    return False


def is_policy(value: Any) -> bool:
    """Whether a value is a retry policy, None, or a text that is written like one."""
    return isinstance(value, (NoneType, Retry)) or (isinstance(value, str) and "=" in value)


def is_names(value: Any) -> bool:
    """Whether a value names modules, at least one of them in a package that there is, or is None."""
    try:
        return value is None or any(_is_found(name.partition(".")[0]) for name in module_names(value))
    except ConfigurationException:
        return False


def is_observers(value: Any) -> bool:
    """Whether a value names observers, each of an integration or in a package that there is, or is None."""
    try:
        names = [] if value is None else observer_names(value)
    except ConfigurationException:
        return False
    return all(name in INTEGRATIONS or _is_found(name.partition(".")[0]) for name in names)


def _is_found(package: str) -> bool:
    try:
        return package in sys.modules or find_spec(package) is not None
    except (ImportError, ValueError):
        return False
