"""The Redis server of a benchmark: one of its own, on a port of the loopback interface, without persistence."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

START_TIMEOUT = 30  # seconds
INNER = b" lua] "  # how MONITOR marks what a script calls
OF_A_NEW_CONNECTION = (b'"HELLO"', b'"SELECT"', b'"CLIENT" "SETINFO"', b'"INFO" "server"')


class Server:
    """A server that runs inside a ``with``."""

    def __init__(self, binary: str = "redis-server") -> None:
        path = shutil.which(binary)
        if path is None:
            raise SystemExit(f"There is no {binary}: install Redis, or name its program with --redis-server")
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._directory = tempfile.mkdtemp(prefix="limpyd-jobs-benchmark-")
        self._command = [path, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._directory]
        self._command += ["--save", "", "--appendonly", "no"]

    def __enter__(self) -> Server:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        self.client: Any = redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0))
        deadline = time.monotonic() + START_TIMEOUT
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"The server does not start: {' '.join(self._command[:3])}")
            time.sleep(0.02)
        return self

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def __exit__(self, *exception: object) -> None:
        self.client.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def empty(self) -> None:
        """Delete everything, functions and statistics too."""
        self.client.flushall()
        self.client.config_resetstat()

    def memory(self) -> int:
        """Return how many bytes the server uses."""
        return int(self.client.info("memory")["used_memory"])

    def processor_seconds(self) -> float:
        """Return how much time of a core the server has used."""
        used = self.client.info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

    def round_trips(self) -> int:
        """Return how many times the server read what a client sent, be it one command or many.

        Of a command of many kilobytes, the parts that come one after the other count.
        """
        return int(self.client.info("stats")["total_reads_processed"])

    @contextmanager
    def counting(self) -> Iterator[Counts]:
        """Count what clients do. It slows the server: nothing should be timed meanwhile."""
        counts = Counts()
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"MONITOR\r\n")
            lines = connection.makefile("rb")
            lines.readline()  # OK
            reader = threading.Thread(target=counts.read, args=[lines])
            reader.start()
            before = self.round_trips()
            try:
                yield counts
            finally:
                counts.round_trips = self.round_trips() - before - 1
                self.client.echo(counts.END)
                reader.join()


class Counts:
    """What clients did: ``round_trips``, ``commands`` they sent, and ``inner`` ones that scripts called."""

    END = "the end of the benchmark's counting"

    def __init__(self) -> None:
        self.round_trips = self.commands = self.inner = 0

    def read(self, lines: Iterator[bytes]) -> None:
        """Count the lines of MONITOR until the end is seen."""
        for line in lines:
            if self.END.encode() in line:
                break
            if line.partition(b"] ")[2].startswith(OF_A_NEW_CONNECTION):
                continue  # a worker that ended may be late in giving its connection back
            self.commands += 1
            if INNER in line[:60]:
                self.commands -= 1
                self.inner += 1
        self.commands -= 2  # the looks at the statistics


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is not in use right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
