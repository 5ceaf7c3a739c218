"""The check knows the keys of presences, of changes, and of results."""

from __future__ import annotations

import pytest
import redis
from looking import check

from limpyd_jobs import Job, Presence, Queue, Worker


class Told(Job):
    namespace = "checked"
    tells_changes = True


class Kept(Job):
    namespace = "checked"
    keep_result = True
    keep_history = 10

    def run(self, queue: Queue) -> list[int]:
        self.log("five")
        return [5]


@pytest.mark.usefixtures("redis_client")
def test_nothing_is_wrong_with_them() -> None:
    Told.add_job("a", queue_name="q").cancel()
    with Presence.register("importer", feed="news"):
        assert check(pause=0).findings == []


@pytest.mark.usefixtures("redis_client")
def test_nothing_is_wrong_with_what_is_kept_beside_a_job() -> None:
    Kept.add_job("a", queue_name="q")
    Worker("q", max_loops=1, logger_level=60).run()
    assert Kept.get(1).result(timeout=0) == [5]
    assert check(pause=0).findings == []


def test_an_index_that_is_wrong_is_found(redis_client: redis.Redis) -> None:
    with Presence.register("importer", lease=300):
        redis_client.srem("jobs:presence:kind:importer", "1")
        assert [finding.kind for finding in check(pause=0).findings] == ["not indexed"]


def test_what_is_left_of_a_job_that_is_gone_is_found(redis_client: redis.Redis) -> None:
    Kept.add_job("a", queue_name="q")
    Worker("q", max_loops=1, logger_level=60).run()
    redis_client.lpush("checked:kept:7:_history", "2026-11-23 12:00:00 w ")
    assert [finding.kind for finding in check(pause=0).findings] == ["no owner"]
    assert check(pause=0, repair=True).left == []
    assert redis_client.keys("checked:kept:7:*") == []
