"""The plugin of pytest: fixtures for the tests of applications.

It is no part of the package, as pytest imports it in each run of each project, which must not import the library then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from limpyd_jobs.redis.database import JobsDatabase
    from limpyd_jobs.redis.embedded import EmbeddedServer
    from limpyd_jobs.testing import Clock


@pytest.fixture(scope="session")
def _limpyd_jobs_server() -> Iterator[EmbeddedServer]:
    """Run a server for this session, or for this process of pytest-xdist, that is used by no one else."""
    from limpyd_jobs.exceptions import ConfigurationException
    from limpyd_jobs.redis.embedded import EmbeddedServer

    try:
        server = EmbeddedServer(is_private=True)
    except ConfigurationException as error:
        pytest.fail(f"limpyd_jobs_database: {error}", pytrace=False)
    yield server
    server.leave()


@pytest.fixture
def limpyd_jobs_database(
    _limpyd_jobs_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[JobsDatabase]:
    """The database of the models during the test: an empty one, on a server of its own.

    The environment variable LIMPYD_JOBS_DATABASE names it to programs that the test starts.
    """
    from limpyd_jobs.models import BaseJobsModel
    from limpyd_jobs.testing import clock, empty_database

    socket, database = _limpyd_jobs_server.socket, BaseJobsModel.database
    before: dict[str, Any] = dict(database.connection_settings)
    monkeypatch.setenv("LIMPYD_JOBS_DATABASE", f"unix://{socket}")
    client = database.connect(unix_socket_path=socket, db=0)
    try:
        empty_database(database)
        yield database
    finally:
        if BaseJobsModel.database is not database:
            BaseJobsModel.use_database(database)
        if clock.moved:
            clock.reset()
            client.script_flush()  # each move makes scripts of its own
        client.close()
        database.connection.close()
        database.reset(**before)


@pytest.fixture
def jobs_at_once(limpyd_jobs_database: JobsDatabase) -> Iterator[None]:
    """Let ``add_job`` run each job before it returns: see `limpyd_jobs.testing.jobs_at_once`."""
    from limpyd_jobs.testing import jobs_at_once

    with jobs_at_once():
        yield


@pytest.fixture
def jobs_clock(limpyd_jobs_database: JobsDatabase) -> Clock:
    """The time of the jobs, which can be moved. After each test that uses the database, it is the real time again."""
    from limpyd_jobs.testing import clock

    return clock
