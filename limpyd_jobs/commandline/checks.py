"""The kinds of parameters: what is allowed, and what an attribute could be that is meant as one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from types import NoneType
from typing import Any, NamedTuple

from limpyd_jobs import arguments
from limpyd_jobs.classes.job_classes import module_names
from limpyd_jobs.commandline.observers import INTEGRATIONS, observer_names
from limpyd_jobs.dates import utcnow
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.retrying import Retry, as_policy
from limpyd_jobs.texts import read_size


class Kind(NamedTuple):
    """A kind of parameter. `check` takes the name and a value, and returns the value, or raises
    `ConfigurationException`. `could_be` says whether the attribute of a subclass, which may use the name for something
    else, could be such a parameter, also a wrong one."""

    check: Callable[[str, Any], Any]
    could_be: Callable[[Any], bool] = lambda value: True


ANYTHING = Kind(lambda name, value: value)


def as_number(value: Any) -> Any:
    """Return a number that is given as text, as in a file of settings, as a number; anything else as it is."""
    if isinstance(value, str):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(value)
    return value


def amount(*, more_than: float | None = None, most: float | None = None) -> Kind:
    """Return the kind of a finite number of 0 or more, at most `most`, which may be infinite."""

    def check(name: str, value: Any) -> Any:
        number = as_number(value)
        is_small = is_number(number) and (number == most or number < float("inf"))
        if not is_small or number < 0 or number == more_than:
            least = "0 or more" if more_than is None else f"more than {more_than}"
            raise ConfigurationException(f"{name} must be a number, {least}, not {value!r}")
        return number

    return Kind(check, is_number)


def whole_number(least: int, most: float = float("inf"), *, or_word: str | None = None) -> Kind:
    def check(name: str, value: Any) -> Any:
        number = as_number(value)
        is_fine = value == or_word if isinstance(number, str) else type(number) is int and least <= number <= most
        if not is_fine:
            which = f", {least} or more" if most == float("inf") else f" from {least} to {most}"
            word = f"{or_word!r} or " if or_word else ""
            raise ConfigurationException(f"{name} must be {word}a number{which}, not {value!r}")
        return number

    return Kind(check, lambda value: is_whole_number(value) or (isinstance(value, str) and value == or_word))


def one_of(*choices: Any) -> Kind:
    def check(name: str, value: Any) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise ConfigurationException(f"{name} must be one of {', '.join(map(str, choices))}, not {value!r}")
        return value

    return Kind(check, lambda value: any(isinstance(value, type(each)) and value == each for each in choices))


def or_none(kind: Kind, none: Any = None) -> Kind:
    """Return the kind of such a parameter, or of None, which `none` replaces."""
    return Kind(
        lambda name, value: none if value is None else kind.check(name, value),
        lambda value: value is None or kind.could_be(value),
    )


def _number_or_none(name: str, value: Any) -> Any:
    """Check a number of any sign, or None."""
    number = as_number(value)
    if isinstance(number, str):
        raise ConfigurationException(f"{name} must be a number, not {number!r}")
    return number


def _duration(name: str, value: Any) -> Any:
    """Check a time that a worker may last, and return it as a `timedelta`; None or 0 is no limit."""
    if not value:
        return value
    try:
        found = value if isinstance(value, timedelta) else timedelta(seconds=amount().check(name, value))
        utcnow() + found
    except OverflowError as error:
        raise ConfigurationException(f"{name} must end before the year 10000, unlike {value!r}") from error
    return found


def _memory(name: str, value: Any) -> int:
    """Check a number of bytes, or a text like ``512MB``, and return the number."""
    if type(value) is int and value > 0:
        return value
    try:
        return read_size(value if isinstance(value, str) else "")
    except ValueError:
        how = "a number of bytes, or a text such as '512MB' or '1.5GiB'"
        raise ConfigurationException(f"{name} must be {how}, not {value!r}") from None


def _text(name: str, value: Any) -> str:
    """Check a text that is not empty."""
    if not (isinstance(value, str) and value):
        raise ConfigurationException(f"{name} must be a text, not {value!r}")
    return value


def _policy(name: str, value: Any) -> Retry | None:
    try:
        return as_policy(value)
    except (TypeError, ValueError) as error:
        raise ConfigurationException(f"{name}: {error}") from error


def is_number(value: Any) -> bool:
    """Whether a value is a number, or the text of one."""
    return arguments.is_number(as_number(value))


def is_whole_number(value: Any) -> bool:
    return is_number(value) and isinstance(as_number(value), int)


def _is_memory(value: Any) -> bool:
    """Whether a value is a number of bytes, or the text of one."""
    with suppress(ValueError):
        return is_whole_number(value) or (isinstance(value, str) and read_size(value) > 0)
    return False


def _is_policy(value: Any) -> bool:
    """Whether a value is a retry policy, None, or a text that is written like one."""
    return isinstance(value, (NoneType, Retry)) or (isinstance(value, str) and "=" in value)


def _is_names(value: Any) -> bool:
    """Whether a value names modules, at least one of them in a package that there is, or is None."""
    try:
        return value is None or any(_is_found(name.partition(".")[0]) for name in module_names(value))
    except ConfigurationException:
        return False


def _is_observers(value: Any) -> bool:
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


NUMBER_OR_NONE = Kind(_number_or_none)
DURATION = Kind(_duration)
TEXT = Kind(_text, lambda value: isinstance(value, str) and bool(value))
MEMORY = Kind(_memory, _is_memory)
POLICY = Kind(_policy, _is_policy)

# These are checked elsewhere.
RETENTION = Kind(
    lambda name, value: as_number(value),
    lambda value: isinstance(value, (NoneType, timedelta)) or is_whole_number(value),
)
MODULES, OBSERVERS = ANYTHING._replace(could_be=_is_names), ANYTHING._replace(could_be=_is_observers)
