"""The kinds of parameters: how one is read on a command line, what is allowed, and what an attribute could be that is
meant as one."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from importlib.util import find_spec
from types import NoneType
from typing import Any, NamedTuple

from limpyd_jobs import arguments
from limpyd_jobs.classes.imports import import_class
from limpyd_jobs.classes.job_classes import module_names
from limpyd_jobs.commandline.observers import INTEGRATIONS, observer_names
from limpyd_jobs.commandline.options import AUTO, OutOfRange, between, interval, modules, naming, queue_names, seconds
from limpyd_jobs.dates import utcnow
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.retrying import SECONDS_OF, Retry, as_policy
from limpyd_jobs.texts import described, read_size

# The most jobs to claim at once: longer scripts would block Redis for too long.
MAX_PREFETCH = 1000

Read = Callable[[Any], Any]


class Kind(NamedTuple):
    """A kind of parameter. `check` takes the name and a value, and returns the value, or raises
    `ConfigurationException`. `could_be` says whether the attribute of a subclass, which may use the name for something
    else, could be such a parameter, also a wrong one. `read` takes what a command line has, a text, or a number if the
    option has that type; it returns the value, or raises `ValueError`."""

    check: Callable[[str, Any], Any]
    could_be: Callable[[Any], bool] = lambda value: True
    read: Read | None = None


ANYTHING = Kind(lambda name, value: value)


def as_number(value: Any) -> Any:
    """Return a number that is given as text, as in a file of settings, as a number; anything else as it is."""
    if isinstance(value, str):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(value)
    return value


def amount(*, more_than: float | None = None, most: float | None = None, read: Read | None = None) -> Kind:
    """Return the kind of a finite number of 0 or more, at most `most`, which may be infinite."""

    def check(name: str, value: Any) -> Any:
        number = as_number(value)
        is_small = is_number(number) and (number == most or number < float("inf"))
        if not is_small or number < 0 or number == more_than:
            least = "0 or more" if more_than is None else f"more than {more_than}"
            raise ConfigurationException(f"{name} must be a number, {least}, not {value!r}")
        return number

    return Kind(check, is_number, read or (interval if more_than == 0 else seconds))


def whole_number(
    least: int, most: float = float("inf"), *, or_word: str | None = None, read: Read | None = None
) -> Kind:
    def check(name: str, value: Any) -> Any:
        number = as_number(value)
        is_fine = value == or_word if isinstance(number, str) else type(number) is int and least <= number <= most
        if not is_fine:
            which = f", {least} or more" if most == float("inf") else f" from {least} to {most}"
            word = f"{or_word!r} or " if or_word else ""
            raise ConfigurationException(f"{name} must be {word}a number{which}, not {value!r}")
        return number

    return Kind(
        check,
        lambda value: is_whole_number(value) or (isinstance(value, str) and value == or_word),
        read or between(least, most),
    )


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
        kind.read,
    )


def number_or_none(read: Read) -> Kind:
    """Return the kind of a number of any sign, or None."""

    def check(name: str, value: Any) -> Any:
        number = as_number(value)
        if isinstance(number, str):
            raise ConfigurationException(f"{name} must be a number, not {number!r}")
        return number

    return Kind(check, read=read)


def count(number: int) -> int:
    """Return a number of 0 or more, or raise `OutOfRange`."""
    if number < 0:
        raise OutOfRange("a positive integer (including 0)")
    return number


def read_prefetch(text: str) -> int | str:
    """Return a number of jobs that can be claimed at once, or ``auto``, or raise `OutOfRange`."""
    try:
        return text if text == AUTO else between(1, MAX_PREFETCH)(int(text))
    except ValueError:
        raise OutOfRange(f"{AUTO}, or a number from 1 to {MAX_PREFETCH}") from None


def read_prefetch_time(number: float) -> float:
    """Return a duration as `interval` does; the message for 0 says what to write instead."""
    if number == 0:
        raise OutOfRange("more than 0; to claim jobs one by one, use --prefetch=1")
    return interval(number)


def _read_retention(text: str) -> int | timedelta:
    """Return how many jobs to keep, or for how long, if the text is like ``7d``, ``36h``, ``90m`` or ``30s``."""
    found = re.fullmatch(r"(\d{1,18})([dhms]?)", text, re.ASCII)
    if not found:
        raise ValueError(f"{text!r} is neither a number of jobs nor a duration such as 7d, 36h, 90m or 30s")
    number = int(found[1])
    return timedelta(seconds=seconds(float(number * SECONDS_OF[found[2]]))) if found[2] else number


def _read_level(text: str) -> int:
    """Return a level of logging, given as a number or as a name in any case, or raise `ValueError`."""
    try:
        number = int(text)
    except ValueError:
        number = logging.getLevelName(text.upper())
    if not isinstance(number, int):
        number = -1
    if number < 0:
        raise ValueError(
            f"Invalid logger-level {text}: it is neither a positive number nor a level such as DEBUG, INFO, WARNING or "
            "ERROR"
        )
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


def _read_memory(text: str) -> int:
    """Return a number of bytes, of a text like ``512MB``, or raise `OutOfRange`."""
    try:
        return read_size(text)
    except ValueError:
        raise OutOfRange("a number of bytes, or one with kB, MB, GB, KiB, MiB or GiB behind it") from None


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


def _read_policy(text: str) -> Retry:
    """Return the retry policy of a text, or raise `ValueError`; the exceptions that it names are imported."""
    try:
        policy = Retry.parse(text)
        only_on = None if policy.only_on is None else [*map(_exception, policy.only_on)]
        return replace(policy, only_on=only_on, never_on=[*map(_exception, policy.never_on)])
    except TypeError as error:
        raise ValueError(str(error)) from None


def _exception(name: str) -> Any:
    if "." not in name:
        return name
    try:
        return import_class(name)
    except Exception as error:  # the module may raise any exception
        raise ValueError(f"cannot import {name!r}: {described(error)}") from None


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


DURATION = Kind(_duration, read=seconds)
TEXT = Kind(_text, lambda value: isinstance(value, str) and bool(value))
MEMORY = Kind(_memory, _is_memory, _read_memory)
POLICY = Kind(_policy, _is_policy, _read_policy)

# These are checked elsewhere.
RETENTION = Kind(
    lambda name, value: as_number(value),
    lambda value: isinstance(value, (NoneType, timedelta)) or is_whole_number(value),
    _read_retention,
)
QUEUES, LEVEL = ANYTHING._replace(read=queue_names), ANYTHING._replace(read=_read_level)
MODULES = ANYTHING._replace(could_be=_is_names, read=modules)
OBSERVERS = ANYTHING._replace(could_be=_is_observers, read=naming(observer_names))
