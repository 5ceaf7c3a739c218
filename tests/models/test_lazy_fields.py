"""The fields of an instance are made when they are asked for; whoever uses the instance sees no difference."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from limpyd import fields
from limpyd.model import RedisModel

from limpyd_jobs import Job
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.records.lazy_fields import LazyModel, pk_of

pytestmark = pytest.mark.usefixtures("redis_client")


class Eager(RedisModel):
    database = BaseJobsModel.database
    namespace = "eager"
    name = fields.InstanceHashField(indexable=True)
    lines = fields.ListField()


class Lazy(LazyModel):
    database = BaseJobsModel.database
    namespace = "lazy"
    name = fields.InstanceHashField(indexable=True)
    lines = fields.ListField()


class Numbered(LazyModel):
    database = BaseJobsModel.database
    namespace = "numbered"
    number = fields.PKField()
    name = fields.InstanceHashField()


class Answering(LazyModel):
    database = BaseJobsModel.database
    namespace = "answering"
    name = fields.InstanceHashField()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("no_"):
            return name
        return super().__getattr__(name)


class WithMethod(LazyModel):
    abstract = True

    def name(self) -> str:
        return "a method"


class Hiding(WithMethod):
    database = BaseJobsModel.database
    namespace = "hiding"
    name = fields.InstanceHashField()


def made(record: RedisModel) -> list[str]:
    """The fields of an instance that were made so far."""
    return sorted(set(vars(record)) & {"pk", *record._fields})


def test_a_field_is_made_once_and_when_it_is_asked_for() -> None:
    record = Lazy()
    assert made(record) == []
    field = record.name
    assert made(record) == ["name"]
    assert record.name is field
    assert field._instance is record


def test_the_fields_are_those_that_limpyd_makes() -> None:
    lazy, eager = Lazy(name="a", lines=["b"]), Eager(name="a", lines=["b"])
    assert [lazy.get_field(name).name for name in lazy._fields] == [
        eager.get_field(name).name for name in eager._fields
    ]
    for name in ("pk", "name", "lines"):
        assert type(getattr(lazy, name)) is type(getattr(eager, name))
        assert getattr(lazy, name).key == getattr(eager, name).key.replace("eager", "lazy")
    assert lazy.name.hget() == "a"
    assert lazy.lines.lrange(0, -1) == ["b"]
    assert Lazy.collection(name="a") == {pk_of(lazy)}


def test_an_instance_has_its_fields_and_nothing_else() -> None:
    record = Lazy()
    assert hasattr(record, "name")
    assert hasattr(record, "pk")
    assert not hasattr(record, "nonsense")
    with pytest.raises(AttributeError, match="'Lazy' object has no attribute 'nonsense'"):
        record.nonsense  # noqa: B018


def test_the_pk_may_have_a_name_of_its_own() -> None:
    record = Numbered(number=7, name="a")
    again = Numbered(7)
    assert (record.pk.get(), record.number.get(), again.pk.get()) == ("7", "7", "7")
    assert again.pk is again.number


def test_a_class_may_answer_to_other_names_itself() -> None:
    record = Answering(name="a")
    assert record.no_field == "no_field"
    assert record.name.hget() == "a"


def test_a_field_hides_a_method_of_its_name() -> None:
    assert Hiding(name="a").name.hget() == "a"
    assert isinstance(Hiding().name, fields.InstanceHashField)


def test_a_copy_has_the_record_of_its_original() -> None:
    record = Job.add_job("a", "mail")
    again = copy(record)
    assert again.pk.get() == record.pk.get()
    assert again.identifier.hget() == "a"
