"""How errors of the same cause are recognised: by a fingerprint of the type and the place where it was raised.

The place is a module of the application, a function, and the text of the line; without one, the pattern of the message
stands for it: see `limpyd_jobs.search.message_patterns`.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from traceback import walk_tb
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from limpyd_jobs.search.message_patterns import pattern_of
from limpyd_jobs.texts import printable

LENGTH = 16  # the length of a fingerprint, in hexadecimal digits
MAX_PLACE = 300  # in characters

# These may be raised at any line, because time or memory is over: their place is where the code of the job begins.
RAISED_ANYWHERE = ("JobTimeout", "MemoryError", "RecursionError")

# A frame in the text of a traceback, with its line; in that of a group of exceptions, something stands before it.
_FRAME = re.compile(r'^([ |]*)File "(.+?)", line \d+, in (.+)(?:\n\1  +(\S.*))?$', re.MULTILINE)

# Since Python 3.12 these have no frames of their own.
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")

_OUR_PACKAGE = __name__.partition(".")[0]
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_STDLIB = os.path.dirname(os.__file__) + os.sep
_SEPARATORS = re.compile(r"[/\\]+")
_PYTHON = re.compile(r"(?:python|pypy)\d[\d.]*t?(?:\.zip)?$")
_PYTHON_ON_WINDOWS = re.compile(r"python[\d.]*$", re.IGNORECASE)
_SITES = ("site-packages", "dist-packages")


class Cause(NamedTuple):
    """What an error has in common with others: where it was raised, and what does not differ in its message."""

    fingerprint: str
    place: str
    pattern: str


class _Frame(NamedTuple):
    """Where a function was left: the path of its file, its module, its name, and the text of the line."""

    file: str
    module: str
    function: str
    line: str

    def __str__(self) -> str:
        return f"{self.module}, in {self.function}: {self.line}"[:MAX_PLACE]


def cause_of(
    type_name: str, message: str, raised: BaseException | str | None, job_class: str, identifier: str = ""
) -> Cause:
    """Return the cause of an error, by the exception with its traceback, or the text of that.

    The package of the job is part of the application, even if it is installed like a library.
    """
    pattern = pattern_of(message, identifier)
    innermost, kinds = _innermost(raised)
    package, is_first = job_class.partition(".")[0], type_name in RAISED_ANYWHERE
    place = _place(_frames_of(innermost), package, is_first=is_first)
    place = place or _place(_frames_of(raised), package, is_first=is_first)  # made with the group, not raised
    text = "\n".join((type_name, *kinds, place or pattern))
    return Cause(sha256(text.encode(errors="replace")).hexdigest()[:LENGTH], place, pattern)


def fingerprint_of(error: BaseException, job_class: Any, identifier: str = "") -> str:
    """Return the fingerprint of an exception of a job, as it is stored with its `Error`.

    Parameters
    ----------
    error: Exception
        With its traceback.
    job_class: type of Job
    identifier: str
        The identifier of the job, which does not count in the message.
    """
    return cause_of(type(error).__name__, printable(error), error, job_class.get_model_repr(), identifier).fingerprint


def is_fingerprint(text: str) -> bool:
    """Whether a text looks like a fingerprint. Names of types do not."""
    return len(text) == LENGTH and not text.strip("0123456789abcdef")


def _innermost(raised: BaseException | str | None) -> tuple[BaseException | str | None, list[str]]:
    """Return the first exception of a group, which says more than the group, and the types on the way to it."""
    kinds = []
    while isinstance(raised, BaseExceptionGroup):
        raised = raised.exceptions[0]
        kinds.append(type(raised).__name__)
    return raised, kinds


def _place(frames: Sequence[_Frame], package: str, *, is_first: bool) -> str:
    """Return the last frame of the application, or the first one without its line; empty if there is none."""
    foreign = [frame for frame in frames if not _is_of_python_or_ours(frame.file)]
    if package == _OUR_PACKAGE and foreign:  # the worker called a function of the application
        package = foreign[0].module.partition(".")[0]
    own = [frame for frame in foreign if _is_of_application(frame.file, package)]
    if not own:
        return ""
    return f"{own[0]._replace(line='')}".rstrip(": ") if is_first else f"{own[-1]}"


def _frames_of(raised: BaseException | str | None) -> Sequence[_Frame]:
    read: Callable[[Any], Iterator[_Frame]] = _read_frames if isinstance(raised, str) else _real_frames
    frames: list[_Frame] = []
    for frame in read(raised):
        if frame.function in _COMPREHENSIONS and frames:
            frame = frame._replace(function=frames.pop().function)
        frames.append(frame)
    return frames


def _read_frames(text: str) -> Iterator[_Frame]:
    modules = {
        file: _name_of(vars(module), file)
        for module in [*sys.modules.values()]
        if isinstance(module, ModuleType) and (file := vars(module).get("__file__")) and isinstance(file, str)
    }
    for _, file, function, line in _FRAME.findall(text):
        yield _Frame(file, modules.get(file) or _name_of_file(file), function, " ".join(line.split()))


def _real_frames(raised: BaseException | None) -> Iterator[_Frame]:
    for frame, number in walk_tb(raised.__traceback__ if raised else None):
        yield _real_frame(frame, number)


def _real_frame(frame: FrameType, number: int) -> _Frame:
    file = frame.f_code.co_filename
    line = linecache.getline(file, number, frame.f_globals)
    if not os.path.isabs(file) and not file.startswith("<"):  # as compilers write it
        file = f"{frame.f_globals.get('__file__', file)}"
    return _Frame(file, _name_of(frame.f_globals, file), frame.f_code.co_name, " ".join(line.split()))


def _name_of(namespace: Any, file: str) -> str:
    """Return the name of a module, given its names: the same, wherever it is, and also if it was run as a script."""
    name = namespace.get("__name__")
    if name == "__main__":
        name = getattr(namespace.get("__spec__"), "name", "") or os.path.splitext(os.path.basename(file))[0]
    return name if isinstance(name, str) else ""


def _name_of_file(file: str) -> str:
    """Return what a module of another process may be called: the end of its path."""
    folders = _SEPARATORS.split(re.sub(r"([/\\]__init__)?\.\w+$", "", file))
    return ".".join(map(pattern_of, folders[-2:]))


def _is_of_python_or_ours(file: str) -> bool:
    if file.startswith(("<", _OURS)):  # <frozen importlib._bootstrap>, <string>
        return True
    folders = _SEPARATORS.split(file)
    if _is_installed(folders):
        return _name_when_installed(folders) == _OUR_PACKAGE
    # /usr/lib/python3.11/json/decoder.py, C:\Python311\Lib\json\decoder.py
    return file.startswith(_STDLIB) or any(
        (folder in ("lib", "lib64") and _PYTHON.match(name)) or (name == "Lib" and _PYTHON_ON_WINDOWS.match(folder))
        for folder, name in pairwise(folders)
    )


def owner_of_file(file: str, package: str) -> str:
    """Return to which library a file belongs, ``python`` for Python itself; empty if it belongs to the application, or
    to a package that counts as such."""
    folders = _SEPARATORS.split(file)
    if _is_installed(folders):
        name = _name_when_installed(folders)
        return "" if name == package else name
    if file.startswith(_OURS):
        return _OUR_PACKAGE
    return "python" if _is_of_python_or_ours(file) else ""


def _is_of_application(file: str, package: str) -> bool:
    """Whether a file is not of an installed library, or is of this package."""
    folders = _SEPARATORS.split(file)
    return not _is_installed(folders) or _name_when_installed(folders) == package


def _is_installed(folders: Sequence[str]) -> bool:
    return not {*_SITES}.isdisjoint(folders)


def _name_when_installed(folders: Sequence[str]) -> str:
    """Return the name of the package, or module, of a file below ``site-packages``."""
    return [name for folder, name in pairwise(folders) if folder in _SITES][-1].removesuffix(".py")
