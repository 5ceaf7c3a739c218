"""resume_queues: in one step with its entry in the audit, or not at all."""

from __future__ import annotations

import pytest
import redis

from limpyd_jobs import NotAudited, Queue
from limpyd_jobs.records import audit


def test_without_an_entry_nothing_is_changed_unless_told_so(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    Queue.pause("a")
    redis_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(NotAudited, match="OOM"):
            Queue.resume("a")
        assert Queue.get_paused_names() == {"a"}
        assert Queue.resume("a", unaudited=True)
    finally:
        redis_client.config_set("maxmemory", 0)
    (line,) = caplog.messages
    assert line.startswith("Not written to the audit: who=")
    assert "verb=resume filter=queue=a" in line
    assert "OOM" in line
    assert [entry["verb"] for entry in audit.last_entries(redis_client, 5)] == ["pause"]


def test_idle_workers_that_cannot_be_notified_do_not_make_it_fail(redis_client: redis.Redis) -> None:
    Queue.pause("a")
    redis_client.zadd("jobs:queue:idle_workers", {"idle": 4_000_000_000})
    redis_client.config_set("maxmemory", 1)
    try:
        assert Queue.resume("a", unaudited=True)
    finally:
        redis_client.config_set("maxmemory", 0)
    assert Queue.get_paused_names() == set()
