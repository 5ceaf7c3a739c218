"""end_turns: who does the same again does not go on with the interval of a spread that is over."""

from __future__ import annotations

import redis

from limpyd_jobs.transitions import many


def test_the_next_moment_stays_and_the_spread_is_forgotten(redis_client: redis.Redis) -> None:
    request = {"turns": "turns", "interval": "500000", "spread": "60.000000"}
    first = many.take_turn(redis_client, request)
    assert "@60.000000/500000" in redis_client.get("turns")
    assert 50_000 < redis_client.pttl("turns") <= 60_000
    many.end_turns(redis_client, "turns")
    assert "@" not in redis_client.get("turns")
    assert 0 < redis_client.pttl("turns") <= 1000
    assert (many.take_turn(redis_client, request) - first).total_seconds() == 0.5


def test_without_a_moment_the_key_goes(redis_client: redis.Redis) -> None:
    many.end_turns(redis_client, "turns")
    redis_client.set("turns", "nonsense")
    many.end_turns(redis_client, "turns")
    assert redis_client.exists("turns") == 0
