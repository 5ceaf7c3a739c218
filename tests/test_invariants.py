"""The check of the invariants, with which other tests end, sees what is wrong."""

from __future__ import annotations

from datetime import datetime

import pytest
import redis
from invariants import contents, violations
from limpyd import fields
from limpyd.contrib.indexes import SimpleDateTimeIndex
from limpyd.indexes import NumberRangeIndex

from limpyd_jobs import Error, Job, Queue, Schedule, Worker

LATER = datetime(2099, 1, 1)


class Sample(Job):
    namespace = "invariants"
    queue_name = "q"
    start = fields.InstanceHashField(indexable=True, indexes=[SimpleDateTimeIndex])
    tries = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
    tags = fields.SetField(indexable=True)

    def run(self, queue: Queue) -> None:
        if self._cached_identifier == "bad":
            raise ValueError("on purpose")


@pytest.fixture(autouse=True)
def jobs(redis_client: redis.Redis) -> None:
    """Jobs of pk 1 to 4: a success, an error, one that waits, one that is delayed; all in queue 1; and a schedule."""
    for identifier in ("good", "bad", "a:hash"):
        Sample.add_job(identifier, tags=["x"])
    Sample.add_job("d", delayed_until=LATER)
    Worker("q", max_loops=2, terminate_gracefuly=False).run()
    Schedule.add("daily", Sample, cron="@daily")


def found(client: redis.Redis) -> list[str]:
    return violations(client, Sample, Queue, Error, Schedule)


def test_nothing_is_wrong_with_a_sound_database(redis_client: redis.Redis) -> None:
    assert found(redis_client) == []


WRONGS = {
    "a hash is gone": ("I1", "DEL invariants:sample:1:hash"),
    "a pk is not in the collection": ("I1", "SREM invariants:sample:collection 3"),
    "an index lacks a pk": ("I2", "SREM invariants:sample:identifier:good 1"),
    "an index has a pk too many": ("I2", "SADD jobs:queue:name:other 1"),
    "an index of an error lacks a pk": ("I2", "DEL jobs:error:type:ValueError"),
    "an index of dates lacks a pk": ("I2", "DEL invariants:sample:start:date:date"),
    "an index of numbers has another score": ("I2", "ZADD invariants:sample:tries:number-range 7 1"),
    "a value is not indexed": ("I2", "HSET invariants:sample:1:hash identifier other"),
    "a job that ended is queued": ("I3", "HSET invariants:sample:1:hash queued 1"),
    "a success knows how far it was": ("I8", "HSET invariants:sample:1:hash _cursor {}"),
    "a job that waits is not queued": ("I3", "HDEL invariants:sample:3:hash queued"),
    "two queued jobs have one identifier": ("I4", "HSET invariants:sample:3:hash identifier d"),
    "a job that waits is in no list": ("I5", "DEL jobs:queue:1:waiting"),
    "a job that waits is in its list twice": ("I5", "RPUSH jobs:queue:1:waiting test_invariants.Sample:3"),
    "a delayed job is in no set": ("I6", "DEL jobs:queue:1:delayed"),
    "a delayed job has another score": ("I6", "ZINCRBY jobs:queue:1:delayed 1 test_invariants.Sample:4"),
    "a delayed job waits": ("I6", "LPUSH jobs:queue:1:waiting test_invariants.Sample:4"),
    "a job runs without a claim": ("I7", "HSET invariants:sample:3:hash status r"),
    "a job that waits has a claim": ("I7", "HSET invariants:sample:3:hash _claim_token x"),
    "a job that waits has a lease": ("I7", "ZADD jobs:queue:1:_running 1 test_invariants.Sample:3"),
    "a job that ended waits": ("I8", "LPUSH jobs:queue:1:waiting test_invariants.Sample:1"),
    "a job that ended has a lease": ("I8", "ZADD jobs:queue:1:_running 1 test_invariants.Sample:2"),
    "a queue has no name": ("I9", "HDEL jobs:queue:1:hash name"),
    "a list is that of no queue": ("I10", "RPUSH jobs:queue:7:success test_invariants.Sample:1"),
    "a field is that of no job": ("I10", "SADD invariants:sample:7:tags x"),
    "a key means nothing": ("I10", "SET invariants:sample:what x"),
    "a schedule is not due": ("I11", "DEL jobs:schedule:due"),
    "a schedule has another score": ("I11", "ZINCRBY jobs:schedule:due 1 1"),
    "a paused schedule is due": ("I11", "HSET jobs:schedule:1:hash paused 1"),
    "a schedule that is due does not exist": ("I11", "ZADD jobs:schedule:due 1 7"),
}


@pytest.mark.matrix(8)
@pytest.mark.parametrize(("name", "command"), WRONGS.values(), ids=WRONGS)
def test_it_sees_that(redis_client: redis.Redis, name: str, command: str) -> None:
    redis_client.execute_command(*command.split())
    assert name in {problem.split()[0] for problem in found(redis_client)}


def test_it_sees_that_two_queues_have_one_name_and_priority(redis_client: redis.Redis) -> None:
    Queue(name="q", priority=0)
    assert {problem.split()[0] for problem in found(redis_client)} == {"I9"}


def test_it_changes_nothing(redis_client: redis.Redis) -> None:
    before = contents(redis_client)
    found(redis_client)
    assert contents(redis_client) == before


def test_the_lock_of_version_2_is_no_wrong(redis_client: redis.Redis) -> None:
    redis_client.set("jobs:queue:1:requeue_all_delayed_ready_jobs", 1)
    assert found(redis_client) == []


def test_only_the_given_models_are_looked_at(redis_client: redis.Redis) -> None:
    redis_client.set("jobs:job:what", "x")
    redis_client.set("something:else", "x")
    assert found(redis_client) == []
