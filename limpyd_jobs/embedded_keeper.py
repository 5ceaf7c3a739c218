"""Runs the server of `limpyd_jobs.embedded` while it has users, then stops it and cleans up.

A program of its own, on the standard library alone: it starts at once, and outlives whoever started it. It
says ``ready`` when its server answers, ``busy`` if another keeper has the directory already, or else what
went wrong.

Two locks make it work; the kernel releases both, however their holders end:

- the one of the directory is shared by the users of the server. The keeper waits to have it alone: then
  there are no more users, and new ones wait until the keeper has gone;
- the one of the file ``lock`` is held by the keeper, and by its server, so that there is no second one.

While the server runs, the symbolic link ``socket`` leads to its socket. That is in a temporary directory, as
the path of a socket cannot be longer than about 100 bytes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

READY, BUSY = "ready", "busy"
LONGEST_PARENT = 70  # bytes, of the path of a directory in which sockets can have theirs
STOP_TIMEOUT = 60  # seconds
PR_SET_PDEATHSIG = 1


class ServerEnded(Exception):
    """The server ended by itself."""


def main(program: str, directory: Path, is_temporary: bool) -> None:
    """Run the server of a directory from now until nobody uses it."""
    lock = take_lock(directory / "lock")
    if lock is None:
        say(BUSY)
        return
    go_to_background()
    home = directory if is_temporary else make_temporary_directory()
    try:
        keep_server(program, directory, home, lock)
    except ServerEnded:
        say((home / "log").read_text(errors="replace"))
    finally:
        (directory / "socket").unlink(missing_ok=True)
        shutil.rmtree(home)
        (directory / "lock").unlink(missing_ok=True)


def keep_server(program: str, directory: Path, home: Path, lock: int) -> None:
    """Run the server until it has no users."""
    server = start(program, directory, home, lock)
    try:
        wait_for_answer(server, str(home / "redis.sock"))
        publish(directory / "socket", home / "redis.sock")
        say(READY)
        wait_for_users_to_leave(server, directory)
    finally:
        stop(server)


def take_lock(path: Path) -> int | None:
    """Return the locked file, or None if another keeper or its server has it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    return lock if is_at(path, lock) else None


def is_at(path: Path, descriptor: int) -> bool:
    """Tell whether the open file is still the one of that name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def say(message: str) -> None:
    """Tell whoever waits for the start, who waits no more then."""
    os.write(1, message.encode())
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def go_to_background() -> None:
    """Leave the terminal, and be deaf to signals: the keeper ends when its work is done."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.umask(0o077)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def make_temporary_directory() -> Path:
    """Make a directory with a path short enough for a socket in it."""
    is_short = len(os.fsencode(tempfile.gettempdir())) <= LONGEST_PARENT
    return Path(tempfile.mkdtemp(prefix="limpyd-jobs-", dir=None if is_short else "/tmp"))


def start(program: str, directory: Path, home: Path, lock: int) -> subprocess.Popen[bytes]:
    """Start the server, which inherits the lock; it keeps its data unless its home is the directory."""
    path = str(home / "redis.sock").replace("\\", "\\\\").replace('"', '\\"')
    configuration = [
        "port 0",
        f'unixsocket "{path}"',
        "unixsocketperm 700",
        'save ""',
        f"appendonly {'no' if home == directory else 'yes'}",
        "loglevel warning",
    ]
    with open(home / "log", "wb") as log:
        server = subprocess.Popen(
            [program, "-"],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[lock],
            preexec_fn=end_with_parent,
        )
    assert server.stdin is not None
    with server.stdin as stdin:
        stdin.write("\n".join(configuration).encode() + b"\n")
    return server


def end_with_parent() -> None:
    """Have the kernel end this process if its parent, the keeper, is killed."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def wait_for_answer(server: subprocess.Popen[bytes], socket_path: str) -> None:
    """Return when the server has started and has read its data."""
    while not answers(socket_path):
        if server.poll() is not None:
            raise ServerEnded
        time.sleep(0.01)


def answers(socket_path: str) -> bool:
    """Tell whether a server at that socket takes commands."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        try:
            client.connect(socket_path)
            client.sendall(b"PING\r\n")
            return client.recv(5) == b"+PONG"
        except OSError:
            return False


def publish(link: Path, target: Path) -> None:
    """Make the link; one that is there already is left from a crash."""
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def wait_for_users_to_leave(server: subprocess.Popen[bytes], directory: Path) -> None:
    """Return when the last user is gone: the directory remains locked, to keep new ones out."""
    signal.signal(signal.SIGCHLD, raise_server_ended)
    if server.poll() is None:
        fcntl.flock(os.open(directory, os.O_RDONLY), fcntl.LOCK_EX)


def raise_server_ended(*_: object) -> NoReturn:
    raise ServerEnded


def stop(server: subprocess.Popen[bytes]) -> None:
    """Let the server write what it has to, and end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    server.terminate()
    try:
        server.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main(program=sys.argv[1], directory=Path(sys.argv[2]), is_temporary=sys.argv[3] == "temporary")
