"""How much memory the process of a worker has in use, and the limit after which the worker ends."""

from __future__ import annotations

import os
from contextlib import suppress

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.texts import size_text
from limpyd_jobs.workers.context import Context, Face


def memory_of_process() -> int:
    """Return how much memory this process has in use, in bytes; 0 if the system does not say."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


class MemoryLimit:
    """Asks a worker to end after the job that leaves too much memory in use. Another worker follows, as after
    ``max_loops`` jobs."""

    def __init__(self, worker: Face, context: Context, most: int) -> None:
        self._worker, self._state, self._most = worker, context.state, most
        if not memory_of_process():
            raise ConfigurationException("max_memory needs /proc, to see how much memory is in use")

    def check(self) -> None:
        """A job is done. If one was not, to end would help nothing: the next process would have as much in use."""
        used = memory_of_process()
        if used > self._most and not self._worker.end_forced:
            self._worker.end_forced = True
            self._state.why = f"{size_text(used)} of memory in use, more than max_memory={size_text(self._most)}"
