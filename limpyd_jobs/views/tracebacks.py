"""A traceback as it is read: the frames of the application open, those of libraries and of ours folded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from limpyd_jobs.search.fingerprints import owner_of_file

_FRAME = re.compile(r'^[ |]*File "(?P<file>.+?)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_MARKS = re.compile(r"^[ |]*[~^ ]+$")

# How many characters of a path are shown: its end.
MAX_PATH = 60


class ShownFrame(NamedTuple):
    """A frame of a traceback.

    Attributes
    ----------
    file: str
        The end of its path.
    line: str
        The number of the line.
    function: str
    code: list of str
        The lines of code, as far as they are stored, with the marks below.
    owner: str
        The name of the library; empty for the application.
    """

    file: str
    line: str
    function: str
    code: Sequence[str]
    owner: str


class Block(NamedTuple):
    """Consecutive frames of one owner, or lines of text between frames, such as the last one.

    Attributes
    ----------
    owner: str
        The name of the library, or libraries; empty for the application.
    frames: list of ShownFrame
    text: str
        The lines of text, if it has no frames.
    """

    owner: str
    frames: Sequence[ShownFrame]
    text: str

    @property
    def is_folded(self) -> bool:
        return bool(self.owner)


def blocks_of(traceback: str, job_class: str) -> list[Block]:
    """Return a traceback in blocks, given the path of the job class: its package is part of the application."""
    package, blocks = job_class.partition(".")[0], list[Block]()
    for is_frame, parts in groupby(_parts_of(traceback, package), key=lambda part: isinstance(part, ShownFrame)):
        if not is_frame:
            text = "\n".join(f"{part}" for part in parts).strip("\n")
            blocks += [Block("", [], text)] if text else []
            continue
        frames = [part for part in parts if isinstance(part, ShownFrame)]
        for is_own, some in groupby(frames, key=lambda frame: not frame.owner):
            those = [*some]
            owners = [*dict.fromkeys(frame.owner for frame in those)]
            blocks.append(Block("" if is_own else ", ".join(owners), those, ""))
    return blocks


def _parts_of(traceback: str, package: str) -> Iterator[ShownFrame | str]:
    frame: ShownFrame | None = None
    for line in traceback.splitlines():
        match = _FRAME.match(line)
        goes_on = not match and frame and (line.startswith("    ") or _MARKS.match(line))
        if frame and not goes_on:
            yield frame
            frame = None
        if match:
            file = match["file"]
            end = file if len(file) <= MAX_PATH else f"…{file[-MAX_PATH:]}"
            frame = ShownFrame(end, match["line"], match["function"] or "", [], owner_of_file(file, package))
        elif frame:
            frame = frame._replace(code=[*frame.code, line.removeprefix("    ")])
        elif line != "Traceback (most recent call last):":
            yield line
    if frame:
        yield frame
