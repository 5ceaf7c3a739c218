"""The versions of the application that workers ran, and when a worker with each was seen first: the last ones."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, NamedTuple

from limpyd_jobs.dates import EPOCH
from limpyd_jobs.records.metrics import KEY
from limpyd_jobs.redis.calls import passing_over_wrong_types
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.texts import NAME, one_line

# A sorted set: the versions, by the epoch of their first sight.
VERSIONS = f"{KEY}versions"

# How many are kept: the last ones; and for how many seconds after the last new one.
MAX_VERSIONS, KEPT = 50, 366 * 86400


class AppVersion(NamedTuple):
    """A version of the application, and when a worker with it was seen first, naive UTC."""

    version: str
    first_seen: datetime


def note_version(connection: Any, version: str) -> None:
    """Note that a worker with a version of the application is there. What is noted already stays."""
    key, now = at(connection, VERSIONS), connection.time()[0]
    pipeline = connection.pipeline(transaction=True)
    pipeline.zadd(key, {one_line(version, NAME): now}, nx=True)
    pipeline.zremrangebyrank(key, 0, -MAX_VERSIONS - 1)
    pipeline.expire(key, KEPT)
    pipeline.execute()


def read_versions(connection: Any) -> list[AppVersion]:
    """Return the versions that were seen, the first one first."""
    found: list[tuple[str, float]] = []
    with passing_over_wrong_types():
        found = connection.zrange(at(connection, VERSIONS), -MAX_VERSIONS, -1, withscores=True)
    return [each for version, score in found if (each := _version(version, score))]


def _version(version: str, score: float) -> AppVersion | None:
    with suppress(OverflowError, ValueError):  # another program wrote it
        return AppVersion(version, EPOCH + timedelta(seconds=score)) if isfinite(score) else None
    return None
