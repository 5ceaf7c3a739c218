"""A proxy between redis-py and a server, which loses requests and replies as it is told.

>>> with Proxy(redis_server.socket) as proxy:
...     database.connect(unix_socket_path=proxy.socket)
...     proxy.on("succeed", Fault.CUT_BEFORE_REPLY)
...     worker.run()
...     assert proxy.faults == ["succeed"]
"""

from __future__ import annotations

import io
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, cached_property
from pathlib import Path
from typing import Any, BinaryIO

from all_scripts import ALL_SCRIPTS


class Fault(Enum):
    """What becomes of a request or of its reply."""

    CUT_BEFORE_REQUEST = "the server never gets the request, and the connection is closed"
    CUT_BEFORE_REPLY = "the server does what it is asked, and the connection is closed"
    CUT_WITHIN_REPLY = "half of the reply arrives, and the connection is closed"
    SWALLOW = "the server does what it is asked, and the reply never comes"
    DELAY = "the reply comes once `Proxy.go_on` is called"


@dataclass
class _Rule:
    command: str
    fault: Fault
    nth: int
    is_met: Callable[[bytes], bool]
    seen: int = 0


@dataclass
class _Request:
    """A command as it is on the wire."""

    raw: bytes
    words: list[bytes] = field(default_factory=list)

    @cached_property
    def name(self) -> str:
        """The name of the script, if it is one of ours, else that of the command in capitals."""
        command = self.words[0].decode().upper()
        return _scripts().get(self.words[1], command) if command in ("EVALSHA", "EVAL") else command


@cache
def _scripts() -> dict[bytes, str]:
    return {key.encode(): each.name for each in ALL_SCRIPTS for key in (each.sha, each.source)}


def _tells_something(reply: bytes) -> bool:
    return not reply.startswith(b"-NOSCRIPT")


class Proxy:
    """Listens on the unix socket `socket` inside a ``with``; one thread for each connection.

    A connection has one request at a time under way, as redis-py has it; several in one packet are passed on one
    after the other.

    Attributes
    ----------
    faults: list of str
        What the rules were applied to, in order.
    round_trip: float
        How many seconds the network takes for a packet of requests and the replies. It may be changed.
    """

    def __init__(self, server_socket: str, round_trip: float = 0.0) -> None:
        self.server_socket = server_socket
        self.round_trip = round_trip
        self.directory = tempfile.mkdtemp(prefix="limpyd-jobs-proxy-")
        self.socket = str(Path(self.directory) / "proxy.sock")
        self.faults: list[str] = []
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX)

    def on(
        self, command: str, fault: Fault, nth: int = 1, if_reply: Callable[[bytes], bool] = _tells_something
    ) -> None:
        """Apply a fault once: to the nth time that a command, or a script of that name, is sent from now on.

        Parameters
        ----------
        if_reply: callable
            Which replies count, as they are on the wire; by default all but that the server does not know a script.
        """
        with self._lock:
            self._rules.append(_Rule(command, fault, nth, if_reply))

    def go_on(self) -> None:
        """Let delayed replies through."""
        self._open.set()

    def __enter__(self) -> Proxy:
        self._listener.bind(self.socket)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.go_on()
        with self._lock:
            for each in (self._listener, *self._sockets):
                _close(each)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        with self._lock:
            self._sockets |= {client, server}
        try:
            server.connect(self.server_socket)
            late = _Late(client, lambda: self.round_trip)
            with io.BufferedReader(late) as requests, server.makefile("rb") as replies:
                while self._pass_on(_read_request(requests), client, server, replies):
                    pass
        except (OSError, EOFError):
            pass
        finally:
            with self._lock:
                self._sockets -= {client, server}
            _close(client)
            _close(server)

    def _pass_on(self, request: _Request, client: socket.socket, server: socket.socket, replies: BinaryIO) -> bool:
        """Pass a request on, and its reply back; return whether the connection is still open."""
        if self._fault(request, Fault.CUT_BEFORE_REQUEST):
            return False
        server.sendall(request.raw)
        reply = _read_reply(replies)
        fault = self._fault(request, *set(Fault) - {Fault.CUT_BEFORE_REQUEST}, reply=reply)
        if fault is Fault.CUT_BEFORE_REPLY:
            return False
        if fault is Fault.CUT_WITHIN_REPLY:
            client.sendall(reply[: max(1, len(reply) // 2)])
            return False
        if fault is Fault.SWALLOW:
            return True
        if fault is Fault.DELAY:
            self._open.wait()
        client.sendall(reply)
        return True

    def _fault(self, request: _Request, *faults: Fault, reply: bytes = b"any") -> Fault | None:
        with self._lock:
            for rule in self._rules:
                if rule.fault in faults and rule.command == request.name and rule.is_met(reply):
                    rule.seen += 1
                    if rule.seen == rule.nth:
                        self._rules.remove(rule)
                        self.faults.append(rule.command)
                        return rule.fault
        return None


class _Late(io.RawIOBase):
    """What comes over a socket, a moment later."""

    def __init__(self, one: socket.socket, delay: Callable[[], float]) -> None:
        self._socket, self._delay = one, delay

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._socket.recv_into(buffer)
        if delay := self._delay():
            time.sleep(delay)
        return size


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def _read_request(stream: BinaryIO) -> _Request:
    line = _read_line(stream)
    request = _Request(line)
    for _ in range(int(line[1:])):
        header = _read_line(stream)
        word = stream.read(int(header[1:]) + 2)
        request.raw += header + word
        request.words.append(word[:-2])
    return request


def _read_reply(stream: BinaryIO) -> bytes:
    """Read one reply of RESP2, with all that is in it."""
    line = _read_line(stream)
    kind, rest = line[:1], line[1:]
    if kind == b"$" and int(rest) >= 0:
        return line + stream.read(int(rest) + 2)
    if kind == b"*":
        return line + b"".join(_read_reply(stream) for _ in range(int(rest)))
    return line


def _read_line(stream: BinaryIO) -> bytes:
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError
    return line
