"""read_records: the fields of many records, a page in one round trip."""

from __future__ import annotations

from typing import Any

from reminders import Reminder
from worlds import World

from limpyd_jobs import Job


def test_those_that_exist_are_read_in_the_order_that_was_asked_for(world: World) -> None:
    for pk in ("a", "b", "c"):
        Reminder.make(pk, {"at": 1, "text": pk})
    world.client.delete("lab:reminder:b:hash")
    with world.unchanged():
        assert list(Reminder.read_many(["c", "x", "b", "a"])) == [
            ("c", {"at": "1", "text": "c", "colour": "blue"}),
            ("a", {"at": "1", "text": "a", "colour": "blue"}),
        ]


def test_only_some_fields_may_be_read(world: World) -> None:
    Reminder.make("a", {"at": 1})
    with world.unchanged():
        assert list(Reminder.read_many(["a"], "text", "at")) == [("a", {"at": "1"})]
        assert list(Reminder.read_many(["a"], "text")) == [("a", {})]


def test_what_is_broken_or_foreign_is_passed_over(world: World) -> None:
    Reminder.make("a", {"at": 1})
    world.client.set("lab:reminder:b:hash", "foreign")
    for names in ((), ("at",)):
        assert [pk for pk, _ in Reminder.read_many(["b", "a", ""], *names)] == ["a"]


def test_any_text_comes_back(world: World) -> None:
    text = "né\"'\\\n\0\t{}[]😀"
    Reminder.make(text, {"text": text})
    world.client.hset("lab:reminder:raw:hash", "text", b"\xff\x00")
    found = dict(Reminder.read_many([text, "raw"]))
    assert found[text]["text"] == text
    assert found["raw"]["text"].encode(errors="surrogateescape") == b"\xff\x00"


def test_a_page_is_one_round_trip(world: World, commands: Any) -> None:
    jobs = Job.add_jobs([str(number) for number in range(450)], queue_name="q")
    assert list(Job.read_many([])) == [*Job.read_many(["0"])] == []
    with commands() as sent:
        found = list(Job.read_many((job.pk.get() for job in jobs), "identifier"))
    assert [fields["identifier"] for _, fields in found] == [str(number) for number in range(450)]
    assert len(sent.names) == 3
