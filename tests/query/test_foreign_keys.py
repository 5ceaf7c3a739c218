"""What another program wrote to a key of the library is not shown as nothing: pages and commands say so."""

from __future__ import annotations

import pytest
import redis
from reading import limpyd_jobs

from limpyd_jobs import Job, Queue
from limpyd_jobs.query import attention, ended_workers, foreign_keys, glance
from limpyd_jobs.records.app_versions import VERSIONS
from limpyd_jobs.records.audit import KEY
from limpyd_jobs.records.metrics import TOTAL
from limpyd_jobs.records.presences import ENDED

pytestmark = pytest.mark.usefixtures("redis_client")


class Stamp(Job):
    namespace = "foreign"
    queue_name = "stamps"


def test_each_key_that_lists_and_numbers_begin_with_is_named(redis_client: redis.Redis) -> None:
    Stamp.add_job("one")
    Queue.pause("stamps")
    assert foreign_keys() == []
    assert "foreign" not in {each.code for each in attention(glance())}
    wrong = {
        KEY: "stream",
        ENDED: "stream",
        VERSIONS: "sorted set",
        TOTAL: "hash",
        "jobs:queue:paused": "set",
        "foreign:stamp:collection": "set",
        "jobs:workerpresence:leases": "sorted set",
    }
    for key in wrong:
        redis_client.delete(key)
        redis_client.set(key, "of another program")
    assert {*foreign_keys()} == {f"{key} is a string, not a {kind}" for key, kind in wrong.items()}
    incident = next(each for each in attention(glance()) if each.code == "foreign")
    assert f"{ENDED} is a string, not a stream" in incident.text


def test_a_list_that_is_empty_for_that_reason_says_so(redis_client: redis.Redis) -> None:
    redis_client.set(ENDED, "of another program")
    assert ended_workers() == []
    for line in ("workers list --ended --json", "stats", "audit"):
        status, _, error = limpyd_jobs(*line.split())
        assert (status, f"not known: {ENDED} is a string, not a stream" in error) == (0, True)
