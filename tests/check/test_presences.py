"""The check knows the keys of presences, of changes, and of results."""

from __future__ import annotations

import pytest
import redis
from looking import check

from limpyd_jobs import Job, Presence, Queue, Worker
from limpyd_jobs.records import presences


class Told(Job):
    namespace = "checked"
    notify_changes = True


class Kept(Job):
    namespace = "checked"
    keep_result = True
    keep_history = 10

    def run(self, queue: Queue) -> list[int]:
        self.log("five")
        self.emit("five")
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


def test_what_is_left_of_processes_that_died_is_found_and_deleted(redis_client: redis.Redis) -> None:
    for number in range(4):
        presences.keep(Presence, "", {"name": f"{number}", "kind": "importer", "details": "{}"}, 100)
    redis_client.zadd("jobs:presence:leases", {"1": 1_700_000_000, "2": "inf"})
    redis_client.zrem("jobs:presence:leases", "3")
    found = {finding.subject: finding.problem for finding in check(pause=0).findings}
    assert found == {
        "1": "is left of a process that died: its presence ended at 2023-11-14 22:13:20 (UTC)",
        "2": "is a presence that never ends",
        "3": "is a presence that never ends",
    }
    assert check(pause=0, repair=True).left == []
    assert list(Presence.collection()) == ["4"]
    assert check(pause=0).findings == []


def test_a_lease_of_no_worker_is_deleted(redis_client: redis.Redis) -> None:
    redis_client.zadd("jobs:workerpresence:leases", {"": "inf", "7": 1})
    assert check(pause=0, repair=True).left == []
    assert redis_client.keys("jobs:workerpresence:*") == []


def test_an_index_that_is_wrong_is_found(redis_client: redis.Redis) -> None:
    with Presence.register("importer", lease=300):
        redis_client.srem("jobs:presence:kind:importer", "1")
        assert [finding.kind for finding in check(pause=0).findings] == ["not indexed"]


def test_what_is_left_of_a_job_that_is_gone_is_found(redis_client: redis.Redis) -> None:
    Kept.add_job("a", queue_name="q")
    Worker("q", max_loops=1, logger_level=60).run()
    redis_client.lpush("checked:kept:7:_history", "2026-11-23 12:00:00 w ")
    redis_client.xadd("checked:kept:7:_output", {"value": "1"}, id="1-1")
    assert [finding.kind for finding in check(pause=0).findings] == ["no owner"] * 2
    assert check(pause=0, repair=True).left == []
    assert redis_client.keys("checked:kept:7:*") == []
