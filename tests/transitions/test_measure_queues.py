"""measure_queues: what stands in the queues of a database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.dates import utcnow
from limpyd_jobs.query import QueueState, queue_states

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "measure-queues"
    queue_name = "letters"

    def run(self, queue: Any) -> None:
        raise KeyError("no address")


def state(name: str = "letters") -> QueueState:
    (found,) = queue_states(name)
    return found


def test_all_places_of_a_queue_are_counted() -> None:
    for number in range(4):
        Letter.add_job(f"letter {number}")
    Worker("letters", max_loops=1, logger_level=60).run()
    Letter.add_job("later", delayed_for=timedelta(hours=1))
    Queue.pause("letters")
    found = state()
    assert (found.waiting, found.delayed, found.running, found.success_list, found.errors_list) == (3, 1, 0, 0, 1)
    assert (found.priority, found.quarantine, found.is_paused, found.is_in_use) == (0, 0, True, True)
    assert found.next_due is not None
    assert found.latency is not None


def test_latency_is_the_age_of_the_job_that_is_next() -> None:
    job = Letter.add_job("old")
    Letter.add_job("new")
    job.added.hset(str(utcnow() - timedelta(hours=2)))
    assert 7200 <= (state().latency or 0) < 7300
    job.delayed_until.hset(str(utcnow() - timedelta(hours=1)))  # it has waited since its delay was over
    assert 3600 <= (state().latency or 0) < 3700


def test_a_job_that_is_put_back_waits_since_then() -> None:
    job = Letter.add_job("old")
    Worker("letters", callback=lambda job, queue: 1 / 0, max_loops=1, logger_level=60).run()
    job.hmset(added=str(utcnow() - timedelta(hours=2)), end=str(utcnow() - timedelta(hours=1)))
    job.requeue()
    assert 0 <= (state().latency or 0) < 60


def test_a_queue_where_nothing_waits_has_no_latency() -> None:
    Queue.get_queue("letters")
    assert state().latency is None
    assert not state().is_in_use


def test_queues_of_a_name_come_by_priority() -> None:
    for priority in (1, 10, -3):
        Letter.add_job(f"letter {priority}", priority=priority)
    Queue.get_queue("bills")
    assert [(each.name, each.priority) for each in queue_states()] == [
        ("bills", 0),
        ("letters", 10),
        ("letters", 1),
        ("letters", -3),
    ]
    assert queue_states(["bills", "nothing"]) == [state("bills")]
    assert queue_states([]) == []


def test_many_queues_are_looked_at_in_steps() -> None:
    for number in range(450):
        Queue.get_queue(f"queue {number:03}")
    assert [each.name for each in queue_states()] == [f"queue {number:03}" for number in range(450)]


def test_strange_keys_count_as_empty(redis_client: redis.Redis) -> None:
    queue = Queue.get_queue("letters")
    redis_client.set(queue.waiting.key, "text")
    redis_client.set(queue.delayed.key, "text")
    redis_client.sadd("jobs:queue:collection", "gone", "x")
    redis_client.set("jobs:queue:x:hash", "text")
    found = state()
    assert (found.waiting, found.delayed, found.latency) == (0, 0, None)
    assert queue_states() == [found]
    redis_client.flushdb()


def test_a_job_that_is_never_due_is_due_at_no_moment(redis_client: redis.Redis) -> None:
    Queue.get_queue("letters").delayed.zadd({"a.B:1": float("inf")})
    assert (state().delayed, state().next_due) == (1, None)
    redis_client.flushdb()


@pytest.mark.parametrize("entry", ["", "no ident", "a.B:1", "query-queues.Letter:1", "\x00\n"])
def test_the_first_entry_may_be_anything(entry: str) -> None:
    Queue.get_queue("letters").waiting.rpush(entry)
    assert (state().waiting, state().latency) == (1, None)
