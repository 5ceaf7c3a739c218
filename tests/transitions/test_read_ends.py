"""read_ends: of long lists, and of long entries, a part is sent."""

from __future__ import annotations

import redis

from limpyd_jobs.records.records import read_ends


def test_the_last_entries_are_read_in_order_and_what_is_too_long_is_cut(redis_client: redis.Redis) -> None:
    redis_client.rpush("a", *map(str, range(5)))
    redis_client.rpush("b", "first", *["x" * 50_000] * 100)
    redis_client.rpush("c", "y" * 100_000)
    redis_client.set("d", "no list")
    few, many, long, wrong, missing = read_ends(redis_client, ["a", "b", "c", "d", "e"], 99)
    assert (few.size, few.entries) == (5, ["0", "1", "2", "3", "4"])
    assert (many.size, len(many.entries)) == (101, 80)
    assert long.entries == [f"{'y' * 65536}… (100000 bytes)"]
    assert wrong == missing == (0, [])
    assert read_ends(redis_client, ["a"], 2)[0].entries == ["3", "4"]
