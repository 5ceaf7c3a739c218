"""read_hashes: what is too long is not sent, but told of."""

from __future__ import annotations

import redis

from limpyd_jobs.records.records import read_hashes


def test_each_value_and_all_of_a_hash_are_bounded(redis_client: redis.Redis) -> None:
    redis_client.hset("a", mapping={"short": "x", "long": "y" * 101, **{f"{i}": "z" * 90 for i in range(5)}})
    redis_client.set("b", "no hash")
    first, second, third = read_hashes(redis_client, ["a", "b", "c"], 100)
    assert (second, third) == ({}, {})
    assert first["short"] == "x"
    assert first["long"] == "(101 bytes, too long to be read here)"
    others = sorted(first[f"{i}"] for i in range(5))
    assert others == ["(90 bytes, too long to be read here)", *["z" * 90] * 4]
    assert read_hashes(redis_client, [], 100) == []
