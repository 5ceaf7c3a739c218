"""put_record: a record is made, or changed if it still is as it was read, in one step."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from limpyd import fields
from limpyd.exceptions import DoesNotExist, UniquenessError
from limpyd.indexes import NumberRangeIndex, TextRangeIndex
from reminders import DUE, LEASES, Reminder, stored
from worlds import World

from limpyd_jobs import ConfigurationException, TimedRecord


def test_the_whole_effect_of_making_one(world: World) -> None:
    Reminder.make("tea", {"at": 12.5, "text": "now"})
    assert world.contents() == {
        "lab:reminder:collection": {"tea"},
        "lab:reminder:tea:hash": {"at": "12.5", "text": "now", "colour": "blue"},
        "lab:reminder:at:12.5": {"tea"},
        "lab:reminder:text:now": {"tea"},
        DUE: {"tea": 12.5},
    }


def test_there_is_but_one_of_a_pk(world: World) -> None:
    Reminder.make("tea", {"at": 12.5})
    with world.unchanged(), pytest.raises(UniquenessError, match="with pk tea"):
        Reminder.make("tea", {"at": 13})


def test_one_may_take_the_place_of_a_field_of_a_hash(world: World) -> None:
    world.client.hset("theirs", mapping={"tea": "…", "cake": "…"})
    Reminder.make("tea", {"at": 12.5}, replaced=("theirs", "tea"))
    assert world.client.hgetall("theirs") == {"cake": "…"}
    assert stored("tea")["at"] == "12.5"
    with world.unchanged(), pytest.raises(DoesNotExist, match="The hash theirs has no field 'milk'"):
        Reminder.make("milk", {"at": 12.5}, replaced=("theirs", "milk"))
    with world.unchanged(), pytest.raises(UniquenessError):
        Reminder.make("tea", {"at": 12.5}, replaced=("theirs", "cake"))


@pytest.mark.parametrize("replaced", ["theirs", ("theirs",), ("a", "b", "c"), ("theirs", 5)])
def test_what_is_replaced_is_a_key_and_a_field(world: World, replaced: Any) -> None:
    with world.unchanged(), pytest.raises(TypeError, match="a tuple of a key and a field"):
        Reminder.make("tea", {"at": 12.5}, replaced=replaced)


@pytest.mark.parametrize(("pk", "error"), [("", ValueError), (None, TypeError), (b"a", TypeError), (True, TypeError)])
def test_one_has_a_pk(world: World, pk: Any, error: Any) -> None:
    with world.unchanged(), pytest.raises(error, match="The pk of a Reminder must"):
        Reminder.make(pk, {"at": 12.5})


def test_there_is_none_of_an_empty_pk(world: World) -> None:
    for call in (lambda: Reminder.change("", {"at": 1}), lambda: Reminder.remove("")):
        with world.unchanged(), pytest.raises(DoesNotExist):
            call()


def test_a_change_leaves_a_field_with_a_value(world: World) -> None:
    Reminder.make("tea", {"at": 12.5, "colour": None})
    Reminder.lease_due("ann")
    with world.unchanged(), pytest.raises(ValueError, match="needs a field with a value: remove it instead"):
        Reminder.change("tea", {"at": None}, owner="ann")
    assert Reminder.change("tea", {"at": None, "text": "then"}, owner="ann")
    assert stored("tea") == {"text": "then"}


def test_what_is_expected_of_a_field_that_does_not_exist_is_refused(world: World) -> None:
    Reminder.make("tea", {"at": 12.5})
    for call in (
        lambda: Reminder.change("tea", {"text": "x"}, expected={"txt": None}),
        lambda: Reminder.remove("tea", expected={"txt": None}),
    ):
        with world.unchanged(), pytest.raises(AttributeError, match="is 'text' meant"):
            call()


def test_nothing_is_made_in_the_place_of_what_is_no_hash(world: World) -> None:
    world.client.set("theirs", "x")
    with world.unchanged(), pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        Reminder.make("tea", {"at": 12.5}, replaced=("theirs", "tea"))


@pytest.mark.parametrize("moment", ["tomorrow", "2030-01-01", b"soon", "nan", float("nan"), float("-inf"), "inf", "٣"])
def test_a_moment_that_is_no_number_is_refused_as_it_would_be_due_at_once(world: World, moment: Any) -> None:
    Reminder.make("tea", {"at": 12.5})
    for wrong in (lambda: Reminder.make("cake", {"at": moment}), lambda: Reminder.change("tea", {"at": moment})):
        with world.unchanged(), pytest.raises(ValueError, match="at must be in seconds since the epoch"):
            wrong()


def test_a_change_sets_and_unsets_fields_with_their_indexes(world: World) -> None:
    Reminder.make("tea", {"at": 12.5, "text": "now", "code": "x"})
    assert Reminder.change("tea", {"at": None, "text": "then", "colour": "red"})
    assert stored("tea") == {"text": "then", "colour": "red", "code": "x"}
    assert list(Reminder.collection(text="then")) == ["tea"]
    assert not world.client.exists(DUE)
    assert list(Reminder.collection(text="now")) == []


@pytest.mark.parametrize(
    ("expected", "is_done"),
    [({"at": "12.5"}, True), ({"at": 12.5, "code": None}, True), ({"at": "12"}, False), ({"code": "x"}, False)],
)
def test_a_change_is_made_if_all_is_as_expected(world: World, expected: dict[str, Any], is_done: bool) -> None:
    Reminder.make("tea", {"at": 12.5})
    assert Reminder.change("tea", {"text": "then"}, expected=expected) is is_done
    assert stored("tea").get("text") == ("then" if is_done else None)


class TestALease:
    @pytest.fixture(autouse=True)
    def _one_is_leased(self, world: World) -> None:
        Reminder.make("tea", {"at": 12.5})
        assert [pk for pk, _ in Reminder.lease_due("ann")] == ["tea"]

    @pytest.mark.parametrize("expected", [None, {"at": "7"}])
    def test_ends_with_the_change_of_its_owner_done_or_not(self, world: World, expected: Any) -> None:
        Reminder.change("tea", {"text": "then"}, expected=expected, owner="ann")
        assert not world.client.exists(LEASES)
        assert "leased_by" not in stored("tea")
        assert list(Reminder.collection(leased_by="ann")) == []

    def test_goes_on_if_the_record_was_changed_and_is_due_when_it_was(self, world: World) -> None:
        expected = {"at": "12.5", "text": "mine"}
        for call in (
            lambda: Reminder.change("tea", {"at": None, "text": "then"}, expected=expected, owner="ann"),
            lambda: Reminder.remove("tea", expected=expected, owner="ann"),
        ):
            with world.unchanged():
                assert not call()
        assert Reminder.lease_due("bob") == []

    @pytest.mark.parametrize("owner", ["", "bob"])
    def test_stays_with_a_change_of_another_process(self, world: World, owner: str) -> None:
        assert Reminder.change("tea", {"text": "then"}, owner=owner)
        assert world.client.zrange(LEASES, 0, -1) == ["tea"]
        assert list(Reminder.collection(leased_by="ann", text="then")) == ["tea"]


def test_none_is_made_by_a_change_to_what_is_gone(world: World) -> None:
    with world.unchanged(), pytest.raises(DoesNotExist):
        Reminder.change("tea", {"text": "then"})


def test_unique_fields_stay_so(world: World) -> None:
    Reminder.make("tea", {"code": "x"})
    Reminder.make("egg", {})
    for call in (lambda: Reminder.make("ham", {"code": "x"}), lambda: Reminder.change("egg", {"code": "x"})):
        with world.unchanged(), pytest.raises(UniquenessError, match=r'"x".*code'):
            call()
    assert Reminder.change("tea", {"code": "x", "text": "its own"})


@pytest.mark.leaves("I2")
def test_an_index_of_a_wrong_type_leaves_no_half_record(world: World) -> None:
    world.client.set(DUE, "foreign")
    before = world.contents()
    with pytest.raises(redis.ResponseError):
        Reminder.make("tea", {"at": 12.5, "text": "x"})
    assert {key: value for key, value in world.contents().items() if value} == before


def test_fields_are_those_of_the_model(world: World) -> None:
    with world.unchanged():
        with pytest.raises(AttributeError, match="colours"):
            Reminder.make("tea", {"colours": "red"})
        with pytest.raises(TypeError, match="'text'"):
            Reminder.make("tea", {"text": ["x"]})


class TestAModel:
    def test_needs_a_field_that_says_when_a_record_is_due(self) -> None:
        class Undue(TimedRecord):
            namespace = "lab"
            due_field = "at"
            at = fields.InstanceHashField(indexable=True)

        with pytest.raises(ConfigurationException, match=r"Undue.due_field.*'at' is not"):
            Undue.lease_due("ann")

    def test_has_no_field_that_a_script_cannot_write(self) -> None:
        class Detailed(TimedRecord):
            namespace = "lab"
            due_field = "at"
            at = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
            lines = fields.ListField()
            title = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex])

        with pytest.raises(ConfigurationException, match=r"unlike lines, title"):
            Detailed.make("x", {})
