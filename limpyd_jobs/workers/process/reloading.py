"""A worker that begins anew when code has changed. A parent watches the files, and asks its child to end: so the job
that runs is finished, and code that cannot be imported ends no parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from limpyd_jobs.exceptions import ConfigurationException

# What tells a process that it is such a child.
VARIABLE = "LIMPYD_JOBS_RELOADING"

# How often, in milliseconds, the parent looks whether its child has ended.
LOOK_INTERVAL = 200


def is_child() -> bool:
    """Whether this process is one that a parent watches for."""
    return bool(os.environ.get(VARIABLE))


def places_of(modules: Iterable[str], directories: Iterable[str]) -> set[Path]:
    """Return the directories whose files are watched: that of this process, the given ones, and those of modules."""
    found = {Path.cwd(), *map(Path, directories)}
    for name in modules:
        try:
            spec = find_spec(name.partition(".")[0])
        except (ImportError, ValueError):
            continue
        places = [*(spec.submodule_search_locations or ())] if spec else []
        found.update(map(Path, places or ([str(Path(spec.origin).parent)] if spec and spec.origin else [])))
    return {place for place in found if place.is_dir()}


def run_reloading(places: Iterable[Path]) -> int:
    """Run this command line in a child, and in another one whenever a file of Python in these directories changes;
    return the exit status of the last.

    Raises
    ------
    ConfigurationException
        If the package watchfiles is not installed.
    """
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        raise ConfigurationException("--reload needs watchfiles: pip install 'redis-limpyd-jobs[reload]'") from None
    parent = _Parent()
    for changes in watch(
        *places,
        watch_filter=PythonFilter(),
        rust_timeout=LOOK_INTERVAL,
        yield_on_timeout=True,
        raise_interrupt=False,
    ):
        status = parent.look(changes)
        if status is not None:
            return status
    return parent.ended()


class _Parent:
    """Hands the signal that ends it on to its child. Ctrl-C reaches both."""

    def __init__(self) -> None:
        self._is_ended = False
        self._has_told = False
        self._child: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)

    def _begin(self) -> None:
        self._has_told = False
        environment = {**os.environ, VARIABLE: "1"}
        self._child = subprocess.Popen([sys.executable, *sys.orig_argv[1:]], env=environment)

    def _end(self, number: int, frame: Any) -> None:
        self._is_ended = True
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)

    def look(self, changes: Iterable[Any]) -> int | None:
        """Begin anew if something has changed; return the exit status if it is over."""
        if self._is_ended:
            return self.ended()
        if self._child is None:  # the files are watched now
            self._begin()
        elif changes:
            names = ", ".join(sorted({Path(path).name for _, path in changes}))
            self._tell(f"{names} changed: the worker begins anew, once its job is finished")
            self._child.send_signal(signal.SIGTERM)
            self._child.wait()
            if self._is_ended:
                return self.ended()
            self._begin()
        elif self._child.poll() is not None:
            if self._child.returncode == 0:
                return 0
            if not self._has_told:
                self._has_told = True
                self._tell("The worker failed: it begins anew when code has changed")
        return None

    def ended(self) -> int:
        """Wait for the child, and return its exit status."""
        status = self._child.wait() if self._child is not None else 0
        return 128 - status if status < 0 else status

    @staticmethod
    def _tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)
