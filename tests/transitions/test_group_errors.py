"""group_errors: some errors are counted by their cause, and nothing is changed."""

from __future__ import annotations

from typing import Any

import pytest
from worlds import HARD_TEXT, Error, World

from limpyd_jobs.query import ErrorFilter, ErrorGroup
from limpyd_jobs.records import records
from limpyd_jobs.search import walk

FINGERPRINT, OTHER = "0123456789abcdef", "fedcba9876543210"


def add_error(**fields: Any) -> str:
    usual = {"job_model_repr": "shop.jobs.SendMail", "job_pk": "1", "queue_name": "q", "type": "ValueError"}
    return records.add_error(Error, {"date_time": "2026-11-21 09:50:20", "message": "no", **usual, **fields})


def groups(world: World, *words: str) -> list[ErrorGroup]:
    with world.unchanged():
        return ErrorFilter(*words).groups().groups


@pytest.fixture(params=["read", "asked"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets are read as a whole, or asked about one range of pks after another."""
    if request.param == "asked":
        monkeypatch.setattr(walk, "SMALL_SET", 0)
        monkeypatch.setattr(walk, "MEDIUM_SET", 0)


def test_a_group_has_the_first_and_the_last_date_whatever_the_order_of_the_errors(world: World) -> None:
    for day, version in ((2, "1.0"), (3, "1.1"), (1, "1.0")):
        date = f"2026-11-0{day} 09:50:20.000125"
        cause = {"_fingerprint": FINGERPRINT, "_raised_in": f"place {day}", "_message_pattern": "no"}
        last = add_error(date_time=date, **cause, _app_version=version, queue_name=f"q{day % 2}")
    add_error(_fingerprint=OTHER, type="KeyError")
    first, other = groups(world)
    assert first == (
        *(FINGERPRINT, "ValueError", "place 3", "no", 3, "2026-11-01 09:50:20.000125", "2026-11-03 09:50:20.000125"),
        *(
            "2",
            "jobs:error",
            {"shop.jobs.SendMail": 3},
            {"q1": 2, "q0": 1},
            {"1.0": 2, "1.1": 1},
            [("no", 3, ["no"])],
            (1, True),
            [0] * 24,
        ),
    )
    assert last == "3"
    assert (other.fingerprint, other.number, other.app_versions) == (OTHER, 1, {})


def test_a_group_has_its_messages_with_some_examples(world: World) -> None:
    for number in range(5):
        add_error(_fingerprint=FINGERPRINT, _message_pattern="no page <value>", message=f"no page {number}")
    add_error(_fingerprint=FINGERPRINT, _message_pattern="no book", message="no book")
    [group] = groups(world)
    messages = [("no page <value>", 5, ["no page 4", "no page 3", "no page 2"]), ("no book", 1, ["no book"])]
    assert (group.messages, group.message_count) == (messages, (2, True))


def test_a_message_without_a_pattern_is_read(world: World) -> None:
    for message in ("no page 7", "no page 12", "é" * 400, "\n" + "é" * 400):
        add_error(message=message)
    Error.get(add_error()).message.delete()
    [group] = groups(world)
    assert [(each.pattern, each.number) for each in group.messages] == [
        ("no page <value>", 2),
        ("", 1),
        ("é" * 149, 1),
        ("é" * 150, 1),
    ]


def test_errors_without_a_fingerprint_are_in_a_group_by_their_type(world: World) -> None:
    add_error(_fingerprint=FINGERPRINT)
    add_error()
    add_error(type="KeyError")
    assert {(group.fingerprint, group.type, group.number) for group in groups(world)} == {
        (FINGERPRINT, "ValueError", 1),
        ("ValueError", "ValueError", 1),
        ("KeyError", "KeyError", 1),
    }


def test_only_those_that_meet_the_conditions_are_counted(world: World) -> None:
    add_error(_fingerprint=FINGERPRINT)
    add_error(_fingerprint=FINGERPRINT, queue_name="other", date_time="2026-11-20 00:00:00")
    assert [group.number for group in groups(world)] == [2]
    assert [group.queues for group in groups(world, "queue=other")] == [{"other": 1}]
    assert [group.queues for group in groups(world, "date_time>2026-11-21")] == [{"q": 1}]
    assert groups(world, "class=*.jobs.Send%") == []
    assert [group.number for group in groups(world, "class=*.jobs.S?ndMail")] == [2]
    assert [group.number for group in groups(world, "class!=SendMail")] == []


@pytest.mark.leaves("I1", "I2", "I10")
def test_what_is_broken_is_passed_over_and_any_text_comes_back(world: World) -> None:
    for pk in (add_error(), add_error()):
        world.client.delete(f"jobs:error:{pk}:hash")
    world.client.set("jobs:error:2:hash", "foreign")
    add_error(type=HARD_TEXT, message=HARD_TEXT, queue_name=HARD_TEXT)
    [group] = groups(world)
    assert (group.fingerprint, group.type, group.queues) == (HARD_TEXT, HARD_TEXT, {HARD_TEXT: 1})


def test_a_long_message_that_is_not_text_has_no_pattern(world: World) -> None:
    pk = add_error()
    world.client.hset(f"jobs:error:{pk}:hash", "message", b"\x80" * 1000)
    (group,) = ErrorFilter().groups().groups
    world.client.hset(f"jobs:error:{pk}:hash", "message", "no")  # else it is not read by other clients
    assert group.messages[0].pattern == ""
