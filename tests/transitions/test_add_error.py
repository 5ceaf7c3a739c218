"""add_error: a failure is recorded."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import redis
from cases import each
from limpyd.exceptions import UniquenessError
from limpyd.fields import ListField
from worlds import HARD_TEXT, IDENTIFIERS, Complaint, Error, Mishap, World, without_counters

from limpyd_jobs.records import records


def add_error(model: Any, **fields: Any) -> str:
    return records.add_error(model, fields)


def test_the_whole_effect_as_it_is_stored_by_version_2(world: World) -> None:
    fields = {
        "job_model_repr": "limpyd_jobs.models.Job",
        "job_pk": "12",
        "identifier": "job:1",
        "queue_name": "q",
        "date_time": "2026-11-21 09:50:20.000125",
        "date": "2026-11-21",
        "time": "09:50:20.000125",
        "type": "ValueError",
        "code": "5",
        "message": HARD_TEXT,
        "traceback": "Traceback…\n",
    }
    assert add_error(Error, **fields) == "1"
    assert world.contents() == {
        "jobs:error:max_pk": "1",
        "jobs:error:collection": {"1"},
        "jobs:error:1:hash": fields,
        "jobs:error:job_model_repr:limpyd_jobs.models.Job": {"1"},
        "jobs:error:job_pk:12": {"1"},
        "jobs:error:identifier:job:1": {"1"},
        "jobs:error:queue_name:q": {"1"},
        "jobs:error:date_time:full": {"2026-11-21 09:50:20:TEXT-RANGE-SEPARATOR:1": 0.0},
        "jobs:error:date_time:date:date": {"2026-11-21:TEXT-RANGE-SEPARATOR:1": 0.0},
        "jobs:error:date_time:time:time": {"09:50:20:TEXT-RANGE-SEPARATOR:1": 0.0},
        "jobs:error:date:2026-11-21": {"1"},
        "jobs:error:type:ValueError": {"1"},
        "jobs:error:code:5": {"1"},
    }


def test_each_is_another_error(world: World) -> None:
    assert [add_error(Error, identifier="a") for _ in range(3)] == ["1", "2", "3"]
    assert set(Error.collection(identifier="a")) == {"1", "2", "3"}


def test_nothing_but_the_fields_given_and_the_defaults_is_stored(redis_client: redis.Redis) -> None:
    assert add_error(Complaint) == "1"
    assert redis_client.hgetall("shop:complaint:1:hash") == {"mood": "angry"}


def test_fields_of_any_type_are_stored(redis_client: redis.Redis) -> None:
    pk = add_error(Complaint, mood="sad", words=["why", "oh"])
    assert Complaint.get(pk).words.lmembers() == ["why", "oh"]
    assert list(Complaint.collection(mood="sad")) == [pk]


@each("identifier", IDENTIFIERS.values())
@each("model", [Error, Complaint, Mishap])
def test_any_identifier_is_kept(world: World, model: Any, identifier: str) -> None:
    pk = add_error(model, identifier=identifier, message=identifier)
    assert model.get(pk).identifier.hget() == identifier
    assert list(model.collection(identifier=identifier)) == [pk]


def test_an_index_that_a_script_cannot_maintain_is_maintained(world: World) -> None:
    first, second = (add_error(Mishap, code=code) for code in (404, 500))
    assert list(Mishap.collection(code__gt=404)) == [second]
    assert list(Mishap.collection(code__lt=500)) == [first]


def test_a_unique_field_stays_so_and_nothing_is_left_of_the_refused_error(world: World) -> None:
    add_error(Mishap, case="x")
    before = world.contents()
    with pytest.raises(UniquenessError, match=r'"x".*case'):
        add_error(Mishap, case="x", message="again")
    assert without_counters(world.contents()) == without_counters(before)


class TestAgain:
    """After a call whose reply was lost."""

    FIELDS: ClassVar[dict[str, Any]] = {"job_pk": "12", "date_time": "2026-11-21 09:50:20.000125", "message": "no"}

    @pytest.mark.parametrize("model", [Error, Complaint, Mishap])
    def test_the_error_that_was_made_is_found(self, world: World, model: Any) -> None:
        pk = add_error(model, **self.FIELDS)
        before = world.contents()
        assert records.add_error(model, self.FIELDS, again=True) == pk
        assert without_counters(world.contents()) == without_counters(before)

    @pytest.mark.parametrize("model", [Error, Complaint, Mishap])
    def test_one_that_was_not_made_is_made(self, world: World, model: Any) -> None:
        add_error(model, **{**self.FIELDS, "date_time": "2026-11-21 09:50:20.000126"})
        assert records.add_error(model, self.FIELDS, again=True) == "2"
        assert model.get(2).date_time.hget() == self.FIELDS["date_time"]

    def test_what_the_caller_had_to_write_beside_the_script_is_made_good(self, world: World) -> None:
        fields = {**self.FIELDS, "case": "x", "code": 404, "words": ["why", "oh"]}

        class Case(Mishap):
            words = ListField(indexable=True)

        pk = add_error(Case, **fields)
        whole = world.contents()
        for key in world.client.scan_iter("lab:case:*"):
            if ":words" in key or ":date_time:" in key:
                world.client.delete(key)
        world.client.rpush(f"lab:case:{pk}:words", "why")
        assert records.add_error(Case, fields, again=True) == pk
        assert without_counters(world.contents()) == without_counters(whole)


@pytest.mark.leaves("I2")
def test_a_key_of_a_wrong_type_leaves_no_half_error(world: World) -> None:
    world.client.set("jobs:error:type:ValueError", "of a wrong type")
    before = world.contents()
    with pytest.raises(redis.ResponseError):
        add_error(Error, identifier="a", type="ValueError")
    assert without_counters(world.contents()) == before


def test_a_lost_counter_overwrites_no_error(world: World) -> None:
    for message in "ab":
        add_error(Error, message=message)
    world.client.delete("jobs:error:max_pk")
    assert add_error(Error, message="c") == "3"
    assert [Error.get(pk).message.hget() for pk in (1, 2, 3)] == ["a", "b", "c"]
