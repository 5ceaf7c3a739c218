"""pause_queues: in one step with its entry in the audit, or not at all."""

from __future__ import annotations

import pytest
import redis

from limpyd_jobs import NotAudited, Queue
from limpyd_jobs.store import audit


def test_without_an_entry_nothing_is_changed(redis_client: redis.Redis) -> None:
    redis_client.set(audit.KEY, "x")
    with pytest.raises(NotAudited):
        Queue.pause("a")
    assert not Queue.get_paused_names()
    assert Queue.pause("a", unaudited=True)
    assert Queue.get_paused_names() == {"a"}
