"""A small HTTP server that needs no thread: probes, autoscalers and Prometheus ask it."""

from __future__ import annotations

import logging
import os
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from ipaddress import ip_address
from time import monotonic, sleep
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from limpyd_jobs.exceptions import ConfigurationException

log = logging.getLogger("limpyd-jobs.responder")

# How long a request may be, how many seconds it may take to arrive, or its reply to be read, and how many clients there
# may be at once.
MAX_REQUEST = 8192
REQUEST_TIMEOUT = 5.0
MAX_CONNECTIONS = 100

# How long to wait, in seconds, if no connection can be accepted, such as for want of files.
ACCEPT_PAUSE = 0.01

JSON, TEXT = "application/json", "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """What is answered to a request."""

    status: int
    body: str
    kind: str = TEXT


@dataclass(eq=False)
class _Client:
    """What has arrived of a request, what the client has not taken of the reply, and since when it is waited for."""

    connection: socket.socket
    request: bytes = b""
    reply: bytes = b""
    since: float = field(default_factory=monotonic)


NOT_FOUND = Answer(404, "not found\n")
FOREIGN = Answer(403, "ask for it as localhost, or let it listen on another address\n")


def is_own_name(host: str, address: str, bound: str) -> bool:
    """Whether a ``Host`` header is one of a server that listens on an address, which is that of the name it was bound
    to. Elsewhere than on loopback, it may have any name.

    A page of another site can lead a browser of this machine to a server on loopback, by a name of that site, and read
    what it answers. It cannot do so by an IP address, nor by the name ``localhost``.
    """
    try:
        if not ip_address(address).is_loopback:
            return True
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        if name in ("localhost", bound.lower()) or name.endswith(".localhost"):
            return True
        ip_address(name)
    except ValueError:
        return False
    return True


class Responder:
    """Listens on an address, and answers GET and HEAD.

    On loopback, it answers only those who ask for an IP address, for ``localhost``, or for the host that it was given:
    see `is_own_name`.

    Nothing here waits for a client, and nothing that a client does ends what serves it. So it can be one of several
    things that a loop waits for: `fileno` is readable when there is something to `serve`. To begin and to end are for
    one thread, to serve for one other at most.

    Parameters
    ----------
    host, port: str, int
        Port 0 stands for any that is free.
    answer: callable
        Returns the answer for a path. It must not wait for long.

    Raises
    ------
    ConfigurationException
        If it cannot listen there.
    """

    def __init__(self, host: str, port: int, answer: Callable[[str], Answer]) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family)
        except (OSError, OverflowError, UnicodeError) as error:
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number) if number and number > 0 else error
            raise ConfigurationException(f"Cannot listen on {_shown(host)}:{port}: {reason}") from None
        listens_on, port = self._listener.getsockname()[:2]
        self.address = f"http://{_shown(host)}:{port}"
        self._answer = answer
        self._is_own_name = partial(is_own_name, address=listens_on, bound=host)
        self._clients: dict[socket.socket, _Client] = {}  # in the order of their beginning
        self._has_failed = False
        self._ender, self._end = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for each in (self._listener, self._ender):
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ)

    def fileno(self) -> int:
        """Return what a loop waits for until there is something to serve."""
        return self._selector.fileno()

    def serve_until_ended(self) -> None:
        """Serve until another thread calls `end`."""
        while self.serve(REQUEST_TIMEOUT):
            pass

    def end(self) -> None:
        """End `serve_until_ended`."""
        self._end.send(b".")

    def serve(self, seconds: float = 0.0) -> bool:
        """Answer what has arrived, or arrives first within some seconds; return whether `end` was not called."""
        try:
            return self._serve(seconds)
        except Exception:  # not foreseen: a worker, or a whole pool, must not end for it
            self._start_over()
            return True

    def close(self) -> None:
        """Listen no more. A forked process does so, too, with what it inherits."""
        self._selector.close()  # forked processes share what it waits for, so nothing is unregistered
        for each in (self._listener, self._ender, self._end, *self._clients):
            each.close()

    def _serve(self, seconds: float) -> bool:
        ready = [key.fileobj for key, _ in self._selector.select(seconds)]
        for each in ready:
            if each is self._listener:
                self._accept()
            elif isinstance(each, socket.socket) and (client := self._clients.get(each)):  # else it was let go just now
                (self._send if client.reply else self._receive)(client)
        for client in [*self._clients.values()]:
            if monotonic() > client.since + REQUEST_TIMEOUT:
                self._drop(client)
        return self._ender not in ready

    def _start_over(self) -> None:
        """Log an error, unless there was one before, and let all clients go."""
        self._log_first_error()
        for client in [*self._clients.values()]:
            with suppress(Exception):
                self._drop(client)
        sleep(ACCEPT_PAUSE)

    def _log_first_error(self) -> None:
        if not self._has_failed:
            log.exception("%s could not serve a request, and goes on. Further errors are not logged", self.address)
        self._has_failed = True

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            sleep(ACCEPT_PAUSE)
            return
        if len(self._clients) >= MAX_CONNECTIONS:
            self._drop(next(iter(self._clients.values())))
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ)
        self._clients[connection] = _Client(connection)

    def _receive(self, client: _Client) -> None:
        try:
            received = client.connection.recv(MAX_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        client.request += received
        if b"\r\n\r\n" in client.request or b"\n\n" in client.request:
            client.reply, client.since = self._reply_to(client.request), monotonic()
            self._send(client)
        elif not received or len(client.request) >= MAX_REQUEST:
            self._drop(client)

    def _send(self, client: _Client) -> None:
        """Send what the client takes of the reply; the rest when it takes more."""
        try:
            client.reply = client.reply[client.connection.send(client.reply) :]
        except BlockingIOError:
            pass
        except OSError:
            client.reply = b""
        if client.reply:
            self._selector.modify(client.connection, selectors.EVENT_WRITE)
        else:
            self._drop(client)

    def _reply_to(self, request: bytes) -> bytes:
        try:
            return _Exchange(request, self._answer, self._is_own_name).reply
        except Exception:  # no request may end what serves it
            self._log_first_error()
            return b"HTTP/1.0 500 Internal Server Error\r\nConnection: close\r\n\r\n"

    def _drop(self, client: _Client) -> None:
        del self._clients[client.connection]
        self._selector.unregister(client.connection)
        client.connection.close()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Exchange(BaseHTTPRequestHandler):
    """A request that arrived as a whole, and its reply."""

    server_version, sys_version = "limpyd-jobs", ""
    error_message_format, error_content_type = "%(code)d: %(message)s\n", TEXT

    def __init__(self, request: bytes, answer: Callable[[str], Answer], is_own_name: Callable[[str], bool]) -> None:
        self._answer, self._is_own_name, self._reply = answer, is_own_name, BytesIO()
        self.rfile, self.wfile = BytesIO(request), self._reply
        self.handle_one_request()

    @property
    def reply(self) -> bytes:
        return self._reply.getvalue()

    def do_GET(self) -> None:
        is_asked = all(map(self._is_own_name, self.headers.get_all("Host", ())))  # probes of HTTP/1.0 have none
        answer = self._answer(self.path) if is_asked else FOREIGN
        body = answer.body.encode(errors="replace")
        self.send_response(answer.status)
        for name, value in (
            ("Content-Type", answer.kind),
            ("Content-Length", len(body)),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, str(value))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: probes come every few seconds."""
