"""`empty_database` deletes what is on a temporary server of this process, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from servers import RedisServer
from shop import Mail

from limpyd_jobs import ConfigurationException
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.redis import embedded
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.testing import empty_database


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobsDatabase]:
    """The database of the models, on a temporary server."""
    monkeypatch.setenv(embedded.VARIABLE, "")
    database = BaseJobsModel.database
    database.from_url("embedded://")
    yield database
    database.reset()


def test_all_databases_of_a_temporary_server_are_emptied_and_can_be_used_again(database: JobsDatabase) -> None:
    other = JobsDatabase(url="embedded://?db=2")
    for _ in range(2):
        other.connection.set("key", "value")
        Mail.add_job("1", to="ann")
        assert database.connection.exists("limpyd-jobs:classes")
        empty_database()
        assert (database.connection.keys(), other.connection.keys()) == ([], [])
    other.reset()


def test_other_servers_are_left_alone(redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path) -> None:
    redis_client.set("precious", "1")
    with pytest.raises(ConfigurationException, match="is not emptied, because this process did not start its server"):
        empty_database()
    other = JobsDatabase(embedded=str(tmp_path))
    other.connection.set("precious", "1")
    with pytest.raises(ConfigurationException, match=f"^embedded://{tmp_path} is not emptied"):
        empty_database(other)
    assert redis_client.get("precious") == other.connection.get("precious") == "1"
    other.reset()


@pytest.mark.proof
def test_the_temporary_server_of_a_parent_process_is_left_alone(database: JobsDatabase) -> None:
    code = "from limpyd_jobs.testing import *; from limpyd_jobs.models import BaseJobsModel as B; "
    code += "B.database.from_url('embedded://'); empty_database()"
    database.connection.set("precious", "1")
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "is not emptied, because this process did not start its server" in child.stderr
    assert database.connection.get("precious") == "1"
