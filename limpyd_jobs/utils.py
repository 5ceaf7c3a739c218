"""Dates, classes named by their path, and texts for messages and logs."""

from __future__ import annotations

import importlib
import math
import os
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from inspect import signature
from traceback import TracebackException
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

EPOCH = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)

# How far tests of an application moved the time: see `limpyd_jobs.testing.clock`.
moved_time = timedelta()

# A delay that ended before this much time is as good as any other in the past.
LONG_AGO = timedelta(days=10_000)

# How many characters of a name, and of a message, are shown in a line at most.
NAME = 200
MESSAGE = 2000

# How many bytes a message of the log has at most, with its traceback or other lines. Of a traceback fewer, as each byte
# may become four characters when it is escaped.
LOGGED = 64 * 1024
TRACEBACK = 15_000

# What Django raises if it is not set up, and what to do then.
_OF_DJANGO = {
    ("django.core.exceptions", "ImproperlyConfigured"),
    ("django.core.exceptions", "AppRegistryNotReady"),
}
DJANGO = (
    "Django is not set up: write a module that calls django.setup(), and name it before the modules of your jobs, as "
    "--job-modules=django_setup,orders.jobs"
)


def memoized(function: Function) -> Function:
    """Remember the results of a function, as `functools.cache` does, for arguments whose types mypy takes for
    unhashable."""
    return cast(Function, cache(function))


def host_and_pid() -> str:
    """Return the name of this process: the short name of its host, and its pid."""
    return f"{socket.gethostname().partition('.')[0]}:{os.getpid()}"


def utcnow() -> datetime:
    """Return the current time as a naive UTC datetime, the form in which dates are stored."""
    return datetime.now(timezone.utc).replace(tzinfo=None) + moved_time


def as_naive_utc(moment: datetime) -> datetime:
    """Return the moment as a naive UTC datetime. A naive one is taken as UTC."""
    if moment.tzinfo is None:
        return moment
    return moment.astimezone(timezone.utc).replace(tzinfo=None)


def datetime_to_score(dt: datetime) -> float:
    """Return the UTC epoch, in seconds with microseconds, of a naive UTC (or an aware) datetime."""
    return (as_naive_utc(dt) - EPOCH) // MICROSECOND / 1_000_000


def date_of_score(score: float) -> str:
    """Return the date of such a score, without its fraction, as text; a number that is not a date as it is."""
    try:
        return str(EPOCH + timedelta(seconds=math.floor(score)))
    except (OverflowError, ValueError):
        return f"{score:g}"


def parse_datetime(text: str | None) -> datetime | None:
    """Read a stored date, as naive UTC; None if nothing is stored, or it is not a date."""
    try:
        if text and text[-1] == "Z":  # which Python 3.10 does not know
            text = f"{text[:-1]}+00:00"
        return as_naive_utc(datetime.fromisoformat(text)) if text else None
    except (ValueError, TypeError, OverflowError):
        return None


def compute_delayed_until(
    delayed_for: float | timedelta | None = None, delayed_until: datetime | None = None
) -> datetime | None:
    """Return when a delay ends, as a naive UTC datetime, or None if there is no delay.

    Parameters
    ----------
    delayed_for: int, float or timedelta
        How long to wait from now on, in seconds unless a timedelta. Beside a `delayed_until`, 0 is the same as None.
    delayed_until: datetime
        When to stop waiting: naive UTC, or aware.

    Raises
    ------
    ValueError
        If both are given, or one is of another type, not finite, or beyond the year 9999.
    """
    if delayed_for and delayed_until is not None:
        raise ValueError("delayed_until and delayed_for arguments are exclusive")
    try:
        if delayed_until is not None:
            if not isinstance(delayed_until, datetime):
                raise ValueError(f"Invalid delayed_until argument: must be a datetime object, not {delayed_until!r}")
            return as_naive_utc(delayed_until)
        if delayed_for is not None:
            return utcnow() + _as_timedelta(delayed_for)
    except OverflowError as error:
        argument = "delayed_for" if delayed_until is None else "delayed_until"
        raise ValueError(f"Invalid {argument} argument: beyond the years 1 to 9999") from error
    return None


def _as_timedelta(delay: Any) -> timedelta:
    if isinstance(delay, timedelta):
        return max(delay, -LONG_AGO)
    if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not math.isfinite(delay):
        raise ValueError(
            f"Invalid delayed_for argument: must be an int, a float or a timedelta object, not {delay!r}"
            + (": give a number of seconds, such as 600, or timedelta(minutes=10)" if isinstance(delay, str) else "")
        )
    return timedelta(seconds=max(delay, -LONG_AGO.total_seconds()))


def span(seconds: float) -> str:
    """Return a time as people say it: ``1.5 ms``, ``0.3 s``, ``12 s``, ``4 min``, ``3 h``, ``2 d``."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for unit, most, size in (("s", 120, 60), ("min", 120, 60), ("h", 48, 24)):
        if seconds < most:
            return f"{seconds:.0f} {unit}"
        seconds /= size
    return f"{seconds:,.0f} d"


def get_delta(value: float | timedelta) -> timedelta:
    """Return a number of seconds as a timedelta, and a timedelta as it is.

    Raises
    ------
    TypeError
        If it is neither.
    ValueError, OverflowError
        If the number is not finite, or too great.
    """
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, (int, float)):
        raise TypeError(f"Invalid delta: must be a number of seconds or a timedelta, not {value!r}")
    return timedelta(seconds=value)


def is_meant(word: str, known: Iterable[str]) -> str:
    """Ask at the end of a message about an unknown word if a known one is meant; return nothing if none is near."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f": is {near[0]} meant?" if near else ""


def import_class(class_uri: str) -> Any:
    """Return the object that a dotted path names: at the top level of a module, or inside a class there.

    >>> import_class("limpyd_jobs.models.Job.add_job")
    <bound method Job.add_job of <class 'limpyd_jobs.models.Job'>>

    Raises
    ------
    ValueError
        If the path has no module part.
    ImportError
        If the module cannot be imported.
    AttributeError
        If the module, or a class on the way, does not have that name.
    """
    owner, _, name = class_uri.rpartition(".")
    if not owner or not name:
        raise ValueError(
            f"{class_uri!r} is not the path of a class or a function: a module and a name are needed, such as "
            "myapp.jobs.ship"
        )
    return getattr(_import_owner(owner), name)


def _import_owner(path: str) -> Any:
    """Import the module that a path names, or the module with the class of that path."""
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        owner, _, name = path.rpartition(".")
        if not owner or not f"{path}.".startswith(f"{error.name}."):  # the module exists, but imports one that does not
            raise
        try:
            return getattr(_import_owner(owner), name)
        except AttributeError:
            raise error from None


def why_not_imported(error: BaseException) -> str:
    """Return the text of an exception of an import, and the line of the application that raised it, if there is one."""
    reason = f"{kind_of(error)}: {one_line(error)}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{frame.filename}, line {frame.lineno}" for frame in frames if not _is_of_import(frame.filename)]
    return f"{reason} ({lines[-1]})" if lines else reason


def is_not_found(error: BaseException, path: str) -> bool:
    """Whether an import failed because there is no such module, not because that module imports one that does not
    exist."""
    return isinstance(error, ModuleNotFoundError) and f"{path}.".startswith(f"{error.name}.")


def where_to_look() -> str:
    """Say what to do about a module that is not found."""
    try:
        place = f", not in {one_line(os.getcwd())}"
    except OSError:  # it was deleted
        place = ""
    return f"Name the directory that its package is in with --pythonpath, or start the worker there{place}"


def hint_for(error: BaseException, path: str) -> str:
    """Return the end of a message about an import that failed: what to do about it, if that is known."""
    if lacks_django(error):
        return f". {DJANGO}"
    return f". {where_to_look()}" if is_not_found(error, path.partition(".")[0]) else ""


def lacks_django(error: BaseException) -> bool:
    """Whether an import failed because Django is not set up yet."""
    kinds = {(cls.__module__, cls.__name__) for cls in type(error).__mro__}
    return bool(kinds & _OF_DJANGO) or (error.__cause__ is not None and lacks_django(error.__cause__))


def not_imported(path: str, error: BaseException) -> str:
    """Say in a line that a class cannot be imported, why, and what to do about it."""
    why = one_line(why_not_imported(error), MESSAGE)
    return f"{one_line(path)} cannot be imported: {why}{hint_for(error, path)}"


def _is_of_import(filename: str) -> bool:
    return filename.startswith(("<frozen ", os.path.dirname(importlib.__file__), os.path.dirname(__file__)))


def overrides(owner: Any, base: type, *names: str) -> bool:
    """Return whether a class, or an object, overrides any of these attributes of one of its bases."""
    if owner is base:
        return False
    for name in names:
        one, other = getattr(owner, name, None), getattr(base, name)
        if getattr(one, "__func__", one) is not getattr(other, "__func__", other):
            return True
    return False


def takes(function: Any, *args: Any) -> bool:
    """Return whether something is a function that can be called with such arguments."""
    try:
        signature(function).bind(*args)
    except TypeError:
        return False
    except ValueError:  # it does not say what it takes
        return True
    return True


def printable(value: object) -> str:
    """Return the text of any object as text to store, even if the object has no text, or one that cannot be encoded."""
    try:
        text = str(value)
    except (Exception, SystemExit) as error:
        text = f"<{type(value).__name__} whose text cannot be read: {type(error).__name__}>"
    return text.encode(errors="backslashreplace").decode()


def described(error: BaseException) -> str:
    """Return an exception in one line: its type, and its text if it has one."""
    text = one_line(error, MESSAGE)
    return f"{kind_of(error)}: {text}" if text else kind_of(error)


def kind_of(error: BaseException) -> str:
    """Return the name of the type of an exception, in one line: its class may have any name."""
    return one_line(type(error).__name__)


def one_line(value: object, most: int = NAME) -> str:
    """Return the text of any object in one line. Characters that would break a line or confuse a terminal are escaped.

    Of a text of more than `most` characters, the beginning is shown, and how many there are.
    """
    if type(value) is str and len(value) <= most and value.isprintable():
        return value
    text = printable(value)
    end = f"… ({len(text):,} characters)" if len(text) > most else ""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:most]) + end


def as_lines(text: str, most: int = LOGGED) -> str:
    """Return a text of several lines for the log: in each, what would confuse a terminal is escaped. Of a text of more
    than `most` bytes the middle is left out."""
    lines = shortened(printable(text), most).split("\n")
    return "\n".join("\t".join(one_line(part, LOGGED) for part in line.split("\t")) for line in lines)


def shortened(text: str, most: int) -> str:
    """Return a text; of one of more than `most` bytes as UTF-8, its beginning and its end, and how much is left out."""
    if len(text) * 4 <= most:
        return text
    data = text.encode(errors="backslashreplace")
    if len(data) <= most:
        return text
    note = f"… {size_text(len(data) - most)} left out …"
    head = max(most - len(note.encode()), 0) // 2
    return f"{data[:head].decode(errors='ignore')}{note}{data[len(data) - head :].decode(errors='ignore')}"


def size_text(size: int) -> str:
    """Return a number of bytes in words: ``4.5 MB``."""
    for unit, name in ((1_000_000, "MB"), (1_000, "kB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size} bytes"


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception, for the log. No text of an exception begins a line of its own."""
    return as_lines("\n".join(_traceback_lines(TracebackException.from_exception(error))), TRACEBACK)


def _traceback_lines(trace: TracebackException) -> Iterator[str]:
    """Yield the lines of `traceback.format_exception`. Further lines of the text of an exception are indented."""
    if trace.__cause__ is not None:
        yield from _traceback_lines(trace.__cause__)
        yield "\nThe above exception was the direct cause of the following exception:\n"
    elif trace.__context__ is not None and not trace.__suppress_context__:
        yield from _traceback_lines(trace.__context__)
        yield "\nDuring handling of the above exception, another exception occurred:\n"
    if getattr(trace, "exceptions", None):  # a group, all of whose lines are indented; Python 3.10 has none
        yield from "".join(trace.format(chain=False)).rstrip("\n").split("\n")
        return
    yield "Traceback (most recent call last):"
    yield from "".join(trace.stack.format()).rstrip("\n").split("\n")
    is_told, has_source = False, hasattr(trace, "msg")  # as a SyntaxError, whose first lines are indented
    for line in "".join(trace.format_exception_only()).rstrip("\n").split("\n"):
        is_at_the_left = not is_told and line[:1].isidentifier()  # else it might look like a line of the log
        yield line if is_at_the_left or line.startswith(" ") else f"    {line}"
        is_told = is_told or not (has_source and line.startswith(" "))
