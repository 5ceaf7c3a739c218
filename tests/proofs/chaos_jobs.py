"""The jobs of the chaos test, and the marks by which they tell, outside of Redis, when they ran."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from limpyd_jobs import Error, Job, Queue

QUEUE = "chaos"

# Environment variables: where the marks go, and who makes them.
DIRECTORY = "CHAOS_DIRECTORY"
NAME = "CHAOS_NAME"


class Marks:
    """A file to which one process appends a line at a time, so that all are there that were written before it died.

    Times are those of the monotonic clock, which all processes of a machine share.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, kind: str, **details: Any) -> None:
        os.write(self._file, (json.dumps({"kind": kind, "at": monotonic(), **details}) + "\n").encode())


@cache
def marks() -> Marks:
    """Return the marks of this process."""
    return Marks(Path(os.environ[DIRECTORY]) / f"{os.environ[NAME]}.marks")


def read_marks(directory: Path, name: str = "*") -> Iterator[dict[str, Any]]:
    """Yield all marks, or those of one process, each with its name, but not a line that was cut off by its end."""
    for path in directory.glob(f"{name}.marks"):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield {"name": path.stem, **json.loads(line)}


class Quick(Job):
    """A job that takes no time."""

    namespace = "chaos"
    queue_name = QUEUE
    seconds = 0.0

    def run(self, queue: Queue) -> None:
        told = {"ident": self.ident, "token": self._held_token}
        marks().write("start", **told)
        sleep(self.seconds)
        marks().write("end", **told)


class Slow(Quick):
    namespace = "chaos-slow"
    seconds = 0.3


class Long(Quick):
    """A job that takes longer than the lease."""

    namespace = "chaos-long"
    seconds = 3.0


class Waiting(Quick):
    """A coroutine, which leaves its thread to others."""

    namespace = "chaos-waiting"

    async def run(self, queue: Queue) -> None:  # type: ignore[override]
        told = {"ident": self.ident, "token": self._held_token}
        marks().write("start", **told)
        await asyncio.sleep(0.3)
        marks().write("end", **told)


class Failing(Quick):
    """A job that fails, each time it is run."""

    namespace = "chaos-failing"

    def run(self, queue: Queue) -> None:
        super().run(queue)
        raise ValueError("it fails")


JOBS = (Quick, Slow, Long, Waiting, Failing)
MODELS = (*JOBS, Queue, Error)
