"""The check knows the keys of presences, and of changes."""

from __future__ import annotations

import pytest
import redis
from looking import check

from limpyd_jobs import Job, Presence


class Told(Job):
    namespace = "checked"
    tells_changes = True


@pytest.mark.usefixtures("redis_client")
def test_nothing_is_wrong_with_them() -> None:
    Told.add_job("a", queue_name="q").cancel()
    with Presence.register("importer", feed="news"):
        assert check(pause=0).findings == []


def test_an_index_that_is_wrong_is_found(redis_client: redis.Redis) -> None:
    with Presence.register("importer", lease=300):
        redis_client.srem("jobs:presence:kind:importer", "1")
        assert [finding.kind for finding in check(pause=0).findings] == ["not indexed"]
