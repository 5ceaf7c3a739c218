"""A log of all requests: who asked for what, and what was answered."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from time import monotonic
from typing import Any

from limpyd_jobs.contrib.web.guard import App, Receive, Scope, Send
from limpyd_jobs.integration import one_line

log = logging.getLogger("limpyd-jobs.web.access")

# The key of the scope that holds the name of the user, once it is known.
USER = "limpyd_jobs.user"

# How many characters of an address are logged.
MAX_LOGGED = 1_000


class AccessLog:
    """An ASGI application around the dashboard. It logs each request in one line, once it is answered."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = monotonic(), "not answered"

        async def send_and_note(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            if scope["type"] == "http":
                log.info("%s %s %.3f s", _asked(scope), status, monotonic() - began)


def _asked(scope: Scope) -> str:
    """Return who asked for what, in one line, whatever stands in it."""
    client = (scope.get("client") or ("-", 0))[0]
    query = scope.get("query_string", b"").decode("latin-1")
    address = f"{scope.get('raw_path', b'').decode('latin-1') or scope['path']}{'?' if query else ''}{query}"
    asked = f"{scope['method']} {address}"
    return f'{one_line(client)} {one_line(scope.get(USER, "-"))} "{one_line(asked, MAX_LOGGED)}"'
