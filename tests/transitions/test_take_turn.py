"""take_turn: one moment after the other, for jobs that are spread."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

import pytest
import redis

from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.dates import utcnow
from limpyd_jobs.transitions import many

SECOND = timedelta(seconds=1)


def test_each_turn_is_later_and_the_key_goes_with_the_last(redis_client: redis.Redis) -> None:
    request = {"turns": "turns", "interval": "500000"}
    first, second, third = (many.take_turn(redis_client, request) for _ in range(3))
    assert abs(utcnow() - first) < 60 * SECOND
    assert (second - first, third - first) == (0.5 * SECOND, SECOND)
    assert 0 < redis_client.pttl("turns") <= 1500


def test_no_turn_is_before_the_delay_ends_or_beyond_the_last_year(redis_client: redis.Redis) -> None:
    later = utcnow() + 3600 * SECOND
    request = {"turns": "turns", "interval": "1000000", "delay": delay_argument(delayed_until=later)}
    assert many.take_turn(redis_client, request) == later
    assert many.take_turn(redis_client, request) == later + SECOND
    far = {**request, "interval": "1e16"}  # some three centuries
    assert sum(1 for _ in iter(partial(take_until_too_late, redis_client, far), None)) == 26
    with pytest.raises(OverflowError, match="beyond the year 9999"):
        many.take_turn(redis_client, request)


def take_until_too_late(client: redis.Redis, request: Mapping[str, str]) -> datetime | None:
    with suppress(OverflowError):
        return many.take_turn(client, request)
    return None
