"""begin_entry: what begins is in the audit before it does anything."""

from __future__ import annotations

import pytest
import redis

from limpyd_jobs import NotAudited
from limpyd_jobs.records import audit


def test_an_entry_is_there_from_the_beginning(redis_client: redis.Redis) -> None:
    with audit.audited(redis_client, verb="delete", filter="status=error"):
        (entry,) = audit.last_entries(redis_client, 5)
    assert (entry["verb"], entry["done"], entry["outcome"]) == ("delete", "0", "running")


def test_of_those_that_never_ended_the_oldest_become_ordinary_entries(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_BEGUN", 2)
    redis_client.hset(audit.BEGUN, mapping={"x": "garbage", "y": '{"verb": "old", "done": 7, "last": "2026-01-01"}'})
    for verb in ("first", "second", "third"):
        block = audit.audited(redis_client, verb=verb)
        block.__enter__()
    assert redis_client.hlen(audit.BEGUN) == 2
    entries = {entry["verb"]: entry for entry in audit.last_entries(redis_client, 5)}
    assert entries.keys() == {"old", "first", "second", "third"}
    assert entries["old"]["outcome"].startswith("killed or interrupted after 7, last step at")


@pytest.mark.parametrize("key", [audit.KEY, audit.BEGUN])
def test_what_cannot_be_written_does_not_begin_unless_told_so(redis_client: redis.Redis, key: str) -> None:
    redis_client.set(key, "x")
    with pytest.raises(NotAudited, match="WRONGTYPE"), audit.audited(redis_client, verb="delete"):
        pytest.fail("it begins")
    with audit.audited(redis_client, verb="delete", unaudited=True) as entry:
        assert entry.names == {}
