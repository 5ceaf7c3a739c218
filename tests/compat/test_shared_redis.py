"""Version 2 and version 3 at work on one Redis, as during an upgrade: each understands what the other left there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from servers import RedisServer
from versions import PATIENCE, Process, Version

INDEXED = {
    "app:sharedjob": ("identifier", "status", "priority", "queued", "start"),
    "jobs:queue": ("name", "priority"),
}


class Side:
    """One version, at work on the Redis that is shared. Its methods are the functions of `shared_jobs`."""

    def __init__(self, version: Version, server: RedisServer) -> None:
        self.process = Process(version, "import shared_jobs; shared_jobs.main()", version.name, server.socket)

    def __getattr__(self, function: str) -> Any:
        return lambda **arguments: self.process.ask(json.dumps([function, arguments]))

    def start(self, function: str, **arguments: Any) -> None:
        """Call a function without waiting for its end."""
        self.process.send(json.dumps([function, arguments]))

    def outcome(self) -> Any:
        """Wait for the end of what was started, and return what it returned."""
        return self.process.answer()


Sides = dict[str, Side]


@contextmanager
def both(version_2: Version, version_3: Version, server: RedisServer) -> Iterator[Sides]:
    sides = {version.name: Side(version, server) for version in (version_2, version_3)}
    yield sides
    for side in sides.values():
        side.process.stop()


@pytest.fixture(scope="module")
def _processes(version_2: Version, version_3: Version, redis_server: RedisServer) -> Iterator[Sides]:
    with both(version_2, version_3, redis_server) as sides:
        yield sides


@pytest.fixture
def more_sides(version_2: Version, version_3: Version, redis_server: RedisServer) -> Iterator[Sides]:
    """Another process of each version, by the name of the version."""
    with both(version_2, version_3, redis_server) as sides:
        yield sides


@pytest.fixture
def sides(_processes: Sides, redis_client: redis.Redis) -> Iterator[Sides]:
    """The two sides, by the name of their version."""
    yield _processes
    assert_indexes_agree(redis_client)


def assert_indexes_agree(client: redis.Redis) -> None:
    """Check that each hash is in the indexes of its values, and in no other."""
    for model, names in INDEXED.items():
        for name in names:
            values = {(pk, client.hget(f"{model}:{pk}:hash", name)) for pk in client.smembers(f"{model}:collection")}
            indexed = {
                (pk, key.removeprefix(f"{model}:{name}:"))
                for key in client.scan_iter(f"{model}:{name}:*")
                for pk in client.smembers(key)
            }
            assert indexed == {(pk, value) for pk, value in values if value is not None}, (model, name)


@pytest.fixture(params=["version 2, then version 3", "version 3, then version 2"])
def one_and_other(request: pytest.FixtureRequest, sides: Sides) -> tuple[Side, Side]:
    """The two sides, in both orders."""
    one, other = request.param.split(", then ")
    return sides[one], sides[other]


def due_at_once(client: redis.Redis, queue_pk: int = 1) -> None:
    """Make all delayed jobs of a queue due."""
    key = f"jobs:queue:{queue_pk}:delayed"
    for ident in client.zrange(key, 0, -1):
        client.zadd(key, {ident: 1})


Pair = tuple[Side, Side]


@pytest.mark.matrix(1)
def test_a_job_added_by_one_is_run_by_the_other(one_and_other: Pair) -> None:
    one, other = one_and_other
    pk = one.add(identifier="a", size=7, people=["ann", "bob"], steps=["x", "y"])
    assert other.work() == 1
    job = one.job(pk=pk)
    assert (job["status"], job["queued"], job["tries"]) == ("s", None, "1")
    assert (job["size"], job["people"], job["steps"]) == ("7", ["ann", "bob"], ["x", "y"])
    assert one.places()["success"] == [f"shared_jobs.SharedJob:{pk}"]
    assert one.find(status="s", start=job["start"]) == [pk]


@pytest.mark.proof
def test_a_job_added_by_one_is_found_by_the_other(one_and_other: Pair) -> None:
    one, other = one_and_other
    added = {"size": 30, "title": "beta", "taken": "2021-05-06 07:08:09", "people": ["ann"]}
    pk = one.add(identifier="a", priority=3, **added)
    one.add(identifier="b", size=5, title="alpha", taken="2020-01-01 00:00:00", people=["bob"])
    for filters in (
        {"identifier": "a"},
        {"priority": 3, "status": "w", "queued": 1},
        {"size__gt": 6},
        {"title__startswith": "b"},
        {"taken__date": "2021-05-06"},
        {"taken__gt": "2021"},
        {"people": "ann"},
    ):
        assert other.find(**filters) == [pk], filters


@pytest.mark.proof
def test_an_identifier_queued_by_one_is_not_added_again_by_the_other(one_and_other: Pair) -> None:
    one, other = one_and_other
    pk = one.add(identifier="a", priority=2)
    assert other.add(identifier="a", priority=1) == pk
    assert one.places(priority=2)["waiting"] == [f"shared_jobs.SharedJob:{pk}"]


@pytest.mark.proof
def test_a_job_queued_by_one_is_moved_up_by_the_other(one_and_other: Pair) -> None:
    one, other = one_and_other
    pk = one.add(identifier="a", priority=2)
    assert other.add(identifier="a", priority=3) == pk
    assert one.places(priority=2)["waiting"] == []
    assert one.places(priority=3)["waiting"] == [f"shared_jobs.SharedJob:{pk}"]
    assert one.work() == 1
    assert other.job(pk=pk)["status"] == "s"


@pytest.mark.proof
def test_an_identifier_done_by_one_is_added_anew_by_the_other(one_and_other: Pair) -> None:
    one, other = one_and_other
    pk = one.add(identifier="a")
    one.work()
    assert other.add(identifier="a") != pk


def test_a_job_delayed_by_one_waits_for_the_other_when_due(one_and_other: Pair, redis_client: redis.Redis) -> None:
    one, other = one_and_other
    pk = one.add(identifier="a", delayed_for=600)
    assert other.wake() == []
    assert other.job(pk=pk)["status"] == "d"
    due_at_once(redis_client)
    assert other.wake() == []
    assert one.job(pk=pk)["status"] == "w"
    assert one.places() == {"waiting": [f"shared_jobs.SharedJob:{pk}"], "success": [], "errors": [], "delayed": []}
    assert one.work() == 1
    assert other.job(pk=pk)["status"] == "s"


@pytest.mark.proof
def test_a_job_delayed_by_one_is_run_by_a_worker_of_the_other_when_due(
    one_and_other: Pair, redis_client: redis.Redis
) -> None:
    one, other = one_and_other
    pk = one.add(identifier="a", delayed_for=600)
    due_at_once(redis_client)
    assert other.work() == 1
    assert one.job(pk=pk)["status"] == "s"


def test_delayed_jobs_of_a_queue_that_version_2_locked_stay(sides: Sides, redis_client: redis.Redis) -> None:
    pk = sides["version 2"].add(identifier="a", delayed_for=600)
    due_at_once(redis_client)
    redis_client.set("jobs:queue:1:requeue_all_delayed_ready_jobs", "a token", px=600_000)
    assert sides["version 3"].wake() == []
    assert sides["version 3"].places()["delayed"] == [f"shared_jobs.SharedJob:{pk}"]
    redis_client.delete("jobs:queue:1:requeue_all_delayed_ready_jobs")
    sides["version 3"].wake()
    assert sides["version 3"].places()["waiting"] == [f"shared_jobs.SharedJob:{pk}"]


@pytest.mark.proof
def test_a_job_that_failed_for_one_is_requeued_and_run_by_the_other(one_and_other: Pair) -> None:
    one, other = one_and_other
    pk = one.add(identifier="a", priority=2, failures=1)
    one.work()
    assert other.job(pk=pk)["status"] == "e"
    assert other.errors_of(pk=pk) == [["ValueError", "told to fail", "ValueError: told to fail", True]]
    other.requeue(pk=pk, priority=5)
    assert other.work() == 1
    job = one.job(pk=pk)
    assert (job["status"], job["tries"], job["priority"], job["queued"]) == ("s", "2", "5", None)
    assert one.places(priority=2)["errors"] == one.places(priority=5)["success"]


@pytest.mark.proof
def test_a_job_that_a_worker_of_one_puts_back_is_run_again_by_the_other(
    one_and_other: Pair, redis_client: redis.Redis
) -> None:
    one, other = one_and_other
    pk = one.add(identifier="a", failures=1)
    one.work(requeue_times=2, requeue_priority_delta=0)
    job = other.job(pk=pk)
    assert (job["status"], job["tries"], job["queued"]) == ("d", "1", "1")
    due_at_once(redis_client)
    assert other.work(requeue_times=2) == 1
    job = one.job(pk=pk)
    assert (job["status"], job["tries"], job["queued"]) == ("s", "2", None)


@pytest.mark.proof
def test_tries_of_both_count_together(one_and_other: Pair) -> None:
    one, other = one_and_other
    options = {"requeue_times": 1, "requeue_priority_delta": 0, "requeue_delay_delta": 0}
    pk = one.add(identifier="a", failures=9)
    one.work(**options)
    assert one.job(pk=pk)["status"] == "w"
    other.work(**options)
    assert one.job(pk=pk)["status"] == "e"
    assert len(one.errors_of(pk=pk)) == len(other.errors_of(pk=pk)) == 2


@pytest.mark.proof
@pytest.mark.parametrize("delay", [None, 600])
def test_a_job_canceled_by_one_is_skipped_by_the_other(
    delay: int | None, one_and_other: Pair, redis_client: redis.Redis
) -> None:
    one, other = one_and_other
    pk = one.add(identifier="a", delayed_for=delay)
    one.cancel(pk=pk)
    due_at_once(redis_client)
    assert other.work() == 1
    job = one.job(pk=pk)
    assert (job["status"], job["queued"], job["tries"]) == ("c", None, None)
    assert not redis_client.exists("starts")


def test_a_job_that_runs_with_one_is_not_added_again_by_the_other(
    one_and_other: Pair, redis_client: redis.Redis
) -> None:
    one, other = one_and_other
    pk = one.add(identifier="a", until="released")
    one.start("work")
    redis_client.blmove("starts", "starts", PATIENCE)
    assert other.add(identifier="a") == pk
    assert other.job(pk=pk)["status"] == "r"
    redis_client.rpush("released", "now")
    assert one.outcome() == 1
    assert other.job(pk=pk)["status"] == "s"


def begin_together(sides: Sides, client: redis.Redis, jobs: int, **options: Any) -> None:
    """Let a worker of each version begin to work until all jobs are done, at the same time."""
    for side in sides.values():
        side.start("work_until_all_is_done", count=jobs, **options)
    for _ in sides:
        assert client.blpop("ready", PATIENCE)
    client.rpush("go", *sides)


def fetched_together(sides: Sides) -> int:
    """Wait for the end of both workers, and return how many jobs they fetched."""
    return sum(side.outcome() for side in sides.values())


def events(client: redis.Redis, what: str) -> Counter[str]:
    """How often an event happened to each job."""
    return Counter(event.partition(" in ")[0] for event in client.lrange(what, 0, -1))


@pytest.mark.proof
def test_workers_of_both_share_the_jobs_of_a_queue(sides: Sides, redis_client: redis.Redis) -> None:
    for name, side in sides.items():
        side.add_many(prefix=name, count=30)
    begin_together(sides, redis_client, jobs=60)
    assert fetched_together(sides) == 60
    jobs = {f"{name} {number}": 1 for name in sides for number in range(30)}
    assert events(redis_client, "starts") == events(redis_client, "ends") == jobs
    assert len(sides["version 3"].find(status="s")) == 60
    assert sides["version 2"].find(queued=1) == []


@pytest.mark.proof
def test_workers_of_both_put_failing_jobs_back_for_both(sides: Sides, redis_client: redis.Redis) -> None:
    for name, side in sides.items():
        side.add_many(prefix=name, count=10, failures=1)
    options = {"requeue_times": 3, "requeue_priority_delta": 0, "requeue_delay_delta": 0}
    begin_together(sides, redis_client, jobs=20, **options)
    assert fetched_together(sides) == 40
    jobs = [f"{name} {number}" for name in sides for number in range(10)]
    assert events(redis_client, "starts") == dict.fromkeys(jobs, 2)
    assert events(redis_client, "ends") == dict.fromkeys(jobs, 1)
    assert sides["version 2"].find(queued=1) == sides["version 3"].find(status="e") == []


@pytest.mark.proof
def test_idle_workers_of_both_are_woken_by_either(sides: Sides, more_sides: Sides, redis_client: redis.Redis) -> None:
    sides["version 2"].add(identifier="the queue exists")
    begin_together(more_sides, redis_client, jobs=21)
    assert redis_client.blmove("ends", "ends", PATIENCE)
    for name, side in sides.items():
        side.add_many(prefix=name, count=10)
    assert fetched_together(more_sides) == 21
    assert set(events(redis_client, "starts").values()) == {1}
