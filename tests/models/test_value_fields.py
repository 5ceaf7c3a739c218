"""Fields that hold values of Python: set and read as values, stored as text."""

from __future__ import annotations

import json
import pickle
from datetime import datetime
from typing import Any

import pytest
import redis
from cases import each
from limpyd import fields
from limpyd.indexes import NumberRangeIndex

from limpyd_jobs import Job, TimedRecord, ValueField
from limpyd_jobs.models import BaseJobsModel

pytestmark = pytest.mark.usefixtures("redis_client")

VALUES: list[tuple[Any, Any, str]] = [
    (
        json,
        {"a": [1, 2.5, None, True, "é\0"], "raw": b"\xff"},
        '{"a":[1,2.5,null,true,"é\\u0000"],"raw":{"$bytes":"/w=="}}',
    ),
    (json, None, "null"),
    (int, 5, "5"),
    (bool, False, "0"),
    (bytes, b"\xff\x00", "/wA="),
    (datetime, datetime(2026, 11, 23, 5), "2026-11-23T05:00:00"),
    (str, "ü\n", "ü\n"),
]


class Settings(BaseJobsModel):
    namespace = "values"
    options = ValueField(json, default={})
    size = ValueField(int, indexable=True, indexes=[NumberRangeIndex])
    thing = ValueField(pickle)
    note = fields.InstanceHashField()


class Upload(Job):
    namespace = "values"
    queue_name = "uploads"
    progress = ValueField(json, default=[0])


class Chore(TimedRecord):
    namespace = "values"
    due_field = "at"
    at = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
    what = ValueField(json)


@pytest.mark.parametrize(("kind", "value", "text"), VALUES)
def test_a_value_comes_back_and_is_stored_as_text(kind: Any, value: Any, text: str) -> None:
    class Any_(BaseJobsModel):  # noqa: N801
        namespace = f"values_{kind.__name__}"
        field = ValueField(kind)

    record = Any_()
    record.field.hset(value)
    assert (record.field.value(), record.field.hget()) == (value, text)


def test_it_can_be_given_and_set_in_every_way() -> None:
    record = Settings(options={"a": 1}, size=3)
    assert (record.options.value(), record.size.value(), record.thing.value()) == ({"a": 1}, 3, None)
    record.hmset(options=[1], size=4, note="x")
    assert (record.options.value(), record.size.value(), record.note.hget()) == ([1], 4, "x")
    record.set_fields(options="text", thing={1, 2})
    assert (record.options.value(), record.thing.value()) == ("text", {1, 2})
    assert list(Settings.collection(size__gt=3)) == [record.pk.get()]
    record.options.delete()
    assert record.options.value() is None
    assert record.options.hsetnx({"b": 2}) == 1
    assert record.options.value() == {"b": 2}
    assert Settings().options.value() == {}


def test_of_a_job_it_changes_unlike_an_argument() -> None:
    job = Upload.add_job("a", progress=[1, "of", 3])
    assert job.progress.value() == [1, "of", 3]
    job.progress.hset([2, "of", 3])
    assert job.progress.value() == [2, "of", 3]
    assert [each.progress.value() for each in Upload.add_jobs([{"identifier": "b", "progress": [5]}, "c"])] == [
        [5],
        [0],
    ]


def test_of_a_timed_record_too() -> None:
    Chore.make("x", {"at": 1, "what": {"b": 1}})
    assert Chore.change("x", {"what": [2]}, expected={"what": {"b": 1}})
    assert Chore.get("x").what.value() == [2]


def test_what_cannot_be_stored_is_refused_and_nothing_changes(redis_client: redis.Redis) -> None:
    record = Settings(options={"a": 1}, size=3)
    for wrong in (
        lambda: record.options.hset({1: 2}),
        lambda: record.hmset(options=(1,)),
        lambda: record.size.hset("4"),
    ):
        with pytest.raises(TypeError, match="of Settings"):
            wrong()
    with pytest.raises(ValueError, match="at most 524,288 bytes"):
        record.options.hset("x" * 600_000)
    with pytest.raises(TypeError, match="default"):
        ValueField(int, default="x")
    with pytest.raises(TypeError, match="'progress' of Upload"):
        Upload.add_job("a", progress={1})
    assert (record.options.value(), record.size.value()) == ({"a": 1}, 3)
    assert list(Upload.collection()) == []
    redis_client.hset(f"values:settings:{record.pk.get()}:hash", "size", "x")
    with pytest.raises(ValueError, match="invalid literal"):
        record.size.value()


def test_setting_one_is_one_round_trip(commands: Any) -> None:
    record = Settings(size=3)
    record.size.hset(4)
    with commands() as sent:
        record.size.hset(5)
    assert len(sent.names) == 1


@each(
    ("kind", "text", "value"),
    [
        (json, '{"a": [1]}', {"a": [1]}),
        (json, ' {"a": [1]}\n', {"a": [1]}),
        (int, "5", 5),
        (bool, "true", True),
        (bool, "0", False),
        (bytes, "/wA=", b"\xff\x00"),
        (datetime, "2026-11-23", datetime(2026, 11, 23)),
        (str, "", ""),
    ],
)
def test_what_a_process_wrote_is_read(kind: Any, text: str, value: Any) -> None:
    assert _field_of(kind).read(text) == value


@each(
    ("kind", "text"),
    [
        (json, "{"),
        (json, "{} {}"),
        (json, "[" * 100_000),
        (int, "five"),
        (bool, "yes"),
        (bytes, "%"),
        (datetime, "soon"),
        (pickle, "x"),
    ],
)
def test_what_is_no_value_is_refused(kind: Any, text: str) -> None:
    with pytest.raises(ValueError, match="The field 'size' of Settings"):
        _field_of(kind).read(text)


def _field_of(kind: Any) -> ValueField:
    field = ValueField(kind)
    field.name, field._model = "size", Settings
    return field
