"""What stands in the quarantine of its queue was set aside on purpose: the check leaves it there."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
import redis
from looking import check

from limpyd_jobs import Job, Queue


@pytest.fixture(params=["waiting", "delayed"])
def job(request: Any, redis_client: redis.Redis) -> Job:
    """A job that was moved from its place to the quarantine of its queue."""
    later = datetime(2099, 1, 1) if request.param == "delayed" else None
    added = Job.add_job("a", "letters", delayed_until=later)
    queue = Queue.get_queue("letters")
    queue.waiting.delete()
    queue.delayed.delete()
    queue.quarantine.rpush(added.ident)
    return added


def test_a_job_in_quarantine_is_not_wrong_and_not_put_back(job: Job) -> None:
    for repair in (False, True):
        assert check(repair, pause=0).findings == []
    queue = Queue.get_queue("letters")
    assert (queue.waiting.lmembers(), queue.delayed.zcard()) == ([], 0)
    assert queue.quarantine.lmembers() == [job.ident]


def test_what_else_is_wrong_with_it_is_found(job: Job, redis_client: redis.Redis) -> None:
    job.queued.delete()
    assert [found.kind for found in check(True, pause=0).findings] == ["not queued"]
    assert check(pause=0).findings == []


def test_a_job_in_the_quarantine_of_another_queue_is_put_back(job: Job) -> None:
    Queue.get_queue("letters").quarantine.delete()
    Queue.get_queue("others").quarantine.rpush(job.ident)
    (found,) = check(True, pause=0).findings
    assert found.kind in ("in no list", "in no delayed set")


def test_a_job_that_was_put_in_a_queue_again_is_in_quarantine_no_more(job: Job) -> None:
    job.enqueue_or_delay("letters")
    queue = Queue.get_queue("letters")
    assert queue.quarantine.lmembers() == []
    queue.waiting.delete()
    (found,) = check(True, pause=0).findings
    assert found.kind == "in no list"
