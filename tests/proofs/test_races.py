"""Many processes at the same jobs: none is doubled, none runs twice, none is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from invariants import violations
from racers import IDENTIFIERS, PRIORITIES, Race, Racers
from running import delayed_and_due
from servers import RedisServer, wait_until

from limpyd_jobs import STATUSES, Error, Queue

pytestmark = pytest.mark.usefixtures("redis_client")

PRODUCERS = 8
WORKERS = 4


Start = Callable[..., Racers]


@pytest.fixture
def start(redis_server: RedisServer, tmp_path: Path) -> Iterator[Start]:
    """Start the processes."""
    with ExitStack() as stack:
        yield lambda **parts: stack.enter_context(Racers(redis_server.socket, tmp_path, **parts))


def wait_for_ends(client: redis.Redis) -> None:
    wait_until(lambda: client.scard("races:race:queued:1") == 0, "the end of all jobs")


def assert_each_ran_once(client: redis.Redis, racers: Racers) -> list[str]:
    """Check that each job in Redis is a success that was run once; return their identifiers."""
    jobs = {pk: client.hgetall(f"races:race:{pk}:hash") for pk in client.smembers("races:race:collection")}
    assert {(job["status"], job["tries"]) for job in jobs.values()} == {(STATUSES.SUCCESS, "1")}
    for event in ("start", "end"):
        assert Counter(pk for name, pk, _ in racers.lines() if name == event) == Counter(jobs.keys())
    assert violations(client, Race, Queue, Error) == []
    return [job["identifier"] for job in jobs.values()]


def test_producers_of_the_same_identifiers_add_each_once(redis_client: redis.Redis, start: Start) -> None:
    start(produce=PRODUCERS).wait_for("produce")
    identifiers = [job.identifier.hget() for job in Race.collection().instances()]
    assert sorted(identifiers) == sorted(f"job {number}" for number in range(IDENTIFIERS))
    assert redis_client.llen("jobs:queue:1:waiting") == IDENTIFIERS
    assert violations(redis_client, Race, Queue, Error) == []


def test_jobs_that_are_added_while_they_run_do_not_run_beside_themselves(
    redis_client: redis.Redis, start: Start
) -> None:
    racers = start(produce=PRODUCERS, work=WORKERS)
    racers.wait_for("produce")
    wait_for_ends(redis_client)
    racers.end_work()
    assert set(assert_each_ran_once(redis_client, racers)) == {f"job {number}" for number in range(IDENTIFIERS)}


def test_jobs_whose_priority_is_raised_under_running_workers_run_once(redis_client: redis.Redis, start: Start) -> None:
    for number in range(IDENTIFIERS):
        Race.add_job(f"job {number}")
    racers = start(raise_priorities=2, work=WORKERS)
    racers.wait_for("raise_priorities")
    wait_for_ends(redis_client)
    racers.end_work()
    assert_each_ran_once(redis_client, racers)
    assert redis_client.scard("jobs:queue:collection") == PRIORITIES


def test_jobs_that_are_unique_for_an_hour_run_once_in_that_hour(redis_client: redis.Redis, start: Start) -> None:
    racers = start(add_seldom=4, work=WORKERS)
    racers.wait_for("add_seldom")
    wait_for_ends(redis_client)
    racers.end_work()
    assert len(assert_each_ran_once(redis_client, racers)) == IDENTIFIERS


def test_jobs_that_are_replaced_under_running_workers_run_once_for_each_that_was_added(
    redis_client: redis.Redis, start: Start
) -> None:
    racers = start(replace=4, work=WORKERS)
    racers.wait_for("replace")
    wait_for_ends(redis_client)
    racers.end_work()
    outcomes = Counter(event for event, _, _ in racers.lines())
    assert outcomes["replaced"] > 0
    assert set(outcomes) <= {"added", "replaced", "running", "start", "end"}
    assert len(assert_each_ran_once(redis_client, racers)) == outcomes["added"]


def test_workers_at_one_delayed_set_run_each_job_once(redis_client: redis.Redis, start: Start) -> None:
    for number in range(IDENTIFIERS):
        Race.add_job(f"job {number}", delayed_for=0.001)
    delayed_and_due(Race, "last")
    racers = start(work=WORKERS)
    wait_for_ends(redis_client)
    racers.end_work()
    assert len(assert_each_ran_once(redis_client, racers)) == IDENTIFIERS + 1
    assert len({process for _, _, process in racers.lines()}) > 1
