"""end_entry: an entry that ends is in the stream only, with the moment when it began."""

from __future__ import annotations

import pytest
import redis

from limpyd_jobs.records import audit


def test_an_entry_says_how_it_ended(redis_client: redis.Redis) -> None:
    with audit.audited(redis_client, verb="delete") as entry:
        entry.numbers = {"done": 5, "skipped": 1, "refused": 0}
    with pytest.raises(KeyboardInterrupt), audit.audited(redis_client, verb="cancel"):
        raise KeyboardInterrupt
    cancel, delete = audit.last_entries(redis_client, 5)
    assert (delete["done"], delete["skipped"], delete["refused"], delete["outcome"]) == ("5", "1", "0", "complete")
    assert delete["begun"][:10] == delete["at"][:10]
    assert cancel["outcome"] == "interrupted by KeyboardInterrupt"
    assert not redis_client.exists(audit.BEGUN)


def test_what_could_not_be_written_at_the_beginning_is_written_at_the_end(redis_client: redis.Redis) -> None:
    redis_client.set(audit.BEGUN, "x")
    with audit.audited(redis_client, unaudited=True, verb="delete"):
        pass
    (entry,) = audit.last_entries(redis_client, 5)
    assert (entry["verb"], entry["outcome"]) == ("delete", "complete")
