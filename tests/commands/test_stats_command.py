"""``limpyd-jobs stats``, as a user runs it, and the metrics in Python."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from cases import each
from servers import RedisServer

from limpyd_jobs import Job, Worker
from limpyd_jobs.commands.shared.printing import chart
from limpyd_jobs.dates import span, utcnow
from limpyd_jobs.query import read_metrics, summed
from limpyd_jobs.records.metrics import BOUNDS, KEY, LENGTH, Metrics

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

pytestmark = pytest.mark.usefixtures("redis_client")


class Parcel(Job):
    namespace = "stats"
    queue_name = "parcels"

    def run(self, queue: Any) -> None:
        if self.identifier.hget() == "broken":
            raise ValueError("on purpose")


def run(server: RedisServer, *arguments: str) -> tuple[int, str, str]:
    done = preloaded.run([COMMAND, "stats", *arguments], env={**os.environ, "LIMPYD_JOBS_DATABASE": server.url})
    return done.returncode, done.stdout, done.stderr


def output(server: RedisServer, *arguments: str) -> str:
    status, out, err = run(server, *arguments)
    assert (status, err) == (0, "")
    return out


def test_a_job_that_ends_its_worker_is_told(redis_server: RedisServer) -> None:
    Parcel.add_job("last")
    with pytest.raises(SystemExit):
        Worker("parcels", callback=lambda *_: sys.exit(3), logger_level=60).run()
    (row,) = json.loads(output(redis_server, "--json"))
    assert (row["started"], row["failed"]) == (1, 1)


def work() -> None:
    for name in ("fine", "broken", "good"):
        Parcel.add_job(name)
    Parcel.add_job("letter", queue_name="letters")
    Worker("parcels,letters", max_loops=4, logger_level=60).run()


def test_metrics_are_told_by_queue(redis_server: RedisServer) -> None:
    work()
    letters, parcels = json.loads(output(redis_server, "--json"))
    assert (letters["queue"], letters["started"], letters["added"]) == ("letters", 1, None)
    assert (parcels["queue"], parcels["started"], parcels["succeeded"], parcels["failed"]) == ("parcels", 3, 2, 1)
    assert sum(each["count"] for each in parcels["ran"]["buckets"]) == 3
    assert [each["up_to"] for each in parcels["waited"]["buckets"]] == [*BOUNDS, None]
    assert [json.loads(line) for line in output(redis_server, "--jsonl").splitlines()] == [letters, parcels]
    began, lines = utcnow(), output(redis_server).splitlines()
    [end] = {line.partition(" to ")[2].removesuffix(" (UTC)") for line in lines if " begun from " in line}
    assert began <= datetime.fromisoformat(end) <= began + timedelta(minutes=2)  # of the minute that is not over
    assert lines[0].split()[:5] == ["queue", "added", "started", "succeeded", "failed"]
    assert lines[2].split()[:4] == ["parcels", "3", "2", "1"]
    assert "█" in lines[-1]


def test_they_are_told_by_class_and_by_time(redis_server: RedisServer) -> None:
    work()
    (row,) = json.loads(output(redis_server, "--by=class", "--daily", "--json"))
    assert (row["class"], row["started"], row["failed"], row["added"]) == (Parcel.get_model_repr(), 4, 1, None)
    rows = json.loads(output(redis_server, "--by=time", "--json", "--since=-5m"))
    assert len(rows) == 6
    assert sum(row["started"] for row in rows) == 4


def test_they_are_told_of_some_queues_and_classes_only(redis_server: RedisServer) -> None:
    work()
    assert [row["queue"] for row in json.loads(output(redis_server, "--queue=par*", "--json"))] == ["parcels"]
    assert json.loads(output(redis_server, "--class=shop.*", "--json")) == []


def test_without_metrics_there_is_only_the_heading(redis_server: RedisServer) -> None:
    Parcel.add_job("quiet")
    Worker("parcels", max_loops=1, logger_level=60, metrics=False).run()
    assert len(output(redis_server).splitlines()) == 1
    assert redis_server.client().keys(f"{KEY}*") == []


@each(
    ("arguments", "told"),
    [
        (["--since=-3d"], "metrics by the minute go back at most 2 days"),
        (["--since=-3y"], "is not a time"),
        (["--daily", "--since=2020-01-01"], "metrics by the day go back at most 366 days"),
        (["--since=+1h"], "option --since: it must be in the past"),
        (["--since=2100-01-01"], "option --since: it must be in the past"),
        (["--by=colour"], "'colour' is not one of queue, class, time"),
        (["now"], "unexpected argument: 'now'"),
    ],
)
def test_what_is_wrong_is_said(redis_server: RedisServer, arguments: list[str], told: str) -> None:
    status, out, err = run(redis_server, *arguments)
    assert (status, out) == (2, "")
    assert told in err


def test_how_many_jobs_were_added_is_known_from_the_second_period_on(redis_client: redis.Redis) -> None:
    now: Any = redis_client.time()
    minute = now[0] // 60 * 60
    for at, pk in ((minute - 180, 10), (minute - 120, 25), (minute - 60, 25)):
        redis_client.hset(f"{KEY}minute:{at}", "\na.B", pk)
    added = [period.added for period in read_metrics(timedelta(minutes=10)) if period.added]
    assert added == [{"a.B": 15}, {"a.B": 0}]


def test_periods_come_in_order_and_strange_ones_are_empty(redis_client: redis.Redis) -> None:
    now: Any = redis_client.time()
    minute = now[0] // 60 * 60
    redis_client.set(f"{KEY}minute:{minute - 60}", "text")
    redis_client.hset(f"{KEY}minute:{minute - 120}", mapping={"q\na.B": "1 2", "x": "y", "\na.B": "-3"})
    redis_client.hset(f"{KEY}minute:{minute}", mapping={"\na.B": "9" * 5000, "r\nx": " ".join(["9" * 400] * LENGTH)})
    numbers = " ".join(map(str, [7, *[0] * (LENGTH - 1)]))
    redis_client.hset(f"{KEY}minute:{minute - 180}", "q\na.B", numbers)
    periods = read_metrics(timedelta(minutes=5))
    starts = [period.start for period in periods]
    assert starts == sorted(starts)
    assert all(isinstance(start, datetime) for start in starts)
    assert {key: each.started for key, each in summed(periods, lambda *names: names).items()} == {("q", "a.B"): 7}


def test_quantiles_are_bounds() -> None:
    metrics = Metrics()
    assert (metrics.ran.mean, metrics.ran.quantile(0.5)) == (None, None)
    for seconds in (0.0005, 0.002, 0.002, 200_000):
        metrics.observe_end(seconds, True)
    assert [metrics.ran.quantile(part) for part in (0.25, 0.5, 0.75, 1.0)] == [0.001, 0.003, 0.003, 86400]
    assert metrics.ran.mean == pytest.approx(50_000.001125)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0.0 ms"),
        (0.0015, "1.5 ms"),
        (0.3, "0.3 s"),
        (12, "12 s"),
        (250, "4 min"),
        (10_000, "3 h"),
        (172_800, "2 d"),
    ],
)
def test_spans_of_time_are_short(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


def test_a_chart_has_bars_up_to_the_highest() -> None:
    assert chart([0, 1, 4, 8], 10) == " ▁▄█ 8 at most"
    assert chart([0, 0], 10) == "   0 at most"
    assert chart([1] * 100, 10) == "██████████ 10 at most"
    assert chart([], 10) == "  0 at most"
