"""What each request passes before anything looks at it: which host it asks for, from which site it comes, how large it
is. What each response has: headers that let a browser run nothing but our files. And a log of all requests."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from secrets import token_urlsafe
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.integration import one_line

access_log = logging.getLogger("limpyd-jobs.web.access")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SAFE, UNSAFE = ("GET", "HEAD"), ("POST",)
MAX_BODY, MAX_QUERY = 256 * 1024, 16 * 1024

# How many characters of an address are logged.
MAX_LOGGED = 1_000

# The key of the scope with the nonce of a response: htmx works for no element that has another one.
NONCE = "limpyd_jobs.nonce"

# The key of the scope with the name of the user, once it is known.
USER = "limpyd_jobs.user"

# Answers whoever asks, by any name: probes know a host by its address.
HEALTH = "/health"

HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send no origin with forms either
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def policy(nonce: str) -> str:
    """Return the content security policy of a response."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'nonce-{nonce}'",
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types htmx",
        )
    )


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: App, hosts: Sequence[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        nonce = scope[NONCE] = token_urlsafe(16)

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update({**HEADERS, "Content-Security-Policy": policy(nonce)})
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self._check(scope)
        except Refusal as refusal:
            response = PlainTextResponse(f"{refusal.text}\n", refusal.status, refusal.headers)
            await response(scope, receive, send_with_headers)
            return
        await self._app(scope, _bounded(receive), send_with_headers)

    def _check(self, scope: Scope) -> None:
        method, headers = scope["method"], Headers(scope=scope)
        if method not in (*SAFE, *UNSAFE):
            raise Refusal(405, "Only GET, HEAD and POST are answered", {"Allow": "GET, HEAD, POST"})
        if len(scope.get("query_string", b"")) > MAX_QUERY:
            raise Refusal(414, f"The address is too long: at most {MAX_QUERY:,} bytes behind the question mark")
        if _length(headers) > MAX_BODY:
            raise Refusal(413, f"The request is too large: at most {MAX_BODY:,} bytes")
        if scope["path"].removeprefix(scope.get("root_path", "")) == HEALTH and method in SAFE:
            return
        host = headers.get("host", "").lower()
        if not is_listed(host, self._hosts):
            raise Refusal(421, "This host name is not in the list of hosts of the dashboard: add it to hosts")
        if method in UNSAFE:
            _check_origin(headers, host, scope.get("scheme", "http"))
        else:
            _check_site(headers)


def is_listed(host: str, hosts: Sequence[str]) -> bool:
    """Return whether a ``Host`` header names one of some hosts, on whatever port. ``*`` is any."""
    name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):
        name, port = host, ""
    if port.strip("0123456789"):
        return False
    return any(each in ("*", name) or (each.startswith("*.") and name.endswith(each[1:])) for each in hosts)


def _length(headers: Mapping[str, str]) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else MAX_BODY + 1


def _check_origin(headers: Headers, host: str, scheme: str) -> None:
    """Refuse what a page of another site sends. What is not a browser sends neither header."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in (None, "same-origin", "none") or (origin is not None and not _is_own(origin, host, scheme)):
        raise Refusal(403, "Requests from other sites are refused")


def _is_own(origin: str, host: str, scheme: str) -> bool:
    """Return whether an origin is this host. A proxy with TLS in front may ask by http for one by https."""
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    return found.netloc.lower() == host and found.scheme in (scheme, "https")


def _check_site(headers: Headers) -> None:
    """Refuse that another site loads something from here; a link to a page is fine."""
    if headers.get("sec-fetch-site") in (None, "same-origin", "none"):
        return
    if (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) != ("navigate", "document"):
        raise Refusal(403, "Requests from other sites are refused")


def _bounded(receive: Receive) -> Receive:
    """Return the same, but end a request whose body is too large, whatever its headers say."""
    received = 0

    async def receive_some() -> MutableMapping[str, Any]:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MAX_BODY:
            raise Refusal(413, f"The request is too large: at most {MAX_BODY:,} bytes")
        return message

    return receive_some


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
                access_log.info("%s %s %.3f s", _asked(scope), status, monotonic() - began)


def _asked(scope: Scope) -> str:
    """Return who asked for what, in one line, whatever stands in it."""
    client = (scope.get("client") or ("-", 0))[0]
    query = scope.get("query_string", b"").decode("latin-1")
    address = f"{scope.get('raw_path', b'').decode('latin-1') or scope['path']}{'?' if query else ''}{query}"
    asked = f"{scope['method']} {address}"
    return f'{one_line(client)} {one_line(scope.get(USER, "-"))} "{one_line(asked, MAX_LOGGED)}"'
