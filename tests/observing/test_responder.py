"""Whatever clients send, the server for probes answers the others, and waits for nobody."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from cases import each
from servers import wait_until

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.observing import responder as responders
from limpyd_jobs.observing.responder import MAX_REQUEST, NOT_FOUND, Answer, Responder


@pytest.fixture
def responder() -> Iterator[Responder]:
    def answer(path: str) -> Answer:
        return Answer(1 // 0 if path == "/broken" else 200, "ok\n") if path in ("/ok", "/broken") else NOT_FOUND

    with closing(Responder("127.0.0.1", 0, answer)) as made:
        yield made


@contextmanager
def sending(responder: Responder, *parts: bytes) -> Iterator[socket.socket]:
    """Send the parts of a request, each of which is served before the next one is sent."""
    host, _, port = responder.address.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        responder.serve(60)
        for part in parts:
            client.sendall(part)
            responder.serve(60)
        yield client


def reply_to(responder: Responder, *parts: bytes) -> str:
    with sending(responder, *parts) as client, client.makefile("rb") as file:
        return file.read().decode()


def test_a_request_may_arrive_in_parts(responder: Responder) -> None:
    reply = reply_to(responder, b"GET /o", b"k HTTP/1.1\r\nHost: 10.1.2.3:8080\r\n", b"\r\n")
    assert reply.startswith("HTTP/1.0 200 OK\r\n")
    assert reply.endswith("\r\n\r\nok\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"HEAD /ok HTTP/1.1", "200 OK"),
        (b"GET /other HTTP/1.1", "404 Not Found"),
        (b"GET //evil.example/ok HTTP/1.1", "404 Not Found"),
        (b"GET /broken HTTP/1.1", "500 Internal Server Error"),
        (b"POST /ok HTTP/1.1", "501 Unsupported method"),
        (b"GET /ok HTTP/9.9", "505: Invalid HTTP version"),
        (b"\x16\x03\x01\x02\x00 \x01", "400: Bad"),
    ],
)
def test_other_requests_are_answered_as_they_have_to_be(responder: Responder, request_line: bytes, status: str) -> None:
    assert status in reply_to(responder, request_line + b"\r\n\r\n").partition("\r\n")[0]


@each(
    ("listens_on", "host", "status"),
    [
        ("127.0.0.1", "127.0.0.1:8080", 200),
        ("127.0.0.1", "10.1.2.3:8080", 200),
        ("127.0.0.1", "[fe80::1%25eth0]:8080", 200),
        ("127.0.0.1", "LocalHost:8080", 200),
        ("localhost", "localhost", 200),
        ("127.0.0.1", "jobs.localhost.:8080", 200),
        ("127.0.0.1", "evil.example:8080", 403),
        ("127.0.0.1", "127.0.0.1.evil.example", 403),
        ("127.0.0.1", "[bad", 403),
        ("127.0.0.1", "", 403),
        ("127.0.0.1", "localhost\r\nHost: evil.example", 403),
        ("0.0.0.0", "jobs-backlog:8080", 200),
    ],
)
def test_a_page_of_another_site_learns_nothing_by_a_name_of_its_own(listens_on: str, host: str, status: int) -> None:
    with closing(Responder(listens_on, 0, lambda path: Answer(200, "ok\n"))) as responder:
        reply = reply_to(responder, f"GET /ok HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert reply.startswith(f"HTTP/1.0 {status} ")
    assert ("ok" in reply.split("\r\n\r\n")[1].split()) is (status == 200)


def test_a_head_has_no_body(responder: Responder) -> None:
    assert reply_to(responder, b"HEAD /ok HTTP/1.1\r\n\r\n").endswith("\r\n\r\n")


def test_a_client_that_says_nothing_keeps_no_other_waiting(responder: Responder) -> None:
    with sending(responder), sending(responder, b"GET"):
        assert "200 OK" in reply_to(responder, b"GET /ok HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("parts", [[b"x" * MAX_REQUEST], [b"GET /ok HTTP/1.1\r\n", b"A: b\r\n" * (MAX_REQUEST // 6)]])
def test_a_long_request_is_not_answered(responder: Responder, parts: list[bytes]) -> None:
    with sending(responder, *parts) as client:
        assert client.recv(1) == b""


def test_so_is_one_that_takes_long(responder: Responder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responders, "REQUEST_TIMEOUT", 0.01)
    with sending(responder, b"GET /ok HTTP/1.1\r\n") as client:
        client.setblocking(False)
        wait_until(lambda: responder.serve() and is_closed(client))


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False


def test_only_so_many_clients_may_be_slow(responder: Responder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responders, "MAX_CONNECTIONS", 2)
    with sending(responder) as first, sending(responder) as second, sending(responder):
        second.setblocking(False)
        assert first.recv(1) == b""
        assert not is_closed(second)


def test_one_that_is_let_go_may_have_sent_something_just_then(
    responder: Responder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responders, "MAX_CONNECTIONS", 1)
    host, _, port = responder.address.removeprefix("http://").rpartition(":")
    with sending(responder) as first, socket.create_connection((host, int(port)), timeout=60) as second:
        first.sendall(b"GET /ok HTTP/1.1\r\n\r\n")
        assert responder.serve(60)
        second.sendall(b"GET /ok HTTP/1.1\r\n\r\n")
        assert responder.serve(60)
        assert b"200 OK" in second.recv(MAX_REQUEST)


def test_an_error_that_was_not_foreseen_ends_nothing_and_is_logged_once(
    responder: Responder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(responder, "_receive", lambda connection: 1 // 0)
        for _ in range(2):
            with sending(responder, b"GET"):
                pass
    assert "200 OK" in reply_to(responder, b"GET /ok HTTP/1.1\r\n\r\n")
    assert [record.name for record in caplog.records] == ["limpyd-jobs.responder"]


def test_a_long_answer_arrives_as_a_whole_if_its_reader_is_slow_and_keeps_no_other_waiting() -> None:
    long = "x" * 20_000_000  # more than the system takes at once
    made = Responder("127.0.0.1", 0, lambda path: Answer(200, long if path == "/long" else "ok\n"))
    with closing(made) as responder, sending(responder, b"GET /long HTTP/1.0\r\n\r\n") as client:
        assert "200 OK" in reply_to(responder, b"GET /ok HTTP/1.0\r\n\r\n")
        client.setblocking(False)
        received = bytearray()
        wait_until(lambda: responder.serve() and is_taken(client, received))
    assert received.endswith(b"\r\n\r\n" + long.encode())


def is_taken(client: socket.socket, received: bytearray) -> bool:
    """Take what has arrived, and return whether that was all."""
    with suppress(BlockingIOError):
        while part := client.recv(1_000_000):
            received += part
        return True
    return False


@each(("host", "port"), [("192.0.2.1", 0), ("not a host", 0), ("x" * 64, 0), ("127.0.0.1", 70_000)])
def test_an_address_that_is_not_of_this_machine_is_refused(host: str, port: int) -> None:
    with pytest.raises(ConfigurationException, match=f"^Cannot listen on {host}:{port}: "):
        Responder(host, port, lambda path: NOT_FOUND)
