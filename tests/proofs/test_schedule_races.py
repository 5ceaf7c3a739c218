"""Eight workers look at the same schedules: each time is fired once."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import redis
from invariants import violations
from racers import Race, Racers
from servers import RedisServer

from limpyd_jobs import Queue, Schedule
from limpyd_jobs.records import records


@pytest.mark.parametrize("number", range(3))
def test_each_time_is_fired_once(
    number: int, redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path
) -> None:
    due = datetime.now(timezone.utc).replace(second=0, microsecond=0) - timedelta(minutes=60)
    times = [due + timedelta(minutes=minute) for minute in range(61)]
    for name in ("a", "b", "c"):
        schedule = Schedule.add(name, Race, cron="* * * * *", misfire_policy="all")
        fields = {"next_run": str(due.replace(tzinfo=None))}
        records.set_schedule(Schedule, schedule.pk.get(), str(due.timestamp()), fields)

    with Racers(redis_server.socket, tmp_path, enqueue_due=8) as racers:
        racers.wait_for("enqueue_due")

    found = [job.identifier.hget() for job in Race.collection().instances()]
    expected = {f"{name}:{time:%Y-%m-%dT%H:%M:%SZ}" for name in ("a", "b", "c") for time in times}
    assert len(found) == len(set(found))
    assert set(found) >= expected
    assert len(found) <= len(expected) + 3  # a minute may have passed meanwhile
    assert violations(redis_client, Schedule, Race, Queue) == []
