"""An index of queues may name an empty primary key."""

from __future__ import annotations

import pytest
import redis
from looking import check

from limpyd_jobs import Queue


@pytest.mark.usefixtures("redis_client")
def test_it_is_a_wrong_entry_and_no_queue_to_be_restored(redis_client: redis.Redis) -> None:
    Queue.get_queue("notes")
    redis_client.sadd("jobs:queue:name:notes", "")
    [finding] = check(pause=0).findings
    assert (finding.kind, finding.repair) == ("stale entry", "removed from the index")
    check(pause=0, repair=True)
    assert redis_client.smembers("jobs:queue:name:notes") == {"1"}
    assert not redis_client.exists("jobs:queue::hash")
