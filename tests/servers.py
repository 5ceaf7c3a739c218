"""Real Redis servers for the tests: each in a temporary directory of its own, gone at the end."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from limpyd_jobs.redis.embedded import answers

TIMEOUT = 60  # seconds

FIRST_PORT, LAST_PORT, SHARES = 10_000, 32_000, 16
_given_ports: set[int] = set()


def wait_until(condition: Callable[[], Any], what: str = "") -> None:
    """Return as soon as the condition holds.

    Raises
    ------
    AssertionError
        If it does not within a minute.
    """
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT} seconds: {what or condition}"
        time.sleep(0.01)


class RedisServer:
    """A server that runs between `start` and `stop`, or inside a ``with``.

    It listens on the unix socket `socket` and, if a `port` is given, on 127.0.0.1 too. Nothing is saved,
    unless more arguments (as on the command line of redis-server) say so; the data survives `stop` and
    `start` then.

    >>> with RedisServer("redis-server", "--maxmemory", "2mb") as server:
    ...     redis.Redis.from_url(server.url).ping()
    """

    def __init__(self, binary: str, *arguments: str, port: int = 0) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="limpyd-jobs-tests-"))
        self.socket = str(self.directory / "redis.sock")
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self._command = [
            *(binary, "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", self.socket),
            *("--dir", str(self.directory), "--save", "", *arguments),
        ]

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def client(self, **settings: Any) -> redis.Redis:
        """Return a new client of this server, which decodes what it gets."""
        return redis.Redis(unix_socket_path=self.socket, **{"decode_responses": True, **settings})

    def start(self) -> None:
        """Start the server, and return when it answers."""
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until(self._answers, f"start of {self._command}")
        except AssertionError:
            self.stop()
            raise

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "log").read_text(errors="replace")
        return answers(self.socket)

    def stop(self) -> None:
        """Ask the server to end (it saves what it was told to save), and wait for that."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, with_signal: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(with_signal)
            self.process.wait()
            self.process = None

    def __enter__(self) -> RedisServer:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()  # at once: a primary that is asked to end waits for its replicas
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class SentinelServer(RedisServer):
    """A Redis Sentinel, the only one, that watches one primary on 127.0.0.1 under the name ``jobs``."""

    def __init__(self, binary: str, primary_port: int, *settings: str) -> None:
        super().__init__(binary, port=free_port())
        configuration = self.directory / "sentinel.conf"
        monitored = [f"monitor jobs 127.0.0.1 {primary_port} 1", "down-after-milliseconds jobs 500", *settings]
        lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.directory}", f"unixsocket {self.socket}"]
        configuration.write_text("\n".join([*lines, *(f"sentinel {line}" for line in monitored), ""]))
        self._command = [binary, str(configuration), "--sentinel"]


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody uses, and that no other test nor the system gives to anybody else.

    Systems give those from 32768 on; and each process of pytest-xdist has its own share of the others.
    """
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % SHARES
    while True:
        port = FIRST_PORT + share + SHARES * random.SystemRandom().randrange((LAST_PORT - FIRST_PORT) // SHARES)
        with socket.socket() as probe, suppress(OSError):
            if port not in _given_ports:
                probe.bind(("127.0.0.1", port))
                _given_ports.add(port)
                return port


def refuse_all(client: redis.Redis) -> None:
    """Let Redis refuse all reads and writes: as a replica, without its data, of a primary that is not there."""
    client.config_set("replica-serve-stale-data", "no")
    client.replicaof("127.0.0.1", str(free_port()))


def refuse_nothing(client: redis.Redis) -> None:
    client.replicaof("NO", "ONE")
    client.config_set("replica-serve-stale-data", "yes")
