"""delete_queue: a queue that is empty, with its lists."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.query import QueueState, delete_queue, queue_states

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "delete-queue"
    queue_name = "letters"

    def run(self, queue: Any) -> None:
        raise KeyError("no address")


def state(name: str = "letters") -> QueueState:
    (found,) = queue_states(name)
    return found


def test_an_empty_queue_is_deleted_with_its_lists(redis_client: redis.Redis) -> None:
    job = Letter.add_job("letter")
    Worker("letters", max_loops=1, logger_level=60).run()
    queue = Queue.get_queue("letters")
    assert delete_queue(state()) == "deleted"
    assert not queue.exists(pk=queue.pk.get())
    assert redis_client.keys(f"jobs:queue:{queue.pk.get()}:*") == []
    assert job.status.hget() == "e"
    assert queue_states() == []


@pytest.mark.parametrize("place", ["waiting", "delayed", "running"])
def test_a_queue_in_use_stays(redis_client: redis.Redis, place: str) -> None:
    queue = Queue.get_queue("letters")
    empty = state()
    if place == "waiting":
        queue.waiting.rpush("a.B:1")
    else:
        getattr(queue, place).zadd({"a.B:1": 1})
    assert delete_queue(empty) == "used"
    assert state().is_in_use


def test_one_that_is_gone_is_not_deleted_again() -> None:
    Queue.get_queue("letters")
    found = state()
    assert delete_queue(found) == "deleted"
    assert delete_queue(found) == "gone"
