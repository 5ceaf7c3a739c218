"""The processes of a benchmark: subjects that add, and workers, with their marks. Each is ended in any case."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any

from environments import Environment, Unavailable
from inside import GATE, read_marks

START_TIMEOUT = 60  # seconds until a subject is ready, or a worker has its first job
END_TIMEOUT = 3  # seconds until a process that was asked to end is killed


class Place:
    """A directory for one measure: the marks of the jobs, and the logs."""

    def __init__(self, url: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="limpyd-jobs-benchmark-"))
        self._url = url
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            _signal(process, signal.SIGTERM)
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT)
            _signal(process, signal.SIGKILL)  # what is left of its group
            process.wait()
        shutil.rmtree(self.path, ignore_errors=True)

    def start(self, environment: Environment, *arguments: str) -> subprocess.Popen[str]:
        """Start a process of a peer, in a session of its own."""
        with open(self._log(len(self._processes)), "wb") as log:
            process = subprocess.Popen(
                [*environment.command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if arguments[0] != "work" else log,
                stderr=log,
                text=True,
                cwd=self.path,
                start_new_session=True,
                env={
                    **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
                    **environment.variables,
                    "BENCHMARK_URL": self._url,
                    "BENCHMARK_MARKS": str(self.path),
                },
            )
        self._processes.append(process)
        return process

    def _log(self, number: int) -> Path:
        return self.path / f"{number}.log"

    def why(self, process: subprocess.Popen[str], otherwise: str) -> Unavailable:
        """Return why a process failed: the last line it wrote that speaks of an error, or else the last one."""
        text = self._log(self._processes.index(process)).read_text(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if re.search(r"error\b.*:", line, re.IGNORECASE)]
        return Unavailable((errors or lines)[-1] if process.poll() and lines else otherwise)

    # -- Marks

    def open_gate(self) -> float:
        """Let all jobs run that wait for it, and return the moment."""
        (self.path / GATE).touch()
        return time.monotonic()

    def jobs_begun(self) -> int:
        return sum(jobs for jobs, _ in read_marks(self.path))

    def last_begun(self) -> float:
        return max((last for _, last in read_marks(self.path)), default=0.0)

    def workers_at_the_gate(self) -> int:
        return len(read_marks(self.path))

    def wait_until(self, condition: Callable[[], bool], timeout: float, otherwise: str) -> None:
        """Return when the condition holds.

        Raises
        ------
        Unavailable
            If it does not in time, or a process fails meanwhile.
        """
        deadline = time.monotonic() + timeout
        while not condition():
            failed = [process for process in self._processes if process.poll()]
            if failed:
                raise self.why(failed[0], otherwise)
            if time.monotonic() > deadline:
                raise Unavailable(f"{otherwise} within {timeout:.0f} s")
            time.sleep(0.005)


class Subject:
    """A process that adds jobs: ready when this returns, and begins with `go`."""

    def __init__(self, place: Place, environment: Environment, verb: str, argument: float) -> None:
        self._place = place
        self._process = place.start(environment, verb, str(argument))
        self._line(START_TIMEOUT)

    def go(self, timeout: float = 300) -> dict[str, Any]:
        """Let it begin; return what it measured. It stays connected."""
        self._say("go")
        result: dict[str, Any] = json.loads(self._line(timeout))
        return result

    def end(self) -> None:
        """Let it end."""
        self._say("end")
        self._process.wait()

    def _say(self, text: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def _line(self, timeout: float) -> str:
        assert self._process.stdout
        timer = Timer(timeout, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            self._process.wait()
            raise self._place.why(self._process, f"no answer within {timeout:.0f} s")
        return line


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


# -- What the system says of a worker, and of all processes it started; on Linux


def processor_seconds(*sessions: int) -> float | None:
    """Return how much time of a core some sessions have used, or None where that cannot be told."""
    pids = [pid for session in sessions for pid in _session(session)]
    texts = [path.read_text() for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(text.split()[0]) for text in texts) / 1e9 if texts else None


def resident_bytes(session: int) -> int | None:
    """Return how much memory a session occupies, or None where that cannot be told."""
    page = os.sysconf("SC_PAGE_SIZE")
    texts = [Path(f"/proc/{pid}/statm").read_text() for pid in _session(session)]
    return sum(int(text.split()[1]) for text in texts) * page if texts else None


def _session(session: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if _session_of(pid) == session]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
