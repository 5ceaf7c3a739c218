"""Whatever is wrong is found, is repaired, and then is not found again; and good jobs beside it stay as they are."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
import redis
from invariants import contents, violations
from limpyd import fields
from limpyd.indexes import EqualIndex, TextRangeIndex
from looking import check

from limpyd_jobs import Error, Job, Queue, Worker
from limpyd_jobs.check import Report
from limpyd_jobs.transitions import defer_unresolved

LATER = datetime(2099, 1, 1)
GOOD = range(1, 5)


class Parcel(Job):
    namespace = "checked"
    queue_name = "q"
    colour = fields.InstanceHashField(indexable=True)
    tags = fields.SetField()

    def run(self, queue: Queue) -> None:
        if self._cached_identifier == "bad":
            raise ValueError("on purpose")


class Letter(Job):
    """Of no queue of its own."""

    namespace = "checked"


IDENT = "test_findings.Parcel:"
HASH = "checked:parcel:"
# Jobs to break, by their pk: 5 waits, 6 is delayed, 7 runs, 8 is a success, 9 waits, too.
BROKEN = {
    "a hash is gone": ("I1", f"DEL {HASH}5:hash"),
    "a hash of an error is gone": ("I1", "DEL jobs:error:1:hash"),
    "a hash is none": ("I1", f"DEL {HASH}5:hash", f"SET {HASH}5:hash x"),
    "a pk is not in the collection": ("I1", "SREM checked:parcel:collection 5"),
    "the collection is gone": ("I1", "DEL checked:parcel:collection"),
    "an index lacks a pk": ("I2", "SREM checked:parcel:identifier:w 5"),
    "an index of a subclass lacks a pk": ("I2", "SREM checked:parcel:colour:blue 5"),
    "an index has a pk too many": ("I2", "SADD checked:parcel:identifier:w 4"),
    "an index has a value that no hash has": ("I2", "SADD checked:parcel:identifier:other 3"),
    "an index has a pk of nothing": ("I2", "SADD checked:parcel:status:w 99"),
    "an index of an error lacks a pk": ("I2", "DEL jobs:error:type:ValueError"),
    "an index of a queue has a pk too many": ("I2", "SADD jobs:queue:name:other 1"),
    "an index is no set": ("I10", "DEL checked:parcel:identifier:w", "SET checked:parcel:identifier:w x"),
    "a value is not indexed": ("I2", f"HSET {HASH}5:hash colour red"),
    "a value is not text": ("I2", f"HSET {HASH}5:hash colour \udcff\udcfe"),
    "a priority is no number": ("I2", f"HSET {HASH}5:hash priority high"),
    "the tries are no number": ("I2", f"HSET {HASH}5:hash tries many"),
    "a job that ended is queued": ("I3", f"HSET {HASH}8:hash queued 1", "SADD checked:parcel:queued:1 8"),
    "a job that waits is not queued": ("I3", f"HDEL {HASH}5:hash queued", "SREM checked:parcel:queued:1 5"),
    "a job has a status that is none": ("I3", f"HSET {HASH}5:hash status x"),
    "a job was never put in a queue": (
        "I3",
        f"HDEL {HASH}5:hash status _queue_key",
        "SREM checked:parcel:status:w 5",
        f"LREM jobs:queue:1:waiting 0 {IDENT}5",
    ),
    "a job that waits is in no list": ("I5", f"LREM jobs:queue:1:waiting 0 {IDENT}5"),
    "no job is in its list": ("I5", "DEL jobs:queue:1:waiting"),
    "a job of version 2 is in no list": (
        "I5",
        f"LREM jobs:queue:1:waiting 0 {IDENT}5",
        f"HDEL {HASH}5:hash _queue_key",
    ),
    "a job that waits is in its list twice": ("I5", f"RPUSH jobs:queue:1:waiting {IDENT}5"),
    "a job that waits is in another list": ("I5", f"RPUSH jobs:queue:2:waiting {IDENT}5"),
    "a job that waits is delayed, too": ("I5", f"ZADD jobs:queue:1:delayed 1 {IDENT}5"),
    "what waits is no ident": ("I5", "RPUSH jobs:queue:1:waiting what"),
    "what waits is not text": ("I5", "RPUSH jobs:queue:1:waiting \udcff"),
    "what is delayed is no ident": ("I5", "ZADD jobs:queue:1:delayed 5 what"),
    "what waits was deleted": ("I5", f"RPUSH jobs:queue:1:waiting {IDENT}99"),
    "what runs was deleted": ("I5", f"ZADD jobs:queue:1:_running 1 {IDENT}99"),
    "a delayed job is in no set": ("I6", "DEL jobs:queue:1:delayed"),
    "a delayed job has another score": ("I6", f"ZINCRBY jobs:queue:1:delayed 3600 {IDENT}6"),
    "a delayed job is in two sets": ("I6", f"ZADD jobs:queue:2:delayed 4070908800 {IDENT}6"),
    "a delayed job waits": ("I6", f"LPUSH jobs:queue:1:waiting {IDENT}6"),
    "a delayed job has no date": ("I6", f"HDEL {HASH}6:hash delayed_until"),
    "a delayed job has a date that is none": ("I6", f"HSET {HASH}6:hash delayed_until never"),
    "a job runs without a lease": ("I7", "DEL jobs:queue:1:_running"),
    "a job of version 2 runs": ("I7", "DEL jobs:queue:1:_running", f"HDEL {HASH}7:hash _claim_token _queue_key"),
    "a job runs and waits": ("I7", f"RPUSH jobs:queue:1:waiting {IDENT}7"),
    "a job runs and is delayed": ("I7", f"ZADD jobs:queue:1:delayed 1 {IDENT}7"),
    "a job has two leases": ("I7", f"ZADD jobs:queue:2:_running 4070908800 {IDENT}7"),
    "a job that waits has a claim": ("I7", f"HSET {HASH}5:hash _claim_token x"),
    "a job that waits has a lease": ("I7", f"ZADD jobs:queue:1:_running 1 {IDENT}5"),
    "a job that ended has a claim": ("I7", f"HSET {HASH}8:hash _claim_token x"),
    "a job that ended waits": ("I8", f"LPUSH jobs:queue:1:waiting {IDENT}8"),
    "a job that ended is delayed": ("I8", f"ZADD jobs:queue:1:delayed 1 {IDENT}8"),
    "a job that ended has a lease": ("I7", f"ZADD jobs:queue:1:_running 1 {IDENT}8"),
    "a job names a queue that is gone": ("I9", f"HSET {HASH}5:hash _queue_key jobs:queue:77"),
    "a queue has no hash": ("I9", "DEL jobs:queue:2:hash"),
    "a queue has a priority that is no number": ("I2", "HSET jobs:queue:2:hash priority high"),
    "a queue has no priority": ("I9", "HDEL jobs:queue:2:hash priority"),
    "a queue with jobs has no hash": ("I9", "DEL jobs:queue:1:hash"),
    "a queue has a hash that is none": ("I9", "DEL jobs:queue:1:hash", "SET jobs:queue:1:hash x"),
    "a queue has a hash and a list that are none": ("I9", "SET jobs:queue:1:hash x", "SET jobs:queue:1:waiting x"),
    "a queue has no name": ("I9", "HDEL jobs:queue:1:hash name"),
    "a queue has a name that is empty": ("I9", "HSET jobs:queue:1:hash name ", "SADD jobs:queue:name: 1"),
    "a queue has no name, and there is another one": (
        "I9",
        "HSET jobs:queue:1:hash name ",
        "HSET jobs:queue:9:hash name q priority 0",
        "SADD jobs:queue:collection 9",
        "SADD jobs:queue:name:q 9",
        "SADD jobs:queue:priority:0 9",
    ),
    "a queue has no name, and none is known": ("I9", "HDEL jobs:queue:1:hash name", "SREM jobs:queue:name:q 1"),
    "a list is that of no queue": ("I10", "RPUSH jobs:queue:77:success x"),
    "jobs wait in no queue": ("I10", "RENAME jobs:queue:1:waiting jobs:queue:77:waiting"),
    "a list is none": ("I10", "DEL jobs:queue:1:waiting", "SET jobs:queue:1:waiting x"),
    "a delayed set is none": ("I10", "DEL jobs:queue:1:delayed", "SET jobs:queue:1:delayed x"),
    "a field is that of no job": ("I10", f"SADD {HASH}99:tags x"),
    "the counter is lost": ("I10", "DEL checked:parcel:max_pk"),
    "the counter is too low": ("I10", "SET checked:parcel:max_pk 3"),
    "the counter is none": ("I10", "SET checked:parcel:max_pk x"),
    "the counter is negative": ("I10", "SET checked:parcel:max_pk -5"),
    "the counter is at its end": ("I10", "SET checked:letter:max_pk 999999999999999999"),
    "the counter is a list": ("I10", "DEL checked:parcel:max_pk", "RPUSH checked:parcel:max_pk x"),
    "the collection is none": ("I10", "DEL checked:parcel:collection", "SET checked:parcel:collection x"),
    "the collection of queues is none": ("I10", "DEL jobs:queue:collection", "ZADD jobs:queue:collection 1 1"),
    "the collection of errors is none": ("I10", "DEL jobs:error:collection", "RPUSH jobs:error:collection 1"),
    "the collection of schedules is none": ("I10", "HSET jobs:schedule:collection x x", "ZADD jobs:schedule:due 1 1"),
    "the set of paused queues is none": ("I10", "SET jobs:queue:paused x"),
    "the set of idle workers is none": ("I10", "SET jobs:queue:idle_workers x"),
    "a list of signals is none": ("I10", "SET jobs:queue:_signal:a:b x"),
    "a list of canceled jobs is none": ("I10", "SET jobs:queue:_canceled:host:1:abc x"),
    "the collection has a pk that is not text": ("I1", "SADD checked:parcel:collection \udcff"),
    "an index has a pk that is not text": ("I2", "SADD checked:parcel:status:w \udcff"),
    "an index has an empty pk": ("I2", "SADD checked:parcel:status:w "),
    "a large index has an empty pk": (
        "I2",
        f"SADD checked:parcel:status:w {' '.join(map(str, range(100, 160)))}",
        "SADD checked:parcel:status:w ",
    ),
    "what is delayed is empty": ("I5", "ZADD jobs:queue:1:delayed 5 "),
}


@pytest.fixture
def look(redis_server: Any, redis_client: redis.Redis) -> redis.Redis:
    """A client that decodes anything."""
    with redis_server.client(encoding_errors="surrogateescape") as client:
        yield client


@pytest.fixture(autouse=True)
def jobs(redis_client: redis.Redis) -> None:
    """Of pk 1 to 4, good ones: a success, an error, one that waits, one that is delayed; 5 to 9 are to be broken."""
    Parcel.add_job("good", tags=["x"])
    Parcel.add_job("bad")
    Worker("q", max_loops=2, terminate_gracefuly=False).run()
    Parcel.add_job("first")
    Parcel.add_job("later", delayed_until=LATER)
    Parcel.add_job("w", colour="blue", tags=["y"])
    Parcel.add_job("d", delayed_until=LATER)
    claim("r")
    Worker("s", max_loops=1, terminate_gracefuly=False).run() if Parcel.add_job("s", "s") else None
    Parcel.add_job("v")
    Queue.get_queue("q", 5)


def claim(identifier: str) -> None:
    """Add a job that runs from now on, in queue 1."""
    job = Parcel.add_job(identifier, prepend=True)
    worker = Worker("q")
    worker.update_keys()
    assert worker.wait_for_job()[1].ident == job.ident


def break_by(client: redis.Redis, *commands: str) -> None:
    for command in commands:
        name, *words = command.split(" ")
        client.execute_command(name, *(word.encode(errors="surrogateescape") for word in words))


def names_of(report: Report) -> set[str]:
    return {finding.invariant for finding in report.findings}


def of_good_jobs(client: redis.Redis) -> dict[str, Any]:
    return {key: value for key, value in contents(client).items() if key in {f"{HASH}{pk}:hash" for pk in GOOD}}


def found(client: redis.Redis) -> list[str]:
    problems = violations(client, Parcel, Letter, Queue, Error)
    return [problem for problem in problems if ":date_time:" not in problem]  # the index of which is not checked


def test_nothing_is_wrong_with_a_sound_database(look: redis.Redis) -> None:
    assert found(look) == []
    report = check(pause=0)
    assert report.findings == []
    assert report.records["test_findings.Parcel"] == 9


@pytest.mark.parametrize("job", ["5", "6"], ids=["waiting", "delayed"])
def test_nothing_is_wrong_with_a_job_that_a_worker_of_other_classes_deferred(look: redis.Redis, job: str) -> None:
    look.zrem("jobs:queue:1:delayed", f"{IDENT}{job}")
    look.lrem("jobs:queue:1:waiting", 0, f"{IDENT}{job}")
    look.lpush("jobs:queue:1:waiting", f"{IDENT}{job}")
    defer_unresolved(Queue, "jobs:queue:1:waiting", f"{IDENT}{job}")
    before = contents(look)
    assert check(repair=True, pause=0).findings == []
    assert contents(look) == before


# The first row that breaks each invariant is a quick test.
FIRST = {name: what for what, (name, *_) in reversed(BROKEN.items())}.values()
CASES = [
    pytest.param(name, commands, id=what, marks=() if what in FIRST else pytest.mark.proof)
    for what, (name, *commands) in BROKEN.items()
]


@pytest.mark.parametrize(("name", "commands"), CASES)
def test_it_finds_and_repairs_that(look: redis.Redis, name: str, commands: list[str]) -> None:
    good = of_good_jobs(look)
    break_by(look, *commands)
    before = contents(look)
    report = check(pause=0)
    assert name in names_of(report)
    assert contents(look) == before
    assert all(finding.repairable and not finding.repaired for finding in report.findings)

    assert check(repair=True, pause=0).left == []
    assert found(look) == []
    assert check(pause=0).findings == []
    assert {key: placed_aside(value) for key, value in of_good_jobs(look).items()} == {
        key: placed_aside(value) for key, value in good.items()
    }


def placed_aside(job: dict[str, str]) -> dict[str, str]:
    """A job without the name of its queue, which may be another one in the end."""
    return {name: value for name, value in job.items() if name != "_queue_key"}


def test_what_version_2_leaves_of_an_error_that_it_deletes_is_found_and_deleted(look: redis.Redis) -> None:
    error = Error.get("1")
    for name in error._fields:
        if name != "pk" and not name.startswith("_"):
            error.get_field(name).delete()
    look.srem("jobs:error:collection", "1")
    assert {*look.hkeys("jobs:error:1:hash")} == {"_fingerprint", "_message_pattern", "_raised_in"}
    assert [finding.kind for finding in check(pause=0).findings] == ["left over"]
    assert check(repair=True, pause=0).left == []
    assert look.keys("jobs:error:1:*") == look.keys("jobs:error:_fingerprint:*") == []
    assert found(look) == []


class Ranged(Job):
    namespace = "checked-ranged"
    queue_name = "q"
    status = fields.InstanceHashField(indexable=True, default="w", indexes=[EqualIndex, TextRangeIndex])
    tags = fields.ListField(indexable=True)


def test_an_index_that_only_limpyd_writes_may_lack_a_job_after_a_full_redis_and_is_named(look: redis.Redis) -> None:
    job = Ranged.add_job("a", tags=["x"])
    look.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            job.cancel()
    finally:
        look.config_set("maxmemory", 0)
    assert job.status.hget() == "c"
    assert len(Ranged.collection(status__lte="c")) == 0
    report = check(pause=0)
    names = "the TextRangeIndex of test_findings.Ranged.status; the EqualIndex of test_findings.Ranged.tags"
    assert f"Not looked at: {names}" in " ".join(report.as_table().split())
    Ranged.get_field("status").get_index(TextRangeIndex).rebuild()
    assert len(Ranged.collection(status__lte="c")) == 1
