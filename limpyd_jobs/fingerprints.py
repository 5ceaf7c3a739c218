"""How errors of the same cause are recognised: plain functions, which know nothing of Redis.

The fingerprint of an error is made of its type, of its message without what differs from job to job, and of the place
in the application where it was raised. It is the same wherever the application is installed, and on all versions of
Python.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import pairwise
from traceback import walk_tb
from types import TracebackType
from typing import NamedTuple

LENGTH = 16  # the length of a fingerprint, in hexadecimal digits
MOST = 2000  # how many characters of a message are looked at
SHORTEST = 4  # characters of an identifier; a shorter one may stand in any word of a message

# What differs from job to job, and the word that stands for it in a normalised message; tried in this order.
_VARIABLES = (
    ("<text>", r"(?<!\w)[bru]{0,2}'(?:\\.|[^'\\])*'(?!\w)"),
    ("<text>", r'(?<!\w)[bru]{0,2}"(?:\\.|[^"\\])*"(?!\w)'),
    ("<text>", r"(?<!\w)`[^`]*`(?!\w)"),
    ("<address>", r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    ("<id>", r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    ("<id>", r"\b0x[0-9a-f]+\b"),
    ("<id>", r"\b(?=[a-f]*\d)[0-9a-f]*[a-f][0-9a-f]*\b(?<=[0-9a-f]{7})"),
    ("<number>", r"(?:(?<!\w)[+-])?\d+(?:[.,:-]\d+)*(?:e[+-]?\d+)?"),
)
_NOTHING_ELSE = re.compile(r"(?:<\w+>|\W)*")
_VARIABLE = re.compile("|".join(f"({pattern})" for _, pattern in _VARIABLES), re.IGNORECASE | re.DOTALL)

# What versions of Python say differently, as the later ones do.
_REWORDED = (
    (
        re.compile(r"^local variable (<text>) referenced before assignment$"),
        r"cannot access local variable \1 where it is not associated with a value",
    ),
    (
        re.compile(r"^free variable (<text>) referenced before assignment in enclosing scope$"),
        r"cannot access free variable \1 where it is not associated with a value in enclosing scope",
    ),
    (re.compile(r"^(maximum recursion depth exceeded) .*$"), r"\1"),
    (re.compile(r"( got an unexpected keyword argument <text>)\. Did you mean <text>\?$"), r"\1"),
)

# A frame in the text of a traceback; in that of a group of exceptions, something stands before it.
_FRAME = re.compile(r'^[ |]*File "(.+?)", line \d+, in (.+)$', re.MULTILINE)

# Since Python 3.12 these have no frames of their own.
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")

_OURS = os.path.dirname(__file__) + os.sep
_SEPARATORS = re.compile(r"[/\\]+")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*(?:zip)?$")
_SITES = ("site-packages", "dist-packages")


class _Frame(NamedTuple):
    """Where a function was left: the path of its file, and its name."""

    file: str
    function: str


def fingerprint(
    type_name: str, message: str, traceback: str | TracebackType | None, job_class: str, identifier: str = ""
) -> str:
    """Return the fingerprint of an error.

    Parameters
    ----------
    type_name: str
        The name of the class of the exception.
    message: str
        Its text.
    traceback: str or traceback
        Its traceback, or the text of its traceback; None if it has none.
    job_class: str
        The path of the class of the job. Its package is part of the application, even if it is installed like a
        library.
    identifier: str
        The identifier of the job.
    """
    place = _place(_frames_of(traceback), job_class.partition(".")[0])
    text = "\n".join((type_name, normalised(message, identifier), place))
    return sha256(text.encode(errors="replace")).hexdigest()[:LENGTH]


def is_fingerprint(text: str) -> bool:
    """Whether a text looks like a fingerprint. Names of types do not."""
    return len(text) == LENGTH and not text.strip("0123456789abcdef")


def normalised(message: str, identifier: str = "") -> str:
    """Return a message in one line, words in the place of numbers, ids, addresses, quoted texts, and the identifier of
    the job.

    >>> normalised("no page 12 of 'report.pdf'")
    'no page <number> of <text>'
    """
    text = message[:MOST]
    if len(identifier) >= SHORTEST:
        text = text.replace(identifier, "<identifier>")
    text = _VARIABLE.sub(lambda match: _VARIABLES[(match.lastindex or 1) - 1][0], text)
    text = " ".join(text.split())
    for pattern, replacement in _REWORDED:
        text = pattern.sub(replacement, text)
    return text


def summary(message: str, identifier: str = "") -> str:
    """Return how a message is shown for all errors of its cause: normalised; or as it is, if nothing of it is the same.

    >>> summary("no page 12 of 'report.pdf'"), summary("'report.pdf'")
    ('no page <number> of <text>', "'report.pdf'")
    """
    text = normalised(message, identifier)
    return " ".join(message[:MOST].split()) if _NOTHING_ELSE.fullmatch(text) else text


def _place(frames: Iterable[_Frame], package: str) -> str:
    """Return the last frame of the application, of some frames with the outermost first: the end of the path of its
    file, and its function. Return nothing if no frame is of the application."""
    for file, function in reversed([*frames]):
        if function not in _COMPREHENSIONS and _is_of_application(file, package):
            return normalised("/".join(_SEPARATORS.split(file)[-2:])) + ":" + function
    return ""


def _frames_of(traceback: str | TracebackType | None) -> Iterator[_Frame]:
    if isinstance(traceback, str):
        yield from (_Frame(*match.groups()) for match in _FRAME.finditer(traceback))
    else:
        codes = (frame.f_code for frame, _ in walk_tb(traceback))
        yield from (_Frame(code.co_filename, code.co_name) for code in codes)


def _is_of_application(file: str, package: str) -> bool:
    """Whether a file is not part of Python, of this library, or of another installed library."""
    if file.startswith(("<", _OURS)):  # <frozen importlib._bootstrap>, <string>
        return False
    folders = _SEPARATORS.split(file)
    pairs = [*pairwise(folders)]
    installed = [name for folder, name in pairs if folder in _SITES]
    if installed:
        return bool(package) and installed[-1] in (package, f"{package}.py")
    # /usr/lib/python3.11/json/decoder.py, C:\Python311\Lib\json\decoder.py
    return not any(folder == "Lib" or (folder in ("lib", "lib64") and _PYTHON.match(name)) for folder, name in pairs)
