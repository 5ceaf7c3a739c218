"""``limpyd-jobs web``: serve the dashboard."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from limpyd_jobs.classes.imports import installed_only
from limpyd_jobs.commandline.options import WorkerOption, between
from limpyd_jobs.commandline.parser import cannot_use_redis
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.options import COMMON_OPTIONS, SHARDS
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.query import ping
from limpyd_jobs.shards import Shards

if TYPE_CHECKING:
    from uvicorn import Server

TOKEN, VIEW_TOKEN = "LIMPYD_JOBS_WEB_TOKEN", "LIMPYD_JOBS_WEB_VIEW_TOKEN"

# Users with a role and a password each, as ann:act:PASSWORD, with spaces in between.
USERS = "LIMPYD_JOBS_WEB_USERS"

# Where it listens by default.
HOST, PORT = "127.0.0.1", 8780

# For how many seconds requests may go on after the signal to end.
GRACE = 3

# How many connections it has at once: each browser that watches keeps one.
MAX_CONNECTIONS = 1_000

EVERYWHERE = ("0.0.0.0", "::")


class Web(Command):
    """Exit status: 1 if it cannot listen there; 2 if the command line is wrong, or what it needs is not installed."""

    summary = "Serve the dashboard: a web page with the queues, jobs, errors and workers"
    words = f"""[options]

It prints its address once it listens. Others than this machine are answered only
with a token: a secret that the environment variable {TOKEN}
holds, as bearer token, or as password with any name. {VIEW_TOKEN}
holds one for those who may only look. {USERS} holds users
with a role and a password each: "ann:act:PASSWORD bob:view:PASSWORD"."""
    option_list = (
        *COMMON_OPTIONS,
        SHARDS,
        WorkerOption("--host", default=HOST, help=f"The address to listen on (default: {HOST})"),
        WorkerOption(
            "--port",
            type="int",
            default=PORT,
            check=between(0, 65535),
            help=f"The port to listen on; 0 for any that is free (default: {PORT})",
        ),
        WorkerOption(
            "--hosts",
            help="The names by which it is asked for, joined by commas, as jobs.example.com or *.example.com: "
            "others are refused (default: localhost, and the address of --host)",
        ),
        WorkerOption(
            "--proxy",
            help="The address of a proxy in front, or several joined by commas: what it says of who asks, in "
            "X-Forwarded-For, is believed (default: that of none)",
        ),
        WorkerOption("--read-only", action="store_true", help="Let no user change anything"),
        WorkerOption(
            "--mask",
            help="Names of more fields whose values are hidden, joined by commas, as account or shop.jobs.Pay.account "
            "(always: passwords, tokens and the like)",
        ),
        WorkerOption(
            "--access-log",
            action="store_true",
            help="Log each request on the standard error: when, from where, who, what, and the status of the answer",
        ),
        WorkerOption("--dry-run", action="store_true", help="Listen, print the address, and end"),
    )
    ends = "; 130 after Ctrl-C"

    def run(self) -> int:
        if self.given:
            self.parser.error(f"unexpected argument: {self.given[0]!r}")
        try:
            with installed_only("uvloop", "prometheus_client"):
                import uvicorn

                from limpyd_jobs.contrib.web import application
                from limpyd_jobs.contrib.web.connections import Connection
                from limpyd_jobs.contrib.web.guard import AccessLog
        except ImportError as error:
            self.parser.error(f"what it needs is not installed: pip install 'redis-limpyd-jobs[web]' ({error})")
        settings = self._settings()
        app = application(**settings)
        listener = self._listener()
        if not (_is_guarded(settings) or settings["read_only"]):
            self.note(f"whoever reaches this port from this machine may change everything, as {TOKEN} is not set")
        self._note_if_unavailable(settings.get("shards"))
        if self.options.access_log:
            _log_access()
        config = uvicorn.Config(
            AccessLog(app) if self.options.access_log else app,
            http=Connection,
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=bool(self.options.proxy),
            forwarded_allow_ips=self.options.proxy or "",
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=GRACE,
        )
        server = uvicorn.Server(config)
        name = next((each for each in _words(self.options.hosts) if "*" not in each), "localhost")
        _say_where_it_listens(server, listener, name, ends=bool(self.options.dry_run))
        _end_first(server, app.state.end)
        server.run(sockets=[listener])
        return 0

    def _note_if_unavailable(self, shards: Shards | None) -> None:
        if shards:
            self.note(*(f"NOT SEEN: shard {number}, {why}" for number, why in shards.each(ping).unseen.items()))
            return
        try:
            ping()
        except RedisError as error:
            self.note(f"{cannot_use_redis(error)}; pages say so until it can")

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            **self._databases(),
            "token": self._secret(TOKEN),
            "view_token": self._secret(VIEW_TOKEN),
            "users": self._users(),
            "read_only": bool(self.options.read_only),
            "masked": _words(self.options.mask),
        }
        host = self.options.host
        own = [] if host in EVERYWHERE else [f"[{host}]" if ":" in host else host]
        settings["hosts"] = _words(self.options.hosts) or ["localhost", "127.0.0.1", "[::1]", *own]
        if not _is_guarded(settings):
            option = "--host" if host in EVERYWHERE else "--proxy" if self.options.proxy else ""
            if option:
                what = host if option == "--host" else "what is behind a proxy"
                told = f"others can reach {what}, so set the environment variable {TOKEN} to a secret first"
                self.parser.error(f"option {option}: {told}")
        return settings

    def _databases(self) -> dict[str, Any]:
        if not self.options.shards:
            return {"database": BaseJobsModel.database}
        if self.options.database:
            self.parser.error("--database and --shards do not go together")
        return {"shards": Shards.of_text(self.options.shards)}

    def _secret(self, name: str) -> str | None:
        """Return an environment variable, if it is set. One that is empty was meant to be a secret."""
        value = os.environ.get(name)
        if value is not None and not value.strip():
            self.parser.error(f"environment variable {name}: it is set, but empty. Set it to a secret, or unset it")
        return value

    def _users(self) -> dict[str, tuple[str, str]] | None:
        text = self._secret(USERS)
        if text is None:
            return None
        rows = [row.split(":", 2) for row in text.split()]
        if any(len(row) < 3 for row in rows):
            self.parser.error(f"environment variable {USERS}: each user must be written as ann:act:PASSWORD")
        return {name: (password, role) for name, role, password in rows}

    def _listener(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.options.host else socket.AF_INET
        try:
            return socket.create_server((self.options.host, self.options.port), family=family, backlog=512)
        except OSError as error:
            self.fail(1, f"cannot listen on {self.options.host}, port {self.options.port}: {error.strerror or error}")


def _log_access() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log = logging.getLogger("limpyd-jobs.web.access")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def _is_guarded(settings: Mapping[str, Any]) -> bool:
    return bool(settings["token"] or settings["view_token"] or settings["users"])


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _say_where_it_listens(server: Server, listener: socket.socket, name: str, *, ends: bool) -> None:
    """Let a server print its address once it answers there, by a name if it listens everywhere, and maybe end then."""
    start = server.startup

    async def startup(*args: Any, **kwargs: Any) -> None:
        await start(*args, **kwargs)
        host, port = listener.getsockname()[:2]
        shown = name if host in EVERYWHERE else f"[{host}]" if ":" in host else host
        print(f"http://{shown}:{port}/", flush=True)
        server.should_exit = server.should_exit or ends

    server.startup = startup  # type: ignore[method-assign]


def _end_first(server: Server, end: Callable[[], None]) -> None:
    """Let a server that ends end its streams first, for which it would wait."""
    shutdown = server.shutdown

    async def end_and_shut_down(*args: Any, **kwargs: Any) -> None:
        end()
        await shutdown(*args, **kwargs)

    server.shutdown = end_and_shut_down  # type: ignore[method-assign]
