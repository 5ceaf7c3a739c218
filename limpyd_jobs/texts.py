"""Texts for messages, logs and terminals: in one line, bounded, with nothing that a terminal would obey."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from time import monotonic
from traceback import TracebackException, format_exception

# How many characters of a name, and of a message, are shown in a line at most.
NAME = 200

MESSAGE = 2000

# How many bytes a message of the log has at most, with its traceback or other lines. Of a traceback fewer: each byte
# may become four characters when it is escaped.
LOGGED = 64 * 1024

TRACEBACK = 15_000


def host_and_pid() -> str:
    """Return the name of this process: the short name of its host, and its pid."""
    return f"{socket.gethostname().partition('.')[0]}:{os.getpid()}"


def is_meant(word: str, known: Iterable[str]) -> str:
    """Ask at the end of a message about an unknown word if a known one is meant; return nothing if none is near."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f": is {near[0]} meant?" if near else ""


def printable(value: object) -> str:
    """Return the text of any object as text to store, even if the object has no text, or one that cannot be encoded."""
    try:
        text = str(value)
    except BaseException as error:  # of code of the application, which ends no worker
        text = f"<{type(value).__name__} whose text cannot be read: {type(error).__name__}>"
    return text.encode(errors="backslashreplace").decode()


def described(error: BaseException) -> str:
    """Return an exception in one line: its type, and its text if it has one."""
    text = one_line(error, MESSAGE)
    return f"{kind_of(error)}: {text}" if text else kind_of(error)


def described_with_notes(error: BaseException) -> str:
    """Return the same, and the notes that were added to the exception, if they can be read."""
    try:
        text = one_line("; ".join(map(printable, getattr(error, "__notes__", ()))), MESSAGE)
    except BaseException:  # of code of the application, which ends no worker
        text = ""
    return f"{described(error)} ({text})" if text else described(error)


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


def table_lines(rows: Iterable[Sequence[object]], most: int = NAME) -> Iterator[str]:
    """Yield the lines of a table with columns as wide as needed. None is an empty cell."""
    for row in cells_of(rows, most):
        yield "  ".join(row).rstrip()


def cells_of(rows: Iterable[Sequence[object]], most: int = NAME) -> list[list[str]]:
    """Return the cells of a table as texts of one line, those of a column as wide as its widest."""
    shown = [["" if cell is None else one_line(cell, most) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in shown]


def as_lines(text: str, most: int = LOGGED) -> str:
    """Return a text of several lines for the log, escaped; of one of more than `most` bytes the middle is left out."""
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


def too_long(size: int) -> str:
    """Return what is told instead of a value of so many bytes, which is not read."""
    return f"({size_text(size)}, too long to be read here)"


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def read_size(text: str) -> int:
    """Return the bytes of a text such as ``512MB``, ``1.5GiB`` or ``4096``; raise `ValueError` for another, or 0."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?) ?([kmg]i?)?b?", text.strip(), re.ASCII | re.IGNORECASE)
    size = int(float(found[1]) * _UNITS[(found[2] or "").lower()]) if found else 0
    if not size:
        raise ValueError(f"not a number of bytes: {text!r}")
    return size


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception, for the log. No text of an exception begins a line of its own."""
    text = _traceback_by(lambda: "\n".join(_traceback_lines(TracebackException.from_exception(error))))
    return as_lines(text, TRACEBACK)


def raw_traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception, as Python prints it."""
    return _traceback_by(lambda: "".join(format_exception(error)))


def _traceback_by(read: Callable[[], str]) -> str:
    try:
        return read()
    except BaseException as error:  # an exception may have attributes that raise others
        return f"<a traceback that cannot be read: {type(error).__name__}>"


def _traceback_lines(trace: TracebackException) -> Iterator[str]:
    """Yield the lines of `traceback.format_exception`. Further lines of the text of an exception are indented."""
    if trace.__cause__ is not None:
        yield from _traceback_lines(trace.__cause__)
        yield "\nThe above exception was the direct cause of the following exception:\n"
    elif trace.__context__ is not None and not trace.__suppress_context__:
        yield from _traceback_lines(trace.__context__)
        yield "\nDuring handling of the above exception, another exception occurred:\n"
    if trace.exceptions:  # a group, all of whose lines are indented
        yield from "".join(trace.format(chain=False)).rstrip("\n").split("\n")
        return
    yield "Traceback (most recent call last):"
    yield from "".join(trace.stack.format()).rstrip("\n").split("\n")
    is_told, has_source = False, hasattr(trace, "msg")  # as a SyntaxError, whose first lines are indented
    for line in "".join(trace.format_exception_only()).rstrip("\n").split("\n"):
        is_at_the_left = not is_told and line[:1].isidentifier()  # else it might look like a line of the log
        yield line if is_at_the_left or line.startswith(" ") else f"    {line}"
        is_told = is_told or not (has_source and line.startswith(" "))


class OncePer:
    """Says whether to log what may happen thousands of times a second: once in a number of seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = 0.0

    def __call__(self) -> bool:
        if monotonic() < self._next:
            return False
        self._next = monotonic() + self._seconds
        return True


def count_of(number: int, one: str, many: str = "") -> str:
    """Return a number of things: ``1 job``, ``1,200 jobs``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def some_named(names: Sequence[str], most: int) -> str:
    """Return the first names of several in a row, and ``…`` if there are more."""
    return ", ".join([*names[:most], *(["…"] if len(names) > most else [])])
