"""read_beside: of each type of key, the beginning is sent."""

from __future__ import annotations

import redis

from limpyd_jobs.records.records import read_beside


def test_the_first_entries_of_each_type_are_read_and_what_is_too_long_is_cut(redis_client: redis.Redis) -> None:
    redis_client.set("string", "x" * 101)
    redis_client.rpush("list", "y" * 101, "1", "2", "3")
    redis_client.sadd("set", "one")
    redis_client.zadd("zset", {"a": 1, "b": 2.5, "c": 3, "d": 4})
    redis_client.hset("hash", mapping={"name": "z" * 101})
    keys = ["string", "list", "set", "zset", "hash", "missing"]
    assert read_beside(redis_client, keys, 3, 100) == [
        ["string", 101, ["x" * 100]],
        ["list", 4, [f"{'y' * 100}… (101 bytes)", "1", "2"]],
        ["set", 1, ["one"]],
        ["zset", 4, ["a", "1", "b", "2.5", "c", "3"]],
        ["hash", 1, ["name", f"{'z' * 100}… (101 bytes)"]],
        ["none", 0, {}],
    ]
