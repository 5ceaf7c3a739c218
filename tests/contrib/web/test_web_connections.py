"""Connections on which no request comes are closed, so that they keep out no user."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvicorn

from limpyd_jobs.contrib.web import connections
from limpyd_jobs.contrib.web.connections import Connection


def test_a_connection_that_says_nothing_whole_is_closed_and_one_that_waits_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "ARRIVES_WITHIN", 0.05)
    asyncio.run(asyncio.wait_for(_closed_and_answered(), 60))


def _serve(app: Any) -> tuple[uvicorn.Server, asyncio.Task[None], tuple[str, int]]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, http=Connection, log_config=None, lifespan="off"))
    return server, asyncio.create_task(server.serve(sockets=[listener])), listener.getsockname()[:2]


async def _closed_and_answered() -> None:
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    server, serving, address = _serve(app)
    answered, asking = await asyncio.open_connection(*address)
    asking.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    for begun in (b"", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"):
        closed, writing = await asyncio.open_connection(*address)
        writing.write(begun)
        assert b"200" not in await closed.read()
        writing.close()
    go_on.set()
    assert b"200 OK" in await answered.readline()
    asking.close()
    server.should_exit = True
    await serving


def test_of_too_many_the_oldest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_SILENT", 1)

    async def closed() -> None:
        config = uvicorn.Config(lambda: None, http=Connection, log_config=None, lifespan="off")
        config.load()
        state = uvicorn.server.ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(config, state, {}), "127.0.0.1", 0)
        address = server.sockets[0].getsockname()[:2]
        oldest, first = await asyncio.open_connection(*address)
        _, second = await asyncio.open_connection(*address)
        assert await oldest.read() == b""
        first.close()
        second.close()
        server.close()

    asyncio.run(asyncio.wait_for(closed(), 60))


def test_an_answer_before_the_whole_request_is_there_ends_the_connection() -> None:
    asyncio.run(asyncio.wait_for(_refused_early(), 60))


async def _refused_early() -> None:
    # else the server waits for the rest, and a thousand such connections keep all others out
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})

    server, serving, address = _serve(app)
    reading, writing = await asyncio.open_connection(*address)
    for body in (b"abc", b"a"):  # a request that is there as a whole leaves the connection as it is
        writing.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n" + body)
        assert b"403" in await reading.readuntil(b"no")
    assert await reading.read() == b""
    writing.close()
    server.should_exit = True
    await serving


def test_a_stream_that_is_not_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READS_WITHIN", 0.05)
    asyncio.run(asyncio.wait_for(_unread(), 60))


async def _unread() -> None:
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def stream() -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                await asyncio.sleep(0)

        streaming = asyncio.create_task(stream())
        await receive()
        while (await receive())["type"] != "http.disconnect":
            pass
        streaming.cancel()
        ended.set()

    server, serving, address = _serve(app)
    with socket.create_connection(address) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await ended.wait()
    server.should_exit = True
    await serving
