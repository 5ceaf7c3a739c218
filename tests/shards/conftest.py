"""Databases of the server of the tests, to be shards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from limpyd_jobs.models import BaseJobsModel


@pytest.fixture
def two_databases(redis_client: redis.Redis) -> Iterator[str]:
    """The names of two empty databases, as ``--shards`` takes them."""
    path = redis_client.connection_pool.connection_kwargs["path"]
    before = BaseJobsModel.database.connection_settings
    yield f"unix://{path}?db=4 unix://{path}?db=5"
    BaseJobsModel.database.reset(**before)
    for number in (4, 5):
        redis.Redis(unix_socket_path=path, db=number).flushdb()
