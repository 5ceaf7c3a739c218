"""Any number of jobs may be due at one moment: they come to wait in bounded steps, with other jobs in between."""

from __future__ import annotations

from datetime import datetime

import pytest
import redis
from running import work

from limpyd_jobs import Job, Queue
from limpyd_jobs.models import job_classes
from limpyd_jobs.transitions import PROMOTE_LIMIT

NUMBER = 20_000


class Drop(Job):
    namespace = "flood"
    queue_name = "queue"


@pytest.mark.proof
def test_a_flood_that_is_due_at_one_moment_keeps_no_other_job_waiting(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_classes.resolve(Drop.get_model_repr())  # to meet it takes a step
    # one step, then it is the turn of a job
    monkeypatch.setattr("limpyd_jobs.workers.maintenance.tasks.MAX_PROMOTION", 0)
    Drop.add_jobs(map(str, range(NUMBER)), delayed_until=datetime(2099, 1, 1))
    delayed = Queue.get_queue("queue").delayed.key
    redis_client.zunionstore(delayed, {delayed: 0})  # long ago
    steps = NUMBER // PROMOTE_LIMIT
    Drop.add_jobs([f"urgent {number}" for number in range(steps)], priority=1)
    left: list[int] = []

    def count(job: Job, queue: Queue) -> None:
        assert job.identifier.hget().startswith("urgent")
        left.append(redis_client.zcard(delayed))

    work(callback=count, max_loops=steps, max_duration=600, fetch_delayed_delay=1000)
    assert left == [*range(NUMBER - 2 * PROMOTE_LIMIT, -1, -PROMOTE_LIMIT), 0]
    assert redis_client.llen(Queue.get_queue("queue").waiting.key) == NUMBER
    assert redis_client.scard("flood:drop:status:w") == NUMBER
