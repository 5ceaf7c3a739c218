"""Whether a failed job is tried again, and when; and the exceptions by which the code of a job decides this itself."""

from __future__ import annotations

import builtins
import logging
import random as randomness
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from inspect import signature
from typing import Any, NamedTuple

from limpyd_jobs.arguments import is_number, own_duration, read_priority, read_seconds, stored_priority
from limpyd_jobs.dates import compute_delayed_until, parse_datetime
from limpyd_jobs.exceptions import JobInterrupted, LimpydJobsException, WorkerLost
from limpyd_jobs.functions import is_async
from limpyd_jobs.texts import MESSAGE, described, one_line

log = logging.getLogger("limpyd-jobs.retrying")

MAX_SECONDS = 10**11  # some 3,000 years: today's date and this still make a date
MAX_TIMES = 10**9
MAX_DELTA = 2**63 - 1  # priorities are 64-bit integers
MAX_TEXT = 4096  # of a policy, in characters
SECONDS_OF = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}

_DURATION = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)([smhd]?)", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,19}", re.ASCII)


class Requeue(LimpydJobsException):
    """Raised by the code of a job, to be put back in its queue. It is not a failure and, unless it counts, not a try of
    its retry policy.

    Parameters
    ----------
    delayed_for: int, float or timedelta
        How long to wait before the job may run, in seconds unless a timedelta. At once by default.
    delayed_until: datetime
        When the job may run: naive UTC, or aware.
    priority: int
        None to keep its own.
    count: bool
        Whether the run counts as a try of the retry policy of the job, or of the ``requeue_times`` of the worker. Once
        the tries are used up, the job is not put back, but fails with `RetriedTooOften`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of the above.
    """

    def __init__(
        self,
        delayed_for: float | timedelta | None = None,
        delayed_until: datetime | None = None,
        priority: int | str | None = None,
        count: bool = False,
    ) -> None:
        super().__init__("The job asks to be put back in its queue")
        if not isinstance(count, bool):
            raise TypeError(f"count must be True or False, not {count!r}")
        compute_delayed_until(delayed_for, delayed_until)
        self.delayed_for = delayed_for
        self.delayed_until = delayed_until
        self.priority = "" if priority is None else stored_priority(priority)
        self.count = count


class Cancel(LimpydJobsException):
    """Raised by the code of a job, to end the job as canceled. It is not a failure, and the job is not run again."""


def wish_among(errors: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """Return the first exception of a group, if all are of a kind by which the code of a job gives way, or asks to be
    put back or canceled; else None. Out of an `asyncio.TaskGroup`, each exception comes in a group."""
    found: list[BaseException] = []
    left: list[BaseException] = [errors]
    while left:
        error = left.pop(0)
        if isinstance(error, BaseExceptionGroup):
            left += error.exceptions
        else:
            found.append(error)
    for kind in (JobInterrupted, Requeue, Cancel):
        if all(isinstance(error, kind) for error in found):
            return found[0]
    return None


@dataclass(frozen=True)
class Exponential:
    """Delays that double with each failure, up to a cap. A random part of each is waited: "full jitter" in
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.

    Parameters
    ----------
    base: float
        The longest delay after the first failure, in seconds.
    cap: float
        The longest delay of all, in seconds.

    Raises
    ------
    TypeError, ValueError
        If one is not a number of seconds, or the base is more than the cap.
    """

    base: float = 1
    cap: float = 600

    def __post_init__(self) -> None:
        base, cap = _seconds("base", self.base), _seconds("cap", self.cap)
        if base > cap:
            raise ValueError(f"The base of the delays, {base:g} seconds, must not be more than their cap, {cap:g}")
        _assign(self, base=base, cap=cap)

    def longest(self, failures: int) -> float:
        """Return the longest delay after that many failures, in seconds."""
        return min(self.cap, self.base * 2.0 ** min(failures - 1, 100))


@dataclass(frozen=True)
class Retry:
    """When to try a failed job again.

    Parameters
    ----------
    times: int
        How many more times to run it. None for as many as there are delays in a list, or, with a `max_age`, for any
        number.
    delay: Exponential; or a number, or a sequence of numbers; or a function
        How long to wait after each failure: exponentially; or a number of seconds; or the delays of a list, in seconds.
        The last delay of a list is used again if needed. A function is called with the exception, and the number of
        tries so far, from 1 on; it returns seconds, a timedelta, or None for ``Exponential()``.
    only_on: exception class or name, or several
        The exceptions to try again after; None for all. A name is the name of one of Python's classes, ``'OSError'``,
        or the path of another class, ``'requests.exceptions.Timeout'``. Subclasses count, too.
    never_on: exception class or name, or several
        The exceptions not to try again after, whatever `only_on` says.
    max_age: float or timedelta
        How old a job may be when it is tried again, in seconds unless a timedelta. The age begins when it was added, or
        put back in its queue by hand. None for no limit.
    priority_delta: int
        What to add to its priority each time. None for the ``requeue_priority_delta`` of the worker.

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of the above, or no argument says when to give up.
    """

    times: int | None = None
    delay: Any = field(default_factory=Exponential)
    only_on: Any = None
    never_on: Any = ()
    max_age: Any = None
    priority_delta: int | None = None

    def __post_init__(self) -> None:
        is_list = isinstance(self.delay, Iterable) and not isinstance(self.delay, (str, bytes))
        _assign(
            self,
            times=None if self.times is None else _integer("times", self.times, 0, MAX_TIMES),
            delay=_delays(self.delay) if is_list else _delay(self.delay),
            only_on=None if self.only_on is None else _names("only_on", self.only_on),
            never_on=_names("never_on", self.never_on),
            max_age=None if self.max_age is None else _seconds("max_age", self.max_age),
            priority_delta=None
            if self.priority_delta is None
            else _integer("priority_delta", self.priority_delta, -MAX_DELTA, MAX_DELTA),
        )
        if self.only_on == ():
            raise ValueError("only_on must name an exception, or be None for all")
        if self.times is None and is_list:
            _assign(self, times=len(self.delay))
        if self.times is None and self.max_age is None:
            raise ValueError("A retry policy needs times, a list of delays or a max_age, to give up some day")
        if len(str(self)) > MAX_TEXT:
            raise ValueError(f"A retry policy is at most {MAX_TEXT} characters long as text")

    def is_for(self, exception: BaseException) -> bool:
        """Whether a job may be tried again after an exception of that class."""
        names = {name_of(cls) for cls in type(exception).__mro__}
        return names.isdisjoint(self.never_on) and (self.only_on is None or not names.isdisjoint(self.only_on))

    def delay_after(self, failures: int, random: Callable[[], float]) -> float:
        """Return how long to wait after that many failures, in seconds; `random` returns numbers from 0 up to 1."""
        if isinstance(self.delay, Exponential):
            return self.delay.longest(failures) * random()
        delay: float = self.delay[min(failures, len(self.delay)) - 1] if isinstance(self.delay, tuple) else self.delay
        return delay

    def for_failure(self, exception: BaseException, failures: int) -> Retry:
        """Return the policy with the delay that its function, if it has one, returns for such a failure.

        It raises what the function raises, and `TypeError` or `ValueError` if that returns no delay.
        """
        if not callable(self.delay):
            return self
        delay = self.delay(exception, failures)
        return replace(self, delay=Exponential() if delay is None else _seconds("what the delay returns", delay))

    def __str__(self) -> str:
        """Return the policy as a text that `parse` reads. So it is stored, and given on a command line."""
        if isinstance(self.delay, Exponential):
            parts: dict[str, Any] = {"base": _text(self.delay.base), "cap": _text(self.delay.cap)}
        elif callable(self.delay):
            parts = {"delay": _name_of_function(self.delay)}
        elif isinstance(self.delay, tuple):
            parts = {"delays": ":".join(map(_text, self.delay))}
        else:
            parts = {"delay": _text(self.delay)}
        parts["times"] = self.times
        parts["only_on"] = None if self.only_on is None else ":".join(self.only_on)
        parts["never_on"] = ":".join(self.never_on) or None
        parts["max_age"] = None if self.max_age is None else _text(self.max_age)
        parts["priority_delta"] = self.priority_delta
        return ",".join(f"{name}={value}" for name, value in parts.items() if value is not None)

    @classmethod
    def parse(cls, text: str) -> Retry:
        """Return the policy of a text, or raise `ValueError`. Nothing is imported."""
        given: dict[str, Any] = {}
        for part in text.split(","):
            name, equals, value = part.strip().partition("=")
            if name not in _READERS or not equals:
                known = ", ".join(f"{name}=" for name in _READERS)
                raise ValueError(f"{part!r} in a retry policy is not one of {known}, as in times=3,delay=60")
            if name in given:
                raise ValueError(f"{name} is given twice in a retry policy")
            given[name] = _READERS[name](name, value)
        exponential = {name: given.pop(name) for name in ("base", "cap") if name in given}
        delays = [given.pop(name) for name in ("delay", "delays") if name in given]
        if exponential:
            delays.append(Exponential(**exponential))
        if len(delays) > 1:
            raise ValueError("A retry policy has either a delay, or delays, or a base and a cap")
        return cls(**given, **({"delay": delays[0]} if delays else {}))


@dataclass(frozen=True)
class Again:
    """The job is tried again, after `delay` seconds. `priority_delta` is added to its priority; None for the delta of
    the worker."""

    delay: float
    priority_delta: int | None = None


@dataclass(frozen=True)
class GiveUp:
    """The job is not tried again."""


def decide(
    policy: Retry,
    exception: BaseException,
    tries: int,
    age: float,
    random: Callable[[], float] = randomness.random,
) -> Again | GiveUp:
    """Decide whether a failed job is tried again, and when. If the delay is a function, what it raises is raised.

    Parameters
    ----------
    exception: exception
        Why it failed.
    tries: int
        How often the job was run by now, 1 or more.
    age: float
        How many seconds ago the job was added.
    random: callable
        Returns numbers from 0 up to 1.
    """
    if isinstance(exception, WorkerLost) or not policy.is_for(exception):
        return GiveUp()
    if policy.times is not None and tries > policy.times:
        return GiveUp()
    failures = max(tries, 1)
    delay = policy.for_failure(exception, failures).delay_after(failures, random)
    if policy.max_age is not None and age + delay > policy.max_age:
        return GiveUp()
    return Again(delay, policy.priority_delta)


class History(NamedTuple):
    """The stored values of the runs of a job: those not counted, when the last began, since when its age counts."""

    policy: str | None
    tries: str | None
    uncounted: str | None
    start: str | None
    since: str | None
    retry_for: str | None = None
    failing_since: str | None = None

    def decide(
        self, ident: str, exception: BaseException, ran: float, default: Any, fallback: Retry | None
    ) -> Again | GiveUp | None:
        """Decide by its policy, that of its class, or `fallback`, whether the job, after such a run, is tried again. A
        function that returns no delay does not cost the job its tries: it gets the delay that it has by default."""
        policy = self._policy(default, fallback)
        if policy is None:
            return None
        age = self._waited_since(self.since) + ran
        try:
            return decide(policy, exception, self._counted, age)
        except KeyboardInterrupt:  # maybe of a signal, which the function cannot answer for
            raise
        except BaseException as error:  # of the function
            failed = f"{_name_of_function(policy.delay)}, the delay of its retry policy, failed: {described(error)}"
            log.error("[%s] %s. It is tried again as if that had returned None", one_line(ident), failed)
            return decide(replace(policy, delay=Exponential()), exception, self._counted, age)

    def has_tries_left(self, ran: float, delay: float, default: Any, fallback: Retry | None, times: int) -> bool:
        """Whether the job may run again after such a run, which did not fail but counts as a try, and such a delay: by
        its policy, that of its class, or `fallback`, or else `times` in all its life."""
        policy = self._policy(default, fallback)
        if policy is None:
            return (read_priority(self.tries) or 0) <= times
        is_young = policy.max_age is None or self._waited_since(self.since) + ran + delay <= policy.max_age
        return is_young and (policy.times is None or self._counted <= policy.times)

    @property
    def _counted(self) -> int:
        return (read_priority(self.tries) or 0) - (read_priority(self.uncounted) or 0)

    def _policy(self, default: Any, fallback: Retry | None) -> Retry | None:
        return read_policy(self.policy) or own_policy(default) or fallback

    def limit(self, default: Any) -> float | None:
        """Return for how many seconds after its first failure it is tried again, by itself or its class; None for no
        limit."""
        own = read_seconds(self.retry_for)
        return own_duration(default if own is None else own)

    def may_begin(self, ran: float, limit: float, delay: float) -> bool:
        """Whether a next run, after such a delay, would begin within the limit."""
        failing = self._waited_since(self.failing_since) + ran if self.failing_since else 0.0
        return failing + delay <= limit

    def is_over(self, default: Any) -> bool:
        """Whether a run began later after the first failure than the job is tried again, by itself or its class."""
        limit = self.limit(default) if self.failing_since else None
        return bool(limit) and self._waited_since(self.failing_since) > (limit or 0)

    def _waited_since(self, text: str | None) -> float:
        began, moment = parse_datetime(self.start), parse_datetime(text)
        return max((began - moment).total_seconds(), 0.0) if began and moment else 0.0


def as_policy(value: Any) -> Retry | None:
    """Return a policy that is given as a `Retry`, as its text, or as None."""
    if value is None or isinstance(value, Retry):
        return value
    if isinstance(value, str):
        return Retry.parse(value)
    raise TypeError(f"A retry policy must be a Retry, or the text of one, not {value!r}")


def own_policy(value: Any) -> Retry | None:
    """Return the value of the attribute of a class if it is a policy; else None. The log says once that it is none."""
    try:
        return as_policy(value)
    except (TypeError, ValueError) as error:
        _log_unused(str(error))
        return None


@cache
def _log_unused(why: str) -> None:
    log.warning("A default_retry_policy is not used: %s", one_line(why, MESSAGE))


def stored_policy(value: Any) -> str:
    """Return a policy, or the text of one, as it is stored."""
    if value is None:
        raise TypeError("A retry policy must be a Retry, or the text of one, not None")
    policy = as_policy(value)
    if policy and callable(policy.delay):
        raise TypeError(
            f"A retry policy whose delay is a function, {_name_of_function(policy.delay)}, cannot be stored with a "
            "job: give it to the class of the job, by default_retry_policy or @job(retry=…)"
        )
    return str(policy)


def read_policy(text: str | None) -> Retry | None:
    """Return a stored policy; None if nothing is stored, or another program wrote a text that is not a policy."""
    try:
        return Retry.parse(text) if text else None
    except (TypeError, ValueError):
        return None


def name_of(cls: type) -> str:
    """Return the name by which a policy knows an exception: that of one of Python's own, the path of others."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _assign(value: Any, **attributes: Any) -> None:
    for name, attribute in attributes.items():
        object.__setattr__(value, name, attribute)


def _integer(name: str, number: Any, low: int, high: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} of a retry policy must be an integer, not {number!r}")
    if not low <= number <= high:
        raise ValueError(f"{name} of a retry policy must be from {low} to {high}, not {number}")
    return number


def _seconds(name: str, duration: Any) -> float:
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    if not is_number(duration):
        raise TypeError(f"{name} of a retry policy must be a number of seconds, not {duration!r}")
    if not 0 <= duration <= MAX_SECONDS:
        raise ValueError(f"{name} of a retry policy must be from 0 to {MAX_SECONDS} seconds, not {duration}")
    return round(float(duration), 6)


def _delay(delay: Any) -> Any:
    if isinstance(delay, Exponential):
        return delay
    return _checked_function(delay) if callable(delay) else _seconds("delay", delay)


def _checked_function(delay: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(delay, type):
        raise TypeError(f"delay of a retry policy must be a number of seconds, or a function, not the class {delay!r}")
    name = _name_of_function(delay)
    if is_async(delay):
        raise TypeError(f"delay of a retry policy must be an ordinary function, not the async {name}")
    try:
        signature(delay).bind(None, 1)
    except TypeError as error:
        raise TypeError(
            f"delay of a retry policy, {name}, must take the exception, and the number of tries: {error}"
        ) from error
    except ValueError:  # it is written in C, and does not say what it takes
        pass
    return delay


def _name_of_function(function: Any) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _delays(delay: Iterable[Any]) -> tuple[float, ...]:
    delays = tuple(_seconds("delay", each) for each in delay)
    if not delays:
        raise ValueError("The delays of a retry policy are empty")
    return delays


def _names(name: str, exceptions: Any) -> tuple[str, ...]:
    if isinstance(exceptions, (str, type)) or not isinstance(exceptions, Iterable):
        exceptions = (exceptions,)
    return tuple(dict.fromkeys(_exception_name(name, exception) for exception in exceptions))


def _exception_name(name: str, exception: Any) -> str:
    if isinstance(exception, type) and issubclass(exception, BaseException):
        exception = name_of(exception)
    if not isinstance(exception, str):
        raise TypeError(f"{name} of a retry policy must be classes of exceptions, not {exception!r}")
    if "." in exception and all(part.isidentifier() or part == "<locals>" for part in exception.split(".")):
        return exception
    found = getattr(builtins, exception, None)
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise ValueError(f"{name} of a retry policy: {exception!r} is neither an exception of Python nor a path")
    return name_of(found)


def _text(number: float) -> str:
    return repr(int(number)) if number.is_integer() else f"{number:.6f}".rstrip("0")


def _read_seconds(name: str, text: str) -> float:
    found = _DURATION.fullmatch(text)
    if not found:
        raise ValueError(f"{name}={text} in a retry policy is not a duration such as 90, 0.5, 15m, 2h or 1d")
    return float(found[1]) * SECONDS_OF[found[2]]


def _read_integer(name: str, text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{name}={text} in a retry policy is not an integer")
    return int(text)


_READERS: dict[str, Callable[[str, str], Any]] = {
    "times": _read_integer,
    "delay": _read_seconds,
    "delays": lambda name, text: [_read_seconds(name, each) for each in text.split(":")],
    "base": _read_seconds,
    "cap": _read_seconds,
    "only_on": lambda _, text: text.split(":"),
    "never_on": lambda _, text: text.split(":"),
    "max_age": _read_seconds,
    "priority_delta": _read_integer,
}

# The policy of a job that has none, and is tried again for a limited time.
UNTIL_LIMIT = Retry(times=MAX_TIMES)
