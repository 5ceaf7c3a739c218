"""note_levels: how many jobs wait and run in queues is noted once a minute, for charts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis

from limpyd_jobs import Job, Queue
from limpyd_jobs.dates import EPOCH
from limpyd_jobs.query import Levels, read_levels
from limpyd_jobs.records import metrics
from limpyd_jobs.records.metrics import LEVELS
from limpyd_jobs.views import levels_of_all
from limpyd_jobs.workers.fleet.metrics import WorkerMetrics
from limpyd_jobs.workers.run import Runs

pytestmark = pytest.mark.usefixtures("redis_client")


class Tide(Job):
    namespace = "levels"
    queue_name = "sea"


def keys_of(*queues: Queue) -> list[str]:
    return [queue.waiting.key.removesuffix(":waiting") for queue in queues]


def noted_keys(client: redis.Redis) -> list[str]:
    keys: Any = client.keys(f"{LEVELS}*")
    return sorted(keys)


def noted(client: redis.Redis) -> dict[str, str]:
    """What was noted: where a minute ended meanwhile, first."""
    fields: Any = client.hgetall(noted_keys(client)[0])
    return fields


def test_the_lists_of_all_priorities_of_a_name_are_added_up_once_a_minute(redis_client: redis.Redis) -> None:
    for number in range(5):
        Tide.add_job(f"{number}", priority=number % 2)
    queues = [Queue.get_queue("sea", priority) for priority in (0, 1)]
    claim = Tide.get(1).claim()
    metrics.note_levels(redis_client, keys_of(*queues))
    Tide.add_job("later")
    metrics.note_levels(redis_client, keys_of(*queues))
    assert noted(redis_client) == {"sea": "4 1"}
    assert 0 < redis_client.ttl(noted_keys(redis_client)[0]) <= 2 * 86400  # type: ignore[operator]
    claim.succeed()


def test_names_beyond_a_hundred_are_left_out_and_that_is_noted(redis_client: redis.Redis) -> None:
    queues = [Queue.get_queue(f"queue {number}") for number in range(120)]
    metrics.note_levels(redis_client, keys_of(*queues))
    assert len(noted(redis_client)) == 101
    assert read_levels("1h").is_cut


def test_what_another_program_wrote_is_left_as_it_is(redis_client: redis.Redis) -> None:
    queue = Queue.get_queue("sea")
    seconds, _ = redis_client.time()  # type: ignore[misc]
    keys = [f"{LEVELS}{seconds // 60 * 60 + minute * 60}" for minute in (0, 1)]
    for key in keys:
        redis_client.set(key, "mine")
    redis_client.delete(queue.waiting.key)
    redis_client.set(queue.waiting.key, "no list")
    metrics.note_levels(redis_client, keys_of(queue))
    assert [redis_client.get(key) for key in keys] == ["mine", "mine"]
    redis_client.delete(*keys)
    metrics.note_levels(redis_client, [*keys_of(queue), "levels:queue:99", "no queue"])
    assert noted(redis_client) == {"sea": "0 0"}


def test_a_worker_notes_them_once_a_minute_and_lives_without(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [60.0]
    monkeypatch.setattr("limpyd_jobs.workers.fleet.metrics.time", lambda: now[0])
    queue, calls = Queue.get_queue("sea"), []
    monkeypatch.setattr(metrics, "note_levels", lambda connection, keys: calls.append(keys) or 1 / 0)
    worker = WorkerMetrics(Runs(), lambda: keys_of(queue))
    for now[0] in (60.0, 61.0, 119.0, 120.0):
        worker.note_levels(redis_client)
    WorkerMetrics(Runs()).note_levels(redis_client)
    assert calls == [keys_of(queue)] * 2


def test_a_chart_has_what_was_noted_and_nothing_where_nothing_was(redis_client: redis.Redis) -> None:
    seconds, _ = redis_client.time()  # type: ignore[misc]
    minute = seconds // 60 * 60
    for ago, fields in (
        (3, {"sea": "4 1", "lake": "2 0"}),
        (2, {"sea": "9 0"}),
        (1, {"sea": "words", "lake": "1 2 3"}),
    ):
        redis_client.hset(f"{LEVELS}{minute - ago * 60}", mapping=fields)
    of_all, of_lake = read_levels("1h"), read_levels("1h", queue="lake")
    at = of_all.starts.index(EPOCH + timedelta(seconds=minute - 180))
    assert (of_all.waiting[at : at + 3], of_all.running[at : at + 3]) == ([6, 9, None], [1, 0, None])
    assert (of_lake.waiting[at : at + 3], of_lake.running[at : at + 3]) == ([2, None, None], [0, None, None])
    assert {*read_levels("6h").waiting} in ({None, 9}, {None, 6, 9})  # the most of five minutes
    assert read_levels("30d") == Levels([], [], [], False)


def test_those_of_all_shards_are_one() -> None:
    first, second = read_levels("1h").starts[:2]
    found = {0: Levels([first], [3], [None], False), 1: Levels([first, second], [4, None], [1, 2], True)}
    assert levels_of_all(found) == Levels([first, second], [7, None], [1, 2], True)
