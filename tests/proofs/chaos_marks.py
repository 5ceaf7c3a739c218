"""The marks by which the processes of the chaos test tell, outside of Redis, what they did, and when.

They are the ledger of effects, too: each unit of its work that a job has done is such a mark.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Thread
from time import monotonic
from types import TracebackType
from typing import Any

from limpyd_jobs.dates import parse_datetime, utcnow
from limpyd_jobs.records.records import redis_of

# Environment variables: where the marks go; who makes them; whether a process of that name has children, which have
# marks of their own; the sockets of the databases, if the jobs are in several.
DIRECTORY = "CHAOS_DIRECTORY"
NAME = "CHAOS_NAME"
HAS_CHILDREN = "CHAOS_HAS_CHILDREN"
SOCKETS = "CHAOS_SOCKETS"

# How often a process looks whether it had the time to look, and how late it may be, in seconds.
PULSE, HICCUP = 0.05, 0.05


class Marks:
    """A file to which one process appends a line at a time, so that all are there that were written before it died.

    Times are those of the monotonic clock, which all processes of a machine share.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, kind: str, **details: Any) -> None:
        os.write(self._file, (json.dumps({"kind": kind, "at": monotonic(), **details}) + "\n").encode())


def marks() -> Marks:
    """Return the marks of this process."""
    name = os.environ[NAME]
    return _marks_of(f"{name}.{os.getpid()}" if HAS_CHILDREN in os.environ else name)


@cache
def _marks_of(name: str) -> Marks:
    return Marks(Path(os.environ[DIRECTORY]) / f"{name}.marks")


def read_marks(directory: Path, name: str = "*") -> Iterator[dict[str, Any]]:
    """Yield all marks, or those of one process and its children, each with its name, but not a line that was cut off by
    its end."""
    for path in {*directory.glob(f"{name}.marks"), *directory.glob(f"{name}.*.marks")}:
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield {"name": path.stem, **json.loads(line)}


class Pulse:
    """A thread that marks each time that this process could do nothing: it was stopped, or the machine was busy.

    Given something to ask, it marks when there was no answer for so long, too.
    """

    def __init__(self, into: Marks, ask: Callable[[], object] = lambda: None) -> None:
        self._marks, self._ask = into, ask
        self._is_stopped = False
        Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        self._is_stopped = True

    def _run(self) -> None:
        while not self._is_stopped:
            before = monotonic()
            time.sleep(PULSE)
            with suppress(Exception):  # of Redis; or any, if the connection is closed while it is read
                self._ask()
            late = monotonic() - before - PULSE
            if late > HICCUP:
                self._marks.write("hiccup", seconds=late)


def name_of(job: Any) -> str:
    """Return the ident of a job, with the number of its database if there are several."""
    sockets = os.environ.get(SOCKETS, "").split()
    if len(sockets) < 2:
        return str(job.ident)
    path = redis_of(job).connection_pool.connection_kwargs["path"]
    return f"{job.ident} in {sockets.index(path)}"


class Telling:
    """One run of a job, which tells when its code begins and ends, or is left by an exception; and what it has done."""

    def __init__(self, job: Any) -> None:
        self._told = {"ident": name_of(job), "token": job.attempt_token}
        self._start = vars(job)["_delivery"].start

    def __enter__(self) -> Telling:
        claimed = parse_datetime(self._start)
        age = (utcnow() - claimed).total_seconds() if claimed else 0.0
        marks().write("start", **self._told, claimed=monotonic() - age)
        return self

    def unit(self, name: str) -> None:
        """A unit of its work is done."""
        marks().write("unit", **self._told, unit=name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            marks().write("end", **self._told)
        else:
            marks().write("left", **self._told, by=kind.__name__)
