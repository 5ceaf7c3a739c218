"""Asking an ASGI application from a thread of Django, under WSGI and ASGI alike."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from threading import Lock, Thread
from typing import Any, NamedTuple

App = Callable[[Any, Any, Any], Awaitable[None]]


class Response(NamedTuple):
    """What the application answers."""

    status: int
    headers: list[tuple[str, str]]
    content: bytes


class Bridge:
    """Runs an application in an event loop of its own, in a thread of its own. Both are made for the first request, and
    again in a process that is forked: a server may import all before it forks.

    Parameters
    ----------
    make: callable
        Returns the application.
    """

    def __init__(self, make: Callable[[], App]) -> None:
        self._make = make
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def ask(self, scope: Mapping[str, Any], body: bytes = b"") -> Response:
        """Return the whole answer. What the application raises is raised here."""
        app, loop = self._running()
        return asyncio.run_coroutine_threadsafe(_answer(app, scope, body), loop).result()

    def _forget(self) -> None:
        self._lock = Lock()
        self._made: tuple[App, asyncio.AbstractEventLoop] | None = None

    def _running(self) -> tuple[App, asyncio.AbstractEventLoop]:
        with self._lock:
            if self._made is None:
                loop = asyncio.new_event_loop()
                self._made = self._make(), loop
                Thread(target=loop.run_forever, name="limpyd-jobs-dashboard", daemon=True).start()
            return self._made


async def _answer(app: App, scope: Mapping[str, Any], body: bytes) -> Response:
    sent: list[Any] = []
    received = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if received:
            return received.pop()
        return await asyncio.Event().wait()  # whoever asks is there as long as we are

    async def send(message: Any) -> None:
        sent.append(message)

    await app({**scope}, receive, send)
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in sent[0].get("headers", ())]
    return Response(sent[0]["status"], headers, b"".join(each.get("body", b"") for each in sent[1:]))
