"""A word alone is looked for as an ident, as an identifier and in the indexed arguments of all classes."""

from __future__ import annotations

from typing import Any

import pytest
from limpyd import fields

from limpyd_jobs import Job
from limpyd_jobs.query import JobFilter
from limpyd_jobs.views.hints import unknown_names

pytestmark = pytest.mark.usefixtures("redis_client")


class Parcel(Job):
    namespace = "words-alone"
    queue_name = "parcels"
    to = fields.InstanceHashField(indexable=True)
    sender = fields.InstanceHashField(indexable=True)
    note = fields.InstanceHashField()

    def run(self, queue: Any) -> None: ...


class Postcard(Job):
    namespace = "words-alone"
    queue_name = "postcards"
    to = fields.InstanceHashField(indexable=True)

    def run(self, queue: Any) -> None: ...


def found(*words: str) -> list[str]:
    return sorted(job.identifier or "" for job in JobFilter(*words))


def test_a_word_finds_jobs_by_ident_identifier_and_indexed_arguments() -> None:
    parcel = Parcel.add_job("order:1", to="ann@example.com", sender="bob@example.com")
    Parcel.add_job("order:2", to="carl@example.com", sender="ann@example.com")
    Parcel.add_job("order:3", note="ann@example.com")
    Postcard.add_job("ann@example.com", to="dora@example.com")
    Postcard.add_job("card", to="ann@example.com")
    assert found("ann@example.com") == ["ann@example.com", "card", "order:1", "order:2"]
    assert JobFilter("ann@example.com").count() == (4, True)
    assert found("order:1") == found(parcel.ident) == found(f"Parcel:{parcel.pk.get()}") == ["order:1"]
    assert found("ann@example.com", "bob@example.com") == ["order:1"]
    assert found("ann@example.com", "class=Postcard") == ["ann@example.com", "card"]
    assert found("ann@example.com", "status=error") == found("nobody") == found("waiting") == []
    assert JobFilter("ann@example.com").facets("queue").counts == {"parcels": 2, "postcards": 2}


def test_a_verb_for_a_word_changes_what_it_finds_and_nothing_else() -> None:
    Parcel.add_job("one", to="ann")
    Parcel.add_job("two", sender="ann")
    Parcel.add_job("three", to="bob")
    assert JobFilter("ann").cancel_all().done == 2
    assert found("status=waiting") == ["three"]


def test_a_word_means_no_field_that_is_hidden() -> None:
    Parcel.add_job("one", to="ann")
    asked = JobFilter("ann")
    asked.is_hidden = lambda name: name == "to"
    assert asked.count() == (0, True)


def test_a_word_that_finds_nothing_says_what_may_be_meant() -> None:
    Parcel.add_job("one")
    (queue,), (status,), (name,), (other,) = (
        [*unknown_names(JobFilter(word).conditions)] for word in ("parcels", "error", "Parcel", "nobody")
    )
    assert queue.endswith("an indexed argument: is queue=parcels meant?")
    assert ": is status=error " in status  # or a class that another test made
    assert name.endswith(": is class=Parcel meant?")
    assert other == "no job has nobody as its ident, its identifier or an indexed argument"
