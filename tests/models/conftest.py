"""What the tests of claims share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from invariants import violations
from postings import Complaint, Homeless, Posting, Stubborn

from limpyd_jobs import Error, Queue


@pytest.fixture
def consistent(redis_client: redis.Redis) -> Iterator[None]:
    """Check at the end that hashes, indexes, lists and sets agree."""
    yield
    assert violations(redis_client, Posting, Stubborn, Homeless, Queue, Error, Complaint) == []
