"""The values that users may pass for an identifier, a priority, a queue name or a delay, and how they are stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeGuard

from limpyd_jobs.dates import EPOCH, MICROSECOND, compute_delayed_until, utcnow
from limpyd_jobs.exceptions import ConfigurationException

# The limits of values that become parts of the names of keys: identifiers and values of indexed fields; queue names.
MAX_INDEXED_BYTES = 64 * 1024
MAX_QUEUE_NAME_BYTES = 1024

# The longest lease of a claim, in seconds: some thirty years, so that its end is a date.
MAX_LEASE = 10**9

# The longest time limit, in seconds: some 300 years, so that its end is a date.
MAX_DURATION = 10**10

# What is stored with a claim.
MAX_OWNER_BYTES = 1024

PRIORITY_RANGE = range(-(2**63), 2**63)

_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number: True and False are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal, and of the same types all the way down; but a float may come from an integer."""
    if type(one) is not type(other):
        return (type(one), type(other)) == (float, int) and one == other
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


def check_size(what: str, text: str | bytes, limit: int) -> None:
    """Raise `ValueError`, which begins with `what`, if a value has more bytes as UTF-8 than a key may have."""
    if len(text) * 4 > limit:  # no character takes more than 4 bytes
        size = len(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
        if size > limit:
            raise ValueError(f"{what} is at most {limit:,} bytes long, not {size:,}")


def check_indexed(name: str, value: Any) -> None:
    """Do the same with the value of an indexed field, or each of its members."""
    if isinstance(value, (str, bytes)):
        check_size(f"The value of the indexed field {name!r}", value, MAX_INDEXED_BYTES)
    elif isinstance(value, Mapping):
        check_indexed(name, [*value, *value.values()])
    elif isinstance(value, (list, tuple, set, frozenset)):
        for member in value:
            check_indexed(name, member)


def as_indexed(value: str) -> str:
    """Return a value, cut off if it is longer than an indexed field takes."""
    return value if len(value) * 4 <= MAX_INDEXED_BYTES else value.encode()[:MAX_INDEXED_BYTES].decode(errors="ignore")


def stored_identifier(identifier: Any) -> str:
    """Return the identifier of a job, a text of up to 64 kB or a number, as it is stored."""
    if not isinstance(identifier, str):
        if is_number(identifier):
            return str(identifier)
        raise TypeError(f"The identifier of a job must be a string or a number, not {identifier!r}")
    if not identifier:
        raise ValueError("The identifier of a job must not be empty")
    check_size("The identifier of a job", identifier, MAX_INDEXED_BYTES)
    try:
        identifier.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"The identifier of a job must be valid text: {identifier!r}: {error}") from error
    return identifier


def stored_priority(priority: Any) -> str:
    """Return a priority, an integer of 64 bits, as it is stored."""
    if isinstance(priority, bool) or not isinstance(priority, (int, str)):
        raise TypeError(f"A priority must be an integer, not {priority!r}")
    if isinstance(priority, str) and not _INTEGER.fullmatch(priority):
        raise ValueError(f"A priority must be an integer, not {priority!r}")
    number = int(priority)
    if number not in PRIORITY_RANGE:
        raise ValueError(f"A priority must fit in 64 bits, unlike {number}")
    return str(number)


def read_priority(text: str | None) -> int | None:
    """Return a stored priority as a number; None if another program wrote a text that is not a number."""
    return int(text) if text and _INTEGER.fullmatch(text) else None


def number_or_text(text: str) -> int | str:
    """Return a stored priority, or another number, as a number; another text as it is."""
    number = read_priority(text)
    return text if number is None else number


def nearest_priority(number: int) -> str:
    """Return the priority nearest to a number that may be beyond 64 bits, as it is stored."""
    return str(min(max(number, PRIORITY_RANGE.start), PRIORITY_RANGE.stop - 1))


def stored_timeout(seconds: Any) -> str:
    """Return how long a job may run, a number of seconds, as it is stored."""
    if not is_number(seconds):
        raise TypeError(f"The job_timeout of a job must be a number of seconds, not {seconds!r}")
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"The job_timeout of a job must be a number of seconds, 0 or more, not {seconds!r}")
    return str(seconds)


def stored_duration(name: str, duration: Any) -> str:
    """Return a time limit, a number of seconds or a timedelta, as it is stored: seconds."""
    return f"{checked_duration(name, duration):.6f}".rstrip("0").rstrip(".")


def checked_duration(name: str, duration: Any) -> float:
    """Return a time limit in seconds; raise `TypeError` or `ValueError` if it is none."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not is_number(seconds):
        raise TypeError(f"{name} must be a number of seconds or a timedelta, not {duration!r}")
    if not 0 <= seconds <= MAX_DURATION:
        raise ValueError(f"{name} must be from 0 to {MAX_DURATION:,} seconds, not {duration!r}")
    return float(seconds)


def own_duration(value: Any) -> float | None:
    """Return the seconds of a time limit that a class has as an attribute; None for no limit, or if the attribute is an
    application's own."""
    try:
        return None if value is None else checked_duration("", value) or None
    except (TypeError, ValueError):
        return None


def own_seconds(value: Any) -> float | None:
    """Return the value of an attribute if it is a number of seconds, 0 or more; None if it is an application's own."""
    return value if is_number(value) and 0 <= value < float("inf") else None


def own_size(value: Any, otherwise: int | None = None) -> int | None:
    """Return the value of an attribute if it is None or a number of bytes; else what holds otherwise."""
    is_size = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if is_size or value is None else otherwise


def read_seconds(text: str | None) -> float | None:
    """Return a stored number of seconds; None if the text is not a number of seconds."""
    try:
        seconds = float(text or "nan")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def check_servable(name: str) -> None:
    """Raise `ValueError` if no worker can serve a queue because of white space at the ends of its name."""
    if not is_servable(name):
        meant = name.strip()
        raise ValueError(
            f"No worker serves a queue whose name has white space at its ends, {name!r}: is {meant!r} meant?"
        )


def is_servable(name: str) -> bool:
    """Return whether a worker can serve the queue of a name: it splits names at commas, and strips them."""
    return bool(name) and name == name.strip() and "," not in name


def stored_queue_name(name: Any) -> str:
    """Return the name of a queue as it is stored: a text of up to 1 kB, or a number as text.

    It has no comma, which separates names on command lines.

    Raises
    ------
    TypeError
        If it is neither a string nor a number.
    ValueError
        If it is empty, too long, has a comma, or cannot be encoded as UTF-8.
    """
    if not isinstance(name, str):
        if is_number(name):
            return str(name)
        raise TypeError(f"The name of a queue must be a string or a number, not {name!r}")
    check_size("The name of a queue", name, MAX_QUEUE_NAME_BYTES)
    if not name or "," in name:
        raise ValueError(f"The name of a queue must be neither empty nor have a comma: {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"The name of a queue must be valid text: {name!r}: {error}") from error
    return name


def stored_owner(owner: Any) -> str:
    """Return the owner of a claim, a text of up to 1 kB."""
    if not isinstance(owner, str):
        raise TypeError(f"The owner of a claim must be a string, not {owner!r}")
    if not owner:
        raise ValueError("The owner of a claim must not be empty")
    check_size("The owner of a claim", owner, MAX_OWNER_BYTES)
    return stored_value("owner", owner)


def checked_lease(lease: Any) -> float:
    """Return a lease; raise `ValueError` if it is not a number of seconds, more than 0 and at most `MAX_LEASE`."""
    if not (is_number(lease) and 0 < lease <= MAX_LEASE):
        text = f"The lease must be a number of seconds, more than 0 and at most {MAX_LEASE:,}, not {lease!r}"
        raise ValueError(text)
    return float(lease)


def stored_value(name: str, value: Any) -> str:
    """Return the value of a hash field, a string, bytes, an integer or a float, as Redis stores it."""
    if not isinstance(value, (str, bytes)):
        if is_number(value):
            return repr(value)
        raise TypeError(f"The value of the field {name!r} must be a string, bytes or a number, not {value!r}")
    try:
        return (value.encode() if isinstance(value, str) else value).decode()
    except UnicodeError as error:
        raise ValueError(f"The value of the field {name!r} must be valid text: {value!r}: {error}") from error


def delay_argument(delayed_for: float | timedelta | None = None, delayed_until: datetime | None = None) -> str:
    """Return a delay as scripts take it: ``''``, ``'+<microseconds>'``, or ``'<microseconds of the epoch> <text>'``."""
    if delayed_for is None and delayed_until is None:
        return ""
    until: Any = compute_delayed_until(delayed_for, delayed_until)
    if delayed_for is None or delayed_until is not None:
        return f"{(until - EPOCH) // MICROSECOND} {until}"
    if isinstance(delayed_for, timedelta):
        delayed_for = delayed_for.total_seconds()
    return f"+{round(delayed_for * 1_000_000)}" if until > utcnow() else ""


def wait_argument(name: str, seconds: float | timedelta | None) -> str:
    """Return for how long to wait at most, as scripts take it: ``'+<microseconds>'``, or ``''`` for no limit."""
    if seconds is None:
        return ""
    number = checked_duration(name, seconds)
    if not number:
        raise ValueError(f"{name} must be more than 0 seconds, not {seconds!r}")
    return f"+{round(number * 1_000_000)}"


def shown_delay(argument: str) -> str:
    """Return a delay, as `delay_argument` makes it, as people read it: ``+60 s``, or the date."""
    if argument.startswith("+"):
        return f"+{int(argument) / 1_000_000:g} s"
    return argument.partition(" ")[2]


def check_retention(name: str, value: Any) -> None:
    """Refuse all but a number of jobs to keep, a `timedelta`, and None for all."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    is_duration = isinstance(value, timedelta) and value >= timedelta(0)
    if not (value is None or is_count or is_duration):
        raise ConfigurationException(
            f"{name} must be a number of jobs or a timedelta, 0 or more, or None for everything, not {value!r}"
        )


def retention_arguments(keep: int | timedelta) -> tuple[str, str]:
    """Return how much to keep as the scripts take it: a number of jobs and a duration in microseconds, one of them
    empty."""
    return ("", str(keep // MICROSECOND)) if isinstance(keep, timedelta) else (str(keep), "")
