"""Python programs that start at once: in forks of a process that has imported the library, and nothing else, already.

`run` is `subprocess.run`, as far as the tests use it: the program has a process of its own, with its own arguments,
environment, directory and ``__main__``, and ends as any other.

>>> preloaded.run([sys.executable, "-c", "print(1)"]).stdout
'1\\n'
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import redis.utils

MODULES = ("limpyd_jobs.scripts.jobs", "limpyd_jobs.scripts.worker")
MAX_ORDER = 1 << 20  # bytes
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(
    command: list[str], *, cwd: Any = None, env: dict[str, str] | None = None, timeout: float = 60, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run ``[script, …]``, ``[python, script, …]`` or ``[python, "-c", code, …]``, and return what it printed.

    What is told to the interpreter itself, by an option or a variable, needs a start of its own, and has it.

    Raises
    ------
    subprocess.TimeoutExpired
    subprocess.CalledProcessError
        With ``check``, if its status is not 0.
    """
    arguments = command[1:] if command[0] == sys.executable else command
    environment = env or {**os.environ}
    if (arguments[0][0] == "-" and arguments[0] != "-c") or _told_to_python(environment) != _told_to_python(
        ENVIRONMENT
    ):
        return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=timeout, check=check)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        order = {"arguments": arguments, "directory": str(cwd or os.getcwd()), "environment": environment}
        status = _status_of(order, [output.fileno(), errors.fileno()], timeout)
        output.seek(0)
        errors.seek(0)
        done = subprocess.CompletedProcess(command, status, output.read(), errors.read())
    if check:
        done.check_returncode()
    return done


class Process:
    """A program that was started, and goes on; as `subprocess.Popen`, as far as the tests use it.

    Parameters
    ----------
    command: list of str
        As of `run`; what is told to the interpreter itself has no effect, but for ``PYTHONWARNINGS``.
    env: dict
    output: int
        The file for what it prints and says as an error.

    It is in a session of its own.
    """

    def __init__(self, command: list[str], *, env: dict[str, str], output: int) -> None:
        arguments = command[1:] if command[0] == sys.executable else command
        order = {"arguments": arguments, "directory": os.getcwd(), "environment": env, "is_session": True}
        self._reports = _start(order, [output, output])
        self._pending = b""
        self.returncode: int | None = None
        self.pid = self._read(60)

    def _read(self, timeout: float) -> int:
        self._reports.settimeout(timeout)
        while b"\n" not in self._pending:
            self._pending += self._reports.recv(64)
        line, _, self._pending = self._pending.partition(b"\n")
        return int(line)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float = 60) -> int:
        if self.returncode is None:
            try:
                self.returncode = self._read(timeout)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout) from None
            self._reports.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _told_to_python(environment: Mapping[str, str]) -> dict[str, str]:
    is_told = ("PYTHON", "LANG", "LC_")
    return {name: environment[name] for name in environment if name.startswith(is_told) and name != "PYTHONPATH"}


def _start(order: dict[str, Any], files: list[int]) -> socket.socket:
    """Have a process started; return where its id is told, and later its exit status, each in a line."""
    ours, theirs = socket.socketpair()
    with theirs, open(os.devnull) as nothing:
        message = json.dumps(order).encode()
        assert len(message) < MAX_ORDER
        socket.send_fds(_preloaded(), [message], [nothing.fileno(), *files, theirs.fileno()])
    return ours


def _status_of(order: dict[str, Any], files: list[int], timeout: float) -> int:
    """Have a process started, and return its exit status."""
    with _start(order, files) as ours:
        ours.settimeout(timeout)
        with ours.makefile() as reports:
            pid = int(reports.readline())
            try:
                return int(reports.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(order["arguments"], timeout) from None


@cache
def _preloaded() -> socket.socket:
    """The connection to the process that is forked, which ends with this one."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, __file__, str(theirs.fileno())]
        process = subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


# In the process that is forked


def _serve(orders: socket.socket) -> NoReturn:
    """Fork, for each order, a process that looks after one, which runs the program."""
    children: set[int] = set()
    while True:
        message, files, _, _ = socket.recv_fds(orders, MAX_ORDER, 4)
        children -= {child for child in children if os.waitpid(child, os.WNOHANG)[0]}
        if not message:
            os._exit(0)
        if child := os.fork():  # there is no other thread: nothing was imported that starts one
            children.add(child)
        else:
            orders.close()
            *streams, report = files
            pid = os.fork()
            if pid == 0:
                os.close(report)
                for number, file in enumerate(streams):
                    os.dup2(file, number)
                    os.close(file)
                _become(**json.loads(message))
            _look_after(pid, report)
        for file in files:
            os.close(file)


def _look_after(pid: int, report: int) -> NoReturn:
    os.write(report, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):  # nobody waits any more
        os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(arguments: list[str], directory: str, environment: dict[str, str], is_session: bool = False) -> NoReturn:
    """Be a program as if this process had been started for it."""
    if is_session:
        os.setsid()
    warnings._processoptions(filter(None, environment.get("PYTHONWARNINGS", "").split(",")))  # type: ignore[attr-defined]
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    if arguments[0] == "-c":
        file, code, beside = "<string>", arguments[1], ""
        sys.argv = ["-c", *arguments[2:]]
    else:
        file, code, beside = arguments[0], Path(arguments[0]).read_text(), str(Path(arguments[0]).absolute().parent)
        sys.argv = arguments
    sys.path[:1] = [beside, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = file
    status: Any = None
    try:
        exec(compile(code, file, "exec"), vars(main))
    except SystemExit as end:
        status = end.code
    except Exception as error:
        sys.excepthook(type(error), error.with_traceback(error.__traceback__ and error.__traceback__.tb_next), None)
        status = 1
    _end(status)


def _end(status: Any) -> NoReturn:
    """End as the interpreter does, but for the taking apart of all modules: most of the time of a short program."""
    if status is not None and not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status or 0)


if __name__ == "__main__":
    for _name in MODULES:
        import_module(_name)
    for _command in sys.modules["limpyd_jobs.scripts.jobs"].COMMANDS.values():
        import_module(_command.__module__)
    for _script in import_module("all_scripts").ALL_SCRIPTS:
        _script.positions, _script.sha  # noqa: B018
    redis.utils.get_lib_version = cache(redis.utils.get_lib_version)
    gc.freeze()  # so that no fork copies what all have in common
    _serve(socket.socket(fileno=int(sys.argv[1])))
