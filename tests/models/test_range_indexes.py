"""Range indexes of numbers: kept by the scripts, in the same step, as limpyd would keep them."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import pytest
import redis
from cases import each
from limpyd import fields
from limpyd.indexes import EqualIndex, NumberRangeIndex
from limpyd.model import RedisModel

from limpyd_jobs import Argument, ConfigurationException, DateTimeRangeIndex, Error, Job, Queue, TimedRecord
from limpyd_jobs import check as checking
from limpyd_jobs.models import BaseJobsModel

pytestmark = pytest.mark.usefixtures("redis_client")

RANGE = [NumberRangeIndex]
check = partial(checking.check, queue_models=[Queue], error_models=[Error])
VALUES = [
    *("0", "-0", "1", "-7", "+3", "1.5", ".5", "5.", "1e3", "1E-3", "-1.25e+2", " 4 ", "\t5\n", "1_000", "1_2_3"),
    *("1790000000.123456", "9007199254740993", "inf", "-inf", "Infinity", "+INF", "1e400", "-1e400", "1e-400"),
    *("", "x", "0x10", "1e", "e5", "1.2.3", "5-3", "--1", ".", "infinite", "né", "1 2", "12_", "a_1"),
]


class Sized(BaseJobsModel):
    namespace = "ranges"
    size = fields.InstanceHashField(indexable=True, indexes=RANGE)
    both = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, NumberRangeIndex], default=5)
    other = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex.configure(key="n", prefix="p")])


class OfLimpyd(RedisModel):
    """The same, without us."""

    database = BaseJobsModel.database
    namespace = "ranges_of_limpyd"
    cacheable = False
    size = fields.InstanceHashField(indexable=True, indexes=RANGE)


class Parcel(Job):
    namespace = "ranges"
    queue_name = "parcels"
    weight = Argument(float, indexable=True, indexes=RANGE)


def test_any_value_stands_where_limpyd_puts_it(redis_client: redis.Redis) -> None:
    for value in VALUES:
        Sized(size=value)
        OfLimpyd(size=value)
    found = redis_client.zrange("ranges:sized:size:number-range", 0, -1, withscores=True)
    assert found == redis_client.zrange("ranges_of_limpyd:oflimpyd:size:number-range", 0, -1, withscores=True)
    assert len(found) == len(VALUES)


def test_records_are_found_by_what_their_numbers_are_now(redis_client: redis.Redis) -> None:
    small, large = Sized(size=3, other=1), Sized(size=30, other=2)
    assert list(Sized.collection(size__lt=10)) == [small.pk.get()]
    assert list(Sized.collection(other__p__gte=2)) == [large.pk.get()]
    small.size.hset(300)
    large.size.hincrby(-25)
    assert list(Sized.collection(size__lte=5)) == [large.pk.get()]
    small.hmset(size=1, other=9)
    assert sorted(Sized.collection(size__gt=0, both__gte=5, both=5)) == [small.pk.get(), large.pk.get()]
    large.hdel("size", "both")
    assert list(Sized.collection(size__gt=-1)) == list(Sized.collection(both__gt=0)) == [small.pk.get()]
    small.delete()
    large.delete()
    assert [key for key in redis_client.keys("ranges:*") if not key.endswith("max_pk")] == []


def test_a_change_is_one_round_trip(commands: Any) -> None:
    record = Sized(size=3)
    record.size.hset(4)
    with commands() as sent:
        record.size.hset(5)
    assert len(sent.names) == 1


def test_a_job_with_a_range_is_added_and_deleted_in_one_round_trip(commands: Any) -> None:
    Parcel.add_job("a", weight=1.5).delete()
    with commands() as sent:
        job = Parcel.add_job("b", weight=2.5)
    assert len(sent.names) == 1
    assert list(Parcel.collection(weight__gt=2)) == [job.pk.get()]
    jobs = Parcel.add_jobs([{"identifier": "c", "weight": 7.0}, {"identifier": "d", "weight": 8.0}])
    assert sorted(Parcel.collection(weight__gte=7)) == [each.pk.get() for each in jobs]


def test_jobs_that_are_pruned_leave_the_index(redis_client: redis.Redis) -> None:
    with Parcel.add_job("a", weight=1.5).claim():
        pass
    assert Queue.get_queue("parcels").prune(keep_success=0) == 1
    assert redis_client.keys("ranges:parcel:weight*") == []


def test_a_key_of_a_wrong_type_refuses_the_change_and_nothing_is_half_done(redis_client: redis.Redis) -> None:
    record = Sized(size=3, other=1)
    redis_client.delete("ranges:sized:size:number-range")
    redis_client.set("ranges:sized:size:number-range", "foreign")
    with pytest.raises(redis.ResponseError):
        record.hmset(size=4, both=6, other=7)
    assert record.hmget("size", "both", "other") == ["3", "5", "1"]
    assert list(Sized.collection(both=5)) == list(Sized.collection(other__p=1)) == [record.pk.get()]


class Dated(BaseJobsModel):
    namespace = "ranges"
    at = fields.InstanceHashField(indexable=True, indexes=[DateTimeRangeIndex])


KEY_OF_DATES = "ranges:dated:at:datetime-range"


class TestDates:
    @pytest.mark.parametrize(
        "text",
        [
            *("2026-11-20 10:30:00", "2026-11-20T10:30:00.000001", "2026-11-20", "1969-12-31 23:59:59.250000"),
            *("2026-11-20T10:30:00Z", "2026-11-20T10:30:00+02:00", "2026-11-20 10:30:00.500000-05:30"),
            *("1900-01-01T00:00:00+00:19:32", "2026-11-20 10:30:00.250000-23:59:59"),
            *("0001-01-01 00:00:00", "9999-12-31 23:59:59", "2400-02-29 12:00:00.123456", "2000-02-29"),
        ],
    )
    def test_stand_at_their_moment(self, redis_client: redis.Redis, text: str) -> None:
        record = Dated(at=text)
        assert redis_client.zrange(KEY_OF_DATES, 0, -1, withscores=True) == [
            (record.pk.get(), pytest.approx(Dated.get_field("at")._indexes[0].normalize_value(text), abs=1e-5))
        ]

    @each(
        "text",
        [
            "",
            "soon",
            "5",
            "2026-02-29",
            "2026-13-01",
            "2026-11-20 25:00:00",
            "2026-11-20 10:30:00+2",
            "2026-11-20 1",
            "2026-11-20 10:30:00+24:00",
            "0001-01-01 00:00:00+00:01",
            "9999-12-31 23:59:59-00:01",
            "é",
        ],
    )
    def test_that_are_none_stand_nowhere(self, redis_client: redis.Redis, text: str) -> None:
        record = Dated(at="2026-11-20 10:30:00")
        record.at.hset(text)
        assert not redis_client.exists(KEY_OF_DATES)
        assert Dated.get_field("at")._indexes[0].normalize_value(text) is None

    def test_are_found_by_collections(self) -> None:
        records = [Dated(at=f"2026-11-{day}") for day in (18, 19, 20)]
        pks = [record.pk.get() for record in records]
        assert sorted(Dated.collection(at__gte=datetime(2026, 11, 19))) == pks[1:]
        assert sorted(Dated.collection(at__gt="2026-11-18", at__lt="2026-11-20")) == pks[1:2]
        assert list(Dated.collection(at="2026-11-18T02:00:00+02:00")) == pks[:1]
        records[0].delete()
        assert len(Dated.collection(at__lt=datetime(2027, 1, 1))) == 2
        with pytest.raises(ValueError, match=r"Dated\.at is compared with a date"):
            list(Dated.collection(at__lt="soon"))

    def test_are_put_right_by_the_check(self, redis_client: redis.Redis) -> None:
        class Delivery(Job):
            namespace = "ranges"
            queue_name = "deliveries"
            added = fields.InstanceHashField(indexable=True, indexes=[DateTimeRangeIndex])

        job, other = Delivery.add_job("a"), Delivery.add_job("b")
        key = "ranges:delivery:added:datetime-range"
        redis_client.zrem(key, job.pk.get())
        redis_client.hset(f"ranges:delivery:{other.pk.get()}:hash", "added", "some day")
        found = check(pause=0, repair=True).findings
        assert {(each.invariant, each.subject) for each in found} == {("I2", job.pk.get()), ("I2", other.pk.get())}
        assert redis_client.zrange(key, 0, -1) == [job.pk.get()]
        assert check(pause=0).findings == []

    def test_do_not_say_when_a_timed_record_is_due(self) -> None:
        class Feed(TimedRecord):
            namespace = "ranges"
            due_field = "at"
            at = fields.InstanceHashField(indexable=True, indexes=[DateTimeRangeIndex])

        with pytest.raises(ConfigurationException, match="NumberRangeIndex"):
            Feed.next_due()


class TestTheCheck:
    def test_finds_nothing_wrong_where_nothing_is(self) -> None:
        Parcel.add_job("a", weight=1.5)
        report = check(pause=0)
        assert report.findings == []
        assert not any("weight" in each for each in report.unchecked)

    def test_puts_right_what_is_not_indexed_or_wrongly(self, redis_client: redis.Redis) -> None:
        for number in range(3):
            Parcel.add_job(str(number), weight=float(number))
        key = "ranges:parcel:weight:number-range"
        redis_client.zrem(key, "1")
        redis_client.zadd(key, {"2": 99, "77": 1})
        assert {(found.invariant, found.subject) for found in check(pause=0, repair=True).findings} == {
            ("I2", "1"),
            ("I2", "2"),
            ("I2", "77"),
        }
        assert redis_client.zrange(key, 0, -1, withscores=True) == [("1", 0), ("2", 1), ("3", 2)]
        assert check(pause=0).findings == []

    def test_looks_into_large_indexes_in_steps(self, redis_client: redis.Redis) -> None:
        Parcel.add_jobs({"identifier": str(number), "weight": 1.0} for number in range(60))
        key = "ranges:parcel:weight:number-range"
        redis_client.zadd(key, {"700": 1})
        assert [found.subject for found in check(pause=0, repair=True).findings] == ["700"]
        assert redis_client.zcard(key) == 60

    def test_makes_an_index_of_a_wrong_type_anew(self, redis_client: redis.Redis) -> None:
        Parcel.add_job("a", weight=1.5)
        key = "ranges:parcel:weight:number-range"
        redis_client.delete(key)
        redis_client.sadd(key, "foreign")
        for _ in range(2):
            check(pause=0, repair=True)
        assert redis_client.zrange(key, 0, -1, withscores=True) == [("1", 1.5)]
        assert check(pause=0).findings == []
