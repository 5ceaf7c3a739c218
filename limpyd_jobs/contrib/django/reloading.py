"""A worker that begins anew when code has changed: by Django's autoreloader, but its job is finished before.

Django runs a server in a thread of a child process, beside the reloader, and ends the process. A worker needs the main
thread for signals and limits of time, so here the reloader has the other thread, and only asks the worker to end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.utils import autoreload

# The exit status that asks for a new child, as in Django.
BEGIN_ANEW = 3

# That of a program that an exception ended, such as one of an import.
FAILED = 1

# How many seconds to let pass before files are looked at again.
LOOK_INTERVAL = 1.0


def is_child() -> bool:
    """Whether this process is one that `run_reloading` started."""
    return os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true"


@contextmanager
def watch_code(watches: bool) -> Iterator[None]:
    """Let the worker in the block end when code has changed, and the process with the status that asks for another."""
    if not watches:
        yield
        return
    changed = threading.Event()
    threading.Thread(target=_watch, args=(changed,), name="limpyd-jobs-reloader", daemon=True).start()
    try:
        yield
    finally:
        if changed.is_set():
            sys.exit(BEGIN_ANEW)


def _watch(changed: threading.Event) -> None:
    """Wait until Django's reloader would end this process, and ask the worker to end."""
    try:
        autoreload.get_reloader().run(threading.main_thread())
    except SystemExit:
        changed.set()
        print("Code has changed: the worker begins anew, once its job is finished", file=sys.stderr, flush=True)
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # there is no worker yet
            os._exit(BEGIN_ANEW)
        os.kill(os.getpid(), signal.SIGTERM)


def run_reloading() -> int:
    """Run this command in a child, and in another one whenever it asks for it; return the exit status of the last.

    If a child failed, as it does when code that was changed cannot be imported, wait for the next change.
    """
    parent = _Parent()
    while True:
        status = parent.run_child()
        if parent.is_ended or status not in (FAILED, BEGIN_ANEW):
            return status
        if status == FAILED and not parent.wait_for_change():
            return status


class _Parent:
    """Hands signals that end it on to its child. Ctrl-C reaches both; a second signal changes nothing for a worker."""

    def __init__(self) -> None:
        self.is_ended = False
        self._child: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)

    def _end(self, number: int, frame: Any) -> None:
        self.is_ended = True
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)

    def run_child(self) -> int:
        """Run a child until it ends; return its exit status."""
        self._files = _files()
        environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
        self._child = subprocess.Popen(autoreload.get_child_arguments(), env=environment, close_fds=False)
        if self.is_ended:  # the signal came before there was a child
            self._child.send_signal(signal.SIGTERM)
        return self._child.wait()

    def wait_for_change(self) -> bool:
        """Wait until a file has changed since the child was started; return whether one has."""
        print("The worker failed: it begins anew when code has changed", file=sys.stderr)
        while not self.is_ended:
            if _files() != self._files:
                return True
            time.sleep(LOOK_INTERVAL)
        return False


def _files() -> dict[Path, float]:
    """Return when each file of code was changed."""
    found = {}
    for path in autoreload.iter_all_python_module_files():
        try:
            found[path] = path.stat().st_mtime
        except OSError:  # it was deleted meanwhile
            continue
    return found
