"""What the tests of flows share: after each, all invariants hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from flow_kinds import MODELS
from invariants import violations


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert violations(redis_client, *MODELS) == []
