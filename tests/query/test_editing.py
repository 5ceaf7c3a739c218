"""Changing a job before it is run, by its ident: in Python, and on the command line."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from cases import each
from limpyd import fields
from limpyd.indexes import NumberRangeIndex, TextRangeIndex
from reading import limpyd_jobs

from limpyd_jobs import Argument, Job, NotAudited, NotEditable, Queue, Retry, ValueField, Worker
from limpyd_jobs.query import JobFilter, edit_job, job_details
from limpyd_jobs.records.audit import last_entries

pytestmark = pytest.mark.usefixtures("redis_client")

PATH = f"{__name__}.Parcel"


class Parcel(Job):
    """With names of ours as fields of its own."""

    namespace = "editing"
    queue_name = "parcels"
    max_job_bytes = 1000

    to = Argument(indexable=True)
    size = Argument(int, default=1, indexable=True, indexes=[NumberRangeIndex])
    options = ValueField(default={})
    note = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex])
    edit = fields.InstanceHashField()
    lines = fields.ListField()

    def run(self, queue: Any) -> Any:
        return [self.arguments.to, self.arguments.size]


class Guarded(Parcel):
    """With a way of its own to be put in a queue."""

    def enqueue_or_delay(self, *arguments: Any, **options: Any) -> None:
        super().enqueue_or_delay(*arguments, **options)


class Van(Queue):
    namespace = "editing"


@pytest.fixture
def parcel() -> Parcel:
    return Parcel.add_job("a", to="ann")


def test_arguments_and_fields_change_with_their_indexes_and_the_code_gets_them(parcel: Parcel) -> None:
    found = edit_job(parcel.ident, {"to": "bob", "size": 7, "options": {"a": [1]}, "note": "fragile", "edit": "x"})
    assert [*map(tuple, found)] == [
        ("edit", None, "x"),
        ("note", None, "fragile"),
        ("options", "{}", '{"a":[1]}'),
        ("size", "1", "7"),
        ("to", "ann", "bob"),
    ]
    for asked in ({"to": "bob"}, {"size__gt": 6}, {"note__gte": "frag"}):
        assert list(Parcel.collection(**asked)) == [parcel.pk.get()]
    assert JobFilter(Parcel, to="ann").count().number == 0
    results = []
    Worker("parcels", callback=lambda job, queue: results.append(job.run(queue)), max_loops=1).run()
    assert results == [["bob", 7]]


def test_priority_and_delay_change_in_the_same_step_and_the_audit_names_what(parcel: Parcel) -> None:
    until = datetime(2099, 1, 1)
    edit_job(parcel.ident, {"to": "a secret", "job_timeout": 5, "note": None}, priority=3, delayed_until=until)
    assert parcel.hmget("priority", "status", "delayed_until", "to") == ["3", "d", f"{until}", "a secret"]
    assert Queue.get_queue("parcels", 3).delayed.zcard() == 1
    edit_job(parcel.ident, {"retry_policy": Retry(times=2)}, delayed_for=0)
    assert Queue.get_queue("parcels", 3).waiting.lmembers() == [parcel.ident]
    entries = [(entry["verb"], entry["filter"], entry["how"], entry["done"]) for entry in last_entries(client(), 5)]
    assert entries == [
        ("edit", parcel.ident, "delay=none retry_policy", "1"),
        ("edit", parcel.ident, "priority=3 delay=2099-01-01 00:00:00 job_timeout note to", "1"),
    ]
    assert edit_job(parcel.ident, {"to": "a secret"}, priority=3, delayed_for=0) == []
    assert len(last_entries(client(), 5)) == 2


def client() -> redis.Redis:
    return Parcel.get_connection()


def test_what_a_form_showed_must_be_so_still(parcel: Parcel) -> None:
    shown = job_details(parcel.ident).fields
    parcel.note.hset("other")
    with pytest.raises(NotEditable, match="its note changed meanwhile"):
        edit_job(parcel.ident, {"to": "bob"}, seen={**shown, "note": None})
    edit_job(parcel.ident, {"size": "12", "to": "bob"}, seen=shown, as_text=True)
    assert parcel.size.value() == 12
    with pytest.raises(ValueError, match="'size' of Parcel must be an integer, not 'many'"):
        edit_job(parcel.ident, {"size": "many"}, as_text=True)


def test_a_claimed_job_is_left_alone(parcel: Parcel) -> None:
    with parcel.claim("me"), pytest.raises(NotEditable, match="cannot be edited: me runs it"):
        edit_job(parcel.ident, {"to": "bob"})
    with pytest.raises(NotEditable, match="but is success"):
        edit_job(parcel.ident, {"to": "bob"})
    assert parcel.to.hget() == "ann"


@each(
    ("given", "error", "told"),
    [
        ({}, ValueError, "say what to change"),
        ({"fields": {"size": "7"}}, TypeError, "'size' of Parcel must be an integer, not '7'"),
        ({"fields": {"to": None}}, TypeError, "'to' of Parcel must be"),
        ({"fields": {"too": "x"}}, AttributeError, "has no attribute 'too': is 'to' meant?"),
        ({"fields": {"status": "s"}}, ValueError, "'status' of 'Parcel' cannot be given a value"),
        ({"fields": {"_claim_token": "x"}}, AttributeError, "has no attribute '_claim_token'"),
        ({"fields": {"lines": ["x"]}}, ValueError, "'lines' of Parcel cannot be edited"),
        ({"fields": {"note": "x" * 2000}}, ValueError, "has at most 1,000 bytes"),
        ({"priority": "high"}, ValueError, "A priority must be an integer, not 'high'"),
        ({"delayed_for": float("nan")}, ValueError, "Invalid delayed_for argument"),
        ({"delayed_for": 1, "delayed_until": datetime(2099, 1, 1)}, ValueError, "are exclusive"),
    ],
)
def test_wrong_values_are_refused(parcel: Parcel, given: dict[str, Any], error: type[Exception], told: str) -> None:
    before = client().hgetall("editing:parcel:1:hash")
    with pytest.raises(error) as raised:
        edit_job(parcel.ident, **given)
    assert told in str(raised.value)
    assert client().hgetall("editing:parcel:1:hash") == before


def test_a_class_with_its_own_way_to_a_queue_may_get_other_values_only() -> None:
    job = Guarded.add_job("b", to="ann")
    edit_job(job.ident, {"to": "bob"})
    assert job.to.hget() == "bob"
    with pytest.raises(ValueError, match="Guarded has its own way to a queue"):
        edit_job(job.ident, priority=2)


def test_a_job_of_another_queue_model_stays_there() -> None:
    job = Parcel.add_job("c", to="ann", queue_model=Van)
    edit_job(job.ident, priority=2)
    assert Van.get_queue("parcels", 2).waiting.lmembers() == [job.ident]
    assert len(Queue.collection()) == 0


def test_nothing_is_done_that_the_audit_cannot_have(parcel: Parcel) -> None:
    client().set("limpyd-jobs:audit", "of another program")
    with pytest.raises(NotAudited):
        edit_job(parcel.ident, {"to": "bob"})
    assert parcel.to.hget() == "ann"
    edit_job(parcel.ident, {"to": "bob"}, unaudited=True)
    assert parcel.to.hget() == "bob"


def command(*words: str) -> tuple[int, str, str]:
    return limpyd_jobs("jobs", "edit", *words)


def test_the_command_asks_tells_and_has_a_dry_run(parcel: Parcel) -> None:
    words = (parcel.ident, "priority=5", "delayed_for=10m", "size=3", "options=[1]")
    status, out, error = command(*words)
    assert (status, out) == (2, "")
    assert "delayed_until (none) → 2" in error
    assert "size 1 → 3, status w → d? Give --yes to do so" in error
    assert command(*words, "--dry-run")[1].splitlines()[0].split() == ["would", "be", "changed", "before", "after"]
    assert parcel.priority.hget() == "0"
    status, out, _ = command(*words, "--yes")
    assert (status, out.splitlines()[0].split()) == (0, ["changed", "before", "after"])
    assert parcel.hmget("priority", "status", "size", "options") == ["5", "d", "3", "[1]"]
    status, out, _ = command("identifier=a", "delayed_until=now", "--yes", "--json")
    assert {"ident": parcel.ident, "field": "status", "before": "d", "after": "w"} in json.loads(out)
    assert parcel.status.hget() == "w"


def test_the_command_says_why_it_cannot(parcel: Parcel) -> None:
    for words, told in {
        (): "edit needs an ident and what to change after it",
        (parcel.ident,): "edit needs an ident and what to change after it",
        (parcel.ident, "priority"): "'priority' is not a field: write it as field=value",
        (parcel.ident, "size=x"): "must be an integer, not 'x'",
        (parcel.ident, "priority=x"): "A priority must be an integer, not 'x'",
        (parcel.ident, "delayed_for=soon"): "'soon' is not a time span",
        (parcel.ident, "tries=x"): "tries must be a number, 0 or more, not 'x'",
        (parcel.ident, "delayed_for=-5m"): "delayed_for must be a positive integer, or one with a fraction, not '-5m'",
        (parcel.ident, "delayed_until=soon"): "'soon' is not a time",
        (parcel.ident, "identifier=b"): "cannot be given a value here",
        (f"{PATH}:99", "size=3"): f"There is no job {PATH}:99",
        ("no.such.Class:1", "size=3"): "no.such",
    }.items():
        status, out, error = command(*words, "--yes") if words else command()
        assert (status, out) == (2, "")
        assert told in error
    with parcel.claim("me"):
        status, out, error = command(parcel.ident, "size=3", "--yes")
    assert (status, out) == (1, "")
    assert "cannot be edited: me runs it" in error


def test_a_field_of_the_name_of_a_word_of_the_command_is_that_field() -> None:
    job = Shifted.add_job("d")
    assert command(job.ident, "delayed_for=work", "--yes")[0] == 0
    assert job.delayed_for.hget() == "work"
    assert edit_job(job.ident, delayed_for=timedelta(hours=1))[-1].after == "d"


class Shifted(Job):
    namespace = "editing"
    queue_name = "parcels"
    delayed_for = fields.InstanceHashField()
