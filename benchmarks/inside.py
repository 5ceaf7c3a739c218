"""What the files of the peers use, inside the environment of each peer: where Redis is, and the mark of a job.

Every job of every peer does one thing: it reads its argument, a number, and calls `mark` with it. For `at_once.py` it
waits after that, as many others do at once. Each process that
runs jobs has a file in the directory of the marks: how many jobs it began, and when it began the last one, by the clock
that all processes of the machine share.
So what is measured is seen from outside, in the same way for all, and costs a job less than a microsecond.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

LAYOUT = struct.Struct("=qd")  # jobs, and the moment of the last one, in seconds of the monotonic clock
GATE = "open"

URL = os.environ.get("BENCHMARK_URL", "redis://127.0.0.1:6379/0")
HOST, PORT = urlsplit(URL).hostname or "", urlsplit(URL).port or 6379
DIRECTORY = Path(os.environ.get("BENCHMARK_MARKS", "."))

# What `at_once.py` asks for: how many jobs run at once, 0 for as many as the peer does by itself; for how many seconds
# each waits; and where to write which job was canceled, and when.
AT_ONCE = int(os.environ.get("BENCHMARK_AT_ONCE", "0"))
SECONDS = float(os.environ.get("BENCHMARK_SECONDS", "0"))
CANCELED = DIRECTORY / "canceled"  # for each job that is canceled: its number, and when its code was told

# What `limits_and_flows.py` asks for: of how many keys jobs are, and how many of one key may run at once, 0 for no
# limit; and how many jobs a flow has before its last one.
KEYS = int(os.environ.get("BENCHMARK_KEYS", "1"))
MOST = int(os.environ.get("BENCHMARK_MOST", "0"))
CHILDREN = int(os.environ.get("BENCHMARK_CHILDREN", "0"))
SPAN = struct.Struct("=qdd")  # the key of a job, and when its code began and ended

_lock = threading.Lock()
_marks: dict[int, _Mark] = {}  # by process: one that was forked has its own


class _Mark:
    """The file of this process. Its first job waits until the gate is open, so that all workers begin at once."""

    def __init__(self) -> None:
        self.jobs = 0
        with open(DIRECTORY / f"{os.getpid()}.mark", "w+b") as file:
            file.truncate(LAYOUT.size)
            self.memory = mmap.mmap(file.fileno(), LAYOUT.size)
        while not (DIRECTORY / GATE).exists():
            time.sleep(0.0005)

    def make(self) -> None:
        self.jobs += 1
        LAYOUT.pack_into(self.memory, 0, self.jobs, time.monotonic())


def mark(number: int) -> None:
    """Tell that a job runs, which has read its argument. It is all that the jobs do."""
    if type(number) is not int:
        raise TypeError(f"the argument was not read: {number!r}")
    with _lock:
        pid = os.getpid()
        if pid not in _marks:
            _marks[pid] = _Mark()
        _marks[pid].make()


@contextmanager
def span(key: int) -> Iterator[None]:
    """Tell from when to when the code of a job of a key ran, within what holds its slot."""
    began = time.monotonic()
    yield
    with open(DIRECTORY / f"{os.getpid()}.spans", "ab", buffering=0) as file:
        file.write(SPAN.pack(key, began, time.monotonic()))


def read_spans(directory: Path) -> list[tuple[int, float, float]]:
    """Return what all processes wrote of their jobs: the key, and when the code began and ended."""
    return [each for path in directory.glob("*.spans") for each in SPAN.iter_unpack(path.read_bytes())]


def read_marks(directory: Path) -> list[tuple[int, float]]:
    """Return what each process wrote: how many jobs it began, and when the last one."""
    texts = [path.read_bytes() for path in directory.glob("*.mark")]
    return [LAYOUT.unpack(text) if len(text) == LAYOUT.size else (0, 0.0) for text in texts]
