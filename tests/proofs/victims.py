"""WorkerPool that die at a chosen command: one is forked for each order, from a program that has no threads.

>>> with Victims(redis_server.socket) as victims:
...     victims.run("add, new", die_at=3, moment="before")
'BLPOP'

Run as a program with the path of a socket, it takes the orders from its standard input.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import redis.utils
from redis.connection import AbstractConnection

MOMENTS = {
    "before": "killed before it sends a command",
    "after": "killed once the server has answered, before it reads the answer",
}

_is_counting = False


class Victims:
    """The program that forks the victims."""

    def __init__(self, socket: str) -> None:
        command = [sys.executable, "-W", "ignore", __file__, socket]
        path = os.pathsep.join(str(each) for each in (Path(__file__).parent, Path(__file__).parents[1]))
        environment = {**os.environ, "PYTHONPATH": path}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, path: str, die_at: int, moment: str) -> str:
        """Let a process go along a path; return the name of the command it died at, or an empty string if it ended.

        Raises
        ------
        RuntimeError
            If it failed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([path, die_at, moment]) + "\n")
        self._process.stdin.flush()
        status, command = json.loads(self._process.stdout.readline())
        if status not in (0, -signal.SIGKILL):
            raise RuntimeError(f"{path}: the process ended with status {status}")
        return str(command)

    def __enter__(self) -> Victims:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.communicate()


@contextmanager
def uncounted() -> Iterator[None]:
    """What is sent inside the block, another process might have sent as well: the victim does not die of it."""
    global _is_counting
    before, _is_counting = _is_counting, False
    try:
        yield
    finally:
        _is_counting = before


def _fork_for_each_order(socket: str) -> None:
    importlib.import_module("boundaries")  # once, for all victims, as all below
    redis.utils.get_lib_version = cache(redis.utils.get_lib_version)
    for script in importlib.import_module("all_scripts").ALL_SCRIPTS:
        script.positions, script.sha  # noqa: B018
    gc.freeze()  # so that no victim copies what all have in common
    for line in sys.stdin:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _live(socket, writer, *json.loads(line))
        os.close(writer)
        with open(reader) as pipe:
            command = pipe.read()
        _, status = os.waitpid(pid, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), command]), flush=True)


def _live(socket: str, last_words: int, path: str, die_at: int, moment: str) -> NoReturn:
    status = 1
    try:
        from boundaries import PATHS

        from limpyd_jobs.models import BaseJobsModel

        BaseJobsModel.database.connect(unix_socket_path=socket, db=0).ping()
        _prepare_to_die(die_at, moment, last_words)
        PATHS[path].act()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _prepare_to_die(die_at: int, moment: str, last_words: int) -> None:
    global _is_counting
    send, numbers = AbstractConnection.send_packed_command, count(1)

    def die(command: Any) -> None:
        os.write(last_words, _name_of(command).encode())
        os.kill(os.getpid(), signal.SIGKILL)

    def send_or_die(self: Any, command: Any, check_health: bool = True) -> None:
        is_last = _is_counting and next(numbers) == die_at
        if is_last and moment == "before":
            die(command)
        send(self, command, check_health)
        if is_last:
            select.select([self._sock], [], [])
            die(command)

    AbstractConnection.send_packed_command = send_or_die  # type: ignore[method-assign]
    _is_counting = True


def _name_of(command: Any) -> str:
    """The name of a packed command, and that of the script it runs."""
    from all_scripts import ALL_SCRIPTS

    words = b"".join([command] if isinstance(command, bytes) else command).split(b"\r\n")
    name, first = words[2].decode(), words[4].decode() if len(words) > 4 else ""
    scripts = {each.sha: each.name for each in ALL_SCRIPTS}
    return f"{name} {scripts.get(first, '')}".strip()


if __name__ == "__main__":
    sys.modules["victims"] = sys.modules["__main__"]
    _fork_for_each_order(sys.argv[1])
