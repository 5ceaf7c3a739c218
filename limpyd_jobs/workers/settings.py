"""The parameters that version 2 does not have: read once, as subclasses written for it may use their names.

A value that is given as an argument is one of ours. An attribute is one only if it could be: a list that a subclass
calls ``processes`` is its own, and left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import NoneType
from typing import Any

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.retrying import Retry, as_policy
from limpyd_jobs.workers.queue_selector import QUEUE_STRATEGIES

# The most jobs to claim at once: longer scripts would keep others from Redis for too long.
MAX_PREFETCH = 1000


def as_number(value: Any) -> Any:
    """Return a number that is given as text, as in a file of settings, as a number; anything else as it is."""
    if isinstance(value, str):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(value)
    return value


def is_number(value: Any) -> bool:
    """Whether a value is a number, or the text of one."""
    value = as_number(value)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_number_or_none(value: Any) -> bool:
    return value is None or is_number(value)


def _is_retention(value: Any) -> bool:
    return isinstance(value, (NoneType, timedelta)) or is_number(value)


def _is_policy(value: Any) -> bool:
    return isinstance(value, (NoneType, str, Retry))


def _is_names(value: Any) -> bool:
    is_sequence = isinstance(value, (list, tuple)) and len(value) > 0
    return isinstance(value, (NoneType, str)) or (is_sequence and all(isinstance(name, str) for name in value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_burst(value: Any) -> bool:
    return isinstance(value, bool) or value == "delayed"


# What an attribute has to be to be taken for the parameter.
COULD_BE: dict[str, Callable[[Any], bool]] = {
    "retry_policy": _is_policy,
    "lease": is_number,
    "max_rescues": is_number,
    "burst": _is_burst,
    "grace_period": _is_number_or_none,
    "job_timeout": _is_number_or_none,
    "keep_success": _is_retention,
    "keep_errors": _is_retention,
    "job_modules": _is_names,
    "processes": is_number,
    "queue_strategy": _is_text,
    "prefetch": is_number,
}


@dataclass
class Settings:
    """What the parameters are that version 2 does not have; see `Parameters`.

    Raises
    ------
    ConfigurationException
        If one is not what it has to be.
    """

    retry_policy: Retry | None
    lease: float
    max_rescues: int
    burst: bool | str
    grace_period: float | None
    job_timeout: float | None
    keep_success: int | timedelta | None
    keep_errors: int | timedelta | None
    job_modules: Any
    processes: int
    queue_strategy: str
    prefetch: int

    def __post_init__(self) -> None:
        if self.queue_strategy not in QUEUE_STRATEGIES:
            strategies = ", ".join(QUEUE_STRATEGIES)
            raise ConfigurationException(f"queue_strategy must be one of {strategies}, not {self.queue_strategy!r}")
        if not _is_burst(self.burst):
            raise ConfigurationException(f'burst must be True, False or "delayed", not {self.burst!r}')
        try:
            self.retry_policy = as_policy(self.retry_policy)
        except (TypeError, ValueError) as error:
            raise ConfigurationException(f"retry_policy: {error}") from error
        self.lease = checked_amount("lease", self.lease, more_than=0)
        self.max_rescues = checked_amount("max_rescues", self.max_rescues)
        for name in ("grace_period", "job_timeout"):
            if getattr(self, name) is not None:
                setattr(self, name, checked_amount(name, getattr(self, name)))
        for name in ("keep_success", "keep_errors", "processes", "prefetch"):
            setattr(self, name, as_number(getattr(self, name)))
        if type(self.prefetch) is not int or not 1 <= self.prefetch <= MAX_PREFETCH:
            raise ConfigurationException(f"prefetch must be a number from 1 to {MAX_PREFETCH}, not {self.prefetch!r}")
        if type(self.processes) is not int or self.processes < 1:
            raise ConfigurationException(f"processes must be a number, 1 or more, not {self.processes!r}")


def read_settings(worker: Any, given: Mapping[str, Any], defaults: type) -> tuple[Settings, list[str]]:
    """Return what a worker is told by arguments, else by its attributes, and the names its class has for other things.

    Parameters
    ----------
    worker: Worker
        Its attributes are left as they are.
    given: mapping
        The arguments, which are attributes by now.
    defaults: type
        The class whose attributes count where those of the worker are something else.
    """
    others = [name for name in COULD_BE if _is_something_else(worker, name, is_given=name in given)]
    values = {name: getattr(defaults if name in others else worker, name) for name in COULD_BE}
    return Settings(**values), others


def _is_something_else(worker: Any, name: str, *, is_given: bool) -> bool:
    of_class = getattr(type(worker), name)
    if not (isinstance(of_class, property) or COULD_BE[name](of_class)):
        return True
    try:
        return not (is_given or COULD_BE[name](getattr(worker, name)))
    except Exception:  # a property that needs what is not there yet
        return True


def checked_amount(name: str, value: Any, more_than: float | None = None, most: float | None = None) -> Any:
    """Return a number of 0 or more, or raise `ConfigurationException`.

    Parameters
    ----------
    name: str
        The parameter.
    more_than: float
        What it has to be more than.
    most: float
        What it may be at the most; None for any finite number.
    """
    number = as_number(value)
    is_small = is_number(number) and (number == most or number < float("inf"))
    if not is_small or number < 0 or number == more_than:
        least = "0 or more" if more_than is None else f"more than {more_than}"
        raise ConfigurationException(f"{name} must be a number, {least}, not {value!r}")
    return number
