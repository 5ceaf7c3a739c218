"""note_entry: what no script does is noted, too."""

from __future__ import annotations

import pytest
import redis

from limpyd_jobs import NotAudited
from limpyd_jobs.records import audit
from limpyd_jobs.redis.calls import finish


def test_numbers_add_up(redis_client: redis.Redis) -> None:
    with audit.audited(redis_client, verb="delete") as entry:
        finish(entry.note(3))
        finish(entry.note(4))
        (found,) = audit.last_entries(redis_client, 5)
        assert found["done"] == "7"
        redis_client.delete(audit.BEGUN)
        finish(entry.note(1))
    assert not redis_client.exists(audit.BEGUN)


@pytest.mark.parametrize("unaudited", [False, True])
def test_where_there_is_no_room_no_more_is_done_unless_told_so(redis_client: redis.Redis, unaudited: bool) -> None:
    def act() -> None:
        with audit.audited(redis_client, unaudited=unaudited, verb="delete") as entry:
            redis_client.config_set("maxmemory", 1)
            finish(entry.note(1))

    try:
        if unaudited:
            act()
        else:
            with pytest.raises(NotAudited, match="not done, because it cannot be written to the audit: OOM"):
                act()
    finally:
        redis_client.config_set("maxmemory", 0)
