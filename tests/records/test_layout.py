"""What a script is told of a model: its keys, and the fields it may write."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from cases import each
from limpyd import fields
from limpyd.contrib.indexes import EqualIndexWith, SimpleDateTimeIndex
from limpyd.indexes import EqualIndex, NumberRangeIndex, TextRangeIndex
from limpyd_extensions.related import FKInstanceHashField

from limpyd_jobs import Argument, ConfigurationException, DateTimeRangeIndex, Error, Job, Queue, ValueField
from limpyd_jobs.indexes import special_indexes
from limpyd_jobs.records.layout import layout_of

HARD_TEXT = 'é"\\\n\0😀'


class OwnField(fields.InstanceHashField):
    pass


class Ticket(Job):
    namespace = "layout"
    start = fields.InstanceHashField(indexable=True)
    colour = fields.InstanceHashField(indexable=True, default="blue")
    size = fields.InstanceHashField(default=5)
    ratio = fields.InstanceHashField(default=1.5)
    note = fields.InstanceHashField(default=HARD_TEXT)
    code = fields.InstanceHashField(indexable=True, unique=True)
    rank = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex], default=1)
    weight = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, NumberRangeIndex])
    heaviest = fields.InstanceHashField(unique=True, indexes=[EqualIndex, NumberRangeIndex])
    graded = fields.InstanceHashField(
        indexable=True, indexes=[NumberRangeIndex.configure(transform=lambda value: len(value))]
    )
    only = fields.InstanceHashField(indexable=True, unique=True, indexes=[TextRangeIndex])
    when = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, SimpleDateTimeIndex])
    closed = fields.InstanceHashField(indexable=True, indexes=[DateTimeRangeIndex])
    opened = ValueField(datetime)
    side = fields.InstanceHashField(indexable=True)
    pair = fields.InstanceHashField(indexable=True, indexes=[EqualIndexWith.configure(other_fields=["side"])])
    keyed = fields.InstanceHashField(indexable=True, indexes=[EqualIndex.configure(key="k", prefix="p")])
    lower = fields.InstanceHashField(
        indexable=True, indexes=[EqualIndex.configure(prefix="low", transform=lambda value: value.lower())]
    )
    own = OwnField(indexable=True)
    parent = FKInstanceHashField("Ticket")
    label = fields.StringField(default="none")
    lines = fields.ListField()
    tags = fields.SetField(indexable=True)


def described(model: Any) -> dict[str, Any]:
    layout = layout_of(model)
    assert json.loads(layout.json) == {name: value for name, value in layout.description.items() if value}
    return dict(layout.description)


class TestTheDescription:
    def test_of_the_documented_job_has_its_name_path_and_indexes(self) -> None:
        assert described(Job) == {
            "name": "jobs:job",
            "path": "limpyd_jobs.models.Job",
            "indexes": {
                "identifier": ["jobs:job:identifier:"],
                "status": ["jobs:job:status:"],
                "priority": ["jobs:job:priority:"],
                "queued": ["jobs:job:queued:"],
            },
            "ranges": {},
            "dates": {},
            "special": {},
            "unique": {},
            "defaults": {"priority": "0"},
            "keys": [],
            "leases": "",
            "tells": False,
            "history": 0,
            "arguments": [],
            "limits": {},
        }

    def test_of_the_documented_queue(self) -> None:
        assert described(Queue) == {
            "name": "jobs:queue",
            "path": "",
            "indexes": {"name": ["jobs:queue:name:"], "priority": ["jobs:queue:priority:"]},
            "ranges": {},
            "dates": {},
            "special": {},
            "unique": {},
            "defaults": {"priority": "0"},
            "keys": [
                *("waiting", "success", "errors", "delayed", "_running", "_quarantine", "_deferrals"),
                *("_parked", "_turns", "_later"),
            ],
            "leases": "",
            "tells": False,
            "history": 0,
            "arguments": [],
            "limits": {},
        }

    def test_of_the_documented_error_has_a_date_that_limpyd_must_index(self) -> None:
        assert described(Error)["special"] == {"date_time": True}
        assert layout_of(Error).special == {"date_time"}

    def test_of_a_subclass_is_that_of_its_own_keys(self) -> None:
        description = described(Ticket)
        assert description["name"] == "layout:ticket"
        assert description["path"] == f"{__name__}.Ticket"
        assert description["indexes"]["start"] == ["layout:ticket:start:"]
        assert description["indexes"]["identifier"] == ["layout:ticket:identifier:"]

    def test_has_the_arguments_in_their_order(self) -> None:
        class Parcel(Job):
            namespace = "layout"
            weight = Argument(int)
            to = Argument()

        assert described(Parcel)["arguments"] == ["weight", "to"]

    def test_has_the_defaults_as_they_are_stored(self) -> None:
        defaults = {"priority": "0", "colour": "blue", "size": "5", "ratio": "1.5", "note": HARD_TEXT}
        assert described(Ticket)["defaults"] == defaults

    def test_has_every_plain_index_under_its_prefix(self) -> None:
        indexes = described(Ticket)["indexes"]
        assert indexes["when"] == ["layout:ticket:when:"]
        assert indexes["keyed"] == ["layout:ticket:keyed:p:k:"]
        assert indexes["rank"] == indexes["only"] == indexes["pair"] == indexes["lower"] == []

    def test_has_every_range_of_numbers_under_its_key(self) -> None:
        assert described(Ticket)["ranges"]["weight"] == ["layout:ticket:weight:number-range"]
        assert described(Ticket)["indexes"]["weight"] == ["layout:ticket:weight:"]

    def test_has_every_range_of_dates_under_its_key(self) -> None:
        assert described(Ticket)["dates"] == {"layout:ticket:closed:datetime-range": True}
        assert described(Ticket)["ranges"]["closed"] == ["layout:ticket:closed:datetime-range"]
        assert layout_of(Ticket).dates == {"closed", "opened"}

    def test_has_what_limpyd_must_index(self) -> None:
        special = described(Ticket)["special"].keys()
        assert special >= {"rank", "only", "when", "pair", "side", "lower", "heaviest", "graded"}
        assert not special & {"keyed", "weight"}

    def test_has_the_unique_fields_a_script_can_check(self) -> None:
        assert described(Ticket)["unique"] == {"code": "layout:ticket:code:"}

    def test_has_the_fields_with_keys_of_their_own(self) -> None:
        assert described(Ticket)["keys"] == ["label", "lines", "tags"]

    def test_has_no_pk_and_no_field_of_another_type(self) -> None:
        named = {name for part in described(Ticket).values() if isinstance(part, dict) for name in part}
        assert not named & {"pk", "label", "lines", "tags"}


class TestTheFieldsAScriptWrites:
    def test_are_the_plain_ones(self) -> None:
        layout = layout_of(Ticket)
        assert layout.plain >= {"identifier", "start", "colour", "size", "note", "code", "keyed", "weight"}
        assert not layout.plain & {"rank", "only", "when", "lower", "own", "parent", "label", "lines", "tags", "pk"}

    def test_of_a_queue_or_an_error_are_also_those_that_limpyd_indexes_afterwards(self) -> None:
        layout = layout_of(Ticket)
        assert layout.special >= {"rank", "when", "lower"}
        assert "only" not in layout.special, "a unique field must be checked by its index before"

    @each("model", [Job, Queue, Error])
    def test_are_all_of_a_documented_model(self, model: Any) -> None:
        layout = layout_of(model)
        assert layout.plain | layout.special >= {*model._instancehash_fields}
        assert layout.other_defaults == {}

    def test_do_not_do_for_a_record_with_other_defaults_or_special_fields(self) -> None:
        assert layout_of(Ticket).other_defaults == {"rank": 1, "label": "none"}
        assert layout_of(Ticket).needs_limpyd
        assert not layout_of(Job).needs_limpyd
        assert not layout_of(Queue).needs_limpyd


class TestDeleting:
    def test_is_for_a_script_if_all_fields_are_of_limpyds_types(self) -> None:
        class Plain(Job):
            namespace = "layout"
            rank = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
            tags = fields.SetField(indexable=True)
            lines = fields.ListField()
            note = OwnField()

        assert layout_of(Plain).erasable
        assert layout_of(Plain).outside == ("tags",)
        assert all(layout_of(model).erasable for model in (Job, Error))

    def test_is_for_limpyd_if_a_field_has_its_own_ways(self) -> None:
        class OwnList(fields.ListField):
            def delete(self) -> None:
                super().delete()

        class Indexed(Job):
            namespace = "layout"
            own = OwnField(indexable=True)

        class Listed(Job):
            namespace = "layout"
            lines = OwnList()

        assert not layout_of(Indexed).erasable
        assert not layout_of(Listed).erasable

    def test_is_for_a_model_that_says_how(self) -> None:
        class Guarded(Job):
            namespace = "layout"

            def delete(self) -> None:
                super().delete()

        assert not layout_of(Guarded).erasable


class TestSplit:
    def test_divides_the_fields_of_a_new_record_with_its_defaults(self) -> None:
        layout = layout_of(Ticket)
        given = {"colour": "red", "size": 7, "lines": ["x"], "rank": 3}
        assert layout.split(given, layout.plain) == (
            {"colour": "red", "size": "7"},
            {"rank": 3, "label": "none", "lines": ["x"]},
        )

    def test_leaves_to_the_script_what_it_may_write(self) -> None:
        layout = layout_of(Ticket)
        by_script, by_limpyd = layout.split({"when": "2026-11-21 09:44:00"}, layout.plain | layout.special)
        assert by_script == {"when": "2026-11-21 09:44:00", "rank": "1"}
        assert by_limpyd == {"label": "none"}

    def test_refuses_a_value_that_cannot_be_stored(self) -> None:
        layout = layout_of(Ticket)
        with pytest.raises(TypeError, match="'colour'"):
            layout.split({"colour": None}, layout.plain)


def test_a_layout_is_made_once() -> None:
    assert layout_of(Ticket) is layout_of(Ticket)


def test_special_indexes_are_all_but_the_plain_ones() -> None:
    assert [type(index).__name__ for index in special_indexes(Ticket.get_field("when"))] == ["SimpleDateTimeIndex"]
    assert special_indexes(Ticket.get_field("start")) == []
    assert special_indexes(Ticket.get_field("size")) == []


def test_a_field_by_which_records_are_found_must_have_a_plain_index() -> None:
    class Unusable(Queue):
        namespace = "layout"
        name = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex])

    with pytest.raises(ConfigurationException, match=r"'name' of Unusable"):
        layout_of(Unusable)
