"""last_entries: the audit is read as far as it is not too much."""

from __future__ import annotations

import json

import redis

from limpyd_jobs.records.audit import BEGUN, KEY, last_entries


def test_long_texts_are_cut_and_what_is_no_entry_is_left_out(redis_client: redis.Redis) -> None:
    redis_client.xadd(KEY, {"who": "ann", "filter": "ä" * 20_000})
    redis_client.hset(BEGUN, mapping={"one": json.dumps({"who": "bob", "begun": "2020"}), "two": "x" * 1_000_000})
    first, second = last_entries(redis_client, 5)
    assert (first["who"], second["who"]) == ("ann", "bob")
    assert first["filter"] == f"{'ä' * 14_999}… (40000 bytes)"


def test_keys_of_a_wrong_type_have_no_entries(redis_client: redis.Redis) -> None:
    redis_client.set(KEY, "x")
    redis_client.set(BEGUN, "x")
    assert last_entries(redis_client, 5) == []
