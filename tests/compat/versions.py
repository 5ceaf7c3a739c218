"""The two versions of redis-limpyd-jobs: ours, and version 2 in a virtual environment of its own.

That environment is made once, and stays below ``~/.cache``. ``LIMPYD_JOBS_V2_PYTHON`` names the Python of another one.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

HERE = Path(__file__).parent
REQUIREMENTS = ("redis-limpyd-jobs==2", "setuptools<82")
PATIENCE = 60  # seconds, for anything that a version is asked to do


class Version:
    """A version of redis-limpyd-jobs, and how to run something with it in a process of its own.

    Parameters
    ----------
    name: str
    python: str
        The interpreter.
    path: list of Path
        Where modules are looked for, beside the packages of the interpreter.
    """

    def __init__(self, name: str, python: str, path: list[Path]) -> None:
        self.name = name
        self.python = python
        # The scores that version 2 gives to dates are right in UTC only.
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "TZ": "UTC"}

    def __repr__(self) -> str:
        return self.name

    def start(self, code: str, *arguments: str) -> subprocess.Popen[str]:
        """Run Python code, with pipes. Version 2 uses much that is deprecated: warnings are of no interest."""
        return subprocess.Popen(
            [self.python, "-W", "ignore", "-c", code, *arguments],
            cwd=HERE,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


class Process:
    """A process of a version, which answers each line that it is sent with a line of JSON. It starts when needed."""

    def __init__(self, version: Version, code: str, *arguments: str) -> None:
        self.version = version
        self.command = (code, *arguments)
        self.process: subprocess.Popen[str] | None = None

    def ask(self, line: str) -> Any:
        """Send a line, and return the answer."""
        self.send(line)
        return self.answer()

    def send(self, line: str) -> None:
        self.process = self.process or self.version.start(*self.command)
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process
        assert self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            pytest.fail(f"{self.version} gave no answer\n{self.stop()}", pytrace=False)
        return json.loads(line)

    def stop(self) -> str:
        """End the process, and return what it wrote on standard error."""
        if self.process is None:
            return ""
        self.process.kill()
        _, errors = self.process.communicate()
        self.process = None
        return errors


def python_with_version_2() -> str:
    """Return the path of a Python that has version 2, in a virtual environment made for it if need be."""
    if given := os.environ.get("LIMPYD_JOBS_V2_PYTHON"):
        return given
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "redis-limpyd-jobs-tests"
    home = cache / f"version-2-python-{'.'.join(map(str, sys.version_info[:3]))}"
    with locked(Path(f"{home}.lock")):
        if not has_version_2(home / "bin/python"):
            shutil.rmtree(home, ignore_errors=True)
            run_or_do_without(base_python(), "-m", "venv", str(home))
            pip = (str(home / "bin/python"), "-m", "pip", "--quiet", "--retries=1", "--timeout=30")
            run_or_do_without(*pip, "install", *REQUIREMENTS)
    return str(home / "bin/python")


def has_version_2(python: Path) -> bool:
    """Whether a Python is there, has the version of this one, and can import version 2."""
    check = f"import sys, limpyd_jobs; sys.exit(sys.version_info[:3] != {sys.version_info[:3]})"
    command = [python, "-I", "-W", "ignore", "-c", check]
    return python.exists() and subprocess.run(command, capture_output=True).returncode == 0


def base_python() -> str:
    """The Python that the environment of these tests was made of: that environment may be gone the next time."""
    path = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    return str(path) if path.exists() else sys.executable


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes that lock the same path waiting."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_or_do_without(*command: str) -> None:
    """Run a command; if it fails, skip the test, or let it fail on CI."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        do_without(f"{' '.join(command)}:\n{done.stdout[-2000:]}")


def do_without(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(f"redis-limpyd-jobs 2 cannot be had: {reason}")
