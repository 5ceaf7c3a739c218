"""The dashboard under other applications, served by itself, and out of a wheel."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from asking import Dashboard
from cases import each
from servers import RedisServer
from starlette.applications import Starlette
from starlette.routing import Mount

from limpyd_jobs import Job
from limpyd_jobs.contrib.web import User, application
from limpyd_jobs.contrib.web.access import MAX_FAILURES

pytestmark = pytest.mark.usefixtures("redis_client")

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))
TOKEN, PASSWORD = "a-token-of-admins", "the:password-of-a-user"


class Card(Job):
    namespace = "web-mounted"
    queue_name = "cards"

    def run(self, queue: Any) -> None: ...


def check_below(dashboard: Dashboard) -> None:
    """Check a dashboard that is mounted at ``/jobs``."""
    Card.add_job("one")
    page = dashboard.get("/jobs/queues")
    assert page.status == 200
    addresses = {*re.findall(r'(?:href|src|action|hx-get)="([^"]*)"', page.text)}
    assert {each for each in addresses if not each.startswith(("/jobs/", "#"))} == set()
    static = next(each for each in addresses if each.startswith("/jobs/static/app."))
    assert dashboard.get(static).status == 200
    done = dashboard.post("/jobs/queues/pause", {"queue": "cards"})
    assert (done.status, done.headers["location"].partition("?")[0]) == (303, "/jobs/queues")
    assert "cards is paused" in dashboard.get(done.headers["location"]).text
    assert dashboard.get("/jobs/health").text == "ok\n"
    assert dashboard.get("/jobs/none").status == 404
    assert 'hx-get="/jobs/live" hx-trigger="every 5s"' in dashboard.get("/jobs/").text  # a stream would hold its server


def test_under_another_asgi_application() -> None:
    check_below(Dashboard(Starlette(routes=[Mount("/jobs", application())])))


def test_an_application_that_gives_a_root_path_is_as_good() -> None:
    """As Django and others do, which cut the path off by themselves."""
    dashboard = application()

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        await dashboard({**scope, "root_path": "/jobs"}, receive, send)

    check_below(Dashboard(outer))


def test_the_application_around_it_names_the_user() -> None:
    def authenticate(scope: Any) -> User | None:
        name = scope.get("session_of_host")
        return User(name, "view") if name else None

    dashboard = application(authenticate=authenticate, hosts=["www.example.com"])

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        await dashboard({**scope, "session_of_host": "ann"}, receive, send)

    assert Dashboard(dashboard, host="www.example.com").get("/queues").status == 403
    assert "<span>ann, view</span>" in Dashboard(outer, host="www.example.com").get("/queues").text


def test_under_wsgi_it_asks_again_and_again() -> None:
    from a2wsgi import ASGIMiddleware

    wsgi = ASGIMiddleware(application())

    def get(path: str) -> tuple[str, str]:
        statuses: list[str] = []
        environ = {
            "REQUEST_METHOD": "GET",
            "SCRIPT_NAME": "/jobs",
            "PATH_INFO": path,
            "QUERY_STRING": "",
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "HTTP_HOST": "localhost",
            "REMOTE_ADDR": "127.0.0.1",
            "REMOTE_PORT": "50000",
            "wsgi.input": io.BytesIO(),
            "wsgi.url_scheme": "http",
        }

        def start(status: str, headers: Any, error: Any = None) -> Callable[[bytes], object]:
            statuses.append(status)
            return lambda data: None

        body: Iterable[bytes] = wsgi(environ, start)  # type: ignore[arg-type]
        return b"".join(body).decode(), statuses[0]

    page, status = get("/")
    assert status == "200 OK"
    assert 'hx-get="/jobs/live" hx-trigger="every 5s"' in page
    assert "Ready for a first job" in get("/live")[0]


# Served by itself


def served(redis_server: RedisServer, *options: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [COMMAND, "web", "--port=0", f"--database={redis_server.url}", *options],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def status_of(address: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@pytest.mark.proof
def test_the_command_prints_its_address_once_it_listens(redis_server: RedisServer) -> None:
    secrets = {"LIMPYD_JOBS_WEB_TOKEN": TOKEN, "LIMPYD_JOBS_WEB_USERS": f"ann:view:{PASSWORD} bob:act:{PASSWORD}"}
    with served(redis_server, "--proxy=127.0.0.1", **secrets) as process:
        assert process.stdout
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
        assert status_of(address) == 401
        assert status_of(address, Authorization=f"Bearer {TOKEN}") == 200
        basic = b64encode(f"ann:{PASSWORD}".encode()).decode()
        assert status_of(address, Authorization=f"Basic {basic}") == 200
        assert status_of(f"{address}health", Host="whatever") == 200
        guessing = {"X-Forwarded-For": "192.0.2.1", "Authorization": "Bearer wrong"}
        assert [status_of(address, **guessing) for _ in range(MAX_FAILURES + 1)][-1] == 429
        assert status_of(address, Authorization=f"Bearer {TOKEN}") == 200  # only that user has to wait
        asked = urllib.request.Request(f"{address}live", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(asked, timeout=60) as stream:
            assert stream.readline().startswith(b"data: ")
            process.send_signal(signal.SIGTERM)
            assert stream.read()  # it ends
        out, err = process.communicate(timeout=60)
    assert out == ""
    assert {line[:39] for line in err.splitlines()} == {"Wrong token or password, from 192.0.2.1"}


@pytest.mark.proof
def test_where_it_listens_everywhere_the_printed_name_is_one_that_it_answers_to(redis_server: RedisServer) -> None:
    options = ("--host=0.0.0.0", "--hosts=*.example.com,jobs.example.com", "--dry-run")
    with served(redis_server, *options, LIMPYD_JOBS_WEB_TOKEN=TOKEN) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("http://jobs.example.com:")


@each(
    ("options", "told"),
    [
        (["--host=0.0.0.0"], "option --host: others can reach 0.0.0.0, so set the environment variable"),
        (
            ["--proxy=127.0.0.1"],
            "option --proxy: others can reach what is behind a proxy, so set the environment variable",
        ),
        (["--hosts=jobs.example.com"], "hosts: others can reach 'jobs.example.com', so give a token"),
        (["--port=70000"], "The port argument (70000) must be a number from 0 to 65535"),
        (["word"], "unexpected argument: 'word'"),
    ],
)
def test_a_command_line_that_cannot_be_served_is_refused_in_one_line(
    redis_server: RedisServer, options: list[str], told: str
) -> None:
    import preloaded

    done = preloaded.run([COMMAND, "web", "--port=0", f"--database={redis_server.url}", *options], env={**os.environ})
    assert done.returncode in (1, 2)
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["LIMPYD_JOBS_WEB_TOKEN", "LIMPYD_JOBS_WEB_VIEW_TOKEN", "LIMPYD_JOBS_WEB_USERS"])
def test_a_secret_that_is_set_but_empty_is_refused(redis_server: RedisServer, name: str) -> None:
    import preloaded

    command = [COMMAND, "web", "--port=0", f"--database={redis_server.url}", "--dry-run"]
    done = preloaded.run(command, env={**os.environ, name: " "})
    assert done.returncode == 2
    assert f"environment variable {name}: it is set, but empty" in done.stderr


@pytest.mark.proof
def test_requests_are_logged_if_that_is_asked_for_and_wrong_secrets_always(redis_server: RedisServer) -> None:
    with served(redis_server, "--access-log", LIMPYD_JOBS_WEB_USERS=f"ann:view:{PASSWORD}") as process:
        assert process.stdout
        address = process.stdout.readline().strip()
        for secret, status in ((PASSWORD, 200), ("wrong", 401)):
            basic = b64encode(f"ann:{secret}".encode()).decode()
            assert status_of(f"{address}queues?q=%0Aa", Authorization=f"Basic {basic}") == status
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    first, wrong, second = err.splitlines()
    assert re.fullmatch(r'\S+ \S+ 127\.0\.0\.1 ann "GET /queues\?q=%0Aa" 200 \d\.\d{3} s', first)
    assert wrong == "Wrong token or password of ann, from 127.0.0.1"
    assert ' 127.0.0.1 - "GET /queues?q=%0Aa" 401 ' in second


@pytest.mark.proof
def test_nothing_of_the_current_directory_is_taken_for_what_is_installed(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    for name in ("httptools", "websockets", "uvloop", "starlette", "prometheus_client", "dotenv", "multipart"):
        (tmp_path / f"{name}.py").write_text(f"print('imported from the current directory: {name}')")
    (tmp_path / "shop.py").write_text("print('the application is found')")
    done = subprocess.run(
        [COMMAND, "web", "--port=0", "--job-modules=shop", f"--database={redis_server.url}", "--dry-run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert re.fullmatch(r"the application is found\nhttp://127\.0\.0\.1:\d+/\n", done.stdout)
