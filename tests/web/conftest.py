"""For all tests of this folder one server, one browser, and a dashboard of each of three databases."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from servers import RedisServer, free_port

if TYPE_CHECKING:
    from browser import Browser

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Site:
    """A dashboard that runs, in a process of its own, and its database."""

    address: str
    client: redis.Redis
    socket: str
    db: int
    pid: int

    def __call__(self, path: str) -> str:
        """Return the address of a page."""
        return self.address.rstrip("/") + path

    def connect(self) -> None:
        """Let the models of this process use its database."""
        from limpyd_jobs.models import BaseJobsModel

        BaseJobsModel.database.connect(unix_socket_path=self.socket, db=self.db)


@pytest.fixture(scope="session")
def _server(redis_binary: str) -> Iterator[RedisServer]:
    with RedisServer(redis_binary, "--databases", "4", port=free_port()) as server:
        yield server


@contextmanager
def serving(server: RedisServer, db: int, *options: str, environment: str = "") -> Iterator[Site]:
    """Run ``limpyd-jobs web`` with one of the databases of a server, in an environment with a name."""
    command = [sys.executable, "-m", "limpyd_jobs.scripts.jobs", "web", "--port=0", f"--pythonpath={HERE}", *options]
    with running(command, server, db, environment) as site:
        yield site


@contextmanager
def running(command: Sequence[str], server: RedisServer, db: int, environment: str = "") -> Iterator[Site]:
    """Run a program that prints the address of a dashboard."""
    database = f"redis://127.0.0.1:{server.port}/{db}"
    variables = {**os.environ, "LIMPYD_JOBS_DATABASE": database, "LIMPYD_JOBS_ENVIRONMENT": environment}
    process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), address
        with server.client(db=db) as client:
            yield Site(address, client, server.socket, db, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@pytest.fixture(scope="session")
def _shop(_server: RedisServer) -> Iterator[Site]:
    import webshop

    with serving(_server, 0, environment="production") as site:
        site.connect()
        webshop.fill(site.client)
        yield site


@pytest.fixture
def shop(_shop: Site) -> Site:
    """The dashboard of a shop with jobs in every state; what earlier tests changed there stays changed."""
    _shop.connect()
    return _shop


@pytest.fixture(scope="session")
def _workshop(_server: RedisServer) -> Iterator[Site]:
    with serving(_server, 2) as site:
        yield site


@pytest.fixture
def workshop(_workshop: Site) -> Site:
    """The dashboard of a database that is empty when a test begins."""
    _workshop.client.flushdb()
    _workshop.connect()
    return _workshop


@pytest.fixture
def knowing_site(_server: RedisServer, workshop: Site) -> Iterator[Site]:
    """Another dashboard of the same database as `workshop`, which knows the job classes."""
    with serving(_server, workshop.db, "--job-modules=webshop") as site:
        yield site


@pytest.fixture(scope="session")
def _hostile(_server: RedisServer) -> Iterator[Site]:
    import hostile

    with serving(_server, 1) as site:
        site.connect()
        hostile.fill(site.client)
        yield site


@pytest.fixture
def hostile_site(_hostile: Site) -> Site:
    """The dashboard of a database where each text is hostile."""
    _hostile.connect()
    return _hostile


@pytest.fixture(scope="session")
def _bookshop(_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    pytest.importorskip("django", reason="Django is not installed")
    db = 3
    place = tmp_path_factory.mktemp("bookshop") / "bookshop.sqlite3"
    command = [sys.executable, str(HERE / "bookshop_site.py"), f"redis://127.0.0.1:{_server.port}/{db}", str(place)]
    with running(command, _server, db) as site:
        yield site


@pytest.fixture
def bookshop(_bookshop: Site) -> Site:
    """A project of Django, whose dashboard is at ``/staff/jobs/``, with jobs in an empty database."""
    _bookshop.client.flushdb()
    _bookshop.connect()
    return _bookshop


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    pytest.importorskip("selenium", reason="selenium is not installed")
    from browser import Browser, program

    for name in ("chromium", "chromedriver"):
        if program(name) is None:
            pytest.skip(f"{name} is not installed")
    made = Browser(tmp_path_factory.mktemp("profile"))
    yield made
    made.close()
