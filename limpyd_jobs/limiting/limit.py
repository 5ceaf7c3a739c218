"""A limit as a class declares it, and as scripts take it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, Literal

from limpyd.fields import InstanceHashField, RedisField

from limpyd_jobs.arguments import is_number
from limpyd_jobs.exceptions import ConfigurationException

OnLimit = Literal["wait", "drop", "newest", "replace"]

# What a script does if a limit keeps a job from beginning, and for which values of `on_limit`.
_WAYS = {
    "acts": ("drop", "newest", "replace"),
    "drops": ("drop",),
    "newest": ("newest", "replace"),
    "replaces": ("replace",),
}

PERIODS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(\d*)([smhd])", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,99}", re.ASCII)

# The longest value in a key, in bytes: of a longer one, it has the hash.
_LONGEST_VALUE = 200

# The largest number of a limit: beyond it, numbers of scripts are not exact.
_MOST = 1e12


@dataclass(frozen=True)
class Limit:
    """How many jobs may run at once, or begin in a time: of all jobs of a class, or of those with one value of a field.

    >>> class Ask(Job):
    ...     customer, model, tokens = Argument(str), Argument(str), Argument(int)
    ...     limits = [
    ...         Limit("customer", concurrency=2, fair=True),
    ...         Limit("model", rate="90000/m", weight="tokens"),
    ...         Limit(name="stripe", concurrency=50),
    ...     ]

    A job that a limit keeps from beginning is *parked*: it still waits, and begins as soon as it may. It holds nothing
    of its other limits meanwhile. A job without a value in the field is not limited.

    Parameters
    ----------
    field: str
        The field whose values have a limit each; None for one limit of all jobs of the class.
    name: str
        The name of a limit that all classes share which name it, if their queues are of one model. By default, a class
        has the limit for itself, by the name of the field, or ``all``.
    concurrency: int
        How many may run at once; 0 for none. A job that a worker claims ahead counts, too.
    rate: str
        How much may begin in a time, such as ``"10/s"``, ``"90000/m"``, ``"100/10m"`` (in ten minutes), ``"5/h"`` or
        ``"1000/d"``. It counts starts, each try anew, evenly over the time.
    burst: int
        How much of a rate may begin at once, after a pause.
    weight: str or float
        How much of the rate a job uses: a number, or the name of the field that has it.
    on_limit: str
        What happens when a worker would begin a job, and the limit keeps it from that. ``"wait"``: it waits.
        ``"drop"``: it is canceled. ``"newest"``: it waits, and older jobs that wait for the same value are canceled.
        ``"replace"``: the same, and the job that runs is canceled, too. Nothing of it happens when a job is added.
    fair: bool
        True to let the values of the field take turns, instead of serving first who came first.

    Raises
    ------
    ConfigurationException
        If a parameter is not one of the above.
    """

    field: str | None = None
    name: str | None = None
    concurrency: int | None = None
    rate: str | None = None
    burst: int = 1
    weight: str | float = 1
    fair: bool = False
    on_limit: OnLimit = "wait"

    def __init__(
        self,
        field: str | None = None,
        *,
        name: str | None = None,
        concurrency: int | None = None,
        rate: str | None = None,
        burst: int = 1,
        weight: str | float = 1,
        fair: bool = False,
        on_limit: OnLimit = "wait",
    ) -> None:
        given: dict[str, Any] = {"field": field, "name": name, "concurrency": concurrency, "rate": rate}
        given |= {"burst": burst, "weight": weight, "fair": fair, "on_limit": on_limit}
        vars(self).update(given)
        self._check()

    def _check(self) -> None:
        for what, text in (("field", self.field), ("name", self.name)):
            if text is not None and not (isinstance(text, str) and _NAME.fullmatch(text)):
                raise self._refused(f"{what} must be a name of letters, digits, '_', '.' and '-', not {text!r}")
        if self.concurrency is None and self.rate is None:
            raise self._refused("it limits nothing: give concurrency, rate, or both")
        if self.concurrency is not None and not _is_count(self.concurrency, least=0):
            raise self._refused(f"concurrency must be a whole number, 0 for none, not {self.concurrency!r}")
        if self.rate is not None:
            interval_of(self.rate)
        if not _is_count(self.burst, least=1):
            raise self._refused(f"burst must be a whole number of at least 1, not {self.burst!r}")
        if isinstance(self.weight, str):
            if not _NAME.fullmatch(self.weight):
                raise self._refused(f"weight must be a number or the name of a field, not {self.weight!r}")
        elif not is_number(self.weight) or not 0 <= self.weight <= _MOST:
            raise self._refused(f"weight must be a number from 0, or the name of a field, not {self.weight!r}")
        elif self.rate is not None and self.weight > max(amount_of(self.rate), self.burst):
            raise self._refused(f"no job could begin: its weight is above all that {self.rate!r} allows")
        if self.weight != 1 and self.rate is None:
            raise self._refused("weight says how much of a rate a job uses: give a rate, too")
        if self.burst != 1 and self.rate is None:
            raise self._refused("burst says how much of a rate may begin at once: give a rate, too")
        if not isinstance(self.fair, bool):
            raise self._refused(f"fair must be True or False, not {self.fair!r}")
        if self.on_limit not in ("wait", "drop", "newest", "replace"):
            raise self._refused(f"on_limit must be 'wait', 'drop', 'newest' or 'replace', not {self.on_limit!r}")
        if self.on_limit == "replace" and (self.rate is not None or self.concurrency is None):
            raise self._refused(
                "on_limit='replace' cancels the job that runs, but a rate is not free again by that: "
                "give concurrency alone, or say on_limit='newest'"
            )
        if self.concurrency == 0:
            warnings.warn(f"{self}: with concurrency=0, no job of it begins", UserWarning, stacklevel=5)

    def _refused(self, reason: str) -> ConfigurationException:
        return ConfigurationException(f"{self}: {reason}")

    def __str__(self) -> str:
        named = self.given
        field = [repr(named.pop("field"))] if "field" in named else []
        return f"Limit({', '.join([*field, *(f'{name}={value!r}' for name, value in named.items())])})"

    __repr__ = __str__

    @property
    def label(self) -> str:
        """Its name, or that of its field."""
        return self.name or self.field or "all"

    @property
    def given(self) -> dict[str, Any]:
        """The parameters that are not their defaults: `of_given` makes the same limit of them."""
        return {name: value for name, value in vars(self).items() if value != _DEFAULTS[name]}

    @classmethod
    def of_given(cls, given: Mapping[str, Any]) -> Limit:
        """Return the limit that another process declared; raise `ValueError` or `TypeError` if it is none."""
        try:
            with warnings.catch_warnings(action="ignore"):  # who declared it was warned
                return cls(**given)
        except ConfigurationException as error:
            raise ValueError(str(error)) from None

    @property
    def numbers(self) -> Mapping[str, Any]:
        """What it allows, as scripts take it: the rate as microseconds for each unit, and the most in its time."""
        given = {"concurrency": self.concurrency, "rate": self.rate and interval_of(self.rate), "burst": self.burst}
        given["most"] = amount_of(self.rate) if self.rate else None
        return {name: value for name, value in given.items() if value is not None}


_DEFAULTS: dict[str, Any] = {
    "field": None, "name": None, "concurrency": None, "rate": None, "burst": 1, "weight": 1, "fair": False,
    "on_limit": "wait",
}  # fmt: skip


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST


def interval_of(rate: str) -> float:
    """Return how many microseconds a unit of a rate takes; raise `ConfigurationException` if it is no rate."""
    number, seconds = _read_rate(rate)
    return seconds * 1_000_000 / number


def amount_of(rate: str) -> float:
    """Return how much a rate allows in its time; raise `ConfigurationException` if it is no rate."""
    return _read_rate(rate)[0]


def _read_rate(rate: str) -> tuple[float, int]:
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    number, periods = (float(match[1]), int(match[2] or 1) * PERIODS[match[3]]) if match else (0.0, 0)
    if not (0 < number <= _MOST and 0 < periods <= 366 * 86400):
        forms = "'10/s', '90000/m', '100/10m', '5/h' or '1000/d'"
        raise ConfigurationException(f"{rate!r} is not a rate: write how much in which time, such as {forms}")
    return number, periods


def check_numbers(**given: Any) -> None:
    """Raise `ConfigurationException` if these are not numbers that may be set for a limit; None is for none."""
    for name, least in (("concurrency", 0), ("burst", 1)):
        number = given.get(name)
        if number is not None and not (
            str(number).isascii() and str(number).isdigit() and least <= int(number) <= _MOST
        ):
            raise ConfigurationException(f"{name} must be a whole number of at least {least}, not {number!r}")
    if given.get("rate") is not None:
        interval_of(given["rate"])
    share = given.get("share")
    if share is not None:
        try:
            is_fine = 0 < float(share) <= _MOST
        except (TypeError, ValueError):
            is_fine = False
        if not is_fine:
            raise ConfigurationException(f"share must be a number above 0, not {share!r}")


def prefix_of(owner: str, limit: Limit) -> str:
    """Return how all keys of a limit begin: see ``lua/includes/limits.lua``."""
    return f"{owner}:_limit:{limit.label}"


def key_of(owner: str, limit: Limit, value: str) -> str:
    """Return the key of a limit for one value of its field."""
    encoded = value.encode()
    if len(encoded) > _LONGEST_VALUE or value.startswith("#") or any(byte < 32 or byte == 127 for byte in encoded):
        value = f"#{sha1(encoded).hexdigest()}"
    return f"{prefix_of(owner, limit)}:{value}"


def limits_of_class(model: Any) -> tuple[Limit, ...]:
    """Return the limits of a job class. Anything else that an application calls ``limits`` is its own."""
    given = getattr(model, "limits", None)
    if not isinstance(given, (list, tuple)) or not hasattr(model, "get_model_repr"):
        return ()
    return tuple(given) if all(isinstance(each, Limit) for each in given) else ()


def described_limits(model: Any) -> Mapping[str, Any]:
    """Return the limits of a model as scripts take them: see ``lua/includes/limits.lua``; empty without any."""
    limits = limits_of_class(model)
    if not limits:
        return {}
    check_limits(model, limits, {name: model.get_field(name) for name in model._fields})
    fields = list(
        dict.fromkeys(name for limit in limits for name in (limit.field, limit.weight) if isinstance(name, str))
    )
    ways = {
        "acts": any(limit.on_limit in _WAYS["acts"] for limit in limits),
        "drops": any(limit.on_limit in _WAYS["drops"] for limit in limits),
        "ways": ways_of(limits),
    }
    return {
        **{name: way for name, way in ways.items() if way},
        "fields": fields,
        "fair": any(limit.fair for limit in limits),
        "rules": [dict(_described(model, limit, fields)) for limit in limits],
    }


def ways_of(limits: Sequence[Limit]) -> str:
    """Return how the names of the lanes of a class end: with what it says of limits that other classes may share."""
    ways = [limit.on_limit for limit in limits if limit.name]
    return f"\t{','.join(ways)}" if any(way != "wait" for way in ways) else ""


def _described(model: Any, limit: Limit, fields: list[str]) -> Mapping[str, Any]:
    rule: dict[str, Any] = {"name": limit.label, **limit.numbers}
    if not limit.name:
        rule["key"] = prefix_of(model._name, limit)
    if limit.field:
        rule["field"] = fields.index(limit.field) + 1
    if isinstance(limit.weight, str):
        rule["weigh"] = fields.index(limit.weight) + 1
    else:
        rule["weight"] = limit.weight
    for name, ways in _WAYS.items():
        if limit.on_limit in ways:
            rule[name] = True
    if limit.fair:
        rule["fair"] = True
    return rule


def check_declared(job_class: Any) -> None:
    """Raise `ConfigurationException` if a class that is being made cannot have the limits that it declares."""
    given = vars(job_class).get("limits")
    if not given or isinstance(given, RedisField):
        return
    inherited = {name: getattr(job_class, f"_redis_attr_{name}", None) for name in getattr(job_class, "_fields", ())}
    fields = {**inherited, **{name: value for name, value in vars(job_class).items() if isinstance(value, RedisField)}}
    limits = limits_of_class(job_class)
    if limits:
        check_limits(job_class, limits, fields)
        _compare_with_others(job_class, limits)
    else:
        _check_own(job_class, given, fields)


def _check_own(job_class: Any, given: Any, fields: Mapping[str, Any]) -> None:
    """Refuse what has a `Limit` in it, but is no list of them. Warn of names of fields, which are likely meant to be
    limited. Anything else is the application's own."""
    if any(isinstance(each, Limit) or each is Limit for each in _members_of(given)):
        raise ConfigurationException(f"limits of {job_class.__name__} must be a list of Limit, not {given!r}")
    if isinstance(given, (list, tuple, set, frozenset, Mapping)) and all(
        isinstance(each, str) and each in fields for each in given
    ):
        name = next(iter(given))
        warnings.warn(
            f"limits of {job_class.__name__} is {given!r}, which limits nothing: to limit its jobs by the field "
            f"{name!r}, write limits = [Limit({name!r}, concurrency=1)]",
            UserWarning,
            stacklevel=4,
        )


def _members_of(given: Any) -> Iterator[Any]:
    if isinstance(given, Mapping):
        given = list(given.values())
    if isinstance(given, (list, tuple, set, frozenset)):
        for each in given:
            yield from _members_of(each)
    else:
        yield given


def check_limits(model: Any, limits: tuple[Limit, ...], fields: Mapping[str, RedisField]) -> None:
    """Raise `ConfigurationException` if a class with these fields cannot have these limits."""
    labels = [limit.label for limit in limits]
    for limit in limits:
        if limit.fair and limit.field is None:
            raise ConfigurationException(f"{limit}: fair needs a field, whose values take turns")
        if labels.count(limit.label) > 1:
            raise ConfigurationException(
                f"{model.__name__} has two limits named {limit.label!r}: give one both numbers, or another name"
            )
        for name in (limit.field, limit.weight):
            if isinstance(name, str):
                _check_field(model, limit, name, fields)
    if sum(limit.fair for limit in limits) > 1:
        raise ConfigurationException(
            f"{model.__name__} has two limits with fair=True: only one can decide whose turn it is"
        )


def _check_field(model: Any, limit: Limit, name: str, fields: Mapping[str, RedisField]) -> None:
    field = fields.get(name)
    if not isinstance(field, InstanceHashField):
        names = ", ".join(sorted(each for each in fields if not each.startswith("_") and each != "pk"))
        has = f"has no field {name!r}" if field is None else f"cannot be limited by {name!r}, which is not in its hash"
        raise ConfigurationException(f"{limit}: {model.__name__} {has}; its fields are {names}")


# The shared limits of this process, by the model of the queues and the name: what named each first, and what it allows.
_shared: dict[tuple[str, str], tuple[str, Mapping[str, Any]]] = {}


def _compare_with_others(model: Any, limits: tuple[Limit, ...]) -> None:
    """Warn if another class shares a limit, and gives it other numbers."""
    for limit in limits:
        if not limit.name:
            continue
        path = f"{model.__module__}.{model.__name__}"
        first, numbers = _shared.setdefault((model.queue_model._name, limit.name), (path, limit.numbers))
        if first != path and numbers != limit.numbers:
            both = f"{path} and {first} share the limit {limit.name!r}"
            said = f"{both}, but give it other numbers: for the jobs of each, its own hold"
            warnings.warn(said, UserWarning, stacklevel=4)
