"""Series for charts, and rates: one window for all that is "a minute", and what is over is read once."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
import redis

from limpyd_jobs import Job
from limpyd_jobs.contrib.web.pictures.lanes import Choice, strip_of
from limpyd_jobs.query import MetricsReader, glance, lately, read_metrics, series_of
from limpyd_jobs.records.metrics import KEY, Metrics
from limpyd_jobs.views import queue_rows, rounded

pytestmark = pytest.mark.usefixtures("redis_client")


class Stamp(Job):
    namespace = "series"
    queue_name = "stamps"


def note(client: redis.Redis, ago: int, queue: str, number: int) -> str:
    """Write that some tries of a queue succeeded some minutes ago; return the key."""
    each = Metrics()
    for _ in range(number):
        each.observe_start(1.0)
        each.observe_end(1.0, is_success=True)
    key = f"{KEY}minute:{(int(client.time()[0]) // 60 - ago) * 60}"
    client.hset(key, f"{queue}\nshop.Stamp", " ".join(map(str, each.numbers)))
    client.hset(key, "\nshop.Stamp", 100 - ago)
    return key


def test_the_rate_of_a_queue_is_the_same_everywhere_in_a_burst(redis_client: redis.Redis) -> None:
    Stamp.add_job("waits")
    for ago, number in ((0, 400), (3, 4), (8, 7000)):
        note(redis_client, ago, "stamps", number)
    seen = glance()
    (row,) = queue_rows(seen, [])
    choices = Choice("stamps"), Choice(job_class="shop.Stamp"), Choice()
    for span, of in product(("1h", "6h", "24h"), choices):
        lane = strip_of(span, seen.periods, seen, of=of).lanes[0]
        assert lane.last == rounded(row.ended) == rounded(404 / lately(seen.periods, seen.at).minutes)
    assert 404 / 5 <= row.ended <= 404 / 4


def test_a_clock_that_differs_from_that_of_redis_changes_no_rate_much(redis_client: redis.Redis) -> None:
    note(redis_client, 0, "stamps", 10)
    seen = glance()
    for hours in (-2, 0, 2):
        assert 4 <= lately(seen.periods, seen.at + timedelta(hours=hours)).minutes <= 5
    assert lately([], seen.at).minutes == 1


def test_what_is_over_is_read_once(redis_client: redis.Redis) -> None:
    for ago in range(61):
        note(redis_client, ago, "stamps", ago)
    read = MetricsReader()

    def look(**how: Any) -> tuple[bool, int]:
        """Return whether it is as others read it, and how many hashes it read whole."""
        before = redis_client.info("commandstats")["cmdstat_hgetall"]["calls"]
        found = read(**how)
        number = redis_client.info("commandstats")["cmdstat_hgetall"]["calls"] - before
        asked = read_metrics(**how)
        return [(*it[::2], str(it.metrics)) for it in found] == [(*it[::2], str(it.metrics)) for it in asked], number

    assert look() == (True, 62)
    assert look(step=5)[0]
    for how, most in (({}, 5), ({"step": 5}, 12)):
        is_same, number = look(**how)
        assert is_same
        assert number <= most
    key = note(redis_client, 40, "stamps", 5)
    redis_client.delete(key)
    is_same, number = look()
    assert is_same
    assert number > 40
    redis_client.flushdb()
    assert look()[0]
    assert not any(period.metrics for period in read())


def test_the_queues_without_a_series_are_what_the_others_leave_of_all(redis_client: redis.Redis) -> None:
    for number in range(9):
        note(redis_client, 1, f"queue{number}", 1 + number)
    found = series_of(read_metrics(), most=2)
    assert [each.name for each in found.queues] == ["queue8", "queue7", "(others)"]
    assert [sum(each.succeeded) for each in found.queues] == [9, 8, 28]
    assert sum(found.total.succeeded) == 45
