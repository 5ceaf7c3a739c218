"""What the code of a job leaves in the process of its worker: what later jobs find there, and memory in use."""

from __future__ import annotations

import decimal
import locale
import os
import signal
import socket
import sys
import warnings
from _signal import getsignal  # type: ignore[import-not-found]
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from math import inf
from time import monotonic
from typing import Any

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models import Job
from limpyd_jobs.texts import one_line, size_text
from limpyd_jobs.workers.context import Context, Face
from limpyd_jobs.workers.log import label_of
from limpyd_jobs.workers.process.signals import DUMP, HANG_UP, INTERRUPT, QUIET, TERMINATE, is_in_main_thread

# After how many seconds to look again at what takes longer.
INTERVAL = 1.0

SIGNALS = (TERMINATE, INTERRUPT, HANG_UP, DUMP, QUIET)

# Where Linux says the umask: to ask the system for it means to change it, for all threads.
STATUS = "/proc/self/status"


def _umask() -> str:
    with open(STATUS, encoding="ascii", errors="replace") as status:
        return next((line.split()[1] for line in status if line.startswith("Umask:")), "")


def _filters() -> list[str]:
    """Return the filters of warnings that are for all of them: others come with many an import."""
    return [each[0] for each in warnings.filters if each[1:4] == (None, Warning, None)]


# What belongs to the process, and who can say how it is.
KNOWN: dict[str, Callable[[], Any]] = {
    "the working directory": os.getcwd,
    "the umask": _umask,
    "the locale": lambda: locale.setlocale(locale.LC_ALL),
    "sys.stdout": lambda: sys.stdout,
    "sys.stderr": lambda: sys.stderr,
    "the filters of all warnings": _filters,
    "the default timeout of sockets": socket.getdefaulttimeout,
    # If there is one already, contexts share it; if there is none, do not make one that they would share.
    "the precision of decimals": lambda: copy_context().run(decimal.getcontext).prec,
}


class Leftovers:
    """Puts back the handlers of signals, without which a worker would not end when it is asked to. It names the rest in
    the log, each once, because an application may mean it.
    """

    terminate: Any = None  # the handler of SIGTERM before the first job, as `_signal` gives it
    due = inf  # when to look again in any case, by the clock of `monotonic`

    def __init__(self, log: Callable[[str, str], None]) -> None:
        self._log = log  # takes a message and its level
        self._handlers: dict[signal.Signals, Any] = {}
        self._found: dict[str, Any] = {}

    def begin(self) -> None:
        """Remember how it is before the first job."""
        self._handlers = {number: signal.getsignal(number) for number in SIGNALS}
        self.terminate = getsignal(TERMINATE)
        self._found = {what: _said(say) for what, say in KNOWN.items()}
        self.due = monotonic() + INTERVAL

    def look(self, job: Job | None = None) -> None:
        """Look what the last job has left, once no job runs."""
        for number, handler in self._handlers.items() if is_in_main_thread() else ():
            if signal.getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)
                self._tell(f"a handler of {number.name}, which is taken away", job)
        if monotonic() >= self.due:
            self.due = monotonic() + INTERVAL
            self._look_at_the_rest(job)

    def _look_at_the_rest(self, job: Job | None) -> None:
        for what, before in list(self._found.items()):
            now = _said(KNOWN[what])
            if now != before:
                del self._found[what]
                self._tell(f"{what} changed to {one_line(now)} from {one_line(before)}, as later jobs find it", job)

    def _tell(self, what: str, job: Job | None) -> None:
        who = f"{label_of(job)} or a job before it" if job else "A job"
        self._log(f"{who} left {what}", "warning")


def _said(say: Callable[[], Any]) -> Any:
    try:
        return say()
    except (OSError, ValueError, locale.Error) as error:
        return f"unknown: {error}"


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
