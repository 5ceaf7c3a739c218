"""read_classes: however much another program writes there, a look at all jobs takes no longer."""

from __future__ import annotations

import pytest
import redis

from limpyd_jobs.records import known_classes
from limpyd_jobs.records.known_classes import KEY, KnownClass

EMPTY: frozenset[str] = frozenset()


def known(path: str) -> KnownClass:
    return KnownClass(path, path, EMPTY, {}, {}, EMPTY)


def test_of_too_many_and_of_too_long_ones_the_rest_is_left_out_and_counted(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_classes, "MAX_CLASSES", 3)
    redis_client.hset(KEY, "a.A", "x" * known_classes.LONGEST)
    for path in ("a.D", "a.C", "a.B", "a.E"):
        redis_client.hset(KEY, path, known(path).as_json())
    assert [*known_classes.known_classes(redis_client)] == ["a.B", "a.C", "a.D"]
    assert known_classes.read_written(redis_client).left_out == 2


def test_what_is_not_a_hash_has_no_classes(redis_client: redis.Redis) -> None:
    redis_client.set(KEY, "x")
    assert known_classes.known_classes(redis_client) == {}
    assert known_classes.read_written(redis_client).left_out == 0


def test_a_text_is_read_once(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    redis_client.hset(KEY, "once.A", known("once.A").as_json())
    known_classes.known_classes(redis_client)
    monkeypatch.setattr(KnownClass, "parse", None)
    assert [*known_classes.known_classes(redis_client)] == ["once.A"]
