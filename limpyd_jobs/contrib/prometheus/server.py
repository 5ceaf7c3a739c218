"""A small HTTP server of metrics."""

from __future__ import annotations

import io
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore
from time import monotonic
from typing import Any

from redis.exceptions import RedisError

from limpyd_jobs.contrib.prometheus.exposition import exposition
from limpyd_jobs.integration import JobsDatabase, described, is_own_name

PATH = "/metrics"

# How many requests are answered at once, and for how many seconds one may take to arrive, and its answer to be read. If
# there are more, the one that has been arriving for the longest is dropped, so a slow client keeps no other away.
MAX_REQUESTS = 16
REQUEST_TIMEOUT = 5.0

TEXT = "text/plain; charset=utf-8"


class MetricsServer(ThreadingHTTPServer):
    """Answers ``GET /metrics``; some requests at once, and no slow ones."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, database: JobsDatabase | None = None) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.database = database
        self._bound = host
        self._room = BoundedSemaphore(MAX_REQUESTS)
        self._arriving: dict[Any, None] = {}  # in the order of their beginning
        super().__init__((host, port), _Handler)

    @property
    def address(self) -> str:
        """Where the metrics are."""
        host, port = map(str, self.server_address[:2])
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"

    def server_bind(self) -> None:
        """Bind without asking for the name of the host, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = map(str, self.server_address[:2])  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self._drop_oldest()
            if not self._room.acquire(timeout=REQUEST_TIMEOUT):
                self.shutdown_request(request)
                return
        self._arriving[request] = None
        super().process_request(request, client_address)

    def _drop_oldest(self) -> None:
        for each in [*self._arriving][:1]:
            with suppress(OSError):  # it may have ended just now
                each.shutdown(socket.SHUT_RDWR)

    def has_arrived(self, request: Any) -> None:
        """Note that a request is not to be dropped any more."""
        self._arriving.pop(request, None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.has_arrived(request)
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that go away, or are too slow."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def answers(self, hosts: Iterable[str]) -> bool:
        """Return whether it is asked for by names of its own: pages of others can lead browsers here by theirs."""
        return all(is_own_name(host, str(self.server_address[0]), self._bound) for host in hosts)


class _Arriving(io.RawIOBase):
    """What a client sends, until there is no time left for the whole of it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._until = connection, monotonic() + REQUEST_TIMEOUT

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._until - monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version, sys_version = "limpyd-jobs", ""
    timeout = REQUEST_TIMEOUT

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Arriving(self.connection))

    def do_GET(self) -> None:
        self.server.has_arrived(self.request)
        if not self.server.answers(self.headers.get_all("Host", ())):
            self._refuse(403, "Ask for it as localhost, or listen elsewhere with --host")
        elif self.path.partition("?")[0] != PATH:
            self._refuse(404, f"The metrics are at {PATH}")
        else:
            try:
                found = exposition(self.server.database)
            except RedisError as error:
                self._refuse(503, f"Redis cannot be used: {described(error)}")
            else:
                self._answer(200, found.kind, found.content)

    do_HEAD = do_GET  # noqa: N815

    def _refuse(self, status: int, why: str) -> None:
        self._answer(status, TEXT, f"{why}\n".encode())

    def _answer(self, status: int, kind: str, content: bytes) -> None:
        self.connection.settimeout(REQUEST_TIMEOUT)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: there is a request every few seconds."""
