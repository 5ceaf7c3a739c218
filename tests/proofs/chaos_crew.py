"""The processes of the chaos test: they are started, hit and ended here, and replaced when they are gone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

from chaos_marks import DIRECTORY, HAS_CHILDREN, NAME

HERE = Path(__file__).parent
PATH = [str(HERE), str(HERE.parent)]

# Where processes find the modules: here, and where this one does.
PYTHONPATH = os.pathsep.join(filter(None, [*PATH, os.environ.get("PYTHONPATH")]))

# How many seconds a process that was asked to end has for it.
TIME_TO_END = 30


class Crew:
    """The processes of one kind.

    Attributes
    ----------
    size: int
        How many there are after `fill`.
    members: dict
        The processes, by their names; none is used again.
    leaving: dict
        Those that were asked to end, and have not yet.
    gone: dict
        When those were gone that have ended, by their names.
    """

    def __init__(self, kind: str, size: int, directory: Path, command: Callable[[int], list[str]], **env: str) -> None:
        self.members: dict[str, subprocess.Popen[bytes]] = {}
        self.leaving: dict[str, subprocess.Popen[bytes]] = {}
        self.gone: dict[str, float] = {}
        self.size = size
        self._kind, self._directory, self._command, self._env = kind, directory, command, env
        self._number = 0
        self._until: dict[str, float] = {}

    def fill(self) -> None:
        while len(self.members) < self.size:
            self._number += 1
            name = f"{self._kind}-{self._number}"
            env = {**os.environ, **self._env, "PYTHONPATH": PYTHONPATH, DIRECTORY: str(self._directory), NAME: name}
            with open(self._directory / f"{name}.log", "wb") as log:
                self.members[name] = subprocess.Popen(self._command(self._number), env=env, stdout=log, stderr=log)

    def running(self) -> dict[str, int]:
        """Return the ids of the processes that do the work, by the names of their marks: children, if there are any."""
        if HAS_CHILDREN not in self._env:
            return {name: one.pid for name, one in self.members.items()}
        return {f"{name}.{pid}": pid for name, one in self.members.items() for pid in _children_of(one.pid)}

    def kill(self, name: str) -> None:
        """Kill a process, or a child, by its name; return once it is gone, if it is no child."""
        one = self.members.pop(name, None) or self.leaving.pop(name, None)
        if one is None:
            os.kill(int(name.rpartition(".")[2]), signal.SIGKILL)
            return
        one.kill()
        one.wait()
        self.gone[name] = monotonic()

    def dismiss(self, name: str) -> None:
        """Ask a process to end, and replace it meanwhile."""
        one = self.leaving[name] = self.members.pop(name)
        self._until[name] = monotonic() + TIME_TO_END
        one.terminate()

    def ended(self) -> Iterator[tuple[str, int]]:
        """Yield, and forget, those that ended by themselves, with their status."""
        for name, one in list(self.members.items()):
            if one.poll() is not None:
                del self.members[name]
                self.gone[name] = monotonic()
                yield name, one.returncode

    def left(self) -> Iterator[tuple[str, int | None]]:
        """Yield, and forget, those that ended because they were asked to, with their status: None for one that did not,
        and was killed."""
        for name, one in list(self.leaving.items()):
            is_late = monotonic() > self._until[name]
            if one.poll() is not None or is_late:
                yield name, one.poll()
                self.kill(name)

    def end(self) -> dict[str, int | None]:
        """Ask all to end; return their statuses, None for one that does not, and was killed."""
        for one in self.members.values():
            one.send_signal(signal.SIGCONT)
            one.terminate()
        statuses = {name: _status(one) for name, one in {**self.members, **self.leaving}.items()}
        for name in statuses:
            self.kill(name)
        return statuses


def _status(one: subprocess.Popen[bytes]) -> int | None:
    try:
        return one.wait(TIME_TO_END)
    except subprocess.TimeoutExpired:
        return None


def _children_of(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has just ended
        return []
