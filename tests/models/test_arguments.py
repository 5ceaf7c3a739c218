"""Arguments: fields that are given when a job is added, and never change."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest
import redis
from cases import each
from limpyd import fields
from running import work

from limpyd_jobs import Argument, Job, Queue, Schedule

pytestmark = pytest.mark.usefixtures("redis_client")


class Mail(Job):
    namespace = "arguments"
    queue_name = "mail"

    to = Argument(indexable=True)
    size = Argument(int, default=7)
    weight = Argument(float, default=0.5)
    is_urgent = Argument(bool, default=False)
    raw = Argument(bytes, default=b"")
    sent = Argument(datetime, default=datetime(2026, 1, 1, tzinfo=timezone.utc))
    options = Argument(json, default=None)

    def run(self, queue: Queue) -> str:
        return f"{self.to.hget()} {self.arguments.size + 1}"


class Letter(Job):
    namespace = "arguments"
    queue_name = "letters"

    to = Argument()
    missing = Argument()


VALUES: list[tuple[str, Any, str]] = [
    ("to", "ann\x00 é 🎈", "ann\x00 é 🎈"),
    ("size", -(10**30), str(-(10**30))),
    ("weight", 1.5, "1.5"),
    ("is_urgent", True, "1"),
    ("raw", bytes(range(256)), None),
    ("sent", datetime(2026, 11, 22, 21, 30, 0, 5), "2026-11-22T21:30:00.000005"),
    ("options", {"a": [1, None, b"\xff", "é"], "$bytes": "x"}, None),
    ("options", "a text", '"a text"'),
    ("options", [], "[]"),
]


@pytest.mark.parametrize(("name", "value", "text"), VALUES[:6] + VALUES[7:])
def test_a_value_comes_back_as_it_was_given(name: str, value: Any, text: str | None) -> None:
    job = Mail.add_job("a", **{"to": "ann", name: value})
    for found in (job, Mail.get(job.pk.get())):
        assert getattr(found.arguments, name) == value
        assert type(getattr(found.arguments, name)) is type(value)
        assert getattr(found, name).hget() == (text or getattr(found, name).hget())


def test_one_that_is_not_given_is_its_default() -> None:
    job = Mail.add_job("a", to="ann")
    assert (job.arguments.size, job.arguments.is_urgent, job.arguments.raw, job.arguments.options) == (
        7,
        False,
        b"",
        None,
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Mail needs the argument 'to'"),
        ({"to": 3}, "'to' of Mail must be a text, not 3"),
        ({"to": "\udc80"}, "'to' of Mail cannot be stored as a text"),
        ({"to": "a", "size": "3"}, "'size' of Mail must be an integer, not '3'"),
        ({"to": "a", "size": True}, "'size' of Mail must be an integer, not True"),
        ({"to": "a", "options": (1, 2)}, r"'options' of Mail cannot be stored as JSON: it would come back as \[1, 2\]"),
        ({"to": "a", "options": {1: 2}}, "would come back as {'1': 2}"),
        ({"to": "a", "options": float("nan")}, "'options' of Mail cannot be stored as JSON: JSON has no NaN"),
        ({"to": "a", "options": {"of": [float("nan")]}}, "JSON has no NaN"),
        ({"to": "a", "options": {"$bytes": "eA=="}}, "would come back as b'x'"),
        ({"to": "a", "options": {"$bytes": "x"}}, "cannot be stored as JSON"),
        ({"to": "a", "weight": 2**53 + 1}, "would come back as 9007199254740992.0"),
        ({"to": "a", "weight": 10**400}, "'weight' of Mail cannot be stored as a number"),
        ({"to": "a", "options": object()}, "cannot be stored as JSON: it holds <object"),
    ],
)
def test_a_wrong_one_is_refused_and_nothing_is_added(given: Any, message: str) -> None:
    for add in (lambda: Mail.add_job("a", **given), lambda: Mail.add_jobs([{"identifier": "a", **given}])):
        with pytest.raises(TypeError, match=message):
            add()
    assert list(Mail.collection()) == []
    assert Mail.add_job("a", to="ann", weight=300).weight.hget() == "300.0"


def test_one_that_is_too_long_is_refused_with_the_limit() -> None:
    with pytest.raises(ValueError, match="'to' of Mail is at most 524,288 bytes long, not 600,000"):
        Mail.add_job("a", to="x" * 600_000)


def test_jobs_are_found_by_one_that_is_indexed() -> None:
    ann, bob = Mail.add_jobs([{"identifier": name, "to": name} for name in ("ann", "bob")])
    assert list(Mail.collection(to="ann")) == [ann.pk.get()]
    assert Mail.get(to="bob").pk.get() == bob.pk.get()


@each(
    "change",
    [
        lambda job: job.to.hset("bob"),
        lambda job: job.to.hsetnx("bob") or job.to.hdel(),
        lambda job: job.to.hdel(),
        lambda job: job.size.hincrby(1),
        lambda job: job.hmset(to="bob", tries=1),
        lambda job: job.hdel("to"),
        lambda job: job.set_fields(to="bob"),
        lambda job: setattr(job.arguments, "to", "bob"),
        lambda job: setattr(job, "to", "bob"),
    ],
)
def test_it_never_changes(change: Any) -> None:
    job = Mail.add_job("a", to="ann")
    with pytest.raises(AttributeError, match="is an argument of Mail, given when a job is added: it never changes"):
        change(job)
    assert Mail.get(job.pk.get()).hmget("to", "size", "tries") == ["ann", "7", None]


def test_a_record_may_be_made_with_some_and_be_deleted(redis_client: redis.Redis) -> None:
    job = Mail(identifier="a", to="ann", size=3)
    assert (job.arguments.to, job.arguments.size) == ("ann", 3)
    Mail.get(job.pk.get()).delete()
    assert [key for key in redis_client.keys("arguments:*") if ":max_pk" not in key] == []


def test_it_is_read_by_a_worker() -> None:
    Mail.add_job("a", to="ann", size=41)
    assert work("mail").num_loops == 1
    assert Queue.get_queue("mail").success.llen() == 1


def test_long_ones_are_read_by_the_job() -> None:
    to = 70_000 * "x"
    seen = []
    Letter.add_job("a", to=to, missing="here")
    work("letters", callback=lambda job, queue: seen.append((job.to.hget(), job.arguments.to, job.arguments.missing)))
    assert seen == [(to, to, "here")]


def test_one_that_is_not_stored_is_none(redis_client: redis.Redis) -> None:
    """As of a job that was added before its class had the argument."""
    job = Letter.add_job("a", to="ann", missing="here")
    redis_client.hdel(f"arguments:letter:{job.pk.get()}:hash", "missing")
    seen = []
    work("letters", callback=lambda job, queue: seen.append((job.missing.hget(), job.arguments.missing)))
    assert seen == [(None, None)]


def test_a_claim_brings_them_along(commands: Any) -> None:
    job = Mail.add_job("a", to="ann", size=3)
    with job.claim():
        with commands() as sent:
            assert (job.to.hget(), job.arguments.to, job.arguments.size) == ("ann", "ann", 3)
        assert sent == []


def test_schedules_have_arguments_too() -> None:
    schedule = Schedule.add("daily", Mail, interval=60, to="ann", size=3)
    job = schedule.run_now()
    assert (job.arguments.to, job.arguments.size) == ("ann", 3)
    with pytest.raises(TypeError, match="Mail needs the argument 'to'"):
        Schedule.add("other", Mail, interval=60)


def test_its_field_is_no_text_in_place_of_its_value() -> None:
    job = Mail.add_job("a", to="ann")
    for as_text in (
        str,
        "To: {}".format,
        lambda field: f"{field}",
        lambda field: f"{field:>9}",
        lambda field: f"{field!s}",
    ):
        with pytest.raises(TypeError, match=r"write job\.arguments\.to, or job\.to\.hget\(\) for the stored text"):
            as_text(job.to)
    assert "name=to" in repr(job.to)
    assert "name=to" in f"{Mail.get_class_field('to')}"


def test_a_name_that_is_no_argument_is_told() -> None:
    job = Mail.add_job("a", to="ann")
    with pytest.raises(AttributeError, match="Mail has no argument 'identifier'"):
        _ = job.arguments.identifier
    assert set(dir(job.arguments)) == {"to", "size", "weight", "is_urgent", "raw", "sent", "options"}
    assert "size=7, " in repr(job.arguments)


def test_a_field_of_an_application_may_be_named_arguments() -> None:
    class Command(Job):
        namespace = "arguments"
        queue_name = "commands"
        arguments = fields.InstanceHashField()

    assert Command.add_job("a", arguments="-l").arguments.hget() == "-l"


def test_other_kinds_are_refused() -> None:
    with pytest.raises(TypeError, match="values of complex cannot travel"):
        Argument(complex)
    with pytest.raises(TypeError, match="The default of an argument must be an integer, not 'x'"):
        Argument(int, default="x")
