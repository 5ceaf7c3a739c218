"""What is stored of a job in lists, sets and hashes of its own is shown, too."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from limpyd import fields
from reading import limpyd_jobs

from limpyd_jobs import Job
from limpyd_jobs.query import FieldBeside, job_details
from limpyd_jobs.records.known_classes import KnownClass


class Order(Job):
    namespace = "details"
    queue_name = "orders"
    articles = fields.ListField()
    tags = fields.SetField()
    prices = fields.SortedSetField()
    address = fields.HashField()
    note = fields.StringField()
    unset = fields.ListField()


def order(**given: Any) -> Order:
    """Add a job with some fields. limpyd writes a hash by a deprecated command, so that is written here."""
    address = given.pop("address", {})
    job = Order.add_job("order", **given)
    if address:
        job.connection.hset(job.address.key, mapping=address)
    return job


def test_fields_that_are_not_in_the_hash_are_read_of_each_kind(redis_client: redis.Redis) -> None:
    job = order(articles=["pen", "ink"], tags={"new"}, prices={"pen": 1.5}, address={"city": "Bern"}, note="soon")
    assert job_details(job.ident).beside == {
        "address": FieldBeside("hash", 1, {"city": "Bern"}),
        "articles": FieldBeside("list", 2, ["pen", "ink"]),
        "note": FieldBeside("string", 4, ["soon"]),
        "prices": FieldBeside("zset", 1, {"pen": "1.5"}),
        "tags": FieldBeside("set", 1, ["new"]),
    }


def test_a_process_that_does_not_import_the_class_knows_them() -> None:
    known = KnownClass.of(Order)
    assert KnownClass.parse(known.as_json()) == known
    assert known.keys == {"articles", "tags", "prices", "address", "note", "unset"}
    assert not KnownClass.of(Job).keys
    assert KnownClass.parse(KnownClass.of(Job).as_json()) == KnownClass.of(Job)


def test_only_some_entries_are_read(redis_client: redis.Redis) -> None:
    numbers = [f"{number}" for number in range(1000)]
    job = order(articles=numbers, tags={*numbers}, prices=dict.fromkeys(numbers, 1), note="x" * 200_000)
    redis_client.hset(f"details:order:{job.pk.get()}:address", mapping=dict.fromkeys(numbers, "x"))
    found = job_details(job.ident).beside
    assert {name: field.size for name, field in found.items() if name != "note"} == dict.fromkeys(
        ("address", "articles", "prices", "tags"), 1000
    )
    assert all(len(field.values) <= 50 for field in found.values())
    assert (found["note"].size, len(found["note"].values[0])) == (200_000, 100_000)  # type: ignore[index]


def test_the_command_prints_them_on_lines_of_their_own(redis_client: redis.Redis) -> None:
    job = order(articles=["pen", "in\nk\x1b"], address={"city": "Bern"}, note="soon")
    status, out, _ = limpyd_jobs("jobs", "show", job.ident)
    assert status == 0
    shown = [line.strip() for line in out.splitlines()]
    assert {"articles (list of 2 values):", "pen", "in\\nk\\x1b", "city: Bern", "note (string of 4 bytes):"} <= {*shown}
    redis_client.rpush(f"details:order:{job.pk.get()}:articles", *range(100))
    assert "… 52 more values" in limpyd_jobs("jobs", "show", job.ident)[1]
    [read] = json.loads(limpyd_jobs("jobs", "show", job.ident, "--json")[1])
    assert read["beside"]["address"] == {"kind": "hash", "size": 1, "values": {"city": "Bern"}}


@pytest.mark.parametrize("stored", [b"\xff\xfe", b""])
def test_whatever_is_stored_there_is_read(redis_client: redis.Redis, stored: bytes) -> None:
    job = order()
    prefix = f"details:order:{job.pk.get()}"
    redis_client.xadd(f"{prefix}:tags", {"a": "stream"})
    redis_client.rpush(f"{prefix}:note", stored, "and more")
    redis_client.hset(f"{prefix}:address", mapping={stored: stored})
    found = job_details(job.ident).beside
    assert {name: field.kind for name, field in found.items()} == {"note": "list", "address": "hash"}
    assert limpyd_jobs("jobs", "show", job.ident)[0] == 0
