"""Asking the dashboard in the process, without a server in between."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any
from urllib.parse import unquote, urlencode

import anyio

from limpyd_jobs.contrib.web import application

BROWSER = {"accept": "text/html", "sec-fetch-site": "same-origin"}
PROGRAM = {"accept": "application/json"}


@dataclass(frozen=True)
class Answer:
    """What the dashboard answers."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    @property
    def shown(self) -> str:
        """The text of the page, as far as a test needs it: entities are replaced, tags stay."""
        return " ".join(unescape(self.text).split())

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Dashboard:
    """A dashboard of some settings, as a user on this machine sees it.

    >>> Dashboard().get("/queues").status
    200
    """

    def __init__(
        self, app: Any = None, *, host: str = "localhost:8780", client: str = "127.0.0.1", **settings: Any
    ) -> None:
        self.app = app or application(**settings)
        self.host, self.client = host, client

    def get(self, address: str, headers: Mapping[str, str] = BROWSER) -> Answer:
        return self.ask("GET", address, headers)

    def read(self, address: str) -> Any:
        """Return the JSON of a page."""
        answer = self.get(address, PROGRAM)
        assert answer.status == 200, answer.text
        return answer.json

    def post(
        self,
        address: str,
        form: Mapping[str, Any] | Sequence[tuple[str, Any]] = (),
        headers: Mapping[str, str] = BROWSER,
    ) -> Answer:
        """Send a form."""
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return self.ask("POST", address, {**kind, **headers}, urlencode(form, doseq=True).encode())

    def do(self, address: str, form: Mapping[str, Any] = {}) -> Any:
        """Send a form and confirm it, as a program; return the JSON."""
        answer = self.post(address, {**form, "confirmed": "1"}, PROGRAM)
        assert answer.status == 200, answer.text
        return answer.json

    def ask(self, method: str, address: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        return anyio.run(self.aask, method, address, headers, body)

    async def aask(
        self,
        method: str,
        address: str,
        headers: Mapping[str, str] = BROWSER,
        body: bytes = b"",
        *,
        stays: bool = False,
    ) -> Answer:
        """Do as `ask`; if the browser stays, return a stream at its end."""
        headers = {"host": self.host, **headers}
        path, _, query = address.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path, errors="surrogateescape"),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
            "client": (self.client, 50000),
            "server": ("localhost", 8780),
        }
        sent: list[Any] = []
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if stays and not messages:
                await anyio.sleep_forever()
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], found, b"".join(each.get("body", b"") for each in sent[1:]))
