"""pause_queues: in one step with its entry in the audit, or not at all."""

from __future__ import annotations

import pytest
import redis

from limpyd_jobs import NotAudited, Queue
from limpyd_jobs.records import audit


def test_without_an_entry_nothing_is_changed(redis_client: redis.Redis) -> None:
    redis_client.set(audit.KEY, "x")
    with pytest.raises(NotAudited):
        Queue.pause("a")
    assert not Queue.get_paused_names()
    assert Queue.pause("a", unaudited=True)
    assert Queue.get_paused_names() == {"a"}


def test_without_room_it_is_not_proposed_to_do_it_unaudited(redis_client: redis.Redis) -> None:
    redis_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(NotAudited, match=r"OOM.*Make room in Redis first") as raised:
            Queue.pause("a")
    finally:
        redis_client.config_set("maxmemory", 0)
    assert "unaudited" not in str(raised.value)
