"""The command with several processes, as users start it, and an application for it to run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import preloaded
import redis
from servers import TIMEOUT, wait_until

from limpyd_jobs import STATUSES, Job

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs-worker"))
QUEUE = "orders"

SHOP = '''
import ctypes
import os
import signal
import time

import redis

from limpyd_jobs import Worker
from limpyd_jobs.workers import WorkerConfig
from limpyd_jobs.workers.process import pool

gates = redis.Redis(unix_socket_path=os.environ["GATES"])


def ship(job, queue):
    gates.rpush("by", os.getpid())


def ship_slowly(job, queue):
    """Wait until the test opens the gate."""
    gates.rpush("by", os.getpid())
    for _ in range(60):  # not one wait in C, which a signal does not end if another thread gets it
        if gates.blpop("open", 1):
            break


def crash_once(job, queue):
    if gates.rpush("by", os.getpid()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def hang(job, queue):
    """Let nothing interrupt the job 0: it waits in C, without signals, and, of the class Lock, lets no thread go on."""
    name = job.identifier.hget()
    if name != "0":
        ship_slowly(job, queue)
        return
    gates.rpush("by", os.getpid())
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    library = ctypes.PyDLL if os.environ.get("HOLDS_THE_LOCK") else ctypes.CDLL
    library(None).sleep(600)


class FailingWorker(Worker):
    def run_started(self):
        raise RuntimeError("no way")


class ImpatientConfig(WorkerConfig):
    def _run_processes(self):
        pool.KILL_MARGIN = 0.1
        super()._run_processes()


class FailingConfig(WorkerConfig):
    def _update_parent_title(self, processes):
        if processes.status == "running" and processes.alive < processes.number:
            raise RuntimeError("the parent fails")


class ConfigThatTells(WorkerConfig):
    def prepare_worker(self):
        super().prepare_worker()
        gates.rpush("service managers", os.environ.get("NOTIFY_SOCKET", "none"))


class SlowConfig(WorkerConfig):
    def prepare_worker(self):
        super().prepare_worker()
        if gates.incr("prepared") == 3:  # the second child
            gates.blpop("prepare", 60)
'''


class Parent:
    """The command, in a session of its own, with what it logs."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str], is_forked: bool) -> None:
        self._log = log
        variables = {**os.environ, **environment}
        self._process: Any
        with open(log, "wb") as file:
            if is_forked:
                self._process = preloaded.Process(command, output=file.fileno(), env=variables)
            else:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                    env=variables,
                )
        self.pid = self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    def said(self, pattern: str) -> list[str]:
        """The messages of the parent that begin with the pattern."""
        return re.findall(rf"\[parent\] ({pattern}.*)", self.log, re.MULTILINE)

    @property
    def children(self) -> list[int]:
        """The process ids of all that descend from it, and have not ended."""
        return [pid for pid in processes_of_session(self.pid) if pid != self.pid]

    def wait_for(self, pattern: str, number: int = 1) -> list[str]:
        """Return the messages of the parent that begin with the pattern, once there are that many."""
        wait_until(lambda: len(self.said(pattern)) >= number, f"{number} times {pattern!r} in the log")
        return self.said(pattern)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Return its exit status, once it has ended."""
        return self._process.wait(TIMEOUT)

    def end(self) -> int:
        self.send(signal.SIGTERM)
        return self.wait()

    def kill_all(self) -> list[int]:
        """Leave nothing behind; return what was left of an ended parent."""
        left = self.children if self._process.poll() is not None else []
        while processes_of_session(self.pid):
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        return left


def processes_of_session(pid: int) -> list[int]:
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-eo", "pid=,stat=,sess="], capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in listed.splitlines()]
        return [int(each) for each, state, session in rows if session == str(pid) and state[0] != "Z"]
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):  # a "ps" costs as much as all else that most of these tests do
        with suppress(OSError):
            state, _, _, session, *_ = path.read_text(errors="replace").rpartition(")")[2].split()
            if session == str(pid) and state != "Z":
                found.append(int(path.parent.name))
    return found


def add(number: int) -> list[Job]:
    return [Job.add_job(str(each), QUEUE) for each in range(number)]


def all_succeeded(jobs: list[Job]) -> bool:
    return all(job.status.hget() == STATUSES.SUCCESS for job in jobs)


def runners(client: redis.Redis) -> list[int]:
    """The ids of the processes that ran, or run, jobs, in order."""
    return [int(pid) for pid in client.lrange("by", 0, -1)]
